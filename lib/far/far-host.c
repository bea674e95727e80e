/* SPDX-License-Identifier: MIT */
/* Answers visitors: LOOK and VISIT.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/far/far.h"

/* Shows a visitor more of the files, as much as the channel's queue may hold. */
void hoist__far_show_more(struct hoist__far *far, struct hoist__far_peer *peer)
{
	struct hoist__wire_message m;
	int more = 1;
	while (more == 1 && !peer->broken &&
	       hoist__channel_queued(peer->channel) < HOIST__FAR_TELL_BYTES) {
		more = hoist__tour_next(&peer->tour, far->load->checkpoint, far->identity,
					far->piece, &m);
		if (more == 1)
			hoist__far_say(far, peer, &m);
	}
	if (more < 1)
		hoist__tour_end(&peer->tour);
	peer->broken = peer->broken || more < 0;
}

/* A visitor is told of members that have all files. */
void hoist__far_tell_roster(struct hoist__far *far, struct hoist__far_peer *to)
{
	struct hoist__wire_message m = {.kind = HOIST__WIRE_ROSTER};
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		const struct hoist__far_peer *peer = &far->peers[i];
		if (peer == to || !peer->has_hello || (to->visits && !peer->shows))
			continue;
		m.id = peer->id;
		m.rank = peer->rank;
		m.cell = peer->first_cell;
		m.flag = false;
		(void)snprintf(m.text, sizeof m.text, "%s", peer->at.text);
		hoist__far_say(far, to, &m);
	}
	for (unsigned i = 0; i < far->n_known; i++) {
		if (!far->known[i].gone || !far->known[i].met)
			continue;
		m.id = far->known[i].id;
		m.rank = far->known[i].rank;
		m.cell = far->known[i].first_cell;
		m.flag = true;
		m.text[0] = '\0';
		hoist__far_say(far, to, &m);
	}
	m.kind = HOIST__WIRE_ROSTER_END;
	hoist__far_say(far, to, &m);
}

/* Tells of each member. */
static int hear_look(struct hoist__far *far, struct hoist__far_peer *to,
		     const struct hoist__wire_message *look)
{
	const struct hoist__wire_message bye = {.kind = HOIST__WIRE_BYE};
	struct hoist__wire_message m = {
		.kind = HOIST__WIRE_MEMBER,
		.id = far->id,
		.rank = far->rank,
		.n_ranks = far->n_ranks,
		.flag = far->reads,
		.n_cells = far->cells.n,
		.done = far->beat_done,
		.begun = far->state == HOIST__FAR_BEGUN,
	};
	to->visits = true;
	if (strcmp(look->text, far->name) != 0)
		return hoist__far_send_away(far, to,
					    hoist__far_fail_name(far, far->name, look->text));
	memcpy(m.counts, far->beat_counts, sizeof m.counts);
	if (far->is_door) /* else the visitor knows the address that it has reached */
		(void)snprintf(m.text, sizeof m.text, "%s", far->door_text);
	hoist__far_say(far, to, &m);
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		const struct hoist__far_peer *peer = &far->peers[i];
		if (!peer->has_hello)
			continue;
		m.id = peer->id;
		m.rank = peer->rank;
		m.flag = peer->reads;
		m.done = peer->done;
		m.begun = peer->begun;
		memcpy(m.counts, peer->counts, sizeof m.counts);
		(void)snprintf(m.text, sizeof m.text, "%s", peer->at.text);
		hoist__far_say(far, to, &m);
	}
	hoist__far_say(far, to, &bye);
	return 0;
}

/* Shows the checkpoint, or names the other members if this one lacks files. */
static int hear_visit(struct hoist__far *far, struct hoist__far_peer *peer,
		      const struct hoist__wire_message *m, uint64_t now)
{
	int err = peer->visits ? hoist__fail(-EBADMSG, "a second visit") : 0;
	peer->visits = true;
	peer->heard_at = now + HOIST__FAR_TOUR_NS;
	if (err == 0 && strcmp(m->text, far->name) != 0)
		err = hoist__far_fail_name(far, far->name, m->text);
	else if (err == 0 && far->load->checkpoint->n_absent == 0)
		err = hoist__tour_begin(&peer->tour, far->load->checkpoint);
	else if (err == 0) {
		hoist__far_tell_roster(far, peer);
		err = hoist__fail(-ENODATA, "this member lacks files, too");
	}
	return err < 0 ? hoist__far_send_away(far, peer, err) : 0;
}

int hoist__far_hear_visitor(struct hoist__far *far, struct hoist__far_peer *peer,
			    const struct hoist__wire_message *m, uint64_t now)
{
	return m->kind == HOIST__WIRE_LOOK ? hear_look(far, peer, m)
					   : hear_visit(far, peer, m, now);
}
