/* SPDX-License-Identifier: MIT */
/* The small parts of base/: checked arithmetic, the list, the clock, the log. */
#include "config.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limit.h"
#include "base/list.h"
#include "base/log.h"
#include "base/past.h"

/* Asked for before the kernel would send SIGXFSZ. */
Test(base_limit, a_file_longer_than_allowed_is_refused_with_figures_and_remedy)
{
	const struct rlimit small = {1000000, 1000000};
	cr_expect_eq(hoist__check_file_bytes(UINT64_MAX, "an image"), 0);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	cr_expect_eq(hoist__check_file_bytes(1000000, "an image"), 0);
	cr_expect_eq(hoist__check_file_bytes(1000001, "an image"), -EFBIG);
	cr_expect_str_eq(hoist__error_text(),
			 "an image: the file needs 1000001 bytes, but RLIMIT_FSIZE "
			 "is 1000000; raise the limit with `ulimit -f`");
}

/* The default of SIGXFSZ would end this process. */
Test(base_limit, a_file_at_its_limit_is_an_error)
{
	const struct rlimit small = {10, 10};
	FILE *file = tmpfile();
	sigset_t pending;
	cr_assert_not_null(file);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	cr_expect_eq(hoist__write(fileno(file), "0123456789ab", 12), 10);
	cr_expect_eq(hoist__write(fileno(file), "ab", 2), -1);
	cr_expect_eq(errno, EFBIG);
	cr_expect_eq(sigpending(&pending), 0);
	cr_expect_not(sigismember(&pending, SIGXFSZ));
	cr_expect_eq(sigprocmask(SIG_BLOCK, NULL, &pending), 0);
	cr_expect_not(sigismember(&pending, SIGXFSZ));
	fclose(file);
}

