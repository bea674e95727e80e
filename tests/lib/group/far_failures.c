/* SPDX-License-Identifier: MIT */
/* Two members of a group of several machines, in a process each, which lend each other slots, or
 * send bytes by UCX.  In one of them each allocation, each call on sockets, each function of UCX,
 * and, where the group meets at a folder, each call on files and memory fails in turn: its load has
 * all bytes, or says why not, and leaves nothing; the other, which is well, has all its bytes.
 * HOIST_TEST_FORM=long: no call is left out.  Exit: 0, 1, 77. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hoist/group.h>
#include <hoist/hoist.h>

#include "net/neighbour.h"
#include "tests/support/child.h"
#include "tests/support/count.h"
#include "tests/support/failing-ucx.h"
#include "tests/support/free-port.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"
#include "tests/support/wrap.h"

/* --- calls that fail --- */

enum kind { ALLOCATIONS, SOCKETS, UCX, FILES, N_KINDS };
static const char *const kinds[] = {"allocation", "call on sockets", "function of UCX",
				    "call on files and memory"};

static enum kind failing;
static unsigned long fail_at; /* 0: none */
static atomic_ulong n_calls;
static _Atomic bool counting;
static const char *_Atomic failed; /* NULL: none did */

static bool fails(enum kind kind, const char *name)
{
	if (!counting || kind != failing || atomic_fetch_add(&n_calls, 1) + 1 != fail_at)
		return false;
	failed = name;
	errno = ENOMEM;
	return true;
}

#define FAILS(result, name, parameters, arguments)                                                 \
	WRAP(result, name, parameters)                                                             \
	{                                                                                          \
		return fails(SOCKETS, #name) ? -1 : __real_##name arguments;                       \
	}
#include "tests/support/failing-sockets.inc.h"
FAILS(int, eventfd, (unsigned count, int flags), (count, flags))
FAILS(int, epoll_create1, (int flags), (flags))
FAILS(int, epoll_ctl, (int edges, int change, int fd, struct epoll_event *event),
      (edges, change, fd, event))

/* The calls of lib/far/far-folder.c, what net/address.c asks for it, and the calls that share
 * memory with neighbours. */
#define FILES_FAIL(result, failure, name, parameters, arguments)                                   \
	WRAP(result, name, parameters)                                                             \
	{                                                                                          \
		return fails(FILES, #name) ? (failure) : __real_##name arguments;                  \
	}
FILES_FAIL(int, -1, open, (const char *path, int flags), (path, flags))
FILES_FAIL(int, -1, openat, (int folder, const char *name, int flags, mode_t mode),
	   (folder, name, flags, mode))
FILES_FAIL(int, -1, fstat, (int fd, struct stat *ret), (fd, ret))
FILES_FAIL(ssize_t, -1, write, (int fd, const void *bytes, size_t n), (fd, bytes, n))
FILES_FAIL(int, -1, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b))
FILES_FAIL(DIR *, NULL, fdopendir, (int fd), (fd))
FILES_FAIL(int, -1, getifaddrs, (struct ifaddrs * *ret), (ret))
FILES_FAIL(int, -1, stat, (const char *path, struct stat *ret), (path, ret))
FILES_FAIL(int, -1, fstatfs, (int fd, struct statfs *ret), (fd, ret))
FILES_FAIL(ssize_t, -1, read, (int fd, void *ret, size_t n), (fd, ret, n))
FILES_FAIL(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
FILES_FAIL(int, -1, ftruncate, (int fd, off_t bytes), (fd, bytes))
FILES_FAIL(void *, MAP_FAILED, mmap,
	   (void *at, size_t n, int protection, int flags, int fd, off_t offset),
	   (at, n, protection, flags, fd, offset))

WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument))
{
	return fails(SOCKETS, "pthread_create")
		       ? EAGAIN
		       : __real_pthread_create(thread, attributes, start, argument);
}

/* --- allocations, and what is left of them --- */

enum { MOST_LIVE = 1 << 17 };
static void *live[MOST_LIVE];
static unsigned n_live;
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;

