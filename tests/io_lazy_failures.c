/* SPDX-License-Identifier: MIT */
/* Lazy memory where disks have bad places, files change, and kernels lack this or that; plain C, so
 * that TSan sees the threads. */
#include "io-lazy.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "under-tsan.h"

/* --- failures --- */

static void a_bad_place_on_the_disk(void)
{
	size_t bad = 3 * MIB + 5 * PAGE;
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	lazy_world.bad_begin = bad + 100;
	lazy_world.bad_end = bad + 200;
	same(data + 3 * MIB, 3 * MIB, 5 * PAGE);
	for (int i = 0; i < 2; i++) {
		NEEDED(touch(data + bad) == -SIGBUS && touch(data + bad + PAGE - 1) == -SIGBUS);
		NEEDED(hoist__lazy_error(lazy) == -EIO);
		NEEDED(strstr(hoist__error_text(), "at 3166208") != NULL);
		uint64_t where = 0;
		NEEDED(hoist__lazy_failed(lazy, &where) == file && where == bad);
		same(data + bad + PAGE, bad + PAGE, 3 * MIB);
		lazy_world.bad_end = 0; /* it is for good */
	}
	same(data, 0, bad);
	hoist__lazy_want(lazy, 0, 8 * MIB);
	NEEDED(hoist__lazy_wait(lazy, UINT64_MAX) == -EIO);
	same(data + 6 * MIB, 6 * MIB, 2 * MIB);
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data) && !is_mapped(data + bad));
	hoist__file_close(file);
}

/* A window is read as a whole; what of it nobody asked for may be bad. */
static void a_bad_place_that_nobody_wants(void)
{
	size_t bad = 3 * MIB;
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	uint64_t where = 0;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	lazy_world.bad_begin = bad;
	lazy_world.bad_end = bad + 1;
	NEEDED(hoist__lazy_want(lazy, PAGE, bad - PAGE) == 0);
	NEEDED(hoist__lazy_want(lazy, bad + PAGE, MIB) == 0);
	NEEDED(hoist__lazy_wait(lazy, UINT64_MAX) == 0 && hoist__lazy_error(lazy) == 0);
	NEEDED(hoist__lazy_failed(lazy, &where) == NULL);
	same(data, 0, bad);
	same(data + bad + PAGE, bad + PAGE, MIB);
	NEEDED(hoist__lazy_error(lazy) == 0);
	uint64_t done, total;
	hoist__lazy_progress(lazy, &done, &total);
	NEEDED(done == total && total == 6 * MIB);
	/* Now somebody does, in a window that was tried long ago. */
	NEEDED(hoist__lazy_want(lazy, bad + 100, 1) == 0);
	NEEDED(hoist__lazy_wait(lazy, UINT64_MAX) == -EIO);
	NEEDED(hoist__lazy_failed(lazy, &where) == file && where == bad);
	NEEDED(touch(data + bad) == -SIGBUS);
	lazy_world.bad_end = 0;
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

static struct hoist__lazy *asked_more;

/* In the middle of the first page's read; the second one's takes its time. */
static void want_the_next_page(void)
{
	static atomic_int n;
	if (atomic_fetch_add(&n, 1) == 0)
		NEEDED(hoist__lazy_want(asked_more, 2 * PAGE, PAGE) == 0);
	else
		usleep(100000);
}

/* Of a window with a bad place, more is wanted while it is looked at. */
static void a_bad_place_that_is_wanted_late(void)
{
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	asked_more = lazy;
	lazy_world.bad_begin = 2 * PAGE;
	lazy_world.bad_end = 2 * PAGE + 1;
	lazy_world.on_page = want_the_next_page;
	NEEDED(hoist__lazy_want(lazy, PAGE, PAGE) == 0);
	NEEDED(hoist__lazy_wait(lazy, UINT64_MAX) == -EIO);
	lazy_world.on_page = NULL;
	lazy_world.bad_end = 0;
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* Whatever happens, nobody waits for ever, or is shown zeros. */
static void nothing_is_to_be_had(void)
{
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	lazy_world.move_fails = lazy_world.no_pages = true;
	NEEDED(touch(data + MIB) == -SIGBUS && hoist__lazy_error(lazy) == -ENOMEM);
	lazy_world.move_fails = lazy_world.no_pages = false;
	same(data + 4 * MIB, 4 * MIB, 4 * MIB);
	same(data, 0, MIB);
	NEEDED(touch(data + MIB) == -SIGBUS);
	hoist__lazy_close(lazy);
	lazy = open_one(file, 0, 8 * MIB, &data);
	lazy_world.bad_begin = 6 * MIB;
	lazy_world.bad_end = 6 * MIB + 1;
	same(data, 0, MIB);
	lazy_world.no_maps = true;
	NEEDED(touch(data + 6 * MIB) == -SIGSEGV && touch(data) == -SIGSEGV);
	NEEDED(hoist__lazy_error(lazy) == -EIO);
	lazy_world.no_maps = false;
	lazy_world.bad_end = 0;
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data));
	hoist__file_close(file);
}

