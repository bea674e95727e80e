/* SPDX-License-Identifier: MIT */
/* Streams that wait for each other, on every pair of devices: work that a gate holds back shows
 * what is ordered, and that the host is not.  Threads, failures and forks among them. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hoist/compat.h"
#include "hoist/dlpack.h"
#include "hoist/hoist.h"
#include "lib/device/stream.h"
#include "tests/support/lib-support.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/random.h"
#include "tests/support/under-tsan.h"

static hoist_device *devices[LIB_N_DEVICES];

static void require(bool condition, const char *what, const char *more)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s (%s): %s\n", what, more, hoist_error());
	exit(1);
}

#define OK(call, more) require((call) == 0, #call, more)

/* --- work that is held back --- */

struct gate {
	sem_t open;
	atomic_int passed;
	atomic_int seen; /* what `passed` was for the work behind it; -1: it did not run */
};

static int pass(void *context)
{
	struct gate *gate = context;
	while (sem_wait(&gate->open) != 0) {
	}
	atomic_store(&gate->passed, 1);
	return 0;
}

static int look(void *context)
{
	struct gate *gate = context;
	atomic_store(&gate->seen, atomic_load(&gate->passed));
	return 0;
}

static void gate_init(struct gate *gate)
{
	(void)sem_init(&gate->open, 0, 0);
	atomic_init(&gate->passed, 0);
	atomic_init(&gate->seen, -1);
}

static hoist_stream *create(int device)
{
	hoist_stream *stream = NULL;
	OK(hoist_stream_create(devices[device], &stream), lib_specs[device]);
	return stream;
}

/* --- order --- */

enum { BY_STREAM, BY_DEVICE, BY_EVENT, N_WAYS };

static void wait_by(int way, hoist_stream *waits, hoist_stream *other, const char *what)
{
	hoist_event *event = NULL;
	if (way == BY_STREAM) {
		OK(hoist_stream_wait_for(waits, other), what);
	} else if (way == BY_DEVICE) {
		OK(hoist_stream_wait_for_device(waits, hoist_stream_device(other)), what);
	} else {
		OK(hoist_stream_record(other, 0, &event), what);
		OK(hoist_stream_wait_event(waits, event), what);
		hoist_event_unref(event);
	}
}

/* If the host waited, the gate would never be opened. */
static void check_pair(int a, int b, int way)
{
	char what[64];
	struct gate gate;
	hoist_stream *waits = create(a);
	hoist_stream *other = NULL;
	(void)snprintf(what, sizeof what, "%s waits for %s, %d", lib_specs[a], lib_specs[b], way);
	gate_init(&gate);
	if (way == BY_DEVICE)
		OK(hoist_device_default_stream(devices[b], &other), what);
	else
		other = create(b);
	OK(hoist_stream_call(other, pass, &gate), what);
	wait_by(way, waits, other, what);
	OK(hoist_stream_call(waits, look, &gate), what);
	usleep(500);
	require(hoist_stream_query(other) == -EAGAIN, "the other is busy", what);
	require(hoist_stream_query(waits) == -EAGAIN, "so is who waits", what);
	require(atomic_load(&gate.seen) == -1, "nothing ran early", what);
	(void)sem_post(&gate.open);
	OK(hoist_stream_synchronize(waits), what);
	require(atomic_load(&gate.seen) == 1, "it ran behind the other's work", what);
	OK(hoist_stream_query(waits), what);
	hoist_stream_unref(waits);
	hoist_stream_unref(other);
}

/* proves: S1.11 S1.12 */
static void pairs_are_ordered(void)
{
	for (int way = 0; way < N_WAYS; way++)
		for (int a = 0; a < LIB_N_DEVICES; a++)
			for (int b = 0; b < LIB_N_DEVICES; b++)
				check_pair(a, b, way);
}

static long n_events(void)
{
	return (long)lib_counters("cuda").live_events + (long)lib_counters("hip").live_events;
}

/* A stream that has been waited for keeps no event of those that it waited for itself. */
static void what_was_waited_for_is_let_go(void)
{
	for (int a = 0; a < 2 * LIB_N_DEVICES; a++) {
		const char *what = lib_specs[a / 2];
		hoist_stream *waits = create(a / 2);
		long before = n_events();
		for (int i = 0; i < 4 * LIB_N_DEVICES; i++) {
			hoist_stream *other = create(i % LIB_N_DEVICES);
			OK(hoist_stream_wait_for(waits, other), what);
			hoist_stream_unref(other);
		}
		OK(a % 2 == 0 ? hoist_stream_synchronize(waits)
			      : hoist_device_synchronize(devices[a / 2]),
		   what);
		require(n_events() <= before, "no event is left", what);
		hoist_stream_unref(waits);
	}
}

