/* SPDX-License-Identifier: MIT */
/* Host tensors that follow each other in memory are written from where they are, whatever their
 * alignment, and all else around them through slots.  The report says how many bytes went which
 * way, and the file is read without hoist. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/save-support.h"

#define PAGE 4096u
#define MIB ((size_t)1 << 20)
#define MOST 6

static hoist_device *cpu;
static hoist_device *cuda;

/* A tensor lies at `at` of the memory, or elsewhere. */
struct part {
	size_t at;
	size_t bytes;
};
#define ON_DEVICE SIZE_MAX
#define PINNED (SIZE_MAX - 1)

static const struct layout {
	const char *name;
	struct part parts[MOST];
	/* Straight bytes, at least and at most, where direct writes want memory aligned to 512. */
	size_t least;
	size_t most;
} layouts[] = {
	{"one behind the other, as a file of hoist's has them",
	 {{0, 3 * MIB + 7}, {3 * MIB + 7, 6}, {3 * MIB + 13, MIB + 100001}},
	 4 * MIB + 100014 - 2 * PAGE,
	 4 * MIB + 100014},
	{"one behind the other, as another file has them",
	 {{144, 3 * MIB + 7}, {144 + 3 * MIB + 7, 6}, {144 + 3 * MIB + 13, MIB + 100001}},
	 0,
	 4 * MIB + 100014},
	{"at a page", {{0, 9 * MIB}, {9 * MIB, 5 * MIB}}, 14 * MIB - PAGE, 14 * MIB},
	{"each by itself, of whole sectors",
	 {{PAGE, 2 * MIB}, {4 * MIB, MIB}, {6 * MIB + 2 * PAGE, MIB + 512}},
	 4 * MIB - 4 * PAGE,
	 4 * MIB + 512},
	{"a small one and one of a device between",
	 {{0, 2 * MIB}, {ON_DEVICE, 100}, {2 * MIB + 100, 3 * MIB}, {7 * MIB, 1000}},
	 5 * MIB - 4 * PAGE,
	 5 * MIB},
	{"at no multiple of eight", {{3, 4 * MIB}}, 0, 0},
	{"in runs that are too short",
	 {{0, 200000}, {MIB, 200000}, {2 * MIB, 200000}, {3 * MIB, 200000}, {4 * MIB, 250000}},
	 0,
	 0},
	{"pinned", {{PINNED, 3 * MIB}}, 0, 0},
};

static hoist_buffer *make(const struct part *part, unsigned char *memory, unsigned char *bytes)
{
	const int64_t n = (int64_t)part->bytes;
	hoist_buffer *buffer;
	if (part->at >= PINNED) {
		unsigned flags = part->at == PINNED ? HOIST_BUFFER_PINNED : 0;
		OK(hoist_buffer_create(cuda, HOIST_U8, 1, &n, flags, &buffer));
		OK(hoist_buffer_write(buffer, 0, bytes, part->bytes));
		return buffer;
	}
	memcpy(memory + part->at, bytes, part->bytes);
	const hoist_buffer_source source = {
		.size = sizeof source,
		.address = (uintptr_t)(memory + part->at),
		.bytes = part->bytes,
		.device = cpu,
	};
	OK(hoist_buffer_wrap(&source, HOIST_U8, 1, &n, NULL, &buffer));
	return buffer;
}

static unsigned char *random_like(size_t n, unsigned seed)
{
	unsigned char *bytes = malloc(n);
	uint32_t x = 2463534242u + seed;
	CHECK(bytes != NULL);
	for (size_t i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		bytes[i] = (unsigned char)(x >> 24);
	}
	return bytes;
}

