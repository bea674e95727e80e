/* SPDX-License-Identifier: MIT */
/* Regions that a driver registers, gives, or shares: on an emulated device, and on a real one
 * where HOIST_TEST_DEVICE says cuda or hip. */
#include "config.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "alloc/pin.h"
#include "tests/support/alloc-device.h"

static struct hoist__calls calls;

static uint64_t counted(enum hoist__call call)
{
	return atomic_load(&calls.of[call].n);
}

static void expect_child_ends_well(pid_t child)
{
	int status = -1;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
}

TestSuite(alloc_pieces, .init = open_device);

Test(alloc_pieces, registers_pinned_regions_with_the_driver)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 5 * HOIST__MIB, .dev = dev, .calls = &calls};
	struct hoist__region *region = make_region(&options);
	cr_assert(region->pinned);
	cr_assert_eq(region->piece_bytes, region->bytes);
	cr_assert_gt(region->step_ns[HOIST__STEP_PIN], 0);
	cr_assert_str_empty(region->step_note[HOIST__STEP_PIN]);
	cr_assert_eq(counted(HOIST__CALL_REGISTER), 1);
	if (emulated) {
		cr_assert_eq(counters().live_registrations, 1);
		cr_assert_eq(counters().live_registered_bytes, region->bytes);
	}
	memset((void *)region->base, 1, region->bytes);
	pid_t child = fork();
	if (child == 0) {
		/* Memory that a driver pinned is not in a child's address space at all. */
		unsigned char resident[5 * 256];
		_exit(mincore((void *)region->base, region->bytes, resident) != 0 && errno == ENOMEM
			      ? 0
			      : 1);
	}
	expect_child_ends_well(child);
	hoist__region_destroy(region);
	cr_assert_eq(counted(HOIST__CALL_REGISTER), 2);
	expect_nothing_left();
}

/* The address space that a child does not inherit is free for what it maps. */
Test(alloc_pieces, leaves_a_childs_own_memory_alone)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 4 * HOIST__MIB, .dev = dev};
	struct hoist__region *region = make_region(&options);
	pid_t child = fork();
	if (child == 0) {
		char *own = mmap((void *)region->base, HOIST__MIB, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (own != (char *)region->base)
			_exit(1);
		memset(own, 7, HOIST__MIB);
		hoist__region_destroy(region);
		_exit(own[0] == 7 && own[HOIST__MIB - 1] == 7 ? 0 : 2);
	}
	expect_child_ends_well(child);
	hoist__region_destroy(region);
	expect_nothing_left();
}

Test(alloc_pieces, blames_no_device_memory_for_a_failed_pin)
{
	need_stand_in();
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = HOIST__MIB, .dev = dev};
	struct hoist__region *region = NULL;
	make_fail("cuMemHostRegister:1");
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	SAYS("page-locking 1048576 bytes");
	SAYS("CUDA_ERROR_OUT_OF_MEMORY");
	cr_assert_null(strstr(hoist__error_text(), "device memory"), "%s", hoist__error_text());
	expect_nothing_left();
}

/* --- pieces --- */

#define LARGE (5 * HOIST__GIB + HOIST__MIB)

/* Address space alone is enough to show sizes. */
static struct hoist__pin large_pin(void)
{
	need_stand_in();
	void *base = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cr_assert_neq(base, MAP_FAILED);
	return (struct hoist__pin){.dev = dev, .base = base, .bytes = LARGE, .calls = &calls};
}

static char why[HOIST__ERROR_BYTES];

Test(alloc_pieces, bounds_the_bytes_of_one_registration)
{
	struct hoist__pin pin = large_pin();
	OK(hoist__pin(&pin, why, sizeof why));
	cr_assert_eq(pin.piece_bytes, HOIST__PIECE_BYTES);
	cr_assert_str_empty(why);
	cr_assert_eq(counters().live_registrations, 2);
	cr_assert_eq(counters().live_registered_bytes, LARGE);
	cr_assert_eq(counted(HOIST__CALL_REGISTER), 2);
	hoist__unpin(&pin);
	cr_assert_eq(counted(HOIST__CALL_REGISTER), 4);
	expect_nothing_left();
}

Test(alloc_pieces, are_smaller_where_the_driver_refuses_them)
{
	struct hoist__pin pin = large_pin();
	control.set_register_most(HOIST__GIB);
	OK(hoist__pin(&pin, why, sizeof why));
	cr_assert_eq(pin.piece_bytes, HOIST__GIB);
	cr_assert(strstr(why, "CUDA_ERROR_OUT_OF_MEMORY") != NULL, "%s", why);
	cr_assert_eq(counters().live_registrations, 6);
	cr_assert_eq(counters().live_registered_bytes, LARGE);
	hoist__unpin(&pin);
	expect_nothing_left();
	pin.piece_bytes = 0;
	control.set_register_most(HOIST__PIECE_LEAST);
	OK(hoist__pin(&pin, why, sizeof why));
	cr_assert_eq(pin.piece_bytes, HOIST__PIECE_LEAST);
	cr_assert_eq(counters().live_registrations, 81);
	hoist__unpin(&pin);
	expect_nothing_left();
}