/* What waits stays ordered when the streams are given back, and others are not held up. */
static void *give_back(void *stream)
{
	hoist_stream_unref(stream);
	return NULL;
}

static void check_destroyed(int a, int b)
{
	struct gate gate;
	pthread_t threads[2];
	hoist_stream *waits = create(a);
	hoist_stream *other = create(b);
	hoist_stream *free_one = create(a);
	gate_init(&gate);
	OK(hoist_stream_call(other, pass, &gate), "destroyed");
	OK(hoist_stream_wait_for(waits, other), "destroyed");
	OK(hoist_stream_call(waits, look, &gate), "destroyed");
	(void)pthread_create(&threads[0], NULL, give_back, waits);
	(void)pthread_create(&threads[1], NULL, give_back, other);
	OK(hoist_stream_synchronize(free_one), "others are not held up");
	require(atomic_load(&gate.seen) == -1, "nothing ran early", "destroyed");
	(void)sem_post(&gate.open);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(threads[i], NULL);
	require(atomic_load(&gate.seen) == 1, "it ran before the stream was gone", lib_specs[a]);
	hoist_stream_unref(free_one);
}

static void streams_may_go_meanwhile(void)
{
	for (int a = 0; a < LIB_N_DEVICES; a++)
		for (int b = 0; b < LIB_N_DEVICES; b++)
			check_destroyed(a, b);
}

/* cuda <- cpu <- cuda <- cpu, held: before a thread of the driver's blocks for the CPU, the stream
 * waits in the driver for what that work needs of it. */
static void waits_of_one_driver_come_first(void)
{
	struct gate gate;
	hoist_stream *cuda[2] = {create(1), create(2)};
	hoist_stream *cpu[3] = {create(0), create(0), create(0)};
	gate_init(&gate);
	OK(hoist_stream_call(cpu[1], pass, &gate), "chain");
	OK(hoist_stream_wait_for(cuda[1], cpu[1]), "chain");
	OK(hoist_stream_wait_for(cpu[0], cuda[1]), "chain");
	OK(hoist_stream_wait_for(cpu[2], cpu[0]), "chain");
	uint64_t before = lib_calls("cuda", "cuStreamWaitEvent");
	OK(hoist_stream_wait_for(cuda[0], cpu[2]), "chain");
	require(lib_calls("cuda", "cuStreamWaitEvent") == before + 1,
		"it waits in its driver for what the CPU's stream waits for", "chain");
	OK(hoist_stream_call(cuda[0], look, &gate), "chain");
	require(hoist_stream_query(cuda[0]) == -EAGAIN, "held", "chain");
	(void)sem_post(&gate.open);
	OK(hoist_stream_synchronize(cuda[0]), "chain");
	require(atomic_load(&gate.seen) == 1, "in order", "chain");
	OK(hoist_stream_synchronize(cpu[2]), "chain");
	/* Long waits for the same streams keep few marks; done ones none that matter. */
	for (int i = 0; i < 300; i++) {
		OK(hoist_stream_wait_for(cpu[0], cuda[i % 2]), "many");
		OK(hoist_stream_wait_for(cuda[(i + 1) % 2], cpu[0]), "many");
	}
	for (int i = 0; i < 3; i++)
		hoist_stream_unref(cpu[i]);
	for (int i = 0; i < 2; i++)
		hoist_stream_unref(cuda[i]);
}

/* --- failures --- */

static int fail_with(void *context)
{
	return *(const int *)context;
}

/* proves: S1.08 S4.16 */
static void device_synchronize_reports_what_failed(void)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		static const int io = -EIO, odd = 7;
		struct gate gate;
		hoist_stream *streams[3] = {create(i), create(i), create(i)};
		gate_init(&gate);
		OK(hoist_stream_call(streams[0], look, &gate), lib_specs[i]);
		OK(hoist_stream_call(streams[1], fail_with, (void *)(uintptr_t)&io), lib_specs[i]);
		OK(hoist_stream_call(streams[1], look, &gate), lib_specs[i]);
		require(hoist_device_synchronize(devices[i]) == -EIO, "the failure", lib_specs[i]);
		require(strstr(hoist_error(), lib_specs[i]) != NULL &&
				strstr(hoist_error(), "function") != NULL,
			"its text", lib_specs[i]);
		require(atomic_load(&gate.seen) == 0, "work behind it ran", lib_specs[i]);
		OK(hoist_device_synchronize(devices[i]), lib_specs[i]);
		OK(hoist_stream_synchronize(streams[1]), lib_specs[i]);
		OK(hoist_stream_call(streams[2], fail_with, (void *)(uintptr_t)&odd), lib_specs[i]);
		require(hoist_stream_synchronize(streams[2]) == -EINVAL, "no errno", lib_specs[i]);
		for (int k = 0; k < 3; k++)
			hoist_stream_unref(streams[k]);
	}
}

