/* SPDX-License-Identifier: MIT */
/* tools/cmd-group.c - hoist group status: the ranks of a group of several machines, and how far
 * each is.  The contract is in tools/tool.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <hoist/group.h>

#include "cli/format.h"
#include "cli/json.h"
#include "tools/args.h"
#include "tools/launcher.h"

#define MOST_MEMBERS 128u
#define LOOK_NS UINT64_C(5000000000) /* for the door to answer */
#define BETWEEN_NS 500000000	     /* between the two looks that give rates */

struct member {
	hoist_group_member is;
	char address[64];
};

struct look {
	struct member members[MOST_MEMBERS];
	size_t n;
	double at; /* seconds */
};

static double seconds(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int note(void *context, const hoist_group_member *member)
{
	struct look *look = context;
	if (look->n == MOST_MEMBERS)
		return 0;
	struct member *kept = &look->members[look->n++];
	kept->is = *member;
	(void)snprintf(kept->address, sizeof kept->address, "%s", member->address);
	return 0;
}

static int take_look(const hoist_group *group, struct look *ret)
{
	ret->n = 0;
	ret->at = seconds();
	int err = hoist_group_look(group, note, ret);
	return err < 0 ? fail_call(err) : STATUS_OK;
}

/* Bytes a second from storage and from others since the first look; 0: the member was not there. */
static double rate_since(const struct look *first, const struct look *second, size_t i)
{
	const hoist_group_member *now = &second->members[i].is;
	for (size_t f = 0; f < first->n; f++) {
		const hoist_group_member *then = &first->members[f].is;
		if (then->id == now->id)
			return (double)(now->storage_bytes + now->received_bytes -
					then->storage_bytes - then->received_bytes) /
			       (second->at - first->at);
	}
	return 0;
}

static void print_table(const struct look *first, const struct look *second)
{
	(void)printf("%-22s  %7s  %5s  %9s  %5s  %9s  %9s  %9s  %10s\n", "MEMBER", "RANK", "FILES",
		     "MISSING", "DONE", "STORAGE", "RECEIVED", "SENT", "RATE");
	for (size_t i = 0; i < second->n; i++) {
		const struct member *m = &second->members[i];
		const hoist_group_member *is = &m->is;
		struct text missing, storage, received, sent, rate;
		char rank[32] = "-";
		double share = is->bytes > 0 ? (double)is->done_bytes / (double)is->bytes : 1;
		if (is->n_ranks > 0)
			(void)snprintf(rank, sizeof rank, "%u/%u", is->rank, is->n_ranks);
		(void)printf("%-22s  %7s  %5s  %9s  %3.0f %%  %9s  %9s  %9s  %10s\n", m->address,
			     rank, is->has_files ? "yes" : "no",
			     format_bytes(is->bytes - is->done_bytes, &missing), 100 * share,
			     format_bytes(is->storage_bytes, &storage),
			     format_bytes(is->received_bytes, &received),
			     format_bytes(is->sent_bytes, &sent),
			     is->begun ? format_rate(rate_since(first, second, i), &rate)
				       : "waits");
	}
}

static int print_members(const struct look *first, const struct look *second)
{
	json_t *rows = json_array();
	for (size_t i = 0; rows != NULL && i < second->n; i++) {
		const struct member *m = &second->members[i];
		bool ranked = m->is.n_ranks > 0;
		json_t *row = json_pack(
			"{s:o, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:f}", "address",
			json_text(m->address), "rank",
			ranked ? json_count(m->is.rank) : json_null(), "n_ranks",
			ranked ? json_count(m->is.n_ranks) : json_null(), "has_files",
			m->is.has_files, "begun", m->is.begun, "bytes", json_count(m->is.bytes),
			"done_bytes", json_count(m->is.done_bytes), "storage_bytes",
			json_count(m->is.storage_bytes), "received_bytes",
			json_count(m->is.received_bytes), "sent_bytes",
			json_count(m->is.sent_bytes), "bytes_per_s", rate_since(first, second, i));
		if (json_array_append_new(rows, row) != 0) {
			json_decref(rows);
			rows = NULL;
		}
	}
	return rows != NULL ? json_print(json_pack("{s:o}", "members", rows), true) : fail_memory();
}

int cmd_group(const struct args *args)
{
	char *name = NULL;
	if (strcmp(args->operands[0], "status") != 0)
		return args_refuse(args, "hoist group status GROUP, not \"", args->operands[0],
				   "\"");
	struct look *looks = calloc(2, sizeof *looks);
	int status = looks != NULL ? launcher_name(args->operands[1], &name) : fail_memory();
	const hoist_group group = {.size = sizeof group, .name = name, .timeout_ns = LOOK_NS};
	if (status == STATUS_OK)
		status = take_look(&group, &looks[0]);
	if (status == STATUS_OK) {
		const struct timespec pause = {.tv_nsec = BETWEEN_NS};
		(void)nanosleep(&pause, NULL);
		status = take_look(&group, &looks[1]);
	}
	if (status == STATUS_OK && args->json)
		status = print_members(&looks[0], &looks[1]);
	else if (status == STATUS_OK)
		print_table(&looks[0], &looks[1]);
	free(looks);
	free(name);
	return status;
}
