/* SPDX-License-Identifier: MIT */
/* The CPU as a device: its memory, locked memory, streams and events, and the requests that it
 * refuses. */
#include "config.h"

#include <criterion/criterion.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"

static struct hoist__dev *cpu;

static void get_cpu(void)
{
	cr_assert_eq(hoist__dev_get(HOIST__API_CPU, 0, &cpu), 0);
}

TestSuite(device_cpu, .init = get_cpu);

Test(device_cpu, is_one_device_with_properties)
{
	int count = 0;
	struct hoist__dev *again = NULL;
	struct utsname system;
	cr_assert_eq(hoist__dev_count(HOIST__API_CPU, &count), 0);
	cr_assert_eq(count, 1);
	cr_assert_eq(hoist__dev_get(HOIST__API_CPU, 0, &again), 0);
	cr_assert_eq(again, cpu);
	cr_assert_eq(hoist__dev_get(HOIST__API_CPU, 1, &again), -EINVAL);
	cr_assert_not_null(strstr(hoist__error_text(), "cpu:1"));
	cr_assert_eq(hoist__dev_get(HOIST__API_CPU, -1, &again), -EINVAL);
	cr_assert_eq(again, cpu);
	const struct hoist__dev_props *props = hoist__dev_props(cpu);
	cr_assert_eq(uname(&system), 0);
	cr_assert_str_eq(props->architecture, system.machine);
	cr_assert_str_not_empty(props->name);
	cr_assert_null(strchr(props->name, '\n'));
	cr_assert_str_empty(props->pci);
	cr_assert_eq(props->numa_node, -1);
	cr_assert_eq(props->total_bytes / 4096 / 1024, (uint64_t)sysconf(_SC_PHYS_PAGES) *
							       (uint64_t)sysconf(_SC_PAGESIZE) /
							       4096 / 1024);
	cr_assert_not(props->emulated);
	cr_assert_eq(hoist__dev_api(cpu), HOIST__API_CPU);
	cr_assert_eq(hoist__dev_ordinal(cpu), 0);
	cr_assert_str_eq(hoist__api_name(HOIST__API_CPU), "cpu");
}

Test(device_cpu, gives_and_takes_back_memory)
{
	uintptr_t memory = 0;
	uint64_t available = 0;
	uint64_t total = 0;
	cr_assert_eq(hoist__dev_mem_info(cpu, &available, &total), 0);
	cr_assert_eq(total, hoist__dev_props(cpu)->total_bytes);
	cr_assert_gt(available, 0);
	cr_assert_leq(available, total);
	cr_assert_eq(hoist__dev_mem_alloc(cpu, 0, &memory), -EINVAL);
	cr_assert_eq(hoist__dev_mem_alloc(cpu, SIZE_MAX / 2, &memory), -ENOMEM);
	cr_assert_not_null(strstr(hoist__error_text(), "host memory is exhausted"));
	cr_assert_eq(memory, 0);
	cr_assert_eq(hoist__dev_mem_alloc(cpu, 10000, &memory), 0);
	cr_assert_eq(memory % 4096, 0);
	memset((void *)memory, 1, 10000);
	cr_assert_eq(hoist__dev_mem_free(cpu, memory, 10000), 0);
	cr_assert_eq(hoist__dev_mem_free(cpu, 0, 10000), 0);
	cr_assert_eq(hoist__dev_mem_free(cpu, 12345, 10000), -EINVAL);
}