static void *counted(void *memory)
{
	if (memory == NULL)
		return NULL;
	pthread_mutex_lock(&live_lock);
	CHECK(n_live < MOST_LIVE);
	live[n_live++] = memory;
	pthread_mutex_unlock(&live_lock);
	return memory;
}

/* The youngest are looked at first: most live shortly. */
static void forget(const void *memory)
{
	pthread_mutex_lock(&live_lock);
	for (unsigned i = n_live; i-- > 0;)
		if (live[i] == memory) {
			live[i] = live[--n_live];
			break;
		}
	pthread_mutex_unlock(&live_lock);
}

WRAP(void *, malloc, (size_t bytes))
{
	return fails(ALLOCATIONS, "malloc") ? NULL : counted(__real_malloc(bytes));
}

WRAP(void *, calloc, (size_t n, size_t bytes))
{
	return fails(ALLOCATIONS, "calloc") ? NULL : counted(__real_calloc(n, bytes));
}

WRAP(void *, realloc, (void *memory, size_t bytes))
{
	if (fails(ALLOCATIONS, "realloc"))
		return NULL;
	forget(memory);
	return counted(__real_realloc(memory, bytes));
}

WRAP(void, free, (void *memory))
{
	forget(memory);
	__real_free(memory);
}

/* Without a machine's number this member has no neighbours. */
static bool by_ucx;

WRAP(void, hoist__neighbour_describe,
     (const struct hoist__secret *secret, int fd, struct hoist__neighbour *ret))
{
	__real_hoist__neighbour_describe(secret, fd, ret);
	if (by_ucx)
		ret->machine = 0;
}

static bool ucx_fails(const char *name)
{
	return fails(UCX, name);
}

/* --- the members --- */

static const size_t sizes[] = {5000000, 8000001};
static hoist_checkpoint *checkpoint;
static hoist_budget *budget;

struct order {
	char name[200];
	bool over;
};

/* Returns: the load's result; 0: its bytes are right. */
static int load_as_member(const char *name, unsigned rank, uint64_t *ret_received)
{
	const hoist_group group = {.size = sizeof group,
				   .name = name,
				   .rank = rank,
				   .n_ranks = 2,
				   .timeout_ns = UINT64_C(1000000000)};
	const hoist_load_options o = {
		.size = sizeof o, .budget = budget, .flags = HOIST_LOAD_DIGEST};
	hoist_group_report report = {.size = sizeof report};
	hoist_load *load = NULL;
	int err = hoist_group_load(&group, checkpoint, &o, &load);
	if (err == 0)
		err = hoist_load_wait(load);
	counting = false;
	CHECK(err == 0 || hoist_error()[0] != '\0');
	*ret_received = 0;
	if (err == 0) {
		support_compare(checkpoint, load);
		OK(hoist_group_get_report(load, &report));
		*ret_received = report.received_bytes;
	}
	hoist_load_destroy(load);
	CHECK(hoist_budget_used(budget) == 0);
	return err;
}

/* The one that is well. */
static void serve(int orders, int answers)
{
	struct order order;
	uint64_t received;
	while (read(orders, &order, sizeof order) == (ssize_t)sizeof order && !order.over) {
		check_at("the healthy member of %s", order.name);
		CHECK(load_as_member(order.name, 1, &received) == 0);
		CHECK(write(answers, "", 1) == 1);
	}
	_exit(0);
}

static void name_group(struct order *order)
{
	if (failing == FILES)
		(void)snprintf(order->name, sizeof order->name, "dir:%s/failures-%lu",
			       support_path("door"), fail_at);
	else
		(void)snprintf(order->name, sizeof order->name, "tcp://127.0.0.1:%u/failures",
			       free_port());
}

struct sums {
	unsigned n_failed; /* calls, */
	unsigned n_ended;  /* and loads */
	unsigned n_met;
};

