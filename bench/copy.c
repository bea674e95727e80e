/* SPDX-License-Identifier: MIT */
/* hoist bench copy: hoist_buffer_copy_into() in host memory beside memcpy() and loops written by
 * hand, and the cost of making views and buffers.  The contract is in request.h.
 *
 * Each kind of copy is done with several amounts of bytes; the smallest shows what a call costs.
 * Hoist and its peers alternate on the same memory, one call after the other in batches; figures
 * are medians.  The peers are
 *
 *   contiguous   memcpy; a loop of 8-byte words
 *   runs         memcpy for each run; the same with the run's size a constant; item by item
 *   transposes   item by item; with the loops exchanged; in blocks of 64 bytes
 *   steps        item by item
 */
#include "config.h"

#include "bench/bench.h"
#include "bench/copy-loops.h"
#include "bench/copy.h"
#include "bench/plot.h"
#include "bench/request.h"
#include "cli/fail.h"

#include <hoist/hoist.h>

#include <stdio.h>
#include <stdlib.h>

enum { MAX_PEERS = 3, BATCH_BYTES = 16 << 20, MAX_BATCH = 4096 };

#define DEFAULT_RUNS 15
#define QUICK_BYTES (1 << 20)

struct peer {
	const char *name;
	copy_by_hand *copy;
};

/* The two ends of one copy. */
struct ends {
	hoist_buffer *dst;
	hoist_buffer *src;
};

struct kind {
	const char *name;
	/* Makes the ends of a copy of @bytes; @figure is this kind's. */
	void (*make)(hoist_device *cpu, hoist_dtype dtype, int64_t bytes, int64_t figure,
		     struct ends *ret);
	hoist_dtype dtype;
	int64_t figure;
	int64_t least;		  /* bytes: below, there is nothing of this kind */
	const struct peer *peers; /* MAX_PEERS, or ended by one without a copy */
};

void copy_must(int rc, const char *what)
{
	if (rc < 0)
		bench_fail("%s: %s", what, hoist_error());
}

static int64_t item_of(hoist_dtype dtype)
{
	return hoist_dtype_bits(dtype) / 8;
}

/* Makes a buffer with a content that no other buffer has. */
static hoist_buffer *make(hoist_device *cpu, hoist_dtype dtype, int rank, const int64_t *shape)
{
	static uint32_t seed;
	seed += UINT32_C(0x01234567);
	hoist_buffer *buffer = NULL;
	copy_must(hoist_buffer_create(cpu, dtype, rank, shape, 0, &buffer), "making a buffer");
	unsigned char *bytes = hoist_buffer_data(buffer);
	for (size_t i = 0; i < hoist_buffer_bytes(buffer); i++)
		bytes[i] = (unsigned char)((seed + (uint32_t)i * UINT32_C(0x9e3779b1)) >> 24);
	return buffer;
}

/* A part of @buffer, whose reference it takes. */
static hoist_buffer *part(hoist_buffer *buffer, int n, const hoist_slice *slices)
{
	hoist_buffer *view = NULL;
	copy_must(hoist_buffer_slice(buffer, n, slices, &view), "slicing");
	hoist_buffer_unref(buffer);
	return view;
}

static void make_contiguous(hoist_device *cpu, hoist_dtype dtype, int64_t bytes, int64_t figure,
			    struct ends *ret)
{
	(void)figure;
	ret->dst = make(cpu, dtype, 1, &bytes);
	ret->src = make(cpu, dtype, 1, &bytes);
}

/* From columns of a matrix twice as wide, into a dense matrix. */
static void make_block(hoist_device *cpu, hoist_dtype dtype, int64_t bytes, int64_t run,
		       struct ends *ret)
{
	int64_t columns = run / item_of(dtype);
	int64_t rows = bytes / run;
	ret->dst = make(cpu, dtype, 2, (int64_t[]){rows, columns});
	ret->src = part(make(cpu, dtype, 2, (int64_t[]){rows, 2 * columns}), 2,
			(hoist_slice[]){HOIST_ALL, HOIST_RANGE(4, 4 + columns)});
}

