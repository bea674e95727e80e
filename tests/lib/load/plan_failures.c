/* SPDX-License-Identifier: MIT */
/* Every allocation of making a plan fails once: the answer is -ENOMEM with text, nothing is left,
 * and the plan is as it was before.  The same counts bound what a plan takes. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/load/plan.h"

enum { TENSORS = 1000 };

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static unsigned long n_calls;
static unsigned long fail_at; /* 0: none */
static size_t n_bytes;

static bool fails(size_t bytes)
{
	n_bytes += bytes;
	return ++n_calls == fail_at;
}

void *__wrap_malloc(size_t bytes)
{
	return fails(bytes) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails(n * bytes) ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return fails(0) ? NULL : __real_realloc(memory, bytes);
}

static void die(const char *what, unsigned long n)
{
	fprintf(stderr, "allocation %lu: %s: %s\n", n, what, hoist_error());
	exit(1);
}

static struct hoist__tensor tensors[TENSORS];
static struct hoist__checkpoint_tensor entries[TENSORS];
static size_t by_name[TENSORS];
static char names[TENSORS][8];
static struct hoist__file file = {.offset_align = 512};
static struct hoist__checkpoint_file shard = {.file = &file};
static hoist_checkpoint checkpoint = {.n_files = 1,
				      .files = &shard,
				      .n_tensors = TENSORS,
				      .tensors = entries,
				      .by_name = by_name};

/* Each has 4096 rows of 64 KiB. */
static void make_checkpoint(void)
{
	static const int64_t shape[] = {4, 1024, 32768};
	for (size_t i = 0; i < TENSORS; i++) {
		snprintf(names[i], sizeof names[i], "t%03zu", i);
		tensors[i] = (struct hoist__tensor){.name = names[i],
						    .dtype = HOIST_BF16,
						    .rank = 3,
						    .shape = shape,
						    .bytes = UINT64_C(4096) * 65536,
						    .offset = 4096 + i * UINT64_C(4096) * 65536};
		entries[i].tensor = &tensors[i];
		by_name[i] = i;
	}
}

static const hoist_load_slice slices[] = {
	{.tensor = "t*", .axis = 2, .rank = 3, .n_ranks = 8},
	{.tensor = "t*[02468]", .axis = 1, .begin = 0, .end = 512},
};

static int make(unsigned long n, struct hoist__plan *plan)
{
	const char *patterns[] = {"t[1-9]*", "t000"};
	struct hoist__plan_options options = {.kind = HOIST__PLAN_DEVICE,
					      .tensor_align = 256,
					      .patterns = patterns,
					      .n_patterns = 2,
					      .slices = slices,
					      .n_slices = 2,
					      .dtype = HOIST_F32};
	n_calls = 0;
	n_bytes = 0;
	fail_at = n;
	int err = hoist__plan_make(&checkpoint, &options, plan);
	fail_at = 0;
	return err;
}

int main(void)
{
	static const struct hoist__plan empty;
	struct hoist__plan plan = {0};
	unsigned long n = 1;
	make_checkpoint();
	for (; make(n, &plan) < 0; n++) {
		if (make(n, &plan) != -ENOMEM || strstr(hoist_error(), "memory") == NULL)
			die("not -ENOMEM, or no text", n);
		if (memcmp(&plan, &empty, sizeof plan) != 0)
			die("the plan was touched", n);
	}
	if (n < 6 || n_calls >= n)
		die("the sweep ended too early", n);
	/* 4 million rows: what they take does not depend on how many. */
	if (plan.n_tensors != 901 || plan.n_runs != 901 || plan.n_extents != 901)
		die("not as many runs and extents as tensors", 0);
	if (n_bytes > TENSORS * 512)
		die("a plan takes more than 512 bytes for a tensor", 0);
	printf("%lu allocations, %zu bytes for each of %zu tensors\n", n_calls,
	       n_bytes / plan.n_tensors, plan.n_tensors);
	hoist__plan_fini(&plan);
	return 0;
}