/* The CPU's stream waits for a copy that fails; so do a stream of the other driver's and one
 * that waits for the CPU's. */
static void who_waits_learns_of_failures(void)
{
	hoist_memory *memory = NULL;
	uintptr_t block = 0;
	hoist_stream *cuda = create(1);
	hoist_stream *cpu = create(0);
	hoist_stream *hip = create(3);
	struct gate gate;
	gate_init(&gate);
	OK(hoist_memory_of_device(devices[1], HOIST_MEMORY_DEVICE, &memory), "memory");
	OK(hoist_memory_alloc(memory, 4096, 0, &block), "memory");
	OK(lib_fail("cuda", "async:1"), "fault");
	OK(hoist_stream_call(cuda, pass, &gate), "call");
	OK(hoist__copy_async(hoist__stream_dev_stream(cuda), HOIST__COPY_DEVICE_TO_DEVICE, block,
			     block + 2048, 1024),
	   "copy");
	OK(hoist_stream_wait_for(cpu, cuda), "wait");
	OK(hoist_stream_wait_for(hip, cuda), "wait");
	(void)sem_post(&gate.open);
	require(hoist_stream_synchronize(cpu) == -EREMOTEIO, "the CPU's stream knows", "failed");
	require(strstr(hoist_error(), "work on a stream of cpu: waiting for a stream of cuda:0"),
		"its text", "failed");
	require(hoist_stream_synchronize(hip) == -EREMOTEIO, "the HIP stream knows", "failed");
	require(hoist_device_synchronize(devices[1]) == -EREMOTEIO, "so does the device", "failed");
	OK(hoist_stream_synchronize(cpu), "once");
	lib_reset("cuda");
	OK(hoist_memory_free(memory, block), "memory");
	hoist_memory_unref(memory);
	hoist_stream_unref(hip);
	hoist_stream_unref(cpu);
	hoist_stream_unref(cuda);
}

/* --- what is dropped --- */

struct lent {
	hoist_dl_managed managed;
	int64_t shape[1];
	atomic_int released;
	unsigned char memory[4096];
};

static void take_back(struct DLManagedTensorVersioned *tensor)
{
	atomic_store(&((struct lent *)(void *)tensor)->released, 1);
}

static struct lent *lend(hoist_stream *stream, hoist_buffer **ret)
{
	struct lent *lent = calloc(1, sizeof *lent);
	require(lent != NULL, "memory", "to lend");
	lent->shape[0] = sizeof lent->memory;
	lent->managed = (hoist_dl_managed){
		.major = 1,
		.minor = 1,
		.deleter = take_back,
		.tensor = {.data = lent->memory,
			   .device = {HOIST_DL_CPU, 0},
			   .rank = 1,
			   .dtype = {1, 8, 1},
			   .shape = lent->shape},
	};
	OK(hoist_buffer_from_dlpack((struct DLManagedTensorVersioned *)(void *)lent, stream, 0,
				    ret),
	   "lent");
	return lent;
}

