/* SPDX-License-Identifier: MIT */
/* A visitor's questions: LOOK and VISIT.
 * The contracts are in lib/far/far.h and hoist/group.h. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "lib/far/far.h"

#define LOOK_MS 50 /* how often the timeout is looked at */

static int talk(struct hoist__far *far, struct hoist__channel *channel, enum hoist__wire_kind kind,
		int (*take)(void *context, const struct hoist__wire_message *message),
		void *context, uint64_t end)
{
	struct hoist__wire_message m = {.kind = kind};
	struct hoist__frame frame;
	bool asked = false;
	int err = 0;
	uint64_t greeted_by = hoist__now_ns() + HOIST__FAR_SILENCE_NS;
	(void)snprintf(m.text, sizeof m.text, "%s", far->name);
	while (err == 0) {
		short events = hoist__channel_blocked(channel) ? POLLIN | POLLOUT : POLLIN;
		struct pollfd fd = {.fd = hoist__channel_fd(channel), .events = events};
		(void)poll(&fd, 1, LOOK_MS);
		uint64_t now = hoist__now_ns();
		if (now > end || (now > greeted_by && !hoist__channel_proved(channel)))
			return hoist__fail(-ETIMEDOUT, "the group at %s does not answer",
					   far->door_text);
		err = hoist__channel_work(channel);
		if (err == 0 && !asked && hoist__channel_proved(channel)) {
			size_t n = hoist__wire_pack(&m, far->frame);
			err = hoist__channel_send(channel, (uint16_t)m.kind, far->frame, n);
			asked = true;
		}
		while (err == 0 && hoist__channel_next(channel, &frame)) {
			struct hoist__wire_message got;
			err = hoist__wire_unpack(&frame, &got);
			if (err == 0)
				err = take(context, &got);
		}
	}
	return err;
}

int hoist__far_ask(struct hoist__far *far, const struct hoist__address *at,
		   enum hoist__wire_kind kind,
		   int (*take)(void *context, const struct hoist__wire_message *message),
		   void *context, uint64_t end)
{
	struct hoist__channel *channel;
	if (far->secret.local && !hoist__address_loopback(at))
		return hoist__fail(-ENODATA, "%s is on another machine", at->text);
	int err = hoist__channel_connect(at, &far->secret, &channel);
	if (err < 0)
		return err;
	err = talk(far, channel, kind, take, context, end);
	hoist__channel_close(channel);
	return err;
}

/* --- hoist_group_look() --- */

struct looking {
	int (*each)(void *context, const hoist_group_member *member);
	void *context;
	const struct hoist__address *at; /* of the member that is asked */
	bool answered;
};

static int take_member(void *context, const struct hoist__wire_message *m)
{
	struct looking *looking = context;
	if (m->kind == HOIST__WIRE_BYE)
		return m->err < 0 ? hoist__fail(m->err, "%s", m->text) : 1;
	if (m->kind != HOIST__WIRE_MEMBER)
		return 0;
	looking->answered = true;
	const hoist_group_member member = {
		.size = sizeof member,
		.id = m->id,
		.address = m->text[0] != '\0' ? m->text : looking->at->text,
		.has_files = m->flag,
		.begun = m->begun,
		.bytes = m->n_cells * HOIST__CELL_BYTES,
		.done_bytes = m->done * HOIST__CELL_BYTES,
		.storage_bytes = m->counts[0],
		.received_bytes = m->counts[1],
		.sent_bytes = m->counts[2],
		.rank = m->rank,
		.n_ranks = m->n_ranks,
	};
	return looking->each(looking->context, &member);
}

int hoist__far_look(const hoist_group *group,
		    int (*each)(void *context, const hoist_group_member *member), void *context)
{
	struct looking looking = {.each = each, .context = context};
	struct hoist__load_source *source = NULL;
	int err = hoist__far_make(group, &source);
	if (err < 0)
		return err;
	struct hoist__far *far = hoist__far_of(source);
	uint64_t end = hoist__now_ns() + far->timeout_ns;
	hoist__far_find_doors(far);
	err = far->n_doors > 0 ? -ECONNREFUSED
			       : hoist__fail(-ECONNREFUSED, "no member of the group is in %.200s",
					     far->door_text);
	/* In a folder, an address may be of another group now. */
	for (unsigned i = 0; i < far->n_doors && err < 0 && !looking.answered &&
			     (err != -EACCES || far->folder_fd >= 0);
	     i++) {
		looking.at = &far->door[i];
		err = hoist__far_ask(far, looking.at, HOIST__WIRE_LOOK, take_member, &looking, end);
	}
	source->ops->destroy(source);
	if (err == -EADDRINUSE) /* a group of another name */
		return hoist__fail_in(-EINVAL, "looking at the group");
	return err < 0 ? err : 0;
}
