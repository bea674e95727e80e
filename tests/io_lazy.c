/* SPDX-License-Identifier: MIT */
/* Memory that is filled when it is touched; plain C, so that TSan sees the threads.  What goes
 * wrong is in io_lazy_failures.c. */
#include "io-lazy.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "under-tsan.h"

/* --- what it is for --- */

static void two_files_in_one_memory(void)
{
	struct hoist__file *files[] = {new_file(9 * MIB + 77), new_file(100)};
	struct hoist__lazy_range ranges[] = {
		{files[0], 5000, 9 * MIB + 77, 0}, {files[1], 10, 100, 0}, {files[0], 123, 456, 0}};
	struct hoist__lazy *lazy = NULL;
	NEEDED(hoist__lazy_open(ranges, 3, &anywhere, &lazy) == 0);
	NEEDED(hoist__lazy_bytes(lazy) == 14 * MIB);
	unsigned char *data = hoist__lazy_data(lazy);
	same(data + ranges[1].at, 10, 90);
	for (size_t i = 9 * MIB + 77 - 5000; i-- > 0;) /* from behind */
		NEEDED(data[ranges[0].at + i] == byte_at(5000 + i));
	NEEDED(data[ranges[0].at + 9 * MIB + 77 - 5000] == 0 && "behind the file is nothing");
	same(data + ranges[2].at, 123, 333);
	NEEDED(hoist__lazy_error(lazy) == 0);
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data));
	hoist__file_close(files[0]);
	hoist__file_close(files[1]);
}

static void reading_along_and_writing(void)
{
	size_t bytes = 20 * MIB;
	struct hoist__file *file = new_file(bytes);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, bytes, &data);
	data[3 * MIB + 5] = 0xAB; /* the first touch is a write */
	data[3 * MIB + 5] ^= 0xFF;
	NEEDED(data[3 * MIB + 5] == (0xAB ^ 0xFF));
	data[3 * MIB + 5] = byte_at(3 * MIB + 5);
	same(data, 0, bytes);
	NEEDED(hoist__file_changed(file) == 0 && first_wrong(file->fd, data, 0, bytes) == bytes);
	NEEDED(hoist__lazy_wait(lazy, 0) == 0);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* The kernel's own accesses: it waits, too. */
static void the_kernel_touches(void)
{
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data, block[8192];
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	int ends[2];
	NEEDED(pipe(ends) == 0);
	NEEDED(write(ends[1], data + 100, sizeof block) == (ssize_t)sizeof block);
	NEEDED(read(ends[0], block, sizeof block) == (ssize_t)sizeof block);
	same(block, 100, sizeof block);
	NEEDED(write(ends[1], "xyz", 3) == 3 && read(ends[0], data + 5 * MIB, 3) == 3);
	NEEDED(memcmp(data + 5 * MIB, "xyz", 3) == 0);
	same(data + 5 * MIB + 3, 5 * MIB + 3, MIB);
	close(ends[0]);
	close(ends[1]);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

static size_t huge_bytes(const void *address)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	NEEDED(maps != NULL);
	char line[512];
	bool here = false;
	size_t kib = 0;
	while (fgets(line, sizeof line, maps) != NULL) {
		unsigned long begin, end;
		size_t n;
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			here = (uintptr_t)address >= begin && (uintptr_t)address < end;
		else if (here && sscanf(line, "AnonHugePages: %zu kB", &n) == 1)
			kib += n;
	}
	fclose(maps);
	return kib << 10;
}

static bool huge_pages_are_had(void)
{
	char text[64] = "";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	if (file == NULL)
		return false;
	bool any = fgets(text, sizeof text, file) != NULL && strstr(text, "[never]") == NULL;
	fclose(file);
	return any;
}

