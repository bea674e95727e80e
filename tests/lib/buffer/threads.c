/* SPDX-License-Identifier: MIT */
/* Threads that use, view, close and drop one storage, and take its memory at once: nothing is
 * freed early, twice or never, and ThreadSanitizer sees it.  Then forks in the middle of that, and
 * an exec. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/support/lib-support.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/random.h"
#include "tests/support/under-tsan.h"

#define N_THREADS 4
#define ROUNDS 60
#define ROWS 64
#define COLUMNS 96
#define CHILD_SECONDS 60

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

/* --- one storage, many threads --- */

static hoist_device *devices[LIB_N_DEVICES];
static pthread_barrier_t barrier;
static hoist_buffer *_Atomic shared;
static atomic_int n_released;

static void count_release(void *context)
{
	free(context);
	atomic_fetch_add(&n_released, 1);
}

/* Lazy ones of each device, and one over memory with an owner. */
static hoist_buffer *make_shared(int round)
{
	const int64_t shape[] = {ROWS, COLUMNS};
	hoist_buffer *made = NULL;
	int which = round % (LIB_N_DEVICES + 1);
	if (which < LIB_N_DEVICES) {
		require(hoist_buffer_create(devices[which], HOIST_U8, 2, shape,
					    HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO, &made) == 0,
			"a lazy buffer");
		return made;
	}
	void *memory = calloc(ROWS, COLUMNS);
	require(memory != NULL, "memory");
	const hoist_buffer_source source = {.size = sizeof source,
					    .address = (uintptr_t)memory,
					    .bytes = (size_t)ROWS * COLUMNS,
					    .release = count_release,
					    .context = memory};
	require(hoist_buffer_wrap(&source, HOIST_U8, 2, shape, NULL, &made) == 0, "wrapping");
	return made;
}

/* Rows of its own, on a stream of its own. */
static void use_rows(hoist_buffer *whole, int thread, hoist_stream *stream)
{
	unsigned char bytes[4 * COLUMNS];
	hoist_buffer *rows = NULL;
	hoist_buffer *reversed = NULL;
	hoist_slice mine = HOIST_RANGE(thread * 4, thread * 4 + 4);
	const hoist_slice back = HOIST_STEP(HOIST_NONE, HOIST_NONE, -1);
	require(hoist_buffer_slice(whole, 1, &mine, &rows) == 0, "a slice");
	require(hoist_buffer_slice(rows, 1, &back, &reversed) == 0, "a slice of it");
	memset(bytes, thread + 1, sizeof bytes);
	require(hoist_buffer_copy_in(reversed, bytes, sizeof bytes) == 0, "copying in");
	require(hoist_buffer_fill_on(rows, "\x7f", 1, stream) == 0, "filling on a stream");
	require(hoist_buffer_close(rows, stream) == 0, "closing on the stream");
	hoist_buffer_unref(rows);
	require(hoist_stream_synchronize(stream) == 0, "waiting");
	require(hoist_buffer_copy_out(reversed, bytes, sizeof bytes) == 0, "copying out");
	for (size_t i = 0; i < sizeof bytes; i++)
		require(bytes[i] == 0x7f, "what was filled");
	hoist_buffer_unref(reversed);
}

static void *work(void *argument)
{
	int thread = (int)(intptr_t)argument;
	for (int round = 0; round < ROUNDS; round++) {
		if (thread == 0)
			atomic_store(&shared, make_shared(round));
		pthread_barrier_wait(&barrier);
		hoist_buffer *whole = hoist_buffer_ref(atomic_load(&shared));
		hoist_stream *stream = NULL;
		require(hoist_stream_create(hoist_buffer_device(whole), &stream) == 0, "a stream");
		pthread_barrier_wait(&barrier); /* all at once: whoever is first takes the memory */
		if (thread == 0)
			hoist_buffer_unref(whole);
		use_rows(whole, thread, stream);
		hoist_buffer_unref(whole);
		hoist_stream_unref(stream);
	}
	return NULL;
}

static void run_threads(void)
{
	pthread_t threads[N_THREADS];
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	for (int i = 0; i < N_THREADS; i++)
		require(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0,
			"a thread");
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	require(atomic_load(&n_released) == ROUNDS / (LIB_N_DEVICES + 1),
		"each owner is told once");
	require(lib_drivers_content(), "the drivers");
	require(lib_nothing_outstanding(devices), "what is left");
}

/* --- a fork in the middle --- */

static atomic_bool done;

/* Makes, takes and drops without an end. */
static void *churn(void *argument)
{
	uint64_t state = (uintptr_t)&state;
	(void)argument;
	while (!atomic_load(&done)) {
		const int64_t shape[] = {1 + (int64_t)(random_next(&state) % 5000)};
		hoist_buffer *b = NULL;
		quiet_begin();
		require(hoist_buffer_create(devices[0], HOIST_U8, 1, shape, HOIST_BUFFER_LAZY,
					    &b) == 0 &&
				hoist_buffer_allocate(b) == 0,
			"churning");
		hoist_buffer_unref(b);
		quiet_end();
	}
	return NULL;
}

