/* SPDX-License-Identifier: MIT */
/* Groups that do not come together, or break: each rank's error names the rank. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/group/ranks.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"

#define SHORT_NS UINT64_C(1500000000)

static const hoist_load_options all = {.size = sizeof all};
static const char *path;

/* --- options --- */

/* Names and secrets of groups on several machines. */
static void far_groups_are_checked(void)
{
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load = NULL;
	const struct {
		hoist_group group;
		int err;
		const char *piece;
	} cases[] = {
		{{.name = "tcp://a:1"}, -EINVAL, "HOST:PORT/NAME"},
		{{.name = "tcp:///x"}, -EINVAL, "HOST:PORT/NAME"},
		{{.name = "tcp://127.0.0.1:7000/"}, -EINVAL, "HOST:PORT/NAME"},
		{{.name = "tcp://127.0.0.1/x"}, -EINVAL, "127.0.0.1"},
		{{.name = "tcp://127.0.0.1:70000/x"}, -EINVAL, "70000"},
		{{.name = "tcp://10.0.0.1:7000/x"}, -EACCES, "HOIST_GROUP_SECRET_FILE"},
		{{.name = "tcp://127.0.0.1:7000/x", .secret = "short"}, -EINVAL, "16"},
		{{.name = "tcp://127.0.0.1:7000/x", .n_ranks = 129}, -EINVAL, "129 ranks"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_group group = cases[i].group;
		check_at("case %zu", i);
		group.size = sizeof group;
		CHECK(hoist_group_load(&group, checkpoint, NULL, &load) == cases[i].err);
		support_said(cases[i].piece);
	}
	hoist_checkpoint_close(checkpoint);
}

static void options_are_checked(void)
{
	static const char *none[1];
	static const char *const first[] = {"b"};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load = NULL;
	const struct {
		hoist_group group;
		hoist_load_options o;
		int err;
		const char *piece;
	} cases[] = {
		{{.name = NULL, .n_ranks = 1}, {0}, -EINVAL, "name is NULL"},
		{{.name = "udp://a:1/x", .n_ranks = 1}, {0}, -ENOTSUP, "udp://a:1/x"},
		{{.name = "shm:x", .n_ranks = 0}, {0}, -EINVAL, "0 ranks"},
		{{.name = "shm:x", .n_ranks = 65}, {0}, -EINVAL, "65 ranks"},
		{{.name = "shm:x", .n_ranks = 2, .rank = 2}, {0}, -EINVAL, "rank 2"},
		{{.name = "shm:x", .n_ranks = 1, .timeout_ns = 5}, {0}, -EINVAL, "timeout"},
		{{.name = "shm:x", .n_ranks = 1}, {.flags = 1u << 31}, -EINVAL, "flags"},
		{{.name = "shm:x", .n_ranks = 1},
		 {.flags = HOIST_LOAD_STREAM, .window_bytes = 1 << 20},
		 -ENOTSUP,
		 "window"},
		{{.name = "shm:x", .n_ranks = 1}, {.io = HOIST_IO_MAP}, -ENOTSUP, "map"},
		{{.name = "shm:x", .n_ranks = 1},
		 {.order = first, .n_order = 1},
		 -ENOTSUP,
		 "order"},
		{{.name = "shm:x", .n_ranks = 1}, {.chunk_bytes = 4 << 20}, -ENOTSUP, "2 MiB"},
		{{.name = "shm:x", .n_ranks = 1}, {.depth = 5000}, -EINVAL, "depth"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_group group = cases[i].group;
		hoist_load_options o = cases[i].o;
		check_at("case %zu", i);
		group.size = sizeof group;
		o.size = sizeof o;
		CHECK(hoist_group_load(&group, checkpoint, &o, &load) == cases[i].err);
		support_said(cases[i].piece);
	}
	CHECK(hoist_group_load(NULL, checkpoint, NULL, &load) == -EINVAL);
	/* Errors that the load's thread meets. */
	hoist_group group = ranks_group(0, 1);
	hoist_load_options o = {.size = sizeof o, .tensors = none};
	group.name = "shm:";
	OK(hoist_group_load(&group, checkpoint, &o, &load));
	CHECK(hoist_load_wait(load) == -EINVAL);
	support_said("1 to 63");
	hoist_load_destroy(load);
	group = ranks_group(0, 1);
	OK(hoist_budget_create(8 << 20, &o.budget));
	OK(hoist_group_load(&group, checkpoint, &o, &load));
	CHECK(hoist_load_wait(load) == -EDQUOT);
	support_said("budget");
	hoist_load_destroy(load);
	hoist_budget_unref(o.budget);
	hoist_checkpoint_close(checkpoint);
}

/* --- ranks that do not fit --- */

static hoist_group groups[MOST_RANKS];
static const char *paths[MOST_RANKS];

static void rank_of_table(unsigned index)
{
	hoist_checkpoint *checkpoint = support_open(paths[index]);
	hoist_load *load = NULL;
	OK(hoist_group_load(&groups[index], checkpoint, &all, &load));
	said->err[index] = hoist_load_wait(load);
	(void)snprintf(said->text[index], sizeof said->text[0], "%.500s",
		       said->err[index] < 0 ? hoist_error() : "");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void make_groups(unsigned n, uint64_t timeout_ns)
{
	ranks_next_group();
	for (unsigned r = 0; r < n; r++) {
		groups[r] = ranks_group(r, n);
		groups[r].timeout_ns = timeout_ns;
		paths[r] = path;
	}
}

/* Budgets that have room for little more than the bytes that a rank shares. */
static void ranks_of_small_budgets(unsigned unused)
{
	(void)unused;
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load_options o = {.size = sizeof o, .device = support_device("cuda:0")};
	hoist_budget *budgets[2] = {NULL};
	hoist_load *loads[2] = {NULL};
	for (unsigned r = 0; r < 2; r++) {
		OK(hoist_budget_create(24 << 20, &budgets[r]));
		o.budget = budgets[r];
		OK(hoist_group_load(&groups[r], checkpoint, &o, &loads[r]));
	}
	for (unsigned r = 0; r < 2; r++) {
		OK(hoist_load_wait(loads[r]));
		support_compare(checkpoint, loads[r]);
		hoist_load_destroy(loads[r]);
		CHECK(hoist_budget_used(budgets[r]) == 0);
		hoist_budget_unref(budgets[r]);
	}
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(o.device);
}

/* A child uses the driver: the parent forks other children. */
static void a_small_budget_means_little_staging(void)
{
	make_groups(2, UINT64_C(60000000000));
	ranks_end(ranks_start(0, ranks_of_small_budgets), 0);
	ranks_left_nothing();
}

static void has(unsigned index, int err, const char *piece)
{
	check_at("rank %u: %d, %s", index, said->err[index], said->text[index]);
	CHECK(said->err[index] == err && strstr(said->text[index], piece) != NULL);
}

static void another_number_of_ranks(void)
{
	make_groups(2, UINT64_C(60000000000));
	groups[1].n_ranks = 3;
	ranks_run(2, rank_of_table, 0);
	has(0, -EINVAL, "rank 1");
	has(1, -EINVAL, "expects 3 ranks");
}

static void another_checkpoint(void)
{
	make_groups(2, UINT64_C(60000000000));
	paths[1] = "other.safetensors";
	ranks_run(2, rank_of_table, 0);
	has(0, -EINVAL, "another checkpoint");
	has(1, -EINVAL, "rank 1");
}

/* Two that say the same: one is refused, and the other waits for the rank that is missing. */
static void the_same_rank_twice(unsigned rank, const char *missing)
{
	unsigned n_refused = 0;
	make_groups(3, SHORT_NS);
	groups[1].rank = rank;
	groups[2].rank = rank;
	ranks_run(3, rank_of_table, 0);
	for (unsigned i = rank == 0 ? 0 : 1; i < 3; i++) {
		n_refused += said->err[i] == -EEXIST;
		if (said->err[i] != -EEXIST)
			has(i, -ETIMEDOUT, missing);
	}
	CHECK(n_refused == (rank == 0 ? 2 : 1));
}

static void ranks_that_are_there_already(void)
{
	the_same_rank_twice(1, "rank 2");
	the_same_rank_twice(0, "rank 1");
}

static void a_rank_that_never_comes(void)
{
	make_groups(3, SHORT_NS);
	ranks_run(2, rank_of_table, 0);
	has(0, -ETIMEDOUT, "rank 2");
	has(1, -ETIMEDOUT, "rank 2");
	make_groups(3, SHORT_NS);
	groups[0].rank = 2;
	ranks_run(2, rank_of_table, 0);
	has(0, -ETIMEDOUT, "rank 0");
	has(1, -ETIMEDOUT, "rank 0");
}

/* Not -ETIMEDOUT, which says of a stream that nothing has arrived yet. */
static void a_rank_that_never_comes_ends_a_stream(void)
{
	const hoist_group group = {
		.size = sizeof group, .name = "shm:alone", .n_ranks = 2, .timeout_ns = 200000000};
	const hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_STREAM};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load_item item = {.size = sizeof item};
	hoist_load *load = NULL;
	OK(hoist_group_load(&group, checkpoint, &o, &load));
	CHECK(hoist_load_next(load, UINT64_MAX, &item) == -ECONNRESET);
	CHECK(strstr(hoist_error(), "rank 1") != NULL);
	CHECK(hoist_load_wait(load) == -ETIMEDOUT);
	CHECK(hoist_load_wait_for(load, 0) == -ECONNRESET);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

/* --- ranks that leave --- */

/* Rank 1 is driven so far that it has met the others, and then leaves as the test says. */
static enum { CANCELS, STOPS, DIES } way;

/* The child has all descriptors of the rank, and lives as long as the pipe's other end is open. */
static int alive[2];

static void die_before_a_child(void)
{
	char byte;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)close(alive[1]);
		(void)!read(alive[0], &byte, 1);
		_exit(0);
	}
	(void)kill(getpid(), SIGKILL);
}

static void rank_that_leaves(unsigned rank)
{
	hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_CALLER_DRIVEN};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load = NULL;
	uint64_t done = 0;
	uint64_t total = 0;
	if (rank != 1) {
		rank_of_table(rank);
		return;
	}
	OK(hoist_group_load(&groups[1], checkpoint, &o, &load));
	while (done == 0) {
		CHECK(hoist_load_step(load, 1000000) == 0);
		hoist_load_progress(load, &done, &total);
	}
	if (way == STOPS)
		(void)raise(SIGSTOP);
	if (way == DIES)
		die_before_a_child();
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void a_rank_is_cancelled(void)
{
	way = CANCELS;
	make_groups(3, UINT64_C(60000000000));
	ranks_run(3, rank_that_leaves, 0);
	has(0, -ECONNRESET, "rank 1");
	has(2, -ECONNRESET, "rank 1");
}

static void a_rank_stops(void)
{
	pid_t children[3];
	way = STOPS;
	make_groups(3, 2 * SHORT_NS);
	for (unsigned r = 0; r < 3; r++)
		children[r] = ranks_start(r, rank_that_leaves);
	ranks_end(children[0], 0);
	ranks_end(children[2], 0);
	CHECK(kill(children[1], SIGKILL) == 0);
	ranks_end(children[1], 1);
	ranks_left_nothing();
	has(0, -ETIMEDOUT, "rank 1");
	has(2, -ETIMEDOUT, "rank 1");
}

static void a_rank_dies_whose_child_lives(void)
{
	pid_t children[3];
	way = DIES;
	CHECK(pipe(alive) == 0);
	make_groups(3, UINT64_C(60000000000));
	for (unsigned r = 0; r < 3; r++)
		children[r] = ranks_start(r, rank_that_leaves);
	for (unsigned r = 0; r < 3; r++)
		ranks_end(children[r], r == 1);
	has(0, -ECONNRESET, "rank 1");
	has(2, -ECONNRESET, "rank 1");
	(void)close(alive[0]);
	(void)close(alive[1]);
}

/* A file that is shorter than it was fails in the rank that reads it, and so in the others. */
static void rank_of_shrunk_file(unsigned rank)
{
	hoist_checkpoint *checkpoint = support_open("shrinks.safetensors");
	hoist_load *load = NULL;
	said->marks[rank] = 1;
	for (uint64_t until = 0; rank == 0 && said->marks[1] == 0 && patience(&until);)
		continue;
	if (rank == 0)
		CHECK(truncate(support_path("shrinks.safetensors"), 30 << 20) == 0);
	OK(hoist_group_load(&groups[rank], checkpoint, &all, &load));
	said->err[rank] = hoist_load_wait(load);
	(void)snprintf(said->text[rank], sizeof said->text[0], "%.500s", hoist_error());
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void a_rank_fails(void)
{
	(void)rename(support_path("big.safetensors"), support_path("shrinks.safetensors"));
	make_groups(2, UINT64_C(60000000000));
	ranks_run(2, rank_of_shrunk_file, 0);
	for (unsigned r = 0; r < 2; r++) {
		check_at("rank %u: %d, %s", r, said->err[r], said->text[r]);
		CHECK(said->err[r] == -ENODATA || said->err[r] == -ECONNRESET);
		CHECK(strstr(said->text[r], "shrinks.safetensors") != NULL);
	}
}

int main(void)
{
	static const size_t sizes[] = {3000000, 50};
	support_emulate("cuda:1");
	ranks_begin();
	path = ranks_big();
	support_write("other.safetensors", 0, 2, sizes, -1);
	CASE(far_groups_are_checked);
	CASE(options_are_checked);
	CASE(a_small_budget_means_little_staging);
	CASE(another_number_of_ranks);
	CASE(another_checkpoint);
	CASE(ranks_that_are_there_already);
	CASE(a_rank_that_never_comes);
	CASE(a_rank_that_never_comes_ends_a_stream);
	CASE(a_rank_is_cancelled);
	CASE(a_rank_stops);
	CASE(a_rank_dies_whose_child_lives);
	CASE(a_rank_fails);
	puts("figure: group.absent a rank that never comes, stops, is cancelled, fails or dies "
	     "before "
	     "its child is named in the others");
	support_cleanup();
	return 0;
}
