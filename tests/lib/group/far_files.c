/* SPDX-License-Identifier: MIT */
/* Members whose files have the same headers and sizes: digests of the tensors, where both members
 * have them, decide whether the files are the same.  A member without files gets the digests
 * that another member keeps.  Plain C.  Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/far/far.h"
#include "tests/lib/group/by-ucx.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/check.h"
#include "tests/support/load-support.h"

enum { N_TENSORS = 3, ENDED = 1 };
static const size_t sizes[N_TENSORS] = {3000001, 70, 21000000};

static const char *paths[2];

static void identify(const char *name, uint64_t ret[HOIST__CHECKPOINT_IDENTITY])
{
	hoist_checkpoint *checkpoint = support_open(name);
	OK(hoist__checkpoint_identify(checkpoint, ret));
	hoist_checkpoint_close(checkpoint);
}

/* "other" has another byte than "model", where no sample is taken: without digests, both pass for
 * the same file. */
static void make_files(void)
{
	uint64_t model[HOIST__CHECKPOINT_IDENTITY], other[HOIST__CHECKPOINT_IDENTITY];
	char byte;
	static const char *const names[] = {"model.safetensors", "other.safetensors",
					    "copy.safetensors", "bare.safetensors"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		support_write(names[i], 0, N_TENSORS, sizes, -1);
		if (strstr(names[i], "other") == NULL)
			continue;
		int fd = open(support_path(names[i]), O_RDWR | O_CLOEXEC);
		CHECK(fd >= 0 && pread(fd, &byte, 1, 20000001) == 1);
		byte ^= 1;
		CHECK(pwrite(fd, &byte, 1, 20000001) == 1 && close(fd) == 0);
	}
	support_keep_digests("model.safetensors");
	support_keep_digests("other.safetensors");
	support_keep_digests("copy.safetensors");
	identify("model.safetensors", model);
	identify("other.safetensors", other);
	CHECK(model[0] == other[0] && model[1] == other[1]);
	CHECK(model[2] != other[2] && model[3] != other[3]);
	identify("copy.safetensors", other);
	CHECK(memcmp(model, other, sizeof model) == 0);
	identify("bare.safetensors", other);
	CHECK(model[0] == other[0] && other[2] == 0 && other[3] == 0);
}

static void look(hoist_checkpoint *checkpoint, hoist_load *load, int err)
{
	hoist_group_report report = {.size = sizeof report};
	if (err < 0)
		return;
	support_compare(checkpoint, load);
	OK(hoist_group_get_report(load, &report));
	check_at("%llu bytes by %s", (unsigned long long)report.received_bytes, report.way);
	bool ways = report.received_bytes + report.sent_bytes > 0;
	CHECK(report.damage[0] == '\0' && report.n_damaged == 0);
	CHECK(ways == (report.way[0] != '\0'));
	CHECK(ways == (strstr(report.way, by_ucx ? "tcp/" : "members of this machine") != NULL));
	CHECK(ways && by_ucx ? strstr(report.way, ", host slots: ") != NULL
			     : strstr(report.way, "slots") == NULL);
	if (report.n_members == 2)
		(void)__atomic_fetch_add(&said->marks[2], 1, __ATOMIC_SEQ_CST);
}

/* A member whose other has failed waits for nobody any more. */
static int drive(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank)
{
	(void)checkpoint;
	int err;
	while ((err = hoist_load_wait_for(load, 10000000)) == -ETIMEDOUT)
		if (said->marks[1 - rank] == ENDED && said->err[1 - rank] < 0)
			hoist_load_cancel(load);
	return err;
}

static void rank_main(unsigned rank)
{
	hoist_group group = ranks_group(rank, 2);
	hoist_load_options o = {.size = sizeof o};
	if (by_ucx)
		o.device = support_device("cuda:0");
	group.timeout_ns = UINT64_C(600000000000);
	ranks_load_driven(&group, paths[rank], &o, drive, look);
	hoist_device_unref(o.device);
	said->marks[rank] = ENDED;
}

static void run(const char *first, const char *second)
{
	ranks_next_group();
	paths[0] = first;
	paths[1] = second;
	ranks_run(2, rank_main, 0);
	check_at("%s, %s: %d, %s; %d, %s", first, second, said->err[0], said->text[0], said->err[1],
		 said->text[1]);
}

static void the_same_files_meet(void)
{
	run("model.safetensors", "copy.safetensors");
	CHECK(said->err[0] == 0 && said->err[1] == 0 && said->marks[2] == 2);
}

/* By UCX, to a device: the report says by which transports, and why through slots of the host's. */
static void the_way_is_told(void)
{
	by_ucx = true;
	run("model.safetensors", "copy.safetensors");
	CHECK(said->err[0] == 0 && said->err[1] == 0 && said->marks[2] == 2);
	by_ucx = false;
}

static void who_has_no_digests_joins(void)
{
	run("model.safetensors", "bare.safetensors");
	CHECK(said->err[0] == 0 && said->err[1] == 0 && said->marks[2] == 2);
}

/* The member that came second is sent away, and knows by whom. */
static void other_digests_are_refused(void)
{
	run("model.safetensors", "other.safetensors");
	unsigned refused = said->err[1] == -EINVAL;
	CHECK(said->err[refused] == -EINVAL && said->err[1 - refused] == -ECANCELED);
	CHECK(strstr(said->text[refused], "the member at 127.0.0.1:") != NULL);
	CHECK(strstr(said->text[refused], "as digests show") != NULL);
	CHECK(strstr(said->text[refused], "`hoist digest`") != NULL);
}

/* --- a member without files --- */

static int expected; /* the result of the load that compares digests */

/* The second has no files, and compares digests. */
static void rank_beside_digests(unsigned rank)
{
	const hoist_group group = ranks_group(rank, 2);
	const hoist_load_options o = {.size = sizeof o, .flags = rank == 1 ? HOIST_LOAD_VERIFY : 0};
	const char *here = rank == 0 ? support_path("model.safetensors") : "/not/on/this/machine";
	unsigned char digest[2][16];
	hoist_checkpoint *files = support_open("model.safetensors");
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	check_at("rank %u", rank);
	OK(hoist_group_open(&group, here, 0, &checkpoint));
	for (size_t t = 0; t < N_TENSORS; t++) {
		OK(hoist_checkpoint_digest(files, t, digest[0]));
		OK(hoist_checkpoint_digest(checkpoint, t, digest[1]));
		CHECK(memcmp(digest[0], digest[1], sizeof digest[0]) == 0);
	}
	OK(hoist_group_load(&group, checkpoint, &o, &load));
	CHECK(hoist_load_wait(load) == (rank == 1 ? expected : 0));
	if (rank == 1 && expected < 0)
		support_said("digest");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_checkpoint_close(files);
}

/* Right digests are kept, then wrong ones. */
static void kept_digests_come_with_the_files(void)
{
	static const unsigned char wrong[N_TENSORS][16];
	ranks_next_group();
	ranks_run(2, rank_beside_digests, 0);
	hoist_checkpoint *files = support_open("model.safetensors");
	OK(hoist_checkpoint_keep_digests(files, N_TENSORS, wrong));
	hoist_checkpoint_close(files);
	expected = -EBADMSG;
	ranks_next_group();
	ranks_run(2, rank_beside_digests, 0);
}

int main(void)
{
	ranks_begin_far();
	support_emulate("cuda:1");
	make_files();
	CASE(the_same_files_meet);
	CASE(the_way_is_told);
	CASE(who_has_no_digests_joins);
	CASE(other_digests_are_refused);
	CASE(kept_digests_come_with_the_files);
	support_cleanup();
	return 0;
}