Test(alloc_pieces, are_not_tried_for_ever)
{
	struct hoist__pin pin = large_pin();
	control.set_register_most(HOIST__PIECE_LEAST - 1);
	cr_assert_eq(hoist__pin(&pin, why, sizeof why), -ENOMEM);
	SAYS("page-locking 4294967296 bytes");
	cr_assert_eq(pin.piece_bytes, 0, "a result on failure");
	cr_assert_eq(control.calls("cuMemHostRegister"), 7, "4 GiB and six halves of it");
	expect_nothing_left();
	/* A piece that is refused in any size is not tried from the beginning. */
	uint64_t before = control.calls("cuMemHostRegister");
	control.set_register_most(0);
	pin.piece_bytes = HOIST__GIB;
	make_fail("cuMemHostRegister:4+");
	cr_assert_eq(hoist__pin(&pin, why, sizeof why), -ENOMEM);
	cr_assert_eq(control.calls("cuMemHostRegister") - before, 4 + 4);
	expect_nothing_left();
	/* Nor is what has another reason. */
	before = control.calls("cuMemHostRegister");
	make_fail("cuMemHostRegister:2:800");
	cr_assert_eq(hoist__pin(&pin, why, sizeof why), -EPERM);
	cr_assert_eq(control.calls("cuMemHostRegister") - before, 2);
	expect_nothing_left();
}

Test(alloc_pieces, may_be_refused_once)
{
	struct hoist__pin pin = large_pin();
	make_fail("cuMemHostRegister:2:1");
	OK(hoist__pin(&pin, why, sizeof why));
	cr_assert_eq(pin.piece_bytes, 2 * HOIST__GIB);
	cr_assert(strstr(why, "CUDA_ERROR_INVALID_VALUE") != NULL, "%s", why);
	cr_assert_eq(counters().live_registrations, 3);
	hoist__unpin(&pin);
	expect_nothing_left();
}

Test(alloc_pieces, are_one_or_none_if_asked_for)
{
	struct hoist__pin pin = large_pin();
	pin.piece_bytes = SIZE_MAX;
	OK(hoist__pin(&pin, why, sizeof why));
	cr_assert_eq(pin.piece_bytes, LARGE);
	cr_assert_eq(counters().live_registrations, 1);
	hoist__unpin(&pin);
	expect_nothing_left();
	control.set_register_most(HOIST__GIB);
	pin.piece_bytes = SIZE_MAX;
	uint64_t before = control.calls("cuMemHostRegister");
	cr_assert_eq(hoist__pin(&pin, why, sizeof why), -ENOMEM);
	cr_assert_eq(control.calls("cuMemHostRegister") - before, 1);
	expect_nothing_left();
}

Test(alloc_pieces, are_of_a_region_and_end_with_it)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED,
						.bytes = 200 * HOIST__KIB,
						.dev = dev,
						.piece_bytes = 100000,
						.calls = &calls};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->piece_bytes, 128 * HOIST__KIB);
	cr_assert_eq(counted(HOIST__CALL_REGISTER), 2);
	if (emulated)
		cr_assert_eq(counters().live_registrations, 2);
	/* A copy within a piece is one that the driver takes. */
	struct hoist__dev_stream *stream = NULL;
	uintptr_t memory = 0;
	OK(hoist__dev_mem_alloc(dev, 72 * HOIST__KIB, &memory));
	OK(hoist__dev_stream_create(dev, &stream));
	cr_assert_eq(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory,
				       region->base + region->piece_bytes,
				       region->bytes - region->piece_bytes),
		     0);
	OK(hoist__dev_stream_synchronize(stream));
	hoist__dev_stream_destroy(stream);
	OK(hoist__dev_mem_free(dev, memory, 72 * HOIST__KIB));
	hoist__region_destroy(region);
	expect_nothing_left();
}

Test(alloc_pieces, are_noted_where_smaller_than_meant)
{
	need_stand_in();
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 130 * HOIST__MIB, .dev = dev};
	control.set_register_most(64 * HOIST__MIB);
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->piece_bytes, 64 * HOIST__MIB);
	cr_assert_eq(counters().live_registrations, 3);
	const char *note = region->step_note[HOIST__STEP_PIN];
	cr_assert(strstr(note, "pieces of 64 MiB only: page-locking") == note, "%s", note);
	hoist__region_destroy(region);
	expect_nothing_left();
}

