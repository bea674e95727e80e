/* SPDX-License-Identifier: MIT */
/* Threads that use, view, close and drop one storage, and take its memory at once: nothing is
 * freed early, twice or never, and ThreadSanitizer sees it.  Then forks in the middle of that, and
 * an exec.  The memory of a late stream goes when the stream has passed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-gate.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/random.h"
#include "tests/support/threads.h"
#include "tests/support/under-tsan.h"

#define N_THREADS 4
#define ROUNDS 60
#define ROWS 64
#define COLUMNS 96
#define CHILD_SECONDS 60

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
	int which = round % (LIB_N_DEVICES + 1);
	if (which < LIB_N_DEVICES)
		return make_buffer(devices[which], HOIST_U8, 2, shape,
				   HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
	void *memory = calloc(ROWS, COLUMNS);
	CHECK(memory != NULL);
	return make_wrapped(SOURCE(.address = (uintptr_t)memory, .bytes = (size_t)ROWS * COLUMNS,
				   .release = count_release, .context = memory),
			    HOIST_U8, 2, shape, NULL);
}

/* Rows of its own, on a stream of its own. */
static void use_rows(hoist_buffer *whole, int thread, hoist_stream *stream)
{
	unsigned char bytes[4 * COLUMNS];
	hoist_slice mine = HOIST_RANGE(thread * 4, thread * 4 + 4);
	const hoist_slice back = HOIST_STEP(HOIST_NONE, HOIST_NONE, -1);
	hoist_buffer *rows = make_slice(whole, 1, &mine);
	hoist_buffer *reversed = make_slice(rows, 1, &back);
	memset(bytes, thread + 1, sizeof bytes);
	OK(hoist_buffer_copy_in(reversed, bytes, sizeof bytes));
	OK(hoist_buffer_fill_on(rows, "\x7f", 1, stream));
	OK(hoist_buffer_close(rows, stream));
	hoist_buffer_unref(rows);
	OK(hoist_stream_synchronize(stream));
	OK(hoist_buffer_copy_out(reversed, bytes, sizeof bytes));
	for (size_t i = 0; i < sizeof bytes; i++)
		CHECK(bytes[i] == 0x7f);
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
		hoist_stream *stream = make_stream(hoist_buffer_device(whole));
		pthread_barrier_wait(&barrier); /* all at once: the first thread takes the memory */
		if (thread == 0)
			hoist_buffer_unref(whole);
		use_rows(whole, thread, stream);
		hoist_buffer_unref(whole);
		hoist_stream_unref(stream);
	}
	return NULL;
}

static void threads_share_a_storage(void)
{
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	run_threads(N_THREADS, work, NULL, 0);
	pthread_barrier_destroy(&barrier);
	CHECK(atomic_load(&n_released) == ROUNDS / (LIB_N_DEVICES + 1));
	CHECK(lib_drivers_content());
	CHECK(lib_nothing_outstanding(devices));
}

/* --- memory that is dropped while a stream still uses it --- */

static int fail_with(void *context)
{
	return *(const int *)context;
}

struct lent {
	struct lib_offer offer;
	unsigned char memory[4096];
};

static struct lent *lend(hoist_stream *stream, hoist_buffer **ret)
{
	struct lent *lent = calloc(1, sizeof *lent);
	CHECK(lent != NULL);
	lib_offer(&lent->offer, lent->memory, HOIST_U8, 1, SHAPE(sizeof lent->memory), NULL);
	*ret = imported(lib_managed(&lent->offer), stream, 0);
	return lent;
}

/* Dropping the memory waits for the stream, whose failure is still its next synchronize's. */
static void dropped_memory_hides_no_failure(void)
{
	static const int io = -EIO;
	const unsigned char seven = 7;
	hoist_stream *stream = make_stream(devices[0]);
	hoist_buffer *buffer = NULL;
	struct lent *lent = lend(stream, &buffer);
	OK(hoist_stream_call(stream, fail_with, (void *)(uintptr_t)&io));
	OK(hoist_buffer_fill_on(buffer, &seven, 1, stream));
	hoist_buffer_unref(buffer);
	CHECK(atomic_load(&lent->offer.n_deleted) == 1 && lent->memory[0] == 7);
	CHECK(hoist_stream_synchronize(stream) == -EIO);
	OK(hoist_stream_synchronize(stream));
	hoist_stream_unref(stream);
	free(lent);
}