/* In the child: host memory is as it was and can be used, a device's cannot; dropping is safe. */
static int use_in_child(hoist_buffer *host, hoist_buffer *lazy, hoist_buffer *on_device)
{
	unsigned char bytes[ROWS];
	hoist_buffer *view = NULL;
	hoist_buffer *copy = NULL;
	const hoist_slice column[] = {HOIST_ALL, HOIST_AT(3)};
	if (hoist_buffer_slice(host, 2, column, &view) != 0 ||
	    hoist_buffer_copy_out(view, bytes, sizeof bytes) != 0)
		return 2;
	for (int i = 0; i < ROWS; i++)
		if (bytes[i] != 9)
			return 3;
	if (hoist_buffer_copy(view, devices[0], &copy) != 0 || hoist_buffer_allocate(lazy) != 0)
		return 4;
	if (hoist_buffer_read(on_device, 0, bytes, 1) != -ESTALE)
		return 5;
	hoist_buffer_unref(copy);
	hoist_buffer_unref(view);
	hoist_buffer_unref(host);
	hoist_buffer_unref(lazy);
	hoist_buffer_unref(on_device);
	return 0;
}

static void fork_once(void)
{
	const int64_t shape[] = {ROWS, COLUMNS};
	hoist_buffer *host = NULL;
	hoist_buffer *lazy = NULL;
	hoist_buffer *on_device = NULL;
	require(hoist_buffer_create(devices[0], HOIST_U8, 2, shape, 0, &host) == 0 &&
			hoist_buffer_create(devices[0], HOIST_U8, 2, shape, HOIST_BUFFER_LAZY,
					    &lazy) == 0 &&
			hoist_buffer_create(devices[1], HOIST_U8, 2, shape, HOIST_BUFFER_ZERO,
					    &on_device) == 0 &&
			hoist_buffer_fill(host, "\x09", 1) == 0,
		"buffers to fork with");
	pid_t child = quiet_fork();
	require(child >= 0, "fork");
	if (child == 0) {
		alarm(CHILD_SECONDS);
		_exit(use_in_child(host, lazy, on_device));
	}
	int status = 0;
	require(waitpid(child, &status, 0) == child, "waiting for the child");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		(void)fprintf(stderr, "the child ended with status %#x\n", (unsigned)status);
		exit(1);
	}
	unsigned char byte = 1;
	require(hoist_buffer_read(on_device, 5, &byte, 1) == 0 && byte == 0, "the parent goes on");
	hoist_buffer_unref(host);
	hoist_buffer_unref(lazy);
	hoist_buffer_unref(on_device);
}

/* --- an exec in the middle --- */

static int count_descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

/* The program that takes over: nothing of the one before is open, and it can begin anew. */
static int after_exec(int most)
{
	hoist_device *cpu = NULL;
	hoist_buffer *b = NULL;
	if (count_descriptors() > most)
		return 2;
	if (hoist_device_open("cpu", &cpu) != 0 ||
	    hoist_buffer_create(cpu, HOIST_U8, 1, (const int64_t[]){100}, HOIST_BUFFER_ZERO, &b) !=
		    0)
		return 3;
	hoist_buffer_unref(b);
	return 0;
}

/* With shared memory, a device's memory and streams in use. */
static void exec_once(int n_descriptors)
{
	char most[16];
	hoist_buffer *shareable = NULL;
	hoist_buffer *on_device = NULL;
	require(hoist_buffer_create(devices[0], HOIST_U8, 1, (const int64_t[]){5000},
				    HOIST_BUFFER_SHAREABLE, &shareable) == 0 &&
			hoist_buffer_copy(shareable, devices[1], &on_device) == 0,
		"buffers to exec with");
	(void)snprintf(most, sizeof most, "%d", n_descriptors);
	pid_t child = fork();
	require(child >= 0, "fork");
	if (child == 0) {
		(void)execl("/proc/self/exe", "lib_buffer_threads", most, (char *)NULL);
		_exit(9);
	}
	int status = 0;
	require(waitpid(child, &status, 0) == child, "waiting for the program");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		(void)fprintf(stderr, "the program ended with status %#x\n", (unsigned)status);
		exit(1);
	}
	hoist_buffer_unref(shareable);
	hoist_buffer_unref(on_device);
}

static void run_forks(int n_descriptors)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		require(pthread_create(&threads[i], NULL, churn, NULL) == 0, "a thread");
	for (int i = 0; i < 20; i++) {
		fork_once();
		exec_once(n_descriptors);
	}
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* proves: S4.06 S4.18 S2.03 */
int main(int argc, char **argv)
{
	if (argc > 1)
		return after_exec(atoi(argv[1]));
	int n_descriptors = count_descriptors();
	if (!lib_emulate()) {
		(void)fprintf(stderr, "skipped: the emulators are not built\n");
		return 77;
	}
	lib_open_all(devices);
	run_threads();
	if (!UNDER_TSAN)
		run_forks(n_descriptors);
	return 0;
}
