/* SPDX-License-Identifier: MIT */
/* Traces: each line of the file, their order, and what cannot be written. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/pool.h"
#include "alloc/trace.h"
#include "base/checked.h"
#include "base/error.h"

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static char path[4096];

static void choose_path(void)
{
	const char *folder = getenv("TMPDIR");
	(void)snprintf(path, sizeof path, "%s/trace.%ld.csv", folder == NULL ? "/tmp" : folder,
		       (long)getpid());
}

static void remove_file(void)
{
	(void)unlink(path);
}

TestSuite(alloc_trace, .init = choose_path, .fini = remove_file);

struct line {
	long thread;
	char action[32];
	uintptr_t address; /* 0: "(nil)" */
	size_t bytes;
	char stream[32];
};

/* The next line; false at the end.  Every line must be whole. */
static bool next_line(FILE *file, struct line *line)
{
	char text[256];
	char pointer[32];
	int hour, minute, second, end = 0;
	long micros;
	if (fgets(text, sizeof text, file) == NULL)
		return false;
	int n = sscanf(text, "%ld,%2d:%2d:%2d.%6ld,%31[^,],%31[^,],%zu,%31[^\n]\n%n", &line->thread,
		       &hour, &minute, &second, &micros, line->action, pointer, &line->bytes,
		       line->stream, &end);
	cr_assert_eq(n, 9, "%s", text);
	cr_assert_eq(text[strlen(text) - 1], '\n');
	cr_assert_eq((size_t)end, strlen(text), "%s", text);
	cr_assert(hour < 24 && minute < 60 && second <= 60 && micros >= 0);
	cr_assert_eq(strcspn(strchr(text, '.'), ","), 7, "six digits: %s", text);
	line->address = 0;
	if (strcmp(pointer, "(nil)") != 0)
		cr_assert_eq(sscanf(pointer, "0x%" SCNxPTR, &line->address), 1, "%s", text);
	return true;
}

static FILE *open_trace(void)
{
	char text[64] = "";
	FILE *file = fopen(path, "r");
	cr_assert_not_null(file);
	cr_assert_not_null(fgets(text, sizeof text, file));
	cr_assert_str_eq(text, HEADER);
	return file;
}

Test(alloc_trace, has_the_columns_of_rmm)
{
	struct hoist__trace *trace = NULL;
	struct line line;
	cr_assert_eq(hoist__trace_open(path, &trace), 0, "%s", hoist__error_text());
	hoist__trace_line(trace, "allocate", 0x7f0000001000, 4096, NULL);
	hoist__trace_line(trace, "allocate failure", 0, SIZE_MAX, (void *)(uintptr_t)0xabc);
	hoist__trace_line(trace, "free", UINTPTR_MAX, 1, (void *)UINTPTR_MAX);
	cr_assert_eq(hoist__trace_close(trace), 0);
	FILE *file = open_trace();
	cr_assert(next_line(file, &line));
	cr_assert_eq(line.thread, (long)gettid());
	cr_assert_str_eq(line.action, "allocate");
	cr_assert_eq(line.address, 0x7f0000001000);
	cr_assert_eq(line.bytes, 4096);
	cr_assert_str_eq(line.stream, "0");
	cr_assert(next_line(file, &line));
	cr_assert_str_eq(line.action, "allocate failure");
	cr_assert_eq(line.address, 0);
	cr_assert_eq(line.bytes, SIZE_MAX);
	cr_assert_str_eq(line.stream, "0xabc");
	cr_assert(next_line(file, &line));
	cr_assert_str_eq(line.action, "free");
	cr_assert_eq(line.address, UINTPTR_MAX);
	cr_assert_str_eq(line.stream, "0xffffffffffffffff");
	cr_assert(!next_line(file, &line));
	(void)fclose(file);
	cr_assert_eq(hoist__trace_close(NULL), 0);
}

static off_t size_of_file(void)
{
	struct stat st;
	cr_assert_eq(stat(path, &st), 0);
	return st.st_size;
}

