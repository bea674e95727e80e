/* SPDX-License-Identifier: MIT */
/* The report of a load: counts, members whose bytes were wrong, and the way of the bytes.
 * The contracts are in lib/far/far.h and hoist/group.h. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "lib/core/options.h"
#include "lib/far/far.h"

/* Adds to a text, cut at its end. */
HOIST__PRINTF(3, 4)
static void append(char *text, size_t bytes, const char *format, ...)
{
	size_t used = strlen(text);
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(text + used, bytes - used, format, arguments);
	va_end(arguments);
}

void hoist__far_add_note(struct hoist__far *far, const char *format, ...)
{
	char text[sizeof far->note];
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	append(far->note, sizeof far->note, "%s%s", far->note[0] != '\0' ? "; " : "", text);
}

/* --- damage --- */

void hoist__far_note_damage(struct hoist__far *far, uint64_t id, const char *at, bool seen)
{
	struct hoist__far_account *account = &far->account;
	struct hoist__far_damage *damage = account->damaged;
	far->report.n_damaged += seen;
	while (damage < account->damaged + account->n_members && damage->id != id)
		damage++;
	if (damage == account->damaged + HOIST__FAR_DAMAGED)
		return;
	if (damage == account->damaged + account->n_members) {
		*damage = (struct hoist__far_damage){.id = id};
		(void)snprintf(damage->at, sizeof damage->at, "%s", at);
		account->n_members++;
	}
	damage->n_seen += seen;
}

static void write_damage(struct hoist__far *far)
{
	char *text = far->account.damage;
	size_t bytes = sizeof far->account.damage;
	text[0] = '\0';
	for (unsigned i = 0; i < far->account.n_members; i++) {
		const struct hoist__far_damage *damage = &far->account.damaged[i];
		append(text, bytes, "%s%s", i > 0 ? "; " : "",
		       damage->n_seen > 0 ? "" : "another member says that ");
		if (damage->id == far->id)
			append(text, bytes, "this member's bytes were wrong");
		else
			append(text, bytes, "the bytes of the member at %s were wrong", damage->at);
		if (damage->n_seen > 0)
			append(text, bytes, " %u time%s", damage->n_seen,
			       damage->n_seen == 1 ? "" : "s");
	}
	if (text[0] != '\0')
		append(text, bytes,
		       "; test the memory and the network of that machine, and its files by "
		       "`hoist load --check-digests`");
}

/* --- the way --- */

void hoist__far_note_way(struct hoist__far *far, struct hoist__far_peer *peer)
{
	peer->moved = false;
	if (peer->way_noted || peer->bulk == NULL || peer->broken)
		return;
	peer->way_noted = true;
	if (hoist__fabric_way(peer->bulk, far->account.way, HOIST__FAR_TEXT) < 0)
		hoist__log(load, "group \"%s\": %s", far->name, hoist_error());
}

static void write_way(struct hoist__far *far)
{
	if (far->account.way[0] != '\0' && !far->load->to_host)
		append(far->account.way, sizeof far->account.way,
		       ", host slots: the processor compares each cell's digest there");
	if (far->account.has_loan)
		append(far->account.way, sizeof far->account.way,
		       "%smemory that members of this machine share",
		       far->account.way[0] != '\0' ? "; " : "");
}

/* --- the report --- */

void hoist__far_write_report(struct hoist__far *far)
{
	const struct hoist__swarm_counts *counts;
	write_damage(far);
	write_way(far);
	if (far->swarm == NULL)
		return;
	counts = hoist__swarm_counts(far->swarm);
	far->report.n_members = hoist__swarm_members(far->swarm);
	far->report.storage_bytes = counts->read_bytes;
	far->report.received_bytes = counts->received_bytes;
	far->report.sent_bytes = counts->sent_bytes;
	far->report.n_refused = counts->n_refused;
	far->report.n_late = counts->n_late;
	hoist__log(load,
		   "group \"%s\": %llu bytes from storage, %llu from members, %llu to members; "
		   "refused %llu times, impatient %llu times",
		   far->name, (unsigned long long)counts->read_bytes,
		   (unsigned long long)counts->received_bytes,
		   (unsigned long long)counts->sent_bytes, (unsigned long long)counts->n_refused,
		   (unsigned long long)counts->n_late);
}

int hoist_group_get_report(hoist_load *load, hoist_group_report *report)
{
	if (load->source == NULL || load->source->ops != &hoist__far_ops)
		return hoist__fail(-ENOTSUP, "the load is of no group on several machines, "
					     "\"tcp://...\" or \"dir:...\"");
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN,
				   "the load has not ended yet; its report is not complete");
	struct hoist__far *far = hoist__far_of(load->source);
	return hoist__options_out("hoist_group_report", report, &far->report, sizeof far->report);
}