/* The bytes of this process that are locked, as the kernel counts them. */
static unsigned long long locked_kib(void)
{
	char line[256];
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/self/status", "re");
	cr_assert_not_null(file);
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "VmLck: %llu kB", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

/* AddressSanitizer replaces mlock() by one that does nothing. */
static bool mlock_works(void)
{
	static _Alignas(4096) char page[4096];
	unsigned long long before = locked_kib();
	bool works = mlock(page, sizeof page) != 0 || locked_kib() != before;
	(void)munlock(page, sizeof page);
	return works;
}

Test(device_cpu, locks_host_memory)
{
	uintptr_t memory = 0;
	uintptr_t seen = 0;
	if (!mlock_works())
		cr_skip_test("mlock() does nothing in this build");
	cr_assert_eq(hoist__dev_mem_alloc(cpu, 65536, &memory), 0);
	unsigned long long before = locked_kib();
	int err = hoist__dev_host_register(cpu, (void *)memory, 65536);
	if (err == -EPERM)
		cr_skip_test("this process may not lock 64 KiB");
	cr_assert_eq(err, 0, "%s", hoist__error_text());
	cr_assert_eq(locked_kib(), before + 64);
	cr_assert_eq(hoist__dev_host_address(cpu, (void *)memory, &seen), 0);
	cr_assert_eq(seen, memory);
	cr_assert_eq(hoist__dev_host_unregister(cpu, (void *)memory, 65536), 0);
	cr_assert_eq(locked_kib(), before);
	cr_assert_eq(hoist__dev_host_register(cpu, NULL, 65536), -EINVAL);
	cr_assert_eq(hoist__dev_host_register(cpu, (void *)memory, 0), -EINVAL);
	cr_assert_eq(hoist__dev_mem_free(cpu, memory, 65536), 0);
}

Test(device_cpu, leaves_nothing_locked_when_a_part_cannot_be)
{
	uintptr_t memory = 0;
	if (!mlock_works())
		cr_skip_test("mlock() does nothing in this build");
	cr_assert_eq(hoist__dev_mem_alloc(cpu, 65536, &memory), 0);
	cr_assert_eq(munmap((void *)(memory + 32768), 32768), 0);
	unsigned long long before = locked_kib();
	int err = hoist__dev_host_register(cpu, (void *)memory, 65536);
	cr_assert(err == -ENOMEM || err == -EPERM, "%d", err);
	cr_assert_eq(locked_kib(), before);
	cr_assert_eq(hoist__dev_mem_free(cpu, memory, 32768), 0);
}

/* Root may lock without limit: that right is given up for this test's process. */
static void drop_lock_right(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];
	cr_assert_eq(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	cr_assert_eq(syscall(SYS_capset, &header, data), 0);
}

Test(device_cpu, names_the_memlock_limit_and_its_remedy)
{
	uintptr_t memory = 0;
	struct rlimit limit = {64 << 10, 64 << 10};
	cr_assert_eq(hoist__dev_mem_alloc(cpu, 1 << 20, &memory), 0);
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	drop_lock_right();
	int err = hoist__dev_host_register(cpu, (void *)memory, 1 << 20);
	if (err == 0)
		cr_skip_test("this kernel does not enforce RLIMIT_MEMLOCK");
	cr_assert_eq(err, -EPERM, "%d: %s", err, hoist__error_text());
	cr_assert_not_null(strstr(hoist__error_text(), "RLIMIT_MEMLOCK is 64 KiB"));
	cr_assert_not_null(strstr(hoist__error_text(), "ulimit -l"));
	cr_assert_eq(hoist__dev_mem_free(cpu, memory, 1 << 20), 0);
}

static struct hoist__dev_stream *new_stream(void)
{
	struct hoist__dev_stream *stream = NULL;
	cr_assert_eq(hoist__dev_stream_create(cpu, &stream), 0, "%s", hoist__error_text());
	return stream;
}

static struct hoist__dev_event *new_event(unsigned flags)
{
	struct hoist__dev_event *event = NULL;
	cr_assert_eq(hoist__dev_event_create(cpu, flags, &event), 0);
	return event;
}

Test(device_cpu, works_off_a_stream_in_order)
{
	enum { N = 4096 };
	static unsigned char chain[N + 1];
	struct hoist__dev_stream *stream = new_stream();
	cr_assert_null(hoist__dev_stream_native(stream));
	cr_assert_eq(hoist__dev_stream_dev(stream), cpu);
	cr_assert_eq(hoist__fill_async(stream, (uintptr_t)chain, 0xa5, 1, 1), 0);
	/* Each copy reads what the one before wrote. */
	for (size_t i = 0; i < N; i++)
		cr_assert_eq(hoist__copy_async(stream, (enum hoist__copy)(i % 3),
					       (uintptr_t)&chain[i + 1], (uintptr_t)&chain[i], 1),
			     0);
	cr_assert_eq(hoist__dev_stream_synchronize(stream), 0);
	cr_assert_eq(hoist__dev_stream_query(stream), 0);
	for (size_t i = 0; i <= N; i++)
		cr_assert_eq(chain[i], 0xa5);
	hoist__dev_stream_destroy(stream);
	hoist__dev_stream_destroy(NULL);
}

Test(device_cpu, finishes_queued_work_before_a_stream_ends)
{
	static unsigned char bytes[1 << 20];
	struct hoist__dev_stream *stream = new_stream();
	for (int i = 1; i <= 20; i++)
		cr_assert_eq(hoist__fill_async(stream, (uintptr_t)bytes, (unsigned char)i, 1,
					       sizeof bytes),
			     0);
	hoist__dev_stream_destroy(stream);
	cr_assert_eq(bytes[0], 20);
	cr_assert_eq(bytes[sizeof bytes - 1], 20);
}

/* The first stream has 8 MiB to set before the event: without the wait the
 * second would long have copied the old value. */
Test(device_cpu, holds_a_stream_back_until_the_event_of_another)
{
	static unsigned char value;
	static unsigned char copy;
	struct hoist__dev_stream *first = new_stream();
	struct hoist__dev_stream *second = new_stream();
	struct hoist__dev_event *event = new_event(0);
	static unsigned char big[8 << 20];
	cr_assert_eq(hoist__fill_async(first, (uintptr_t)big, 1, 1, sizeof big), 0);
	cr_assert_eq(hoist__fill_async(first, (uintptr_t)&value, 9, 1, 1), 0);
	cr_assert_eq(hoist__dev_event_record(event, first), 0);
	cr_assert_eq(hoist__dev_stream_wait_event(second, event), 0);
	cr_assert_eq(
		hoist__copy_peer_async(second, cpu, (uintptr_t)&copy, cpu, (uintptr_t)&value, 1),
		0);
	/* Recording anew and destroying do not disturb a stream that waits already. */
	cr_assert_eq(hoist__dev_event_record(event, first), 0);
	hoist__dev_event_destroy(event);
	cr_assert_eq(hoist__dev_stream_synchronize(second), 0);
	cr_assert_eq(copy, 9);
	hoist__dev_stream_destroy(second);
	hoist__dev_stream_destroy(first);
}

Test(device_cpu, treats_an_event_never_recorded_as_no_wait)
{
	struct hoist__dev_stream *stream = new_stream();
	struct hoist__dev_event *event = new_event(0);
	cr_assert_eq(hoist__dev_stream_wait_event(stream, event), 0);
	cr_assert_eq(hoist__dev_stream_synchronize(stream), 0);
	cr_assert_eq(hoist__dev_event_query(event), 0);
	cr_assert_eq(hoist__dev_event_synchronize(event), 0);
	hoist__dev_event_destroy(event);
	hoist__dev_event_destroy(NULL);
	hoist__dev_stream_destroy(stream);
}

Test(device_cpu, measures_the_time_between_two_events)
{
	static unsigned char bytes[4 << 20];
	struct hoist__dev_stream *stream = new_stream();
	struct hoist__dev_event *start = new_event(HOIST__EVENT_TIMING);
	struct hoist__dev_event *end = new_event(HOIST__EVENT_TIMING);
	struct hoist__dev_event *plain = new_event(0);
	uint64_t ns = 77;
	cr_assert_eq(hoist__dev_event_elapsed_ns(start, end, &ns), -EINVAL);
	cr_assert_not_null(strstr(hoist__error_text(), "never recorded"));
	cr_assert_eq(hoist__dev_event_elapsed_ns(start, plain, &ns), -EINVAL);
	cr_assert_not_null(strstr(hoist__error_text(), "without timing"));
	cr_assert_eq(ns, 77);
	cr_assert_eq(hoist__dev_event_record(start, stream), 0);
	cr_assert_eq(hoist__fill_async(stream, (uintptr_t)bytes, 3, 1, sizeof bytes), 0);
	cr_assert_eq(hoist__dev_event_record(end, stream), 0);
	int err = hoist__dev_event_query(end);
	cr_assert(err == 0 || err == -EAGAIN);
	cr_assert_eq(hoist__dev_event_synchronize(end), 0);
	cr_assert_eq(hoist__dev_event_query(end), 0);
	cr_assert_eq(hoist__dev_event_elapsed_ns(start, end, &ns), 0);
	cr_assert_gt(ns, 0);
	cr_assert_eq(hoist__dev_event_elapsed_ns(end, start, &ns), 0);
	cr_assert_eq(ns, 0);
	hoist__dev_event_destroy(start);
	hoist__dev_event_destroy(end);
	hoist__dev_event_destroy(plain);
	hoist__dev_stream_destroy(stream);
}

Test(device_cpu, refuses_senseless_requests)
{
	unsigned char byte = 0;
	struct hoist__dev_stream *stream = new_stream();
	struct hoist__dev_stream *wrapped = NULL;
	struct hoist__dev_event *event = NULL;
	cr_assert_eq(hoist__dev_stream_wrap(cpu, NULL, &wrapped), -ENOTSUP);
	cr_assert_null(wrapped);
	cr_assert_eq(hoist__dev_event_create(cpu, 0x80, &event), -EINVAL);
	cr_assert_null(event);
	cr_assert_eq(
		hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, 0, (uintptr_t)&byte, 1),
		-EINVAL);
	cr_assert_eq(
		hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, (uintptr_t)&byte, 0, 1),
		-EINVAL);
	cr_assert_eq(hoist__copy_peer_async(stream, cpu, 0, cpu, (uintptr_t)&byte, 1), -EINVAL);
	cr_assert_eq(hoist__fill_async(stream, 0, 1, 1, 1), -EINVAL);
	cr_assert_eq(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, 0, 0, 0), 0);
	cr_assert_eq(hoist__fill_async(stream, 0, 1, 1, 0), 0);
	cr_assert_eq(hoist__dev_stream_query(stream), 0);
	hoist__dev_stream_destroy(stream);
}