struct last {
	hoist_stream *stream;
	hoist_buffer *buffer;
	int err; /* of synchronizing with the stream itself */
};

static int drop_all(void *context)
{
	struct last *last = context;
	last->err = hoist_stream_synchronize(last->stream);
	hoist_buffer_unref(last->buffer);
	hoist_stream_unref(last->stream);
	return 0;
}

/* The stream's own thread must not wait for the stream: neither to end the stream, nor to give
 * back memory that work behind the function still uses. */
static void a_function_drops_its_own_stream(void)
{
	const unsigned char seven = 7;
	for (int i = 0; i < 20; i++) {
		struct gate gate;
		struct last last = {.stream = make_stream(devices[0])};
		struct lent *lent = lend(last.stream, &last.buffer);
		gate_init(&gate);
		OK(hoist_stream_call(last.stream, gate_pass, &gate));
		OK(hoist_stream_call(last.stream, drop_all, &last));
		OK(hoist_buffer_fill_on(last.buffer, &seven, 1, last.stream));
		gate_open(&gate);
		while (atomic_load(&lent->offer.n_deleted) == 0)
			usleep(100);
		CHECK(last.err == -EDEADLK);
		CHECK(lent->memory[sizeof lent->memory - 1] == 7);
		free(lent);
	}
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
		quiet_begin();
		hoist_buffer *b = make_buffer(devices[0], HOIST_U8, 1, shape, HOIST_BUFFER_LAZY);
		OK(hoist_buffer_allocate(b));
		hoist_buffer_unref(b);
		quiet_end();
	}
	return NULL;
}

/* Runs in the child, where host memory is unchanged and can be used, and a device's memory
 * cannot.  Dropping buffers is safe. */
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
	DROP(copy, view, host, lazy, on_device);
	return 0;
}

static void fork_once(void)
{
	const int64_t shape[] = {ROWS, COLUMNS};
	hoist_buffer *host = make_buffer(devices[0], HOIST_U8, 2, shape, 0);
	hoist_buffer *lazy = make_buffer(devices[0], HOIST_U8, 2, shape, HOIST_BUFFER_LAZY);
	hoist_buffer *on_device = zeroed(devices[1], HOIST_U8, 2, shape);
	OK(hoist_buffer_fill(host, "\x09", 1));
	pid_t child = quiet_fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(CHILD_SECONDS);
		_exit(use_in_child(host, lazy, on_device));
	}
	CHECK(child_status(child) == 0);
	unsigned char byte = 1;
	CHECK(hoist_buffer_read(on_device, 5, &byte, 1) == 0 && byte == 0);
	DROP(host, lazy, on_device);
}

/* --- an exec in the middle --- */

static int count_descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

/* Runs in the new program: no descriptor of the old one is open, and hoist begins anew. */
static int after_exec(int most)
{
	hoist_device *cpu = NULL;
	hoist_buffer *b = NULL;
	if (count_descriptors() > most)
		return 2;
	if (hoist_device_open("cpu", &cpu) != 0 ||
	    hoist_buffer_create(cpu, HOIST_U8, 1, SHAPE(100), HOIST_BUFFER_ZERO, &b) != 0)
		return 3;
	hoist_buffer_unref(b);
	return 0;
}

/* With shared memory, a device's memory and streams in use. */
static void exec_once(int n_descriptors)
{
	char most[16];
	hoist_buffer *shareable =
		make_buffer(devices[0], HOIST_U8, 1, SHAPE(5000), HOIST_BUFFER_SHAREABLE);
	hoist_buffer *on_device = make_copy(shareable, devices[1]);
	(void)snprintf(most, sizeof most, "%d", n_descriptors);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)execl("/proc/self/exe", "threads", most, (char *)NULL);
		_exit(9);
	}
	CHECK(child_status(child) == 0);
	DROP(shareable, on_device);
}

static void run_forks(int n_descriptors)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
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
	(void)alarm(250); /* for a wait that never ends */
	lib_need_emulators();
	lib_open_all(devices);
	threads_share_a_storage();
	dropped_memory_hides_no_failure();
	a_function_drops_its_own_stream();
	if (!UNDER_TSAN)
		run_forks(n_descriptors);
	return 0;
}