static void check_way(const struct layout *layout, const hoist_save_report *report)
{
	uint64_t straight = report->straight_bytes;
	/* Through the page cache memory need not be aligned. */
	size_t most = report->cached_bytes > 0 ? (size_t)report->bytes : layout->most;
	if (straight < layout->least || straight > most) {
		fprintf(stderr, "%s: %llu bytes straight: %s\n", layout->name,
			(unsigned long long)straight, report->io_reason);
		exit(1);
	}
	/* Only the header and the ends of runs need slots. */
	CHECK(straight < report->bytes - 16 * PAGE || report->staging_peak_bytes <= 16 * MIB);
}

static void save(const struct layout *layout, const hoist_save_options *options,
		 unsigned char *memory)
{
	unsigned char *bytes[MOST] = {0};
	hoist_save *saving;
	hoist_save_report report = {.size = sizeof report};
	struct saved saved;
	const char *names[MOST] = {"t0", "t1", "t2", "t3", "t4", "t5"};
	size_t n = 0;
	OK(hoist_save_create(support_path("m.safetensors"), options, &saving));
	for (; n < MOST && layout->parts[n].bytes > 0; n++) {
		bytes[n] = random_like(layout->parts[n].bytes, (unsigned)n);
		hoist_buffer *buffer = make(&layout->parts[n], memory, bytes[n]);
		OK(hoist_save_add(saving, names[n], buffer));
		hoist_buffer_unref(buffer);
	}
	OK(hoist_save_start(saving));
	OK(hoist_save_wait(saving));
	OK(hoist_save_get_report(saving, &report));
	hoist_save_destroy(saving);
	OK(saved_read(support_path("m.safetensors"), &saved));
	for (size_t i = 0; i < n; i++) {
		char shape[32];
		(void)snprintf(shape, sizeof shape, "%zu", layout->parts[i].bytes);
		CHECK(memcmp(saved_tensor(&saved, names[i], "U8", shape, layout->parts[i].bytes),
			     bytes[i], layout->parts[i].bytes) == 0);
		free(bytes[i]);
	}
	if ((options->flags & HOIST_SAVE_DIGEST) != 0)
		saved_check_digests(&saved, names, n);
	saved_free(&saved);
	CHECK(hoist_budget_used(options->budget) == 0);
	check_way(layout, &report);
}

/* The first two layouts have equal tensors in other memory. */
static void equal_tensors_make_equal_files(hoist_budget *budget, unsigned char *memory)
{
	const hoist_save_options options = {.size = sizeof options, .budget = budget};
	struct saved saved[2];
	for (size_t l = 0; l < 2; l++) {
		save(&layouts[l], &options, memory);
		OK(saved_read(support_path("m.safetensors"), &saved[l]));
	}
	CHECK(saved[0].n == saved[1].n);
	CHECK(memcmp(saved[0].bytes, saved[1].bytes, saved[0].n) == 0);
	saved_free(&saved[0]);
	saved_free(&saved[1]);
}

int main(void)
{
	static const enum hoist_engine engines[] = {HOIST_ENGINE_AUTO, HOIST_ENGINE_THREADS};
	static const enum hoist_io ways[] = {HOIST_IO_AUTO, HOIST_IO_CACHED};
	hoist_budget *budget;
	void *memory;
	support_emulate("cuda:1");
	cpu = support_device("cpu");
	cuda = support_device("cuda:0");
	OK(hoist_budget_create(64 << 20, &budget));
	OK(posix_memalign(&memory, PAGE, 16 * MIB));
	for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++)
		for (unsigned way = 0; way < 8; way++) {
			const hoist_save_options options = {
				.size = sizeof options,
				.engine = engines[way & 1],
				.io = ways[way >> 1 & 1],
				.budget = budget,
				.flags = HOIST_SAVE_NO_SYNC |
					 ((way & 4) != 0 ? HOIST_SAVE_DIGEST : 0u),
			};
			save(&layouts[l], &options, memory);
		}
	equal_tensors_make_equal_files(budget, memory);
	free(memory);
	hoist_budget_unref(budget);
	hoist_device_unref(cuda);
	hoist_device_unref(cpu);
	support_cleanup();
	return 0;
}