/* --- memory of the device --- */

static void expect_aligned(const struct hoist__region *region, size_t bytes)
{
	cr_assert_eq(region->base % HOIST__REGION_ALIGN, 0);
	cr_assert_eq(region->bytes, bytes);
	cr_assert_eq(region->bytes, hoist__region_bound(&region->options));
	cr_assert_not(region->pinned);
	cr_assert_eq(region->node, -1);
}

Test(alloc_pieces, device_memory_begins_and_ends_at_a_granule)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_DEVICE,
						.bytes = 3 * HOIST__MIB + 1,
						.dev = dev,
						.calls = &calls};
	struct hoist__region *region = make_region(&options);
	expect_aligned(region, 3 * HOIST__MIB + HOIST__REGION_ALIGN);
	cr_assert_eq(counted(HOIST__CALL_ALLOC), 1);
	hoist__region_destroy(region);
	cr_assert_eq(counted(HOIST__CALL_ALLOC), 2);
	expect_nothing_left();
}

Test(alloc_pieces, device_memory_is_aligned_where_the_drivers_is_not)
{
	need_stand_in();
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_DEVICE, .bytes = HOIST__MIB, .dev = dev, .calls = &calls};
	uintptr_t odd = 0;
	OK(hoist__dev_mem_alloc(dev, 512, &odd));
	struct hoist__region *region = make_region(&options);
	expect_aligned(region, HOIST__MIB);
	cr_assert(strstr(region->step_note[HOIST__STEP_RESERVE], "not aligned") != NULL);
	cr_assert_eq(counters().live_allocations, 2);
	cr_assert_eq(counters().live_bytes, 512 + HOIST__MIB + HOIST__REGION_ALIGN);
	cr_assert_eq(counted(HOIST__CALL_ALLOC), 3);
	hoist__region_destroy(region);
	OK(hoist__dev_mem_free(dev, odd, 512));
	expect_nothing_left();
}

Test(alloc_pieces, managed_memory_is_the_hosts_too)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_MANAGED, .bytes = HOIST__MIB + 1, .dev = dev};
	struct hoist__region *region = NULL;
	int err = hoist__region_create(&options, &region);
	if (err == -ENOTSUP)
		cr_skip_test("%s", hoist__error_text());
	cr_assert_eq(err, 0, "%s", hoist__error_text());
	expect_aligned(region, HOIST__MIB + HOIST__REGION_ALIGN);
	memset((void *)region->base, 3, region->bytes);
	hoist__region_destroy(region);
	expect_nothing_left();
	struct hoist__dev *cpu = NULL;
	OK(hoist__dev_get(HOIST__API_CPU, 0, &cpu));
	options.dev = cpu;
	cr_assert_eq(hoist__region_create(&options, &region), -ENOTSUP);
}

/* --- memory of others --- */

static int lend(void *context, size_t bytes, size_t align, uintptr_t *ret)
{
	void *memory = aligned_alloc(align, bytes);
	if (memory == NULL)
		return hoist__fail_nomem("a test's memory", bytes);
	memset(memory, 5, bytes);
	*ret = (uintptr_t)memory;
	++*(size_t *)context;
	return 0;
}

static void take_back(void *context, uintptr_t address, size_t bytes)
{
	(void)bytes;
	free((void *)address);
	--*(size_t *)context;
}

Test(alloc_pieces, registers_the_memory_of_a_source)
{
	size_t n_lent = 0;
	struct hoist__source source = {lend, take_back, &n_lent};
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED,
						.bytes = 2 * HOIST__MIB,
						.dev = dev,
						.piece_bytes = HOIST__MIB,
						.source = &source};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(n_lent, 1);
	cr_assert(region->pinned);
	cr_assert_eq(region->piece_bytes, HOIST__MIB);
	if (emulated)
		cr_assert_eq(counters().live_registrations, 2);
	hoist__region_destroy(region);
	cr_assert_eq(n_lent, 0);
	expect_nothing_left();
	if (!emulated)
		return;
	make_fail("cuMemHostRegister:2");
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	cr_assert_eq(n_lent, 0);
	expect_nothing_left();
}

Test(alloc_pieces, registers_the_callers_memory_and_leaves_it_the_callers)
{
	size_t bytes = 4 * HOIST__MIB;
	char *own = aligned_alloc(HOIST__REGION_ALIGN, bytes);
	cr_assert_not_null(own);
	memset(own, 5, bytes);
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = bytes, .dev = dev, .given = (uintptr_t)own};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->base, (uintptr_t)own);
	cr_assert(region->pinned);
	if (emulated)
		cr_assert_eq(counters().live_registered_bytes, bytes);
	pid_t child = fork();
	if (child == 0) {
		/* The caller's memory is in its children, and outlives the region. */
		hoist__region_destroy(region);
		_exit(own[0] == 5 && own[bytes - 1] == 5 ? 0 : 1);
	}
	expect_child_ends_well(child);
	hoist__region_destroy(region);
	expect_nothing_left();
	cr_assert(own[0] == 5 && own[bytes - 1] == 5);
	free(own);
}

