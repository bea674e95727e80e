/* SPDX-License-Identifier: MIT */
/* The promises of a load beside its bytes: cancel, step, errors that name things, budgets that hold
 * and are shared, buffers that outlive everything, fork. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/load-support.h"

#define MIB ((size_t)1 << 20)

static char path[512];

static void write_one(size_t n, size_t bytes)
{
	size_t sizes[64];
	CHECK(n <= 64);
	for (size_t i = 0; i < n; i++)
		sizes[i] = bytes;
	snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
	support_write("m.safetensors", 0, n, sizes, -1);
}

/* The end of a case: nothing of the budget is in use, and nothing is left. */
static void end(hoist_load *load, hoist_checkpoint *checkpoint, const hoist_load_options *o)
{
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	if (o != NULL) {
		CHECK(o->budget == NULL || hoist_budget_used(o->budget) == 0);
		hoist_budget_unref(o->budget);
		hoist_device_unref(o->device);
	}
	support_cleanup();
}

static void cancel_ends_a_slow_load(void)
{
	write_one(32, MIB);
	hoist_load_options o = {.size = sizeof o, .device = support_device("cuda:0")};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	support_hold("cuda", true); /* no copy ends */
	OK(hoist_load_start(checkpoint, &o, &load));
	hoist_checkpoint_close(checkpoint); /* the load keeps what it needs */
	hoist_buffer *buffer;
	CHECK(hoist_load_buffer(load, "t000000", &buffer) == -EAGAIN);
	hoist_load_report report = {.size = sizeof report};
	CHECK(hoist_load_get_report(load, &report) == -EAGAIN);
	hoist_load_cancel(load);
	support_hold("cuda", false);
	CHECK(hoist_load_wait(load) == -ECANCELED);
	support_said("cancel");
	CHECK(hoist_load_buffer(load, "t000000", &buffer) == -ECANCELED);
	OK(hoist_load_get_report(load, &report));
	hoist_load_destroy(load);
	support_reset("cuda");
	CHECK(support_counters("cuda").use_after_free == 0);
	hoist_device_unref(o.device);
	support_cleanup();
}

static void destroy_without_wait_cancels(void)
{
	write_one(16, MIB);
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	for (int i = 0; i < 8; i++) {
		hoist_load_options o = {.size = sizeof o,
					.device = support_device(i % 2 ? "cuda:0" : "cpu")};
		OK(hoist_load_start(checkpoint, &o, &load));
		hoist_load_destroy(load);
		hoist_device_unref(o.device);
	}
	end(NULL, checkpoint, NULL);
}

static void the_caller_can_drive(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	write_one(5, 3 * MIB);
	for (size_t d = 0; d < 2; d++) {
		hoist_load_options o = {.size = sizeof o,
					.device = support_device(specs[d]),
					.flags = HOIST_LOAD_CALLER_DRIVEN};
		hoist_checkpoint *checkpoint = support_open(path);
		hoist_load *load;
		OK(hoist_load_start(checkpoint, &o, &load));
		/* The host may be done at once; a device that is held is not. */
		support_hold("cuda", d == 1);
		int done = hoist_load_step(load, 1000000);
		CHECK(done == 0 || d == 0);
		support_hold("cuda", false);
		while (done == 0)
			done = hoist_load_step(load, 1000000);
		CHECK(done == 1);
		CHECK(hoist_load_step(load, 0) == 1);
		OK(hoist_load_wait(load));
		support_compare(checkpoint, load);
		hoist_load_destroy(load);
		/* wait() drives a load that nobody stepped. */
		OK(hoist_load_start(checkpoint, &o, &load));
		OK(hoist_load_wait(load));
		hoist_load_destroy(load);
		o.flags = 0;
		OK(hoist_load_start(checkpoint, &o, &load));
		CHECK(hoist_load_step(load, 0) == -EINVAL);
		hoist_load_destroy(load);
		hoist_checkpoint_close(checkpoint);
		hoist_device_unref(o.device);
	}
	support_cleanup();
}

