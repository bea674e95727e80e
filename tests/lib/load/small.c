/* SPDX-License-Identifier: MIT */
/* Very many small tensors to devices: few copies, right bytes, and zeros for the padding between
 * them, whatever the slots held before. */
#include "config.h"

#include <string.h>

#include "tests/support/load-support.h"
#include "tests/support/random.h"

#define N_TENSORS ((size_t)20000)
#define MOST_BYTES 700
#define PATTERN 0xab
#define PATTERN_BYTES ((size_t)40 << 20)

static uint64_t seed = 20261123;

/* Tensors of random sizes, of which none is empty; and one of the pattern, of as many bytes as all
 * slots have or more. */
static void write_files(void)
{
	size_t *sizes = calloc(N_TENSORS, sizeof *sizes);
	unsigned char *pattern = malloc(PATTERN_BYTES);
	char header[128];
	CHECK(sizes != NULL && pattern != NULL);
	for (size_t i = 0; i < N_TENSORS; i++)
		sizes[i] = 1 + random_below(&seed, i % 3 == 0 ? MOST_BYTES : 64);
	support_write("small.safetensors", 0, N_TENSORS, sizes, -1);
	memset(pattern, PATTERN, PATTERN_BYTES);
	(void)snprintf(header, sizeof header,
		       "{\"p\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
		       PATTERN_BYTES, PATTERN_BYTES);
	support_put_safetensors("pattern.safetensors", header, pattern, PATTERN_BYTES);
	free(pattern);
	free(sizes);
}

/* Every slot of the first device's has the pattern, which only the second device gets. */
static void spoil_slots(hoist_device *const devices[2])
{
	const char *none = "p";
	const hoist_load_slice nothing = {.tensor = "p", .end = 1};
	const hoist_load_target first = {.size = sizeof first,
					 .device = devices[0],
					 .tensors = &none,
					 .n_tensors = 1,
					 .slices = &nothing,
					 .n_slices = 1};
	const hoist_load_target second = {.size = sizeof second, .device = devices[1]};
	const hoist_load_target *targets[] = {&first, &second};
	const hoist_load_options o = {.size = sizeof o, .targets = targets, .n_targets = 2};
	hoist_load_destroy(support_load("pattern.safetensors", &o));
}

/* A copy of the device's memory from the tensor's first byte to the next one's, or NULL if there is
 * no or too large a gap between them.  *ret: the tensor's bytes. */
static hoist_buffer *copy_with_gap(hoist_device *device, const hoist_buffer *tensor,
				   const hoist_buffer *next, size_t align, size_t *ret)
{
	static hoist_device *cpu;
	uintptr_t begin = hoist_buffer_address(tensor);
	int64_t span = (int64_t)(hoist_buffer_address(next) - begin);
	*ret = hoist_buffer_bytes(tensor);
	if (span <= (int64_t)*ret || span >= (int64_t)(*ret + align))
		return NULL;
	const hoist_buffer_source source = {
		.size = sizeof source, .address = begin, .bytes = (size_t)span, .device = device};
	hoist_buffer *all = NULL;
	hoist_buffer *here = NULL;
	cpu = cpu != NULL ? cpu : support_device("cpu");
	OK(hoist_buffer_wrap(&source, HOIST_U8, 1, &span, NULL, &all));
	OK(hoist_buffer_to(all, cpu, &here));
	hoist_buffer_unref(all);
	return here;
}

/* The bytes between neighbours of one lot are zeros.  Where two copies meet, they are as before the
 * load.  A byte of a slot's former content is never there. */
static void check_padding(hoist_load *load, size_t target, hoist_device *device, size_t align)
{
	size_t n_zero = 0;
	size_t n_gaps = 0;
	size_t which = 0;
	hoist_buffer *last = NULL;
	hoist_buffer *next = NULL;
	OK(hoist_load_target_tensor(load, target, 0, &which, &last));
	for (size_t i = 1; i < N_TENSORS; i++) {
		size_t from = 0;
		OK(hoist_load_target_tensor(load, target, i, &which, &next));
		hoist_buffer *all = copy_with_gap(device, last, next, align, &from);
		bool zero = true;
		for (size_t b = from; all != NULL && b < hoist_buffer_bytes(all); b++) {
			unsigned char is = ((unsigned char *)hoist_buffer_address(all))[b];
			CHECK(is != PATTERN);
			zero = zero && is == 0;
		}
		n_gaps += all != NULL;
		n_zero += all != NULL && zero;
		hoist_buffer_unref(all);
		hoist_buffer_unref(last);
		last = next;
	}
	hoist_buffer_unref(last);
	CHECK(n_gaps > N_TENSORS * 9 / 10 && n_zero > n_gaps * 9 / 10);
}

struct way {
	const char *name;
	hoist_load_options o;
	size_t n_devices; /* that each get all; 1: and the options' device is the first */
	unsigned copies;  /* for each slot, at most */
};