/* The default of SIGPIPE would, too; what the program has blocked and not taken stays. */
Test(base_limit, a_pipe_that_nobody_reads_is_an_error)
{
	int ends[2];
	sigset_t pipe_signal, pending;
	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(close(ends[0]), 0);
	cr_assert(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
	cr_expect_eq(hoist__write(ends[1], "ab", 2), -1);
	cr_expect_eq(errno, EPIPE);
	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	cr_assert_eq(sigprocmask(SIG_BLOCK, &pipe_signal, NULL), 0);
	cr_assert_eq(sigpending(&pending), 0);
	cr_expect_not(sigismember(&pending, SIGPIPE));
	cr_assert_eq(raise(SIGPIPE), 0);
	cr_expect_eq(hoist__write(ends[1], "ab", 2), -1);
	cr_assert_eq(sigpending(&pending), 0);
	cr_expect(sigismember(&pending, SIGPIPE));
	close(ends[1]);
}

Test(base_error, a_thread_that_was_refused_has_a_remedy)
{
	cr_expect_eq(hoist__fail_thread(-EAGAIN, "starting a thread"), -ENOMEM);
	cr_expect(strstr(hoist__error_text(), "starting a thread: ") == hoist__error_text());
	cr_expect(strstr(hoist__error_text(), "ulimit -u") != NULL);
	cr_expect_eq(hoist__fail_thread(-EPERM, "starting a thread"), -EPERM);
	cr_expect_str_eq(hoist__error_text(), "starting a thread: Operation not permitted");
}

Test(base_checked, overflow_is_reported_and_exact_results_are_given)
{
	uint64_t r = 0;
	cr_expect_not(hoist__add_overflow(UINT64_MAX - 1, 1, &r));
	cr_expect_eq(r, UINT64_MAX);
	cr_expect(hoist__add_overflow(UINT64_MAX, 1, &r));
	cr_expect_not(hoist__mul_overflow(UINT64_C(1) << 32, UINT32_MAX, &r));
	cr_expect_eq(r, UINT64_C(0xffffffff00000000));
	cr_expect(hoist__mul_overflow(UINT64_C(1) << 32, UINT64_C(1) << 32, &r));
	cr_expect_not(hoist__mul_overflow(0, UINT64_MAX, &r));
	cr_expect_eq(r, 0);
}

Test(base_checked, rounding_is_exact_at_every_edge)
{
	for (uint64_t align = 1; align <= 64; align *= 2)
		for (uint64_t x = 0; x < 300; x++) {
			cr_assert_eq(hoist__round_down(x, align), x / align * align);
			cr_assert_eq(hoist__round_up(x, align), (x + align - 1) / align * align);
		}
	cr_expect_eq(hoist__round_up((UINT64_C(1) << 63) - 1, 4096), UINT64_C(1) << 63);
}

Test(base_checked, powers_of_two_minimum_and_maximum)
{
	for (uint64_t x = 0; x < 5000; x++) {
		int bits = 0;
		for (uint64_t y = x; y != 0; y >>= 1)
			bits += (int)(y & 1);
		cr_assert_eq(hoist__is_power_of_two(x), bits == 1);
	}
	cr_expect(hoist__is_power_of_two(UINT64_C(1) << 63));
	cr_expect_eq(hoist__min_u64(3, UINT64_MAX), 3);
	cr_expect_eq(hoist__max_u64(3, UINT64_MAX), UINT64_MAX);
}

struct item {
	int value;
	struct hoist__list node;
};

static int pop_value(struct hoist__list *head)
{
	struct hoist__list *node = hoist__list_pop(head);
	return node != NULL ? HOIST__CONTAINER_OF(node, struct item, node)->value : -1;
}

Test(base_list, keeps_order_and_survives_double_removal)
{
	struct hoist__list head;
	struct item items[4];
	hoist__list_init(&head);
	cr_expect(hoist__list_empty(&head));
	cr_expect_null(hoist__list_pop(&head));
	for (int i = 0; i < 4; i++)
		items[i].value = i;
	hoist__list_push_back(&head, &items[1].node);
	hoist__list_push_back(&head, &items[2].node);
	hoist__list_push_front(&head, &items[0].node);
	hoist__list_push_back(&head, &items[3].node);
	hoist__list_remove(&items[2].node);
	hoist__list_remove(&items[2].node);
	cr_expect_eq(pop_value(&head), 0);
	cr_expect_eq(pop_value(&head), 1);
	cr_expect_not(hoist__list_empty(&head));
	cr_expect_eq(pop_value(&head), 3);
	cr_expect_eq(pop_value(&head), -1);
	cr_expect(hoist__list_empty(&head));
}

static uint64_t fake_clock(void *context)
{
	return *(uint64_t *)context += 10;
}

Test(base_clock, the_hook_takes_the_clocks_place_and_gives_it_back)
{
	uint64_t time = 100;
	uint64_t before = hoist__now_ns();
	hoist__clock_hook(fake_clock, &time);
	cr_expect_eq(hoist__now_ns(), 110);
	cr_expect_eq(hoist__now_ns(), 120);
	hoist__clock_hook(NULL, NULL);
	cr_expect_geq(hoist__now_ns(), before);
	cr_expect_eq(time, 120);
}

Test(base_clock, cpu_time_grows_with_work)
{
	uint64_t process = hoist__cpu_ns();
	uint64_t thread = hoist__thread_cpu_ns();
	volatile unsigned sink = 0;
	while (hoist__thread_cpu_ns() == thread)
		sink = sink + 1;
	cr_expect_gt(hoist__cpu_ns(), process);
	cr_expect_geq(hoist__cpu_ns(), hoist__thread_cpu_ns());
}

#define BIT(module) (1u << HOIST__LOG_##module)
#define READ_BIT (1u << 31)

Test(base_log, the_environment_names_modules)
{
	static const struct list {
		const char *text;
		unsigned mask;
	} lists[] = {
		{"", 0},
		{"io", BIT(io)},
		{"io,alloc", BIT(io) | BIT(alloc)},
		{",,format,", BIT(format)},
		{"all", (1u << HOIST__LOG_COUNT) - 1},
		{"nonsense", 0},
		{"nonsense,numa", BIT(numa)},
		{"i,ioo,IO,al,alll", 0},
		{"load,device", BIT(load) | BIT(device)},
	};
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		cr_assert_eq(setenv("HOIST_DEBUG", lists[i].text, 1), 0);
		cr_expect_eq(hoist__log_init(), lists[i].mask | READ_BIT, "%s", lists[i].text);
		cr_expect_eq(hoist__log_on(HOIST__LOG_io), (lists[i].mask & BIT(io)) != 0);
	}
	cr_assert_eq(unsetenv("HOIST_DEBUG"), 0);
	cr_expect_eq(hoist__log_init(), READ_BIT);
}

static int count_evaluation(int *n)
{
	return ++*n;
}

/* A child with HOIST_DEBUG=@list: @out gets its standard error.  Returns: its exit status, which
 * tells how often the argument of a log call was evaluated. */
