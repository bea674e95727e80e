/* SPDX-License-Identifier: MIT */
/* Ranks on machines without the files: they open and load what another rank has.  A rank whose disk
 * fails. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/engine.h"
#include "lib/far/far.h"
#include "net/secret.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/load-model.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

#define N_RANKS 3u
#define N_RANDOM 12
#define ELSEWHERE "/not/on/this/machine"

static const char *path;
static unsigned readers; /* the first ranks, which have the files */
static size_t n_tensors; /* of `path` */

/* Compares the tensor with that of the same name of the files. */
static void compare(hoist_checkpoint *files, hoist_checkpoint *shown, size_t t,
		    hoist_buffer *buffer)
{
	const hoist_tensor_info is = load_info_of(shown, t);
	size_t there;
	OK(hoist_checkpoint_find(files, is.name, &there));
	const hoist_tensor_info should = load_info_of(files, there);
	check_at("%s, tensor %s", path, is.name);
	CHECK(is.dtype == should.dtype && is.rank == should.rank && is.bytes == should.bytes &&
	      is.offset == should.offset && is.file == should.file);
	CHECK(should.strides != NULL || should.bytes == 0 || ranks_is_whole(files, there, buffer));
}

static void compare_all(hoist_checkpoint *shown, hoist_load *load)
{
	hoist_checkpoint *files = support_open(path);
	CHECK(hoist_checkpoint_n_tensors(shown) == n_tensors);
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		hoist_buffer *buffer = NULL;
		size_t t = 0;
		OK(hoist_load_tensor(load, i, &t, &buffer));
		compare(files, shown, t, buffer);
		hoist_buffer_unref(buffer);
	}
	hoist_checkpoint_close(files);
}

/* The files of a checkpoint that is only shown cannot be read in any other way. */
static void cannot_be_read(hoist_checkpoint *shown)
{
	hoist_load *load = NULL;
	const hoist_group shm = {.size = sizeof shm, .name = "shm:absent", .n_ranks = 1};
	hoist_load_options map = {.size = sizeof map, .io = HOIST_IO_MAP};
	CHECK(hoist_load_start(shown, NULL, &load) == -ENODATA);
	support_said("hoist_group_load");
	CHECK(hoist_load_start(shown, &map, &load) == -ENODATA);
	CHECK(hoist_group_load(&shm, shown, NULL, &load) == -ENODATA);
	CHECK(hoist_checkpoint_keep_digests(shown, 0, NULL) < 0);
}