static void load_and_check(const struct way *way, hoist_device *const devices[2])
{
	hoist_load_options o = way->o;
	hoist_load_report report;
	hoist_load_target targets[2];
	const hoist_load_target *pointers[] = {&targets[0], &targets[1]};
	hoist_checkpoint *checkpoint = support_open("small.safetensors");
	hoist_load *load = NULL;
	o.size = sizeof o;
	for (size_t t = 0; t < 2; t++)
		targets[t] = (hoist_load_target){.size = sizeof targets[t], .device = devices[t]};
	if (way->n_devices == 2) {
		/* All but one tensor, so that the two are laid out apart. */
		static const hoist_load_slice cut = {.tensor = "t000007", .end = 0};
		targets[1].slices = &cut;
		targets[1].n_slices = 1;
		o.targets = pointers;
		o.n_targets = 2;
	} else {
		o.device = devices[0];
	}
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	/* The copies of each tensor to the host need not wait for a start. */
	lib_set_latency("cuda", 0, 0);
	report = support_report(load);
	printf("%s: %llu copies, %llu reads\n", way->name, (unsigned long long)report.n_copies,
	       (unsigned long long)report.n_reads);
	CHECK(report.n_copies <= way->copies * report.n_reads);
	CHECK(report.n_copies >= report.n_reads);
	support_compare(checkpoint, load);
	for (size_t t = 0; t < hoist_load_n_targets(load); t++)
		check_padding(load, t, devices[t], o.tensor_align);
	lib_set_latency("cuda", 10, 200);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

/* --- tensors that become wider, and others between them --- */

enum { N_MIXED = 96, WIDENED = 200, PLAIN = 80 }; /* elements of bf16; bytes */

static void write_mixed(unsigned char *bytes)
{
	static char header[N_MIXED * 96];
	size_t used = 0;
	size_t at = 0;
	for (size_t i = 0; i < N_MIXED; i++) {
		bool wide = i % 2 == 0;
		size_t end = at + (wide ? 2 * WIDENED : PLAIN);
		used += (size_t)snprintf(
			header + used, sizeof header - used,
			"%c\"t%03zu\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}",
			i == 0 ? '{' : ',', i, wide ? "BF16" : "U8", wide ? WIDENED : PLAIN, at,
			end);
		random_fill(&seed, bytes + at, end - at);
		for (size_t b = at + 1; wide && b < end; b += 2)
			bytes[b] &= 0x3f; /* a number, and not of the larger ones */
		at = end;
	}
	CHECK(used + 9 < sizeof header);
	header[used++] = '}';
	while (used % 8 != 0) /* no block begins within an element */
		header[used++] = ' ';
	header[used] = '\0';
	support_put_safetensors("mixed.safetensors", header, bytes, at);
}

/* In f32, a number of bf16 has its bits in the upper half. */
static void compare_mixed(hoist_buffer *buffer, bool wide, const unsigned char *was)
{
	unsigned char is[4 * WIDENED];
	size_t bytes = wide ? sizeof is : PLAIN;
	CHECK(hoist_buffer_bytes(buffer) == bytes);
	OK(hoist_buffer_copy_out(buffer, is, bytes));
	CHECK(wide || memcmp(is, was, PLAIN) == 0);
	for (size_t e = 0; wide && e < WIDENED; e++) {
		const unsigned char should[] = {0, 0, was[2 * e], was[2 * e + 1]};
		CHECK(memcmp(is + 4 * e, should, 4) == 0);
	}
}

/* A slot without room to lay the tensors out has them packed: none lies where another is widened.
 */
static void check_mixed(hoist_device *device)
{
	static unsigned char bytes[N_MIXED * (2 * WIDENED + PLAIN) / 2];
	static const size_t chunks[] = {0, 8192, 16384};
	write_mixed(bytes);
	for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
		const hoist_load_options o = {.size = sizeof o,
					      .device = device,
					      .dtype = HOIST_F32,
					      .chunk_bytes = chunks[c],
					      .tensor_align = 256};
		hoist_load *load = support_load("mixed.safetensors", &o);
		const unsigned char *was = bytes;
		for (size_t i = 0; i < N_MIXED; i++) {
			hoist_buffer *buffer = NULL;
			OK(hoist_load_tensor(load, i, NULL, &buffer));
			compare_mixed(buffer, i % 2 == 0, was);
			was += i % 2 == 0 ? 2 * WIDENED : PLAIN;
			hoist_buffer_unref(buffer);
		}
		hoist_load_destroy(load);
	}
}

int main(void)
{
	static const struct way ways[] = {
		{.name = "aligned to 256", .o = {.tensor_align = 256}, .copies = 1},
		{.name = "small slots",
		 .o = {.tensor_align = 1024, .chunk_bytes = 65536},
		 .copies = 1},
		{.name = "by the caller",
		 .o = {.tensor_align = 64, .flags = HOIST_LOAD_CALLER_DRIVEN | HOIST_LOAD_DIGEST},
		 .copies = 1},
		/* A slot has parts of two lots of 2 MiB, or of three. */
		{.name = "lots",
		 .o = {.tensor_align = 256, .flags = HOIST_LOAD_SPLIT},
		 .copies = 3},
		{.name = "two targets", .o = {.tensor_align = 256}, .n_devices = 2, .copies = 2},
	};
	support_emulate("cuda:2");
	hoist_device *devices[] = {support_device("cuda:0"), support_device("cuda:1")};
	write_files();
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		spoil_slots(devices);
		load_and_check(&ways[i], devices);
	}
	check_mixed(devices[0]);
	support_check_copies("cuda");
	hoist_device_unref(devices[0]);
	hoist_device_unref(devices[1]);
	support_cleanup();
	return 0;
}