static void a_file_that_shrinks(void)
{
	char path[256];
	size_t end = 5 * MIB + 3 * PAGE + 7;
	make_file(scratch(path, sizeof path, "shrinks"), 16 * MIB);
	struct hoist__file *file = open_file(path);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 16 * MIB, &data);
	data[12 * MIB]++;
	same(data + 13 * MIB, 13 * MIB, MIB);
	NEEDED(truncate(path, (off_t)end) == 0);
	same(data + 4 * MIB, 4 * MIB, end / PAGE * PAGE - 4 * MIB);
	NEEDED(touch(data + end - 1) == -SIGBUS && touch(data + end) == -SIGBUS);
	NEEDED(touch(data + 11 * MIB) == -SIGBUS && touch(data + 16 * MIB - 1) == -SIGBUS);
	NEEDED(hoist__lazy_error(lazy) == -ENODATA);
	NEEDED(strstr(hoist__error_text(), "shrinks") != NULL);
	NEEDED(strstr(hoist__error_text(), "it ends at 5255175") != NULL);
	/* What was read stays. */
	NEEDED(data[12 * MIB] == (unsigned char)(byte_at(12 * MIB) + 1));
	same(data + 13 * MIB, 13 * MIB, MIB);
	same(data, 0, 4 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
	unlink(path);
}

/* Nobody is told by a signal, but whoever asks is. */
static void a_file_that_is_written_to(void)
{
	char path[256];
	make_file(scratch(path, sizeof path, "written"), 8 * MIB);
	struct hoist__file *file = open_file(path);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	NEEDED(data[0] == byte_at(0) && hoist__lazy_error(lazy) == 0);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	usleep(20000); /* a tick of the file system's clock */
	NEEDED(fd >= 0 && pwrite(fd, "new", 3, 5 * MIB) == 3);
	close(fd);
	NEEDED(memcmp(data + 5 * MIB, "new", 3) == 0);
	NEEDED(hoist__lazy_wait(lazy, 0) == -EBADMSG);
	NEEDED(strstr(hoist__error_text(), "changed while it was open") != NULL);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
	unlink(path);
}

/* --- kernels that cannot --- */

static void refusals(void)
{
	struct hoist__file *file = new_file(3 * MIB);
	lazy_world.no_device = lazy_world.no_call = true;
	NEEDED(try_open(file) == -EPERM);
	NEEDED(strcmp(hoist__error_text(),
		      "userfaultfd refused: /dev/userfaultfd: ENOENT, userfaultfd(2): EPERM; let "
		      "the user open /dev/userfaultfd, or set the sysctl "
		      "vm.unprivileged_userfaultfd to 1") == 0);
	lazy_world.no_call = false;
	int err = try_open(file); /* by the call, if this user may */
	NEEDED(err == 0 || err == -EPERM || err == -ENOSYS);
	lazy_world.no_device = false;
	hoist__file_close(file);
}

/* A program that locks all its memory: pages that are there at once would be zeros. */
static void memory_that_is_locked(void)
{
	struct hoist__file *file = new_file(4 * MIB);
	if (mlockall(MCL_FUTURE) == 0) {
		NEEDED(try_open(file) == 0);
		munlockall();
	}
	hoist__file_close(file);
}

/* On a node; and where the kernel will not be told so, from threads on it. */
static void placed_on_a_node(void)
{
	struct hoist__placement placement = {.policy = HOIST__POLICY_PREFER};
	struct hoist__file *file = new_file(4 * MIB);
	hoist__nodeset_add(&placement.nodes, 0);
	for (int i = 0; i < 2; i++) {
		struct hoist__lazy_range range = {file, 0, file->bytes, 0};
		struct hoist__whereabouts where;
		struct hoist__lazy *lazy = NULL;
		lazy_world.no_mbind = i == 1;
		NEEDED(hoist__lazy_open(&range, 1, &placement, &lazy) == 0);
		lazy_world.no_mbind = false;
		same(hoist__lazy_data(lazy), 0, file->bytes);
		if (hoist__whereabouts(hoist__lazy_data(lazy), file->bytes, 64, &where) == 0)
			NEEDED(where.n_absent == 0 &&
			       where.per_node[0] + where.n_unknown == where.n_sampled);
		hoist__lazy_close(lazy);
	}
	hoist__file_close(file);
}

static void calls_that_fail(void)
{
	struct hoist__file *file = new_file(3 * MIB);
	size_t fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
	int n_failed = 0;
	for (int n = 1; n < 100; n++) {
		lazy_world.fail_at = n;
		int err = try_open(file);
		bool failed = atomic_load(&lazy_world.fail_at) <= 0;
		lazy_world.fail_at = 0;
		n_failed += err < 0;
		NEEDED(err == 0 || strlen(hoist__error_text()) > 0);
		NEEDED(count_entries("/proc/self/fd") == fds);
		if (!failed)
			break;
	}
	NEEDED(n_failed >= 6);
	lazy_world.no_threads = true; /* no limit is at fault then */
	NEEDED(try_open(file) == -EPERM && strstr(hoist__error_text(), "ulimit") == NULL);
	lazy_world.no_threads = false;
	threads_are(threads);
	hoist__file_close(file);
}

int main(void)
{
	CASE(refusals);
	skip_without_lazy_memory();
	CASE(a_bad_place_on_the_disk);
	CASE(a_bad_place_that_nobody_wants);
	CASE(a_bad_place_that_is_wanted_late);
	CASE(nothing_is_to_be_had);
	CASE(a_file_that_shrinks);
	CASE(a_file_that_is_written_to);
	CASE(memory_that_is_locked);
	CASE(placed_on_a_node);
	CASE(calls_that_fail);
	return 0;
}