/* The device ends no copy while it is held, so the load goes on. */
static void a_wait_can_end_before_the_load(void)
{
	write_one(5, 3 * MIB);
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load_options o = {.size = sizeof o, .device = support_device("cuda:0")};
	for (int way = 0; way < 4; way++) {
		hoist_load *load;
		o.flags = (way % 2 ? HOIST_LOAD_CALLER_DRIVEN : 0u) |
			  (way / 2 ? HOIST_LOAD_STREAM : 0u);
		support_hold("cuda", true);
		OK(hoist_load_start(checkpoint, &o, &load));
		CHECK(hoist_load_wait_for(load, 0) == -ETIMEDOUT);
		CHECK(hoist_load_wait_for(load, 1000000) == -ETIMEDOUT);
		support_said("has not ended yet");
		support_hold("cuda", false);
		int err = -ETIMEDOUT;
		while (err == -ETIMEDOUT)
			err = hoist_load_wait_for(load, 1000000);
		OK(err);
		OK(hoist_load_wait_for(load, 0));
		OK(hoist_load_wait_for(load, UINT64_MAX));
		if (way / 2 == 0)
			support_compare(checkpoint, load);
		hoist_load_destroy(load);
	}
	/* A failure is the load's, not the wait's. */
	hoist_load *load;
	o.flags = HOIST_LOAD_CALLER_DRIVEN;
	OK(hoist_load_start(checkpoint, &o, &load));
	hoist_load_cancel(load);
	CHECK(hoist_load_wait_for(load, UINT64_MAX) == -ECANCELED);
	CHECK(hoist_load_wait_for(load, 0) == -ECANCELED);
	end(load, checkpoint, &o);
}

/* Driver calls of a load in chunks of a MiB to a device that copies slowly; @patience is that of a
 * step, 0: the load drives itself. */