static void rank_main(unsigned rank)
{
	const hoist_group group = ranks_group(rank, N_RANKS);
	const bool has = rank < readers;
	const char *here = path[0] == '/' ? path : support_path(path);
	hoist_group_report report = {.size = sizeof report};
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	check_at("%s, rank %u", path, rank);
	OK(hoist_group_open(&group, has ? here : ELSEWHERE, 0, &checkpoint));
	if (!has)
		cannot_be_read(checkpoint);
	OK(hoist_group_load(&group, checkpoint, NULL, &load));
	OK(hoist_load_wait(load));
	compare_all(checkpoint, load);
	OK(hoist_group_get_report(load, &report));
	CHECK(report.n_members == N_RANKS);
	CHECK(has || report.storage_bytes == 0);
	said->read_bytes[rank] = report.storage_bytes;
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void load_together(const char *what, unsigned n_readers)
{
	path = what;
	readers = n_readers;
	hoist_checkpoint *files = support_open(what);
	n_tensors = hoist_checkpoint_n_tensors(files);
	hoist_checkpoint_close(files);
	ranks_next_group();
	ranks_run(N_RANKS, rank_main, 0);
}

static void all_formats(void)
{
	load_together(ranks_big(), 1);
	load_together(ranks_big(), 2);
	for (unsigned i = 0; i < N_RANDOM; i++) {
		random_seed(31 * i + 7);
		load_together(random_checkpoint(), 1 + i % 2);
	}
}

static void only_the_files_of_others(void)
{
	struct hoist_group group = ranks_group(0, 1);
	hoist_checkpoint *checkpoint = NULL;
	group.timeout_ns = 2000000000;
	CHECK(hoist_group_open(&group, ELSEWHERE, 0, &checkpoint) == -ECONNREFUSED);
	support_said(ELSEWHERE);
	group.name = "shm:absent";
	CHECK(hoist_group_open(&group, ELSEWHERE, 0, &checkpoint) == -ENOENT);
	CHECK(hoist_group_open(NULL, ELSEWHERE, 0, &checkpoint) == -EINVAL);
	CHECK(checkpoint == NULL);
}

/* --- a disk that fails --- */

#define GOOD_BYTES 60000000u /* of rank 0's file: the beginning, which is all that it wants */
static bool disk_fails;	     /* this process's */

WRAP(int, hoist__engine_reap,
     (struct hoist__engine * engine, struct hoist__request **done, unsigned n, uint64_t timeout_ns))
{
	int got = __real_hoist__engine_reap(engine, done, n, timeout_ns);
	for (int i = 0; i < got; i++)
		if (disk_fails && done[i]->offset + done[i]->need > GOOD_BYTES)
			done[i]->result = -EIO;
	return got;
}

static unsigned n_with_failing; /* ranks; the third has the files, too */

static void rank_beside_failing(unsigned rank)
{
	static const char *const beginning[] = {"a"};
	const hoist_load_options o = {.size = sizeof o, .tensors = beginning, .n_tensors = 1};
	const hoist_group group = ranks_group(rank, n_with_failing);
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	disk_fails = rank == 0;
	check_at("rank %u of %u", rank, n_with_failing);
	OK(hoist_group_open(&group, rank == 1 ? ELSEWHERE : support_path(path), 0, &checkpoint));
	OK(hoist_group_load(&group, checkpoint, rank == 0 ? &o : NULL, &load));
	int err = hoist_load_wait(load);
	if (rank == 1 && n_with_failing == 2) {
		CHECK(err == -EIO);
		support_said("the member at 127.0.0.1:");
		support_said("reading ");
	} else {
		OK(err);
		compare_all(checkpoint, load);
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void what_one_cannot_read_another_gives(void)
{
	path = ranks_big();
	hoist_checkpoint *files = support_open(path);
	n_tensors = hoist_checkpoint_n_tensors(files);
	hoist_checkpoint_close(files);
	for (n_with_failing = 2; n_with_failing <= 3; n_with_failing++) {
		ranks_next_group();
		ranks_run(n_with_failing, rank_beside_failing, 0);
	}
}

/* --- a member that shows files which it does not have --- */

/* Shows one visitor an empty file, and says that a path which leads out of its folder is the
 * checkpoint. */
static void lying_rank(unsigned rank)
{
	const struct hoist__address door = ranks_door();
	struct hoist__secret secret;
	struct hoist__channel *channel = NULL;
	struct hoist__wire_message m = {.kind = HOIST__WIRE_FILE, .text = "big.safetensors"};
	int listening, socket;
	(void)rank;
	OK(hoist__address_listen(&door, &listening, NULL));
	OK(hoist__secret_find(NULL, &secret));
	uint64_t until = 0;
	while (hoist__address_accept(listening, &socket) < 0)
		CHECK(patience(&until));
	OK(hoist__channel_accept(socket, &secret, &channel));
	CHECK(ranks_hear(channel).kind == HOIST__WIRE_VISIT);
	ranks_say(channel, &m);
	m.kind = HOIST__WIRE_TOUR_END;
	(void)snprintf(m.text, sizeof m.text, "../../%s", path);
	ranks_say(channel, &m);
	until = 0;
	while (hoist__channel_work(channel) == 0)
		CHECK(patience(&until));
	hoist__channel_close(channel);
	(void)close(listening);
}

static void a_path_that_leads_elsewhere_is_refused(void)
{
	ranks_next_group();
	path = ranks_big();
	struct hoist_group group = ranks_group(0, 1);
	hoist_checkpoint *checkpoint = NULL;
	pid_t liar = ranks_start(0, lying_rank);
	CHECK(hoist_group_open(&group, ELSEWHERE, 0, &checkpoint) == -EBADMSG);
	support_said("shows a checkpoint");
	ranks_end(liar, 0);
}

int main(void)
{
	ranks_begin_far();
	CASE(only_the_files_of_others);
	CASE(all_formats);
	CASE(what_one_cannot_read_another_gives);
	CASE(a_path_that_leads_elsewhere_is_refused);
	support_cleanup();
	return 0;
}