/* --- every driver call fails --- */

static _Alignas(65536) char given_memory[3 * 65536];

static const struct scenario {
	const char *name;
	struct hoist__region_options options;
	bool from_source, unaligned;
} scenarios[] = {
	{"pieces", {.kind = HOIST__MEMORY_PINNED, .piece_bytes = 65536}, false, false},
	{"one piece", {.kind = HOIST__MEMORY_PINNED, .piece_bytes = SIZE_MAX}, false, false},
	{"device", {.kind = HOIST__MEMORY_DEVICE}, false, false},
	{"managed", {.kind = HOIST__MEMORY_MANAGED}, false, false},
	{"unaligned", {.kind = HOIST__MEMORY_DEVICE}, false, true},
	{"source", {.kind = HOIST__MEMORY_PINNED, .piece_bytes = 65536}, true, false},
	{"given",
	 {.kind = HOIST__MEMORY_PINNED, .piece_bytes = 65536, .given = (uintptr_t)given_memory},
	 false,
	 false},
};

static int live_and_die(const struct scenario *scenario)
{
	size_t n_lent = 0;
	uintptr_t odd = 0;
	struct hoist__source source = {lend, take_back, &n_lent};
	struct hoist__region_options options = scenario->options;
	options.bytes = sizeof given_memory;
	options.dev = dev;
	options.source = scenario->from_source ? &source : NULL;
	if (scenario->unaligned && hoist__dev_mem_alloc(dev, 512, &odd) != 0)
		return 0; /* not the call under test */
	struct hoist__region *region = NULL;
	int err = hoist__region_create(&options, &region);
	cr_assert((err == 0) == (region != NULL));
	hoist__region_destroy(region);
	if (odd != 0)
		(void)hoist__dev_mem_free(dev, odd, 512);
	cr_assert_eq(n_lent, 0);
	return err;
}

/* Whether @spec failed any call; *n_failures counts the regions that were not made. */
static bool fails_with(const struct scenario *scenario, const char *spec, unsigned *n_failures)
{
	make_fail(spec);
	uint64_t before = counters().injected_failures;
	int err = live_and_die(scenario);
	bool injected = counters().injected_failures != before;
	make_fail("");
	expect_nothing_left();
	cr_assert(injected || err == 0);
	*n_failures += err != 0;
	return injected;
}

/* The first call, then the second, ... */
static void sweep_once(const struct scenario *scenario)
{
	char spec[32];
	unsigned n_failures = 0;
	cr_assert_eq(live_and_die(scenario), 0, "%s: %s", scenario->name, hoist__error_text());
	int n = 0;
	do {
		(void)snprintf(spec, sizeof spec, "any:%d", ++n);
	} while (fails_with(scenario, spec, &n_failures));
	cr_assert_gt(n_failures, 0, "%s", scenario->name);
}

/* Each call that gives memory, from the first on, from the second, ... */
static void sweep_from(const struct scenario *scenario)
{
	char spec[128];
	unsigned n_failures = 0;
	int n = 0;
	do {
		n++;
		(void)snprintf(spec, sizeof spec,
			       "cuMemHostRegister:%d+,cuMemAlloc:%d+,cuMemAllocManaged:%d+", n, n,
			       n);
	} while (fails_with(scenario, spec, &n_failures));
	cr_assert_gt(n_failures, 0, "%s", scenario->name);
}

static unsigned long long mapped_bytes(void)
{
	char line[512], access[8];
	unsigned long long from, to, sum = 0;
	FILE *file = fopen("/proc/self/maps", "re");
	cr_assert_not_null(file);
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "%llx-%llx %7s", &from, &to, access) == 3)
			sum += to - from;
	fclose(file);
	return sum;
}

Test(alloc_pieces, leave_nothing_behind_whatever_driver_call_fails)
{
	need_stand_in();
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(scenarios); i++)
		sweep_once(&scenarios[i]);
	unsigned long long before = mapped_bytes();
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(scenarios); i++) {
		sweep_once(&scenarios[i]);
		sweep_from(&scenarios[i]);
	}
	/* A sanitizer keeps what was freed for a while. */
	const char *sanitizers = getenv("HOIST_TEST_SANITIZERS");
	if (sanitizers == NULL || *sanitizers == '\0')
		cr_assert_eq(mapped_bytes(), before);
}
