/* SPDX-License-Identifier: MIT */
/* member GROUP RANK RANKS TIMEOUT PATH - loads PATH as one rank of the group, waits for others for
 * TIMEOUT seconds, and prints "DIGEST  NAME" of each tensor, as refdigest does, from the memory
 * that the load filled, then a line of JSON: the group's report. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>
#include <xxhash.h>

#include <hoist/group.h>
#include <hoist/hoist.h>

static void check(int err, const char *call)
{
	if (err >= 0)
		return;
	(void)fprintf(stderr, "member: %s: %s\n", call, hoist_error());
	exit(1);
}

static void digest(hoist_checkpoint *checkpoint, hoist_load *load, size_t index)
{
	size_t tensor;
	hoist_buffer *buffer;
	hoist_tensor_info info = {.size = sizeof info};
	check(hoist_load_tensor(load, index, &tensor, &buffer), "tensor");
	check(hoist_checkpoint_tensor(checkpoint, tensor, &info), "tensor");
	XXH128_hash_t hash = XXH3_128bits((const void *)hoist_buffer_address(buffer),
					  hoist_buffer_bytes(buffer));
	(void)printf("%016" PRIx64 "%016" PRIx64 "  %s\n", hash.high64, hash.low64, info.name);
	hoist_buffer_unref(buffer);
}

static void print_report(hoist_load *load)
{
	hoist_group_report r = {.size = sizeof r};
	check(hoist_group_get_report(load, &r), "report");
	json_t *report =
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "members",
			  (json_int_t)r.n_members, "storage_bytes", (json_int_t)r.storage_bytes,
			  "received_bytes", (json_int_t)r.received_bytes, "sent_bytes",
			  (json_int_t)r.sent_bytes, "late", (json_int_t)r.n_late, "damaged",
			  (json_int_t)r.n_damaged, "note", r.note, "way", r.way);
	if (report == NULL || json_dumpf(report, stdout, 0) < 0) {
		(void)fputs("member: the report cannot be printed\n", stderr);
		exit(1);
	}
	(void)putchar('\n');
	json_decref(report);
}

int main(int argc, char **argv)
{
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	if (argc != 6) {
		(void)fputs("usage: member GROUP RANK RANKS TIMEOUT PATH\n", stderr);
		return 2;
	}
	const hoist_group group = {.size = sizeof group,
				   .name = argv[1],
				   .rank = (unsigned)atoi(argv[2]),
				   .n_ranks = (unsigned)atoi(argv[3]),
				   .timeout_ns = strtoull(argv[4], NULL, 10) * 1000000000};
	const hoist_load_options options = {.size = sizeof options};
	check(hoist_group_open(&group, argv[5], 0, &checkpoint), "open");
	check(hoist_group_load(&group, checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++)
		digest(checkpoint, load, i);
	print_report(load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return 0;
}
