/* SPDX-License-Identifier: MIT */
/* Streams that wait for each other, on every pair of devices.  Work behind a gate shows that the
 * streams are ordered, and that the host does not wait.  Threads, failures and forks among them. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/compat.h"
#include "lib/device/stream.h"
#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/lib-gate.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/random.h"
#include "tests/support/threads.h"
#include "tests/support/under-tsan.h"

static hoist_device *devices[LIB_N_DEVICES];

static hoist_stream *create(int device)
{
	return make_stream(devices[device]);
}

/* --- order --- */

enum { BY_STREAM, BY_DEVICE, BY_EVENT, N_WAYS };

static void wait_by(int way, hoist_stream *waits, hoist_stream *other)
{
	hoist_event *event = NULL;
	if (way == BY_STREAM) {
		OK(hoist_stream_wait_for(waits, other));
	} else if (way == BY_DEVICE) {
		OK(hoist_stream_wait_for_device(waits, hoist_stream_device(other)));
	} else {
		OK(hoist_stream_record(other, 0, &event));
		OK(hoist_stream_wait_event(waits, event));
		hoist_event_unref(event);
	}
}

/* If the host waited, the gate would never be opened. */
static void check_pair(int a, int b, int way)
{
	struct gate gate;
	hoist_stream *waits = create(a);
	hoist_stream *other = NULL;
	check_at("%s waits for %s, way %d", lib_specs[a], lib_specs[b], way);
	gate_init(&gate);
	if (way == BY_DEVICE)
		OK(hoist_device_default_stream(devices[b], &other));
	else
		other = create(b);
	OK(hoist_stream_call(other, gate_pass, &gate));
	wait_by(way, waits, other);
	OK(hoist_stream_call(waits, gate_look, &gate));
	usleep(500);
	CHECK(hoist_stream_query(other) == -EAGAIN);
	CHECK(hoist_stream_query(waits) == -EAGAIN);
	CHECK(atomic_load(&gate.seen) == -1);
	gate_open(&gate);
	OK(hoist_stream_synchronize(waits));
	CHECK(atomic_load(&gate.seen) == 1);
	OK(hoist_stream_query(waits));
	DROP_STREAMS(waits, other);
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

/* A stream that has completed keeps no event of the streams that the stream waited for. */
static void streams_that_were_waited_for_are_let_go(void)
{
	for (int a = 0; a < 2 * LIB_N_DEVICES; a++) {
		check_at("%s", lib_specs[a / 2]);
		hoist_stream *waits = create(a / 2);
		long before = n_events();
		for (int i = 0; i < 4 * LIB_N_DEVICES; i++) {
			hoist_stream *other = create(i % LIB_N_DEVICES);
			OK(hoist_stream_wait_for(waits, other));
			hoist_stream_unref(other);
		}
		OK(a % 2 == 0 ? hoist_stream_synchronize(waits)
			      : hoist_device_synchronize(devices[a / 2]));
		CHECK(n_events() <= before);
		hoist_stream_unref(waits);
	}
}

/* Waiting work stays ordered when the streams are given back, and other streams go on. */
static void *give_back(void *stream)
{
	hoist_stream_unref(stream);
	return NULL;
}

static void check_destroyed(int a, int b)
{
	check_at("%s waits for %s", lib_specs[a], lib_specs[b]);
	struct gate gate;
	pthread_t threads[2];
	hoist_stream *waits = create(a);
	hoist_stream *other = create(b);
	hoist_stream *free_one = create(a);
	gate_init(&gate);
	OK(hoist_stream_call(other, gate_pass, &gate));
	OK(hoist_stream_wait_for(waits, other));
	OK(hoist_stream_call(waits, gate_look, &gate));
	(void)pthread_create(&threads[0], NULL, give_back, waits);
	(void)pthread_create(&threads[1], NULL, give_back, other);
	OK(hoist_stream_synchronize(free_one));
	CHECK(atomic_load(&gate.seen) == -1);
	gate_open(&gate);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(threads[i], NULL);
	CHECK(atomic_load(&gate.seen) == 1);
	hoist_stream_unref(free_one);
}

static void streams_may_go_meanwhile(void)
{
	for (int a = 0; a < LIB_N_DEVICES; a++)
		for (int b = 0; b < LIB_N_DEVICES; b++)
			check_destroyed(a, b);
}

/* cuda <- cpu <- cuda <- cpu, held: the stream waits in the driver for the other CUDA stream
 * before a thread of the driver's blocks for the CPU. */
static void waits_of_one_driver_come_first(void)
{
	struct gate gate;
	hoist_stream *cuda[2] = {create(1), create(2)};
	hoist_stream *cpu[3] = {create(0), create(0), create(0)};
	gate_init(&gate);
	OK(hoist_stream_call(cpu[1], gate_pass, &gate));
	OK(hoist_stream_wait_for(cuda[1], cpu[1]));
	OK(hoist_stream_wait_for(cpu[0], cuda[1]));
	OK(hoist_stream_wait_for(cpu[2], cpu[0]));
	uint64_t before = lib_calls("cuda", "cuStreamWaitEvent");
	OK(hoist_stream_wait_for(cuda[0], cpu[2]));
	CHECK(lib_calls("cuda", "cuStreamWaitEvent") == before + 1);
	OK(hoist_stream_call(cuda[0], gate_look, &gate));
	CHECK(hoist_stream_query(cuda[0]) == -EAGAIN);
	gate_open(&gate);
	OK(hoist_stream_synchronize(cuda[0]));
	CHECK(atomic_load(&gate.seen) == 1);
	OK(hoist_stream_synchronize(cpu[2]));
	/* Many waits for the same streams keep few marks. */
	for (int i = 0; i < 300; i++) {
		OK(hoist_stream_wait_for(cpu[0], cuda[i % 2]));
		OK(hoist_stream_wait_for(cuda[(i + 1) % 2], cpu[0]));
	}
	drop_streams(cpu, 3);
	drop_streams(cuda, 2);
}

/* --- failures --- */

static int fail_with(void *context)
{
	return *(const int *)context;
}

/* proves: S1.08 S4.16 */
static void device_synchronize_reports_failed_functions(void)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		static const int io = -EIO, odd = 7;
		check_at("%s", lib_specs[i]);
		struct gate gate;
		hoist_stream *streams[3] = {create(i), create(i), create(i)};
		gate_init(&gate);
		OK(hoist_stream_call(streams[0], gate_look, &gate));
		OK(hoist_stream_call(streams[1], fail_with, (void *)(uintptr_t)&io));
		OK(hoist_stream_call(streams[1], gate_look, &gate));
		CHECK(hoist_device_synchronize(devices[i]) == -EIO);
		CHECK(strstr(hoist_error(), lib_specs[i]) != NULL &&
		      strstr(hoist_error(), "function") != NULL);
		CHECK(atomic_load(&gate.seen) == 0);
		OK(hoist_device_synchronize(devices[i]));
		OK(hoist_stream_synchronize(streams[1]));
		OK(hoist_stream_call(streams[2], fail_with, (void *)(uintptr_t)&odd));
		CHECK(hoist_stream_synchronize(streams[2]) == -EINVAL);
		drop_streams(streams, 3);
	}
}