Test(alloc_trace, writes_many_whole_lines_at_a_time)
{
	struct hoist__trace *trace = NULL;
	struct line line;
	unsigned n_writes = 0;
	off_t size = 0;
	cr_assert_eq(hoist__trace_open(path, &trace), 0);
	for (uintptr_t i = 1; i <= 10000; i++) {
		hoist__trace_line(trace, "allocate", i, i, NULL);
		off_t now = size_of_file();
		n_writes += now != size;
		cr_assert(now == size || now - size > 60000);
		size = now;
	}
	cr_assert(n_writes >= 5 && n_writes <= 10, "%u", n_writes);
	cr_assert_eq(hoist__trace_close(trace), 0);
	FILE *file = open_trace();
	for (uintptr_t i = 1; i <= 10000; i++) {
		cr_assert(next_line(file, &line));
		cr_assert_eq(line.address, i);
	}
	cr_assert(!next_line(file, &line));
	(void)fclose(file);
}

Test(alloc_trace, names_a_file_that_cannot_be_opened_or_written)
{
	struct hoist__trace *trace = NULL;
	cr_assert_eq(hoist__trace_open("/nowhere/at/all", &trace), -ENOENT);
	cr_assert_null(trace);
	cr_assert_not_null(strstr(hoist__error_text(), "/nowhere/at/all"));
	cr_assert_eq(hoist__trace_open("/dev/full", &trace), 0);
	for (uintptr_t i = 1; i <= 5000; i++)
		hoist__trace_line(trace, "allocate", i, i, NULL);
	cr_assert_eq(hoist__trace_close(trace), -ENOSPC);
	cr_assert_not_null(strstr(hoist__error_text(), "writing the trace /dev/full"));
}

Test(alloc_trace, a_child_of_fork_writes_nothing)
{
	struct hoist__trace *trace = NULL;
	struct line line;
	int status = -1;
	cr_assert_eq(hoist__trace_open(path, &trace), 0);
	hoist__trace_line(trace, "allocate", 1, 1, NULL);
	pid_t child = fork();
	if (child == 0) {
		for (uintptr_t i = 1; i <= 5000; i++)
			hoist__trace_line(trace, "allocate", i, i, NULL);
		_exit(hoist__trace_close(trace) == 0 ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	hoist__trace_line(trace, "free", 1, 1, NULL);
	cr_assert_eq(hoist__trace_close(trace), 0);
	FILE *file = open_trace();
	cr_assert(next_line(file, &line));
	cr_assert(next_line(file, &line));
	cr_assert(!next_line(file, &line));
	(void)fclose(file);
}

/* --- of a pool --- */

static struct hoist__pool *pool_with(unsigned debug)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST, .debug = debug, .limit_bytes = 64 * HOIST__MIB};
	struct hoist__pool *pool = NULL;
	cr_assert_eq(hoist__pool_create(&options, &pool), 0);
	return pool;
}

static void expect(FILE *file, const char *action, uintptr_t address, size_t bytes)
{
	struct line line;
	cr_assert(next_line(file, &line));
	cr_assert_str_eq(line.action, action);
	cr_assert_eq(line.address, address);
	cr_assert_eq(line.bytes, bytes);
}

static void trace_a_few(unsigned debug)
{
	struct hoist__pool *pool = pool_with(debug);
	uintptr_t a, b, c, untold;
	struct line line;
	cr_assert_eq(hoist__pool_alloc(pool, 10, 0, 0, &a), 0);
	cr_assert_eq(hoist__pool_trace(pool, path), 0, "%s", hoist__error_text());
	cr_assert_eq(hoist__pool_alloc(pool, 100, 0, 0, &b), 0);
	cr_assert_eq(hoist__pool_alloc(pool, 3 * HOIST__MIB, 0, 0, &c), 0);
	cr_assert_eq(hoist__pool_alloc(pool, HOIST__GIB, 0, 0, &untold), -EDQUOT);
	cr_assert_eq(hoist__pool_free(pool, a), 0);
	cr_assert_eq(hoist__pool_free(pool, a), -EINVAL);
	cr_assert_eq(hoist__pool_free(pool, b), 0);
	cr_assert_eq(hoist__pool_trace(pool, NULL), 0);
	cr_assert_eq(hoist__pool_trace(pool, NULL), 0);
	cr_assert_eq(hoist__pool_alloc(pool, 100, 0, 0, &b), 0);
	cr_assert_eq(hoist__pool_free(pool, b), 0);
	cr_assert_eq(hoist__pool_free(pool, c), 0);
	hoist__pool_unref(pool);
	FILE *file = open_trace();
	expect(file, "allocate", b, 100);
	expect(file, "allocate", c, 3 * HOIST__MIB);
	expect(file, "allocate failure", 0, HOIST__GIB);
	expect(file, "free", a, 10);
	expect(file, "free", b, 100);
	cr_assert(!next_line(file, &line));
	(void)fclose(file);
}