/* Dropping the memory waits for the stream, whose failure is still its next synchronize's. */
static void what_is_dropped_hides_no_failure(void)
{
	static const int io = -EIO;
	const unsigned char seven = 7;
	hoist_stream *stream = create(0);
	hoist_buffer *buffer = NULL;
	struct lent *lent = lend(stream, &buffer);
	OK(hoist_stream_call(stream, fail_with, (void *)(uintptr_t)&io), "fails");
	OK(hoist_buffer_fill_on(buffer, &seven, 1, stream), "behind it");
	hoist_buffer_unref(buffer);
	require(atomic_load(&lent->released) == 1 && lent->memory[0] == 7, "released", "dropped");
	require(hoist_stream_synchronize(stream) == -EIO, "the failure is there", "dropped");
	OK(hoist_stream_synchronize(stream), "once");
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

/* What waits for the stream must not do so on the stream's own thread: neither that which ends
 * the stream, nor that which gives back memory that work behind the function still uses. */
static void a_function_drops_its_own_stream(void)
{
	const unsigned char seven = 7;
	for (int i = 0; i < 20; i++) {
		struct gate gate;
		struct last last = {.stream = create(0)};
		struct lent *lent = lend(last.stream, &last.buffer);
		gate_init(&gate);
		OK(hoist_stream_call(last.stream, pass, &gate), "gate");
		OK(hoist_stream_call(last.stream, drop_all, &last), "drop");
		OK(hoist_buffer_fill_on(last.buffer, &seven, 1, last.stream), "behind it");
		(void)sem_post(&gate.open);
		while (atomic_load(&lent->released) == 0)
			usleep(100);
		require(last.err == -EDEADLK, "a stream cannot wait for itself", "own");
		require(lent->memory[sizeof lent->memory - 1] == 7, "the work was done", "own");
		free(lent);
	}
}

/* --- threads --- */

#define N_THREADS 4
#define N_STREAMS 6
#define ROUNDS 250

static hoist_stream *streams[N_STREAMS];
static hoist_event *events[LIB_N_DEVICES];
static atomic_long n_called;

static int count(void *context)
{
	(void)context;
	atomic_fetch_add(&n_called, 1);
	return 0;
}

/* With a stream of this thread's own, which goes at once. */
static void visit(uint64_t *state, hoist_stream *shared)
{
	hoist_stream *own = create((int)(random_next(state) % LIB_N_DEVICES));
	OK(hoist_stream_wait_for(own, shared), "own waits");
	OK(hoist_stream_call(own, count, NULL), "own calls");
	OK(hoist_stream_wait_for(shared, own), "shared waits");
	hoist_stream_unref(own);
}

static void step(uint64_t *state, long *called)
{
	hoist_stream *a = streams[random_next(state) % N_STREAMS];
	hoist_stream *b = streams[random_next(state) % N_STREAMS];
	int device = (int)(random_next(state) % LIB_N_DEVICES);
	hoist_event *event = events[device];
	switch (random_next(state) % 8) {
	case 0:
	case 1:
		OK(hoist_stream_wait_for(a, b), "wait");
		break;
	case 2:
		OK(hoist_event_record(event, streams[device]), "record");
		break;
	case 3:
		OK(hoist_stream_wait_event(a, event), "wait for an event");
		break;
	case 4:
		OK(hoist_stream_call(a, count, NULL), "call");
		(*called)++;
		break;
	case 5:
		OK(hoist_stream_synchronize(a), "synchronize");
		break;
	case 6:
		require(hoist_event_query(event) <= 0 && hoist_stream_query(a) <= 0, "query", "");
		break;
	default:
		visit(state, a);
		(*called)++;
	}
}

static void *work(void *argument)
{
	uint64_t state = (uint64_t)(uintptr_t)argument;
	long called = 0;
	for (int i = 0; i < ROUNDS; i++) {
		step(&state, &called);
		if (i % 64 == 0)
			OK(hoist_device_synchronize(devices[i / 64 % LIB_N_DEVICES]), "device");
	}
	return (void *)(uintptr_t)called;
}

static void threads_share_streams(void)
{
	pthread_t threads[N_THREADS];
	long called = 0;
	for (int i = 0; i < N_STREAMS; i++)
		streams[i] = create(i % LIB_N_DEVICES);
	for (int i = 0; i < LIB_N_DEVICES; i++)
		OK(hoist_event_create(devices[i], 0, &events[i]), "event");
	for (int i = 0; i < N_THREADS; i++)
		(void)pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < N_THREADS; i++) {
		void *ret = NULL;
		(void)pthread_join(threads[i], &ret);
		called += (long)(uintptr_t)ret;
	}
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		OK(hoist_device_synchronize(devices[i]), "at the end");
		hoist_event_unref(events[i]);
	}
	for (int i = 0; i < N_STREAMS; i++)
		hoist_stream_unref(streams[i]);
	require(atomic_load(&n_called) == called, "every call was made once", "threads");
}

/* --- fork --- */

static atomic_bool stop;

static void *make_streams(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		quiet_begin();
		hoist_stream_unref(create(0));
		quiet_end();
	}
	return NULL;
}

static void stale(int err, const char *what)
{
	require(err == -ESTALE, "-ESTALE in the child", what);
}