/* Returns: false once there is no such call. */
static bool fail_one(int orders, int answers, struct sums *sums)
{
	struct order order = {.over = false};
	uint64_t received = 0;
	char answer;
	name_group(&order);
	unsigned n_fds = count_entries("/proc/self/fd");
	unsigned n_before = n_live;
	n_calls = 0;
	failed = NULL;
	CHECK(write(orders, &order, sizeof order) == (ssize_t)sizeof order);
	(void)alarm(120);
	counting = fail_at > 0;
	int err = load_as_member(order.name, 0, &received);
	check_at("%s %lu, %s: %d", kinds[failing], fail_at, failed != NULL ? failed : "none", err);
	CHECK(err == 0 || failed != NULL);
	CHECK(read(answers, &answer, 1) == 1);
	CHECK(count_entries("/proc/self/fd") == n_fds);
	CHECK(fail_at == 0 || n_live <= n_before);
	sums->n_failed += failed != NULL;
	sums->n_ended += err < 0;
	sums->n_met += received > 0;
	return failed != NULL;
}

static void fail_each(int orders, int answers, bool is_long, struct sums *all)
{
	struct sums sums = {.n_failed = 0};
	fail_at = 1;
	while (fail_one(orders, answers, &sums))
		fail_at += is_long ? 1 : 1 + fail_at / 8;
	printf("%s, %s: %u failed, of which %u ended the load; in %u loads bytes came\n",
	       by_ucx ? "by UCX" : "neighbours", kinds[failing], sums.n_failed, sums.n_ended,
	       sums.n_met);
	CHECK(sums.n_failed > 5 && sums.n_ended > 0 && sums.n_met > 0);
	CHECK(sums.n_ended < sums.n_failed);
	all->n_failed += sums.n_failed;
	all->n_ended += sums.n_ended;
}

static void sweep(int orders, int answers)
{
	const char *form = getenv("HOIST_TEST_FORM");
	bool is_long = form != NULL && strcmp(form, "long") == 0;
	struct sums none = {.n_failed = 0};
	struct sums all = {.n_failed = 0};
	/* The first loads make what a process makes once. */
	for (unsigned i = 0; i < 2; i++)
		(void)fail_one(orders, answers, &none);
	failing_ucx_begin(ucx_fails);
	for (unsigned turn = 0; turn < 2 * N_KINDS; turn++) {
		by_ucx = turn >= N_KINDS;
		failing = (enum kind)(turn % N_KINDS);
		fail_each(orders, answers, is_long, &all);
	}
	printf("figure: group.far_failures %u allocations, calls and functions of UCX failed, %u "
	       "of them ended "
	       "the load with a text\n",
	       all.n_failed, all.n_ended);
	OK(rmdir(support_path("door"))); /* each member has taken its file along */
	const struct order end = {.over = true};
	CHECK(write(orders, &end, sizeof end) == (ssize_t)sizeof end);
	(void)fflush(NULL);
	_exit(0);
}

int main(void)
{
	int orders[2], answers[2];
	if (ucx_of_child() == 0)
		return 77;
	OK(setenv("HOIST_GROUP_SECRET", "a secret of this test's", 1));
	OK(unsetenv("HOIST_GROUP_SECRET_FILE"));
	OK(mkdir(support_path("door"), 0700));
	support_write("model.safetensors", 0, 2, sizes, -1);
	checkpoint = support_open("model.safetensors");
	OK(hoist_budget_create(72 << 20, &budget));
	CHECK(pipe(orders) == 0 && pipe(answers) == 0);
	(void)fflush(NULL);
	pid_t children[2];
	for (unsigned i = 0; i < 2; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0 && i == 0) {
			(void)close(orders[1]);
			serve(orders[0], answers[1]);
		} else if (children[i] == 0) {
			(void)close(answers[1]);
			sweep(orders[1], answers[0]);
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		(void)close(i == 0 ? orders[1] : answers[1]);
		(void)close(i == 0 ? orders[0] : answers[0]);
	}
	for (unsigned i = 2; i-- > 0;) {
		int status = child_status(children[i]);
		check_at("member %u ended with %d", i, status);
		CHECK(status == 0);
	}
	hoist_budget_unref(budget);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
	return 0;
}