/* From the inside of a larger box, into a part of a box with wider rows. */
static void make_box(hoist_device *cpu, hoist_dtype dtype, int64_t bytes, int64_t run,
		     struct ends *ret)
{
	int64_t columns = run / item_of(dtype);
	int64_t planes = bytes / run / 4;
	ret->dst = part(make(cpu, dtype, 3, (int64_t[]){planes, 4, columns + 16}), 3,
			(hoist_slice[]){HOIST_ALL, HOIST_ALL, HOIST_RANGE(0, columns)});
	ret->src = part(make(cpu, dtype, 3, (int64_t[]){planes + 2, 6, columns + 32}), 3,
			(hoist_slice[]){HOIST_RANGE(1, -1), HOIST_RANGE(1, -1),
					HOIST_RANGE(4, 4 + columns)});
}

static void make_transpose(hoist_device *cpu, hoist_dtype dtype, int64_t bytes, int64_t figure,
			   struct ends *ret)
{
	(void)figure;
	int64_t n = bytes / item_of(dtype);
	int64_t rows = 1;
	while (rows * rows * 4 <= n)
		rows *= 2;
	hoist_buffer *base = make(cpu, dtype, 2, (int64_t[]){rows, n / rows});
	ret->dst = make(cpu, dtype, 2, (int64_t[]){n / rows, rows});
	copy_must(hoist_buffer_permute(base, (int[]){1, 0}, &ret->src), "permuting");
	hoist_buffer_unref(base);
}

static void make_steps(hoist_device *cpu, hoist_dtype dtype, int64_t bytes, int64_t step,
		       struct ends *ret)
{
	int64_t n = bytes / item_of(dtype);
	int64_t whole = step < 0 ? n * -step : n * step;
	ret->dst = make(cpu, dtype, 1, &n);
	ret->src = part(make(cpu, dtype, 1, &whole), 1,
			(hoist_slice[]){HOIST_STEP(HOIST_NONE, HOIST_NONE, step)});
}

#define KIB INT64_C(1024)
static const struct peer whole[MAX_PEERS] = {{"memcpy", copy_memcpy},
					     {"loop of words", copy_words}};
static const struct peer runs[MAX_PEERS] = {{"memcpy a run", copy_rows},
					    {"memcpy a run, constant", copy_fixed_rows},
					    {"loops", copy_items_dense}};
static const struct peer planes[MAX_PEERS] = {{"loops", copy_items},
					      {"loops, exchanged", copy_items_swapped},
					      {"loops, blocked", copy_items_blocked}};
static const struct peer steps[MAX_PEERS] = {{"loop", copy_items}};
static const struct kind kinds[] = {
	{"contiguous", make_contiguous, HOIST_U8, 0, 0, whole},
	{"2-D, runs of 256 B", make_block, HOIST_F32, 256, 512, runs},
	{"2-D, runs of 1 KiB", make_block, HOIST_F32, 1 * KIB, 2 * KIB, runs},
	{"2-D, runs of 4 KiB", make_block, HOIST_F32, 4 * KIB, 8 * KIB, runs},
	{"3-D, runs of 256 B", make_box, HOIST_F32, 256, 2 * KIB, runs},
	{"3-D, runs of 1 KiB", make_box, HOIST_F32, 1 * KIB, 8 * KIB, runs},
	{"3-D, runs of 4 KiB", make_box, HOIST_F32, 4 * KIB, 32 * KIB, runs},
	{"transpose, 2-byte items", make_transpose, HOIST_BF16, 0, 0, planes},
	{"transpose, 4-byte items", make_transpose, HOIST_F32, 0, 0, planes},
	{"[::2], 1-byte items", make_steps, HOIST_U8, 2, 0, steps},
	{"[::3], 1-byte items", make_steps, HOIST_U8, 3, 0, steps},
	{"[::2], 2-byte items", make_steps, HOIST_BF16, 2, 0, steps},
	{"[::3], 2-byte items", make_steps, HOIST_BF16, 3, 0, steps},
	{"[::-1], 4-byte items", make_steps, HOIST_F32, -1, 0, steps},
};

static const struct {
	const char *name;
	int64_t bytes;
} amounts[] = {
	{"4 KiB", 4 * KIB}, {"64 KiB", 64 * KIB}, {"1 MiB", KIB *KIB}, {"64 MiB", 64 * KIB *KIB}};