static void use_own_streams(void)
{
	struct gate gate;
	hoist_stream *own[2] = {create(0), create(0)};
	gate_init(&gate);
	OK(hoist_stream_call(own[0], pass, &gate), "child");
	OK(hoist_stream_wait_for(own[1], own[0]), "child");
	OK(hoist_stream_call(own[1], look, &gate), "child");
	(void)sem_post(&gate.open);
	OK(hoist_device_synchronize(devices[0]), "child");
	require(atomic_load(&gate.seen) == 1, "in order", "child");
	hoist_stream_unref(own[0]);
	hoist_stream_unref(own[1]);
}

static void child(hoist_stream *of_cpu, hoist_stream *of_cuda, hoist_event *event)
{
	hoist_event *none = NULL;
	stale(hoist_stream_wait_for(of_cpu, of_cuda), "wait");
	stale(hoist_stream_wait_for(of_cuda, of_cpu), "wait");
	stale(hoist_stream_wait_for(of_cpu, of_cpu), "wait for itself");
	stale(hoist_stream_wait_event(of_cuda, event), "wait for an event");
	stale(hoist_event_record(event, of_cpu), "record");
	stale(hoist_event_query(event), "query");
	stale(hoist_event_synchronize(event), "synchronize");
	stale(hoist_stream_query(of_cpu), "query a stream");
	stale(hoist_stream_call(of_cpu, count, NULL), "call");
	stale(hoist_stream_record(of_cuda, 0, &none), "record anew");
	stale(hoist_device_synchronize(devices[1]), "synchronize a device");
	if (!UNDER_TSAN)
		use_own_streams();
	hoist_event_unref(event);
	hoist_stream_unref(of_cpu);
	hoist_stream_unref(of_cuda);
	_exit(0);
}

static void children_have_streams_of_their_own(void)
{
	hoist_stream *of_cpu = create(0);
	hoist_stream *of_cuda = create(1);
	hoist_event *event = NULL;
	pthread_t thread;
	OK(hoist_stream_record(of_cpu, 0, &event), "fork");
	OK(hoist_stream_wait_for(of_cpu, of_cuda), "fork");
	(void)pthread_create(&thread, NULL, make_streams, NULL);
	for (int i = 0; i < 10; i++) {
		int status = -1;
		pid_t pid = quiet_fork();
		if (pid == 0)
			child(of_cpu, of_cuda, event);
		require(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "child", "fork");
	}
	atomic_store(&stop, true);
	(void)pthread_join(thread, NULL);
	hoist_event_unref(event);
	hoist_stream_unref(of_cpu);
	hoist_stream_unref(of_cuda);
}

/* --- virtual devices, while others look --- */

static void *toggle(void *unused)
{
	(void)unused;
	for (int i = 0; i < 300; i++)
		OK(hoist_virtual_set("cuda", i % 2 ? "sm_80" : NULL, i % 5), "toggle");
	OK(hoist_virtual_set("cuda", NULL, 0), "toggle");
	return NULL;
}

static void *open_meanwhile(void *unused)
{
	(void)unused;
	for (int i = 0; i < 300; i++) {
		hoist_device *device = NULL;
		hoist_virtual_info info = {.size = sizeof info};
		int err = hoist_device_open(i % 2 ? "cuda:3" : "gpu:1", &device);
		require(err == 0 || err == -EINVAL, "open meanwhile", "virtual");
		OK(hoist_virtual_get("cuda", &info), "virtual");
		hoist_device_unref(device);
	}
	return NULL;
}

/* proves: S1.22 */
static void virtual_devices_come_and_go(void)
{
	pthread_t threads[3];
	int count = 0;
	for (int i = 0; i < 3; i++)
		(void)pthread_create(&threads[i], NULL, i == 0 ? toggle : open_meanwhile, NULL);
	for (int i = 0; i < 3; i++)
		(void)pthread_join(threads[i], NULL);
	OK(hoist_accelerator_count(&count), "virtual");
	require(count == 2, "those of the environment are left", "virtual");
}

int main(void)
{
	(void)alarm(120); /* a wait that never ends must not outlive the test's patience */
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	setenv("HOIST_EMULATE_LATENCY", "0..20", 1);
	lib_open_all(devices);
	pairs_are_ordered();
	what_was_waited_for_is_let_go();
	streams_may_go_meanwhile();
	waits_of_one_driver_come_first();
	device_synchronize_reports_what_failed();
	who_waits_learns_of_failures();
	what_is_dropped_hides_no_failure();
	a_function_drops_its_own_stream();
	threads_share_streams();
	children_have_streams_of_their_own();
	virtual_devices_come_and_go();
	require(lib_drivers_content(), "the drivers saw no misuse", "end");
	return 0;
}