static uint64_t count_calls(enum hoist_engine engine, uint64_t patience_ns, uint64_t *ret_ns)
{
	hoist_load_options o = {.size = sizeof o,
				.device = support_device("cuda:0"),
				.engine = engine,
				.chunk_bytes = MIB,
				.flags = patience_ns > 0 ? HOIST_LOAD_CALLER_DRIVEN : 0};
	hoist_load_report report = {.size = sizeof report};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	support_set_rate("cuda", 32 * MIB);
	uint64_t before = support_counters("cuda").calls;
	OK(hoist_load_start(checkpoint, &o, &load));
	while (patience_ns > 0 && hoist_load_step(load, patience_ns) == 0)
		continue;
	OK(hoist_load_wait(load));
	uint64_t n = support_counters("cuda").calls - before;
	support_set_rate("cuda", 0);
	OK(hoist_load_get_report(load, &report));
	*ret_ns = report.ns;
	support_compare(checkpoint, load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(o.device);
	return n;
}

/* A wait for copies alone ends when the driver says that one has: no one asks in between, but
 * whenever a step looks whether the load was cancelled, that is every 20 ms. */
static void copies_are_not_asked_for(void)
{
	enum { N_CHUNKS = 8 };
	static const enum hoist_engine engines[] = {HOIST_ENGINE_AUTO, HOIST_ENGINE_THREADS};
	write_one(N_CHUNKS, MIB);
	for (size_t e = 0; e < 2; e++) {
		uint64_t ns;
		uint64_t n = count_calls(engines[e], 3600 * UINT64_C(1000000000), &ns);
		uint64_t n_self = count_calls(engines[e], 0, &(uint64_t){0});
		printf("%" PRIu64 " driver calls in %" PRIu64
		       " ms; of a load that drives itself %" PRIu64 "\n",
		       n, ns / 1000000, n_self);
		CHECK(n <= n_self + 8 * N_CHUNKS + 8 * (ns / 20000000 + 1));
	}
	support_cleanup();
}

static void bad_options_are_refused(void)
{
	write_one(1, 100);
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load = NULL;
	const char *const nothing[] = {"nothing.*"};
	const char *const null_name[] = {NULL};
	const hoist_load_options bad[] = {
		{.size = 0},
		{.size = sizeof bad[0], .engine = (enum hoist_engine)9},
		{.size = sizeof bad[0], .io = (enum hoist_io)9},
		{.size = sizeof bad[0], .flags = 0x100},
		{.size = sizeof bad[0], .tensor_align = 3},
		{.size = sizeof bad[0], .tensor_align = 8192},
		{.size = sizeof bad[0], .n_tensors = 1},
		{.size = sizeof bad[0], .tensors = null_name, .n_tensors = 1},
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK(hoist_load_start(checkpoint, &bad[i], &load) == -EINVAL);
	const hoist_load_options none = {.size = sizeof none, .tensors = nothing, .n_tensors = 1};
	CHECK(hoist_load_start(checkpoint, &none, &load) == -ENOENT);
	support_said("nothing.*");
	CHECK(hoist_load_start(NULL, NULL, &load) == -EINVAL);
	CHECK(load == NULL);
	end(NULL, checkpoint, NULL);
}

static void a_file_that_shrinks_is_named(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	for (size_t d = 0; d < 2; d++)
		for (int engine = HOIST_ENGINE_AUTO; engine <= HOIST_ENGINE_THREADS; engine += 2)
			for (int io = HOIST_IO_AUTO; io <= HOIST_IO_CACHED; io++) {
				write_one(8, MIB);
				hoist_load_options o = {.size = sizeof o,
							.device = support_device(specs[d]),
							.engine = (enum hoist_engine)engine,
							.io = (enum hoist_io)io};
				hoist_checkpoint *checkpoint = support_open(path);
				hoist_load *load;
				OK(truncate(path, 5 * MIB + 100));
				OK(hoist_load_start(checkpoint, &o, &load));
				CHECK(hoist_load_wait(load) == -ENODATA);
				support_said("m.safetensors");
				support_said("t000004");
				end(load, checkpoint, &o);
			}
}

/* The read that meets the cut first may be of a tensor that is far behind. */
static void the_first_tensor_that_is_cut_is_named(void)
{
	static const char *const two[] = {"t000001", "t000006"};
	for (int round = 0; round < 24; round++) {
		write_one(8, MIB);
		hoist_load_options o = {.size = sizeof o,
					.tensors = two,
					.n_tensors = 2,
					.engine = round % 3 == 0 ? HOIST_ENGINE_AUTO
								 : HOIST_ENGINE_THREADS,
					.io = round % 2 == 0 ? HOIST_IO_CACHED : HOIST_IO_DIRECT};
		hoist_checkpoint *checkpoint = support_open(path);
		hoist_load *load;
		OK(truncate(path, 2 * MIB - 100));
		OK(hoist_load_start(checkpoint, &o, &load));
		CHECK(hoist_load_wait(load) == -ENODATA);
		CHECK(strstr(hoist_error(), "the end of tensor \"t000001\"") != NULL);
		end(load, checkpoint, NULL);
	}
}

static void a_file_that_changes_is_noticed(void)
{
	write_one(2, MIB);
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	CHECK(pwrite(fd, "x", 1, 4096) == 1 && futimens(fd, times) == 0 && close(fd) == 0);
	OK(hoist_load_start(checkpoint, NULL, &load));
	CHECK(hoist_load_wait(load) == -EBADMSG);
	support_said("m.safetensors");
	end(load, checkpoint, NULL);
}

static void small_budgets_hold(void)
{
	write_one(10, 4 * MIB);
	static const size_t budgets[] = {128 << 10, 1 << 20, (5 << 20) + 12345, 16 << 20};
	hoist_load_options o = {.size = sizeof o, .device = support_device("cuda:0")};
	for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
		hoist_load_report report;
		OK(hoist_budget_create(budgets[b], &o.budget));
		support_load_and_compare(path, &o, &report);
		CHECK(report.budget_bytes == budgets[b]);
		CHECK(report.staging_peak_bytes > 0 && report.staging_peak_bytes <= budgets[b]);
		CHECK(report.pinned_peak_bytes > 0 && report.pinned_peak_bytes <= budgets[b]);
		CHECK(hoist_budget_used(o.budget) == 0);
		CHECK(hoist_budget_peak(o.budget) <= budgets[b]);
		hoist_budget_unref(o.budget);
	}
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	OK(hoist_budget_create(1000, &o.budget));
	OK(hoist_load_start(checkpoint, &o, &load));
	CHECK(hoist_load_wait(load) == -EDQUOT);
	end(load, checkpoint, &o);
}

static void loads_share_a_budget_by_waiting(void)
{
	enum { N = 4 };
	write_one(12, MIB);
	hoist_load_options o = {.size = sizeof o, .device = support_device("cuda:0")};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *loads[N];
	OK(hoist_budget_create(4 * MIB, &o.budget));
	for (int i = 0; i < N; i++)
		OK(hoist_load_start(checkpoint, &o, &loads[i]));
	for (int i = 0; i < N; i++) {
		OK(hoist_load_wait(loads[i]));
		support_compare(checkpoint, loads[i]);
		hoist_load_destroy(loads[i]);
	}
	CHECK(hoist_budget_peak(o.budget) <= 4 * MIB);
	CHECK(hoist_budget_used(o.budget) == 0);
	hoist_checkpoint_close(checkpoint);
	hoist_budget_unref(o.budget);
	hoist_device_unref(o.device);
	support_cleanup();
}

/* With small reads a load needs little, and little is what it waits for. */
static void a_load_waits_for_as_much_as_it_needs(void)
{
	write_one(3, MIB);
	hoist_load_options o = {.size = sizeof o,
				.device = support_device("cuda:0"),
				.flags = HOIST_LOAD_CALLER_DRIVEN,
				.chunk_bytes = 4096};
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *first;
	hoist_load *second;
	OK(hoist_budget_create(64 << 10, &o.budget));
	OK(hoist_load_start(checkpoint, &o, &first));
	CHECK(hoist_load_step(first, 0) == 0 && hoist_budget_used(o.budget) == 64 << 10);
	OK(hoist_load_start(checkpoint, &o, &second));
	for (int i = 0; i < 3; i++)
		OK(hoist_load_step(second, 1000000));
	OK(hoist_load_wait(first));
	OK(hoist_load_wait(second));
	support_compare(checkpoint, second);
	hoist_load_destroy(first);
	hoist_load_destroy(second);
	CHECK(hoist_budget_used(o.budget) == 0);
	hoist_checkpoint_close(checkpoint);
	hoist_budget_unref(o.budget);
	hoist_device_unref(o.device);
	support_cleanup();
}

/* A resource keeps empty regions for itself, but not from a load. */
static void a_resource_yields_to_a_load(void)
{
	write_one(4, MIB);
	hoist_load_options o = {.size = sizeof o, .device = support_device("cuda:0")};
	hoist_load_report report;
	hoist_memory *memory;
	uintptr_t block;
	OK(hoist_budget_create(4 * MIB, &o.budget));
	const hoist_memory_options options = {
		.size = sizeof options, .budget = o.budget, .region_bytes = 4 * MIB};
	OK(hoist_memory_create(&options, &memory));
	OK(hoist_memory_alloc(memory, 4 * MIB, 0, &block));
	OK(hoist_memory_free(memory, block));
	hoist_memory_statistics s = {.size = sizeof s};
	OK(hoist_memory_get_statistics(memory, &s));
	CHECK(s.reserved_bytes == 4 * MIB);
	support_load_and_compare(path, &o, &report);
	CHECK(hoist_budget_used(o.budget) == 0);
	hoist_memory_unref(memory);
	hoist_budget_unref(o.budget);
	hoist_device_unref(o.device);
	support_cleanup();
}

static void buffers_outlive_everything(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	write_one(3, MIB + 5);
	for (size_t d = 0; d < 2; d++)
		for (int io = HOIST_IO_AUTO; io <= HOIST_IO_MAP; io += 3) {
			hoist_load_options o = {.size = sizeof o,
						.device = support_device(specs[d]),
						.io = (enum hoist_io)io};
			hoist_checkpoint *checkpoint;
			hoist_load *load;
			hoist_buffer *buffer;
			unsigned char got[64];
			unsigned char want[64];
			hoist_tensor_info tensor = {.size = sizeof tensor};
			OK(hoist_checkpoint_open(path, 0, &checkpoint));
			OK(hoist_checkpoint_tensor(checkpoint, 1, &tensor));
			uint64_t offset = tensor.offset;
			OK(hoist_load_start(checkpoint, &o, &load));
			OK(hoist_load_wait(load));
			OK(hoist_load_buffer(load, "t000001", &buffer));
			hoist_device_unref(o.device);
			hoist_checkpoint_close(checkpoint);
			hoist_load_destroy(load);
			int fd = open(path, O_RDONLY | O_CLOEXEC);
			CHECK(pread(fd, want, sizeof want, (off_t)offset + 99) == sizeof want);
			close(fd);
			OK(hoist_buffer_read(buffer, 99, got, sizeof got));
			CHECK(memcmp(got, want, sizeof got) == 0);
			hoist_buffer_unref(buffer);
		}
	support_cleanup();
}

static void a_forked_child_is_told(void)
{
	write_one(2, MIB);
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	OK(hoist_load_start(checkpoint, NULL, &load));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		bool told = hoist_load_wait(load) == -ESTALE && hoist_load_step(load, 0) == -ESTALE;
		hoist_load_destroy(load); /* returns at once */
		_exit(told ? 0 : 1);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(hoist_load_wait(load));
	end(load, checkpoint, NULL);
}

int main(void)
{
	support_emulate("cuda:1");
	cancel_ends_a_slow_load();
	destroy_without_wait_cancels();
	the_caller_can_drive();
	a_wait_can_end_before_the_load();
	copies_are_not_asked_for();
	bad_options_are_refused();
	a_file_that_shrinks_is_named();
	the_first_tensor_that_is_cut_is_named();
	a_file_that_changes_is_noticed();
	small_budgets_hold();
	loads_share_a_budget_by_waiting();
	a_load_waits_for_as_much_as_it_needs();
	a_resource_yields_to_a_load();
	buffers_outlive_everything();
	a_forked_child_is_told();
	return 0;
}