/* Root is not counted, so the child becomes nobody.  Exit status: what failed. */
static int without_threads(void)
{
	struct rlimit limit = {1, 1};
	struct hoist__dev_stream *stream = NULL;
	if (setrlimit(RLIMIT_NPROC, &limit) < 0 ||
	    (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0))
		return 77;
	int err = hoist__dev_stream_create(cpu, &stream);
	if (err == 0)
		return 77;
	if (err != -ENOMEM || stream != NULL)
		return 1;
	return strstr(hoist__error_text(), "ulimit -u") == NULL ? 2 : 0;
}

Test(device_cpu, has_no_memory_of_a_drivers_and_captures_nothing)
{
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_pool *pool = NULL;
	uintptr_t memory = 0;
	bool capturing = true;
	cr_assert_eq(hoist__dev_managed_alloc(cpu, 4096, &memory), -ENOTSUP);
	cr_assert_eq(hoist__dev_pool_create(cpu, 0, &pool), -ENOTSUP);
	cr_assert_eq(hoist__dev_pool_current(cpu, &pool), -ENOTSUP);
	cr_assert_null(pool);
	cr_assert_eq(memory, 0);
	cr_assert_eq(hoist__dev_stream_create(cpu, &stream), 0);
	cr_assert_eq(hoist__dev_stream_capturing(stream, &capturing), 0);
	cr_assert_not(capturing);
	hoist__dev_stream_destroy(stream);
}

Test(device_cpu, says_so_when_no_thread_can_be_started)
{
	int status = -1;
	pid_t pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0)
		_exit(without_threads());
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		cr_skip_test("this kernel does not enforce RLIMIT_NPROC here");
	cr_assert_eq(status, 0, "%#x", (unsigned)status);
}