Test(alloc_trace, a_pool_traces_from_now_on_until_told)
{
	trace_a_few(0);
}

Test(alloc_trace, a_debugged_pool_traces_the_users_view)
{
	trace_a_few(1);
}

Test(alloc_trace, a_pool_ends_its_trace)
{
	struct hoist__pool *pool = pool_with(0);
	uintptr_t address;
	cr_assert_eq(hoist__pool_trace(pool, "/nowhere/at/all"), -ENOENT);
	cr_assert_eq(hoist__pool_trace(pool, path), 0);
	cr_assert_eq(hoist__pool_alloc(pool, 10, 0, 0, &address), 0);
	cr_assert_eq(hoist__pool_free(pool, address), 0);
	hoist__pool_unref(pool);
	FILE *file = open_trace();
	expect(file, "allocate", address, 10);
	expect(file, "free", address, 10);
	(void)fclose(file);
}

enum { THREADS = 4, ROUNDS = 20000, HELD = 8 };

static void *churn(void *arg)
{
	struct hoist__pool *pool = arg;
	uintptr_t held[HELD] = {0};
	for (unsigned i = 0; i < ROUNDS; i++) {
		uintptr_t *at = &held[i * 7 % HELD];
		if (*at != 0 && hoist__pool_free(pool, *at) != 0)
			return pool;
		if (hoist__pool_alloc(pool, 1 + i % 4 * 40, 0, 0, at) != 0)
			return pool;
	}
	for (size_t i = 0; i < HELD; i++)
		if (held[i] != 0 && hoist__pool_free(pool, held[i]) != 0)
			return pool;
	return NULL;
}

/* Addresses are 64-byte slots of a few regions: a small open table of those that live. */
#define SLOTS 4096

static struct {
	uintptr_t address;
	bool lives;
} slots[SLOTS];

static bool *lives(uintptr_t address)
{
	size_t at = (size_t)(address / 64 * UINT64_C(0x9e3779b97f4a7c15) >> 52);
	while (slots[at].address != 0 && slots[at].address != address)
		at = (at + 1) % SLOTS;
	slots[at].address = address;
	return &slots[at].lives;
}

/* Read from top to bottom, no block is allocated while it lives, nor freed while it does not. */
Test(alloc_trace, the_order_of_lines_could_have_happened)
{
	struct hoist__pool *pool = pool_with(0);
	pthread_t threads[THREADS];
	struct line line;
	size_t n = 0;
	cr_assert_eq(hoist__pool_trace(pool, path), 0);
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, churn, pool), 0);
	for (int i = 0; i < THREADS; i++) {
		void *failed = pool;
		cr_assert_eq(pthread_join(threads[i], &failed), 0);
		cr_assert_null(failed);
	}
	hoist__pool_unref(pool);
	FILE *file = open_trace();
	for (; next_line(file, &line); n++) {
		bool allocates = strcmp(line.action, "allocate") == 0;
		bool *state = lives(line.address);
		cr_assert_eq(*state, !allocates, "line %zu", n + 2);
		*state = allocates;
	}
	cr_assert_eq(n, (size_t)2 * THREADS * ROUNDS);
	(void)fclose(file);
}