/* What is touched becomes whole huge pages, and nothing else does. */
static void windows_are_huge_pages(void)
{
	struct hoist__file *file = new_file(12 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 12 * MIB, &data);
	NEEDED(data[5 * MIB] == byte_at(5 * MIB));
	unsigned char there[512];
	NEEDED(mincore(data + 4 * MIB, 2 * MIB, there) == 0);
	for (size_t i = 0; i < sizeof there; i++)
		NEEDED(there[i] & 1);
	NEEDED(mincore(data + 8 * MIB, 2 * MIB, there) == 0 && (there[0] & 1) == 0);
	size_t huge = huge_bytes(data);
	printf("  %zu KiB of huge pages after one touch; %s\n", huge >> 10, hoist__lazy_note(lazy));
	if (huge_pages_are_had() && strstr(hoist__lazy_note(lazy), "moved in") != NULL)
		NEEDED(huge == 2 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* --- threads --- */

struct toucher {
	unsigned char *data;
	size_t bytes;
	uint64_t seed;
	pthread_t id;
};

static void *touch_about(void *argument)
{
	struct toucher *toucher = argument;
	for (int i = 0; i < 1000; i++) {
		toucher->seed = toucher->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		size_t at = (size_t)((toucher->seed >> 20) % toucher->bytes);
		NEEDED(toucher->data[at] == byte_at(at));
	}
	return NULL;
}

static void four_threads_touch_about(void)
{
	size_t bytes = 24 * MIB + 12345;
	struct hoist__file *file = new_file(bytes);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, bytes, &data);
	struct toucher touchers[4];
	for (unsigned i = 0; i < 4; i++) {
		touchers[i] = (struct toucher){data, bytes, i * 12345 + 1, 0};
		NEEDED(pthread_create(&touchers[i].id, NULL, touch_about, &touchers[i]) == 0);
		if (i == 1)
			hoist__lazy_want(lazy, 0, bytes / 2);
	}
	for (unsigned i = 0; i < 4; i++)
		NEEDED(pthread_join(touchers[i].id, NULL) == 0);
	NEEDED(hoist__lazy_error(lazy) == 0);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* --- all of it, and the end of it --- */

static void once_filled_it_is_plain_memory(void)
{
	size_t bytes = 21 * MIB;
	struct hoist__file *file = new_file(bytes);
	size_t fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 100, bytes, &data);
	uint64_t done, total;
	hoist__lazy_want(lazy, 100, bytes - 100);
	NEEDED(hoist__lazy_wait(lazy, 60 * SECOND) == 0);
	hoist__lazy_progress(lazy, &done, &total);
	NEEDED(done == total && total == 22 * MIB);
	threads_are(threads);
	NEEDED(count_entries("/proc/self/fd") == fds);
	hoist__file_close(file);
	same(data, 100, bytes - 100);
	if (!UNDER_TSAN) {
		pid_t child = fork();
		NEEDED(child >= 0);
		if (child == 0) {
			NEEDED(data[7 * MIB] == byte_at(7 * MIB + 100));
			data[7 * MIB]++;
			NEEDED(hoist__lazy_error(lazy) == 0);
			hoist__lazy_close(lazy);
			_exit(is_mapped(data));
		}
		int status;
		NEEDED(waitpid(child, &status, 0) == child && status == 0);
	}
	same(data, 100, bytes - 100);
	hoist__lazy_want(lazy, 0, bytes); /* it is there */
	NEEDED(hoist__lazy_wait(lazy, 0) == 0);
	hoist__lazy_close(lazy);
	NEEDED(!is_mapped(data));
}

static void wanting_can_be_cancelled(void)
{
	size_t bytes = 32 * MIB;
	struct hoist__file *file = new_file(bytes);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, bytes, &data);
	NEEDED(hoist__lazy_wait(lazy, 0) == 0 && "nothing is wanted");
	hoist__lazy_want(lazy, 10 * MIB, 22 * MIB);
	int err = hoist__lazy_wait(lazy, 0);
	NEEDED(err == 0 || err == -EAGAIN);
	hoist__lazy_unwant(lazy);
	err = hoist__lazy_wait(lazy, UINT64_MAX);
	NEEDED(err == 0 || err == -ECANCELED);
	same(data, 0, bytes);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* In the middle: threads, descriptors, memory, all is given back. */
static void closing_early_leaves_nothing(void)
{
	struct hoist__file *file = new_file(32 * MIB);
	size_t fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
	for (size_t i = 0; i < 20; i++) {
		unsigned char *data;
		struct hoist__lazy *lazy = open_one(file, 0, 32 * MIB, &data);
		if (i % 3 == 1)
			hoist__lazy_want(lazy, 0, 32 * MIB);
		if (i % 2 == 0)
			same(data + i * MIB, i * MIB, PAGE);
		hoist__lazy_close(lazy);
		NEEDED(!is_mapped(data));
		NEEDED(count_entries("/proc/self/fd") == fds);
	}
	threads_are(threads);
	hoist__lazy_close(NULL);
	hoist__file_close(file);
}

/* --- fork, and pages given back --- */

static void a_child_does_not_have_it(void)
{
	if (UNDER_TSAN)
		return;
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	NEEDED(data[0] == byte_at(0));
	pid_t child = fork();
	NEEDED(child >= 0);
	if (child == 0) {
		NEEDED(touch(data) == -SIGSEGV && touch(data + 5 * MIB) == -SIGSEGV);
		NEEDED(hoist__lazy_error(lazy) == -ESTALE);
		hoist__lazy_close(lazy);
		_exit(0);
	}
	int status;
	NEEDED(waitpid(child, &status, 0) == child && status == 0);
	same(data, 0, 8 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

/* Its threads may have any lock at that moment: a child takes none. */
static void a_child_asks_for_errors(void)
{
	if (UNDER_TSAN)
		return;
	struct hoist__file *file = new_file(32 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 32 * MIB, &data);
	hoist__lazy_want(lazy, 0, 32 * MIB);
	for (int i = 0; i < 8; i++) {
		pid_t child = fork();
		NEEDED(child >= 0);
		if (child == 0) {
			alarm(100);
			int err = hoist__lazy_error(lazy);
			_exit(err != 0 && err != -ESTALE);
		}
		int status;
		NEEDED(waitpid(child, &status, 0) == child && status == 0);
	}
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

static void what_is_given_back_is_read_again(void)
{
	struct hoist__file *file = new_file(8 * MIB);
	unsigned char *data;
	struct hoist__lazy *lazy = open_one(file, 0, 8 * MIB, &data);
	memset(data + MIB, 0x55, MIB);
	NEEDED(madvise(data + MIB, MIB, MADV_DONTNEED) == 0);
	same(data, 0, 4 * MIB);
	hoist__lazy_close(lazy);
	hoist__file_close(file);
}

static void without_moving(void)
{
	atomic_bool *const ways[] = {&lazy_world.no_move, &lazy_world.move_fails};
	for (int i = 0; i < 2; i++) {
		*ways[i] = true;
		windows_are_huge_pages();
		two_files_in_one_memory();
		four_threads_touch_about();
		what_is_given_back_is_read_again();
		*ways[i] = false;
	}
}

int main(void)
{
	skip_without_lazy_memory();
	CASE(two_files_in_one_memory);
	CASE(reading_along_and_writing);
	CASE(the_kernel_touches);
	CASE(windows_are_huge_pages);
	CASE(four_threads_touch_about);
	CASE(once_filled_it_is_plain_memory);
	CASE(wanting_can_be_cancelled);
	CASE(closing_early_leaves_nothing);
	CASE(a_child_does_not_have_it);
	CASE(a_child_asks_for_errors);
	CASE(what_is_given_back_is_read_again);
	CASE(without_moving);
	return 0;
}