/* The peers' loops for the two layouts. */
static struct copy_loops loops_of(const struct ends *ends)
{
	struct copy_loops loops = {.n = {1, 1, 1}};
	int rank = hoist_buffer_rank(ends->dst);
	for (int i = 0; i < rank; i++) {
		loops.n[3 - rank + i] = hoist_buffer_shape(ends->dst)[i];
		loops.dst[3 - rank + i] = hoist_buffer_strides(ends->dst)[i];
		loops.src[3 - rank + i] = hoist_buffer_strides(ends->src)[i];
	}
	loops.item = (size_t)item_of(hoist_buffer_dtype(ends->dst));
	return loops;
}

/* Seconds of one copy; @peer NULL: hoist's. */
static double time_batch(const struct peer *peer, const struct ends *ends, int64_t batch)
{
	struct copy_loops loops = loops_of(ends);
	void *dst = hoist_buffer_data(ends->dst);
	const void *src = hoist_buffer_data(ends->src);
	double begin = clock_seconds();
	for (int64_t i = 0; i < batch; i++)
		if (peer != NULL)
			peer->copy(&loops, dst, src);
		else
			copy_must(hoist_buffer_copy_into(ends->dst, ends->src), "copying");
	return (clock_seconds() - begin) / (double)batch;
}

/* Checks that hoist's copy is right.  Then copies once in each other way, so that all memory is
 * populated. */
static void warm_up(const struct kind *kind, const struct ends *ends)
{
	struct copy_loops loops = loops_of(ends);
	(void)time_batch(NULL, ends, 1);
	if (!copy_is_right(&loops, hoist_buffer_data(ends->dst), hoist_buffer_data(ends->src)))
		bench_fail("%s: the copy is wrong", kind->name);
	for (size_t p = 0; p < MAX_PEERS && kind->peers[p].copy != NULL; p++)
		(void)time_batch(&kind->peers[p], ends, 1);
}

static void compare(struct results *results, const struct kind *kind, const char *amount,
		    int64_t bytes, const struct ends *ends, unsigned n_runs, bool quick)
{
	int64_t batch = (quick ? QUICK_BYTES : BATCH_BYTES) / bytes;
	char work[96];
	struct result_row row = {.work = work, .unit = "GB/s", .threads = 1, .more = true};
	batch = batch > MAX_BATCH ? MAX_BATCH : batch > 0 ? batch : 1;
	(void)snprintf(work, sizeof work, "%s, %s", kind->name, amount);
	warm_up(kind, ends);
	for (unsigned i = 0; i < n_runs; i++) {
		row.subject = "hoist";
		row.compared = false;
		results_add(results, &row, (double)bytes / time_batch(NULL, ends, batch) / 1e9);
		for (size_t p = 0; p < MAX_PEERS && kind->peers[p].copy != NULL; p++) {
			row.subject = kind->peers[p].name;
			row.compared = true;
			results_add(results, &row,
				    (double)bytes / time_batch(&kind->peers[p], ends, batch) / 1e9);
		}
	}
}

static void copies(struct results *results, unsigned n_runs, bool quick)
{
	hoist_device *cpu = NULL;
	copy_must(hoist_device_open("cpu", &cpu), "opening the cpu");
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		for (size_t a = 0; a < sizeof amounts / sizeof amounts[0]; a++) {
			const struct kind *kind = &kinds[k];
			if (amounts[a].bytes < kind->least ||
			    (quick && amounts[a].bytes > QUICK_BYTES))
				continue;
			struct ends ends;
			kind->make(cpu, kind->dtype, amounts[a].bytes, kind->figure, &ends);
			compare(results, kind, amounts[a].name, amounts[a].bytes, &ends, n_runs,
				quick);
			hoist_buffer_unref(ends.dst);
			hoist_buffer_unref(ends.src);
		}
	hoist_device_unref(cpu);
}

int bench_copy(const struct bench_request *request)
{
	unsigned n_runs = request->runs != 0 ? request->runs : request->quick ? 1 : DEFAULT_RUNS;
	struct results results;
	int svg = -1;
	if (plot_prepare(request->svg, &svg) != STATUS_OK)
		return STATUS_FAILED;
	results_create("copy", &results);
	copy_objects(&results, n_runs);
	copies(&results, n_runs, request->quick);
	int status = request->json ? results_print_json(&results, json_pack("{s:b}", "quick",
									    (int)request->quick))
				   : results_print(&results, request->bars);
	if (status == STATUS_OK)
		status = plot_draw(&results, request->svg, svg);
	plot_end(svg);
	results_destroy(&results);
	return status;
}