static int log_in_child(const char *list, char *out, size_t bytes)
{
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	pid_t child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		int n = 0;
		uint64_t time = UINT64_C(12345678901);
		char big[3000];
		memset(big, 'x', sizeof big - 1);
		big[sizeof big - 1] = '\0';
		dup2(ends[1], STDERR_FILENO);
		setenv("HOIST_DEBUG", list, 1);
		hoist__clock_hook(fake_clock, &time);
		hoist__log(io, "uring refused: %s %d", "EPERM", count_evaluation(&n));
		hoist__log(numa, "%s%d", big, count_evaluation(&n));
		hoist__log(load,
			   "a\x1b[2J\nb\x7f\xc2\x9b"
			   "1m \xc3\x9b \xe2\x82\xac\r%d",
			   count_evaluation(&n));
		_exit(n);
	}
	close(ends[1]);
	size_t used = 0;
	ssize_t got;
	while ((got = read(ends[0], out + used, bytes - 1 - used)) > 0)
		used += (size_t)got;
	out[used] = '\0';
	close(ends[0]);
	int status;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

Test(base_log, a_word_that_is_no_module_is_named)
{
	char out[4096];
	cr_expect_eq(log_in_child("nonsense,i\no", out, sizeof out), 0);
	cr_expect_str_eq(out, "hoist[debug] 12.345678 HOIST_DEBUG: there is no module "
			      "\"nonsense\"; there are device, numa, alloc, io, format, load, "
			      "and all, with commas between them\n");
}

Test(base_log, a_line_does_nothing_to_a_terminal)
{
	char out[4096];
	cr_expect_eq(log_in_child("load", out, sizeof out), 1);
	cr_expect_str_eq(out, "hoist[load] 12.345678 a?[2J?b?\xc2?"
			      "1m \xc3\x9b \xe2\x82\xac?1\n");
}

/* It ends no program, whatever standard error has become. */
Test(base_log, a_line_that_nobody_reads_is_lost)
{
	int ends[2];
	int status;
	cr_assert_eq(pipe(ends), 0);
	pid_t child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		signal(SIGPIPE, SIG_DFL);
		close(ends[0]);
		dup2(ends[1], STDERR_FILENO);
		setenv("HOIST_DEBUG", "io", 1);
		hoist__log(io, "nobody reads this: %d", 1);
		_exit(7);
	}
	close(ends[0]);
	close(ends[1]);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

Test(base_log, lines_go_to_standard_error_only_when_asked_for)
{
	char out[4096];
	cr_expect_eq(log_in_child("", out, sizeof out), 0);
	cr_expect_str_eq(out, "");
	cr_expect_eq(log_in_child("alloc", out, sizeof out), 0);
	cr_expect_str_eq(out, "");
	cr_expect_eq(log_in_child("io", out, sizeof out), 1);
	cr_expect_str_eq(out, "hoist[io] 12.345678 uring refused: EPERM 1\n");
	cr_expect_eq(log_in_child("numa", out, sizeof out), 1);
	cr_expect_eq(strncmp(out, "hoist[numa] 12.345678 xxx", 25), 0);
	cr_expect_lt(strlen(out), 1024);
	cr_expect_eq(strchr(out, '\n'), out + strlen(out) - 1);
}

/* --- copies past the cache --- */

/* Every place of source and destination within a line, lengths around the least one and around
 * whole lines: the bytes arrive, and none beside them changes. */
Test(base_past, the_bytes_arrive_and_no_others_change)
{
	enum { ROOM = HOIST__PAST_LEAST_BYTES + 512 };
	static const size_t lengths[] = {0,
					 1,
					 100,
					 HOIST__PAST_LEAST_BYTES - 1,
					 HOIST__PAST_LEAST_BYTES,
					 HOIST__PAST_LEAST_BYTES + 1,
					 HOIST__PAST_LEAST_BYTES + 63,
					 HOIST__PAST_LEAST_BYTES + 64,
					 HOIST__PAST_LEAST_BYTES + 200};
	unsigned char *from = malloc(ROOM);
	unsigned char *to = malloc(ROOM);
	unsigned char *expected = malloc(ROOM);
	cr_assert(from != NULL && to != NULL && expected != NULL);
	for (size_t i = 0; i < ROOM; i++)
		from[i] = (unsigned char)(i * 151 + i / 256);
	for (size_t l = 0; l < HOIST__ARRAY_SIZE(lengths); l++) {
		for (size_t at = 0; at < 64; at++) {
			size_t source = (at * 7 + l) % 64;
			memset(to, 0xa5, ROOM);
			memset(expected, 0xa5, ROOM);
			memcpy(expected + at, from + source, lengths[l]);
			hoist__copy_past(to + at, from + source, lengths[l]);
			cr_assert_arr_eq(to, expected, ROOM, "%zu bytes from %zu to %zu",
					 lengths[l], source, at);
		}
	}
	free(from);
	free(to);
	free(expected);
}
