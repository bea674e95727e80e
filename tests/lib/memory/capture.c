/* SPDX-License-Identifier: MIT */
/* The memory that captured graphs keep: an inference server captures one graph for each size of
 * a batch, and every layer takes and gives its activations.  Memory that was given in a capture
 * is taken again in the same capture.  The graph may run at any time, so nothing else gets that
 * memory. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/lib-unit.h"

#define MIB ((size_t)1 << 20)
#define N_LAYERS 32
#define MAX_BLOCKS (6 * N_LAYERS + 1)

static hoist_memory *memory;
static hoist_stream *stream;
static uintptr_t kept[MAX_BLOCKS];
static size_t n_kept;
static bool keeps; /* give nothing before the capture has ended */

static void open_large(void)
{
	cr_assert_eq(setenv("HOIST_EMULATE_MEMORY", "64G", 1), 0);
	open_all();
}

static uintptr_t take(size_t bytes)
{
	uintptr_t block = alloc_on(memory, bytes, 0, stream);
	return block;
}

static void give(uintptr_t block)
{
	if (keeps)
		kept[n_kept++] = block;
	else
		OK(hoist_memory_free_on(memory, block, stream));
}

/* The activations of Llama 3 8B in bf16: hidden 4096, 32 heads and 8 of keys and values,
 * feed-forward 14336. */
static void run_model(size_t n_tokens)
{
	uintptr_t x = take(n_tokens * 4096 * 2);
	for (int layer = 0; layer < N_LAYERS; layer++) {
		uintptr_t qkv = take(n_tokens * 6144 * 2);
		uintptr_t attention = take(n_tokens * 4096 * 2);
		give(qkv);
		uintptr_t projected = take(n_tokens * 4096 * 2);
		give(attention);
		give(x);
		uintptr_t gate_up = take(n_tokens * 28672 * 2);
		give(projected);
		uintptr_t activated = take(n_tokens * 14336 * 2);
		give(gate_up);
		x = take(n_tokens * 4096 * 2);
		give(activated);
	}
	give(x);
}

/* Each graph is captured after a call on the stream that it does not have: no two share memory. */
static void capture(size_t n_tokens)
{
	uintptr_t input = take(n_tokens * 8);
	OK(set_capture(stream, 1));
	run_model(n_tokens);
	cr_assert_eq(set_capture(stream, 0), 0, "the capture is whole");
	OK(hoist_memory_free_on(memory, input, stream));
	while (n_kept > 0)
		OK(hoist_memory_free_on(memory, kept[--n_kept], stream));
}

/* The sizes that vLLM captures by default: 1, 2, 4, and each multiple of 8 up to 256.
 * Returns: the bytes that the resource has then. */
static size_t capture_all(int device, bool without_reuse)
{
	keeps = without_reuse;
	memory = make_kind(HOIST_MEMORY_DEVICE, devices[device]);
	stream = make_stream(devices[device]);
	(void)hoist_stream_native(stream);
	for (size_t n_tokens = 256; n_tokens >= 8; n_tokens -= 8)
		capture(n_tokens);
	for (size_t n_tokens = 4; n_tokens > 0; n_tokens /= 2)
		capture(n_tokens);
	const hoist_memory_statistics s = statistics_of(memory);
	cr_expect_eq(s.n_blocks, 0);
	OK(hoist_memory_release_captured(memory));
	hoist_stream_unref(stream);
	hoist_memory_unref(memory);
	return s.reserved_bytes;
}

Test(capture, keeps_for_35_graphs_the_needs_of_one_layer_each, .init = open_large)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		size_t with = capture_all(i, false);
		size_t without = capture_all(i, true);
		printf("%s: 35 graphs keep %zu MiB, %zu MiB where no capture takes again what it "
		       "gave\n",
		       lib_specs[i], with / MIB, without / MIB);
		cr_expect_lt(with, 1024 * MIB, "%zu bytes", with);
		cr_expect_gt(without, 16 * with, "%zu and %zu bytes", with, without);
	}
	expect_all_given_back();
}