/* A stream of the CPU and a stream of the other driver wait for a copy that fails. */
static void waiting_streams_learn_of_failures(void)
{
	hoist_stream *cuda = create(1);
	hoist_stream *cpu = create(0);
	hoist_stream *hip = create(3);
	struct gate gate;
	gate_init(&gate);
	hoist_memory *memory = memory_of(devices[1], HOIST_MEMORY_DEVICE);
	uintptr_t block = alloc(memory, 4096, 0);
	OK(lib_fail("cuda", "async:1"));
	OK(hoist_stream_call(cuda, gate_pass, &gate));
	OK(hoist__copy_async(hoist__stream_dev_stream(cuda), HOIST__COPY_DEVICE_TO_DEVICE, block,
			     block + 2048, 1024));
	OK(hoist_stream_wait_for(cpu, cuda));
	OK(hoist_stream_wait_for(hip, cuda));
	gate_open(&gate);
	CHECK(hoist_stream_synchronize(cpu) == -EREMOTEIO);
	CHECK(strstr(hoist_error(), "work on a stream of cpu: waiting for a stream of cuda:0"));
	CHECK(hoist_stream_synchronize(hip) == -EREMOTEIO);
	CHECK(hoist_device_synchronize(devices[1]) == -EREMOTEIO);
	OK(hoist_stream_synchronize(cpu));
	lib_reset("cuda");
	OK(hoist_memory_free(memory, block));
	hoist_memory_unref(memory);
	DROP_STREAMS(hip, cpu, cuda);
}

/* --- threads --- */

#define N_THREADS 4
#define N_STREAMS 6
#define ROUNDS 250

static hoist_stream *streams[N_STREAMS];
static hoist_event *events[LIB_N_DEVICES];
static atomic_long n_called;
static atomic_long n_to_call;

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
	OK(hoist_stream_wait_for(own, shared));
	OK(hoist_stream_call(own, count, NULL));
	OK(hoist_stream_wait_for(shared, own));
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
		OK(hoist_stream_wait_for(a, b));
		break;
	case 2:
		OK(hoist_event_record(event, streams[device]));
		break;
	case 3:
		OK(hoist_stream_wait_event(a, event));
		break;
	case 4:
		OK(hoist_stream_call(a, count, NULL));
		(*called)++;
		break;
	case 5:
		OK(hoist_stream_synchronize(a));
		break;
	case 6:
		CHECK(hoist_event_query(event) <= 0 && hoist_stream_query(a) <= 0);
		break;
	default:
		visit(state, a);
		(*called)++;
	}
}

static void *work(void *argument)
{
	uint64_t state = (uintptr_t)argument + 1;
	long called = 0;
	for (int i = 0; i < ROUNDS; i++) {
		step(&state, &called);
		if (i % 64 == 0)
			OK(hoist_device_synchronize(devices[i / 64 % LIB_N_DEVICES]));
	}
	atomic_fetch_add(&n_to_call, called);
	return NULL;
}

static void threads_share_streams(void)
{
	for (int i = 0; i < N_STREAMS; i++)
		streams[i] = create(i % LIB_N_DEVICES);
	for (int i = 0; i < LIB_N_DEVICES; i++)
		OK(hoist_event_create(devices[i], 0, &events[i]));
	run_threads(N_THREADS, work, NULL, 0);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		OK(hoist_device_synchronize(devices[i]));
		hoist_event_unref(events[i]);
	}
	drop_streams(streams, N_STREAMS);
	CHECK(atomic_load(&n_called) == atomic_load(&n_to_call));
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

static void use_own_streams(void)
{
	struct gate gate;
	hoist_stream *own[2] = {create(0), create(0)};
	gate_init(&gate);
	OK(hoist_stream_call(own[0], gate_pass, &gate));
	OK(hoist_stream_wait_for(own[1], own[0]));
	OK(hoist_stream_call(own[1], gate_look, &gate));
	gate_open(&gate);
	OK(hoist_device_synchronize(devices[0]));
	CHECK(atomic_load(&gate.seen) == 1);
	DROP_STREAMS(own[0], own[1]);
}

static void child(hoist_stream *of_cpu, hoist_stream *of_cuda, hoist_event *event)
{
	hoist_event *none = NULL;
	CHECK(hoist_stream_wait_for(of_cpu, of_cuda) == -ESTALE);
	CHECK(hoist_stream_wait_for(of_cuda, of_cpu) == -ESTALE);
	CHECK(hoist_stream_wait_for(of_cpu, of_cpu) == -ESTALE);
	CHECK(hoist_stream_wait_event(of_cuda, event) == -ESTALE);
	CHECK(hoist_event_record(event, of_cpu) == -ESTALE);
	CHECK(hoist_event_query(event) == -ESTALE);
	CHECK(hoist_event_synchronize(event) == -ESTALE);
	CHECK(hoist_stream_query(of_cpu) == -ESTALE);
	CHECK(hoist_stream_call(of_cpu, count, NULL) == -ESTALE);
	CHECK(hoist_stream_record(of_cuda, 0, &none) == -ESTALE);
	CHECK(hoist_device_synchronize(devices[1]) == -ESTALE);
	if (!UNDER_TSAN)
		use_own_streams();
	hoist_event_unref(event);
	DROP_STREAMS(of_cpu, of_cuda);
	_exit(0);
}

static void children_have_streams_of_their_own(void)
{
	hoist_stream *of_cpu = create(0);
	hoist_stream *of_cuda = create(1);
	hoist_event *event = NULL;
	pthread_t thread;
	OK(hoist_stream_record(of_cpu, 0, &event));
	OK(hoist_stream_wait_for(of_cpu, of_cuda));
	(void)pthread_create(&thread, NULL, make_streams, NULL);
	for (int i = 0; i < 10; i++) {
		pid_t pid = quiet_fork();
		if (pid == 0)
			child(of_cpu, of_cuda, event);
		CHECK(child_status(pid) == 0);
	}
	atomic_store(&stop, true);
	(void)pthread_join(thread, NULL);
	hoist_event_unref(event);
	DROP_STREAMS(of_cpu, of_cuda);
}

/* --- virtual devices, while others look --- */

/* The first thread sets them, the others open them. */
static void *set_or_open(void *number)
{
	for (int i = 0; i < 300; i++) {
		hoist_device *device = NULL;
		hoist_virtual_info info = {.size = sizeof info};
		if (number == NULL) {
			OK(hoist_virtual_set("cuda", i % 2 ? "sm_80" : NULL, i % 5));
			continue;
		}
		int err = hoist_device_open(i % 2 ? "cuda:3" : "gpu:1", &device);
		CHECK(err == 0 || err == -EINVAL);
		OK(hoist_virtual_get("cuda", &info));
		hoist_device_unref(device);
	}
	if (number == NULL)
		OK(hoist_virtual_set("cuda", NULL, 0));
	return NULL;
}

/* proves: S1.22 */
static void virtual_devices_come_and_go(void)
{
	int count = 0;
	run_threads(3, set_or_open, NULL, 0);
	OK(hoist_accelerator_count(&count));
	CHECK(count == 2);
}

int main(void)
{
	(void)alarm(120); /* a wait that never ends must not outlive the test's patience */
	lib_need_emulators();
	setenv("HOIST_EMULATE_LATENCY", "0..20", 1);
	lib_open_all(devices);
	pairs_are_ordered();
	streams_that_were_waited_for_are_let_go();
	streams_may_go_meanwhile();
	waits_of_one_driver_come_first();
	device_synchronize_reports_failed_functions();
	waiting_streams_learn_of_failures();
	threads_share_streams();
	children_have_streams_of_their_own();
	virtual_devices_come_and_go();
	CHECK(lib_drivers_content());
	return 0;
}
