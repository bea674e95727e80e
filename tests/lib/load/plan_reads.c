/* SPDX-License-Identifier: MIT */
/* The bytes that a plan reads together and leaves out, in how many chunks and pieces. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "tests/support/lib-plan.h"

static struct hoist__plan plan;
static struct plan_seen seen;

static void make_all(enum hoist__plan_kind kind, uint64_t align)
{
	struct plan_one options = {.kind = kind, .tensor_align = align};
	hoist__plan_fini(&plan);
	cr_assert_eq(plan_make_one(&plan_made.checkpoint, &options, &plan), 0);
}

static void make_sliced(const hoist_load_slice *slices, size_t n, hoist_dtype dtype,
			unsigned max_parts)
{
	struct plan_one options = {.kind = HOIST__PLAN_DEVICE,
				   .tensor_align = 256,
				   .slices = slices,
				   .n_slices = n,
				   .dtype = dtype,
				   .max_parts = max_parts};
	hoist__plan_fini(&plan);
	cr_assert_eq(plan_make_one(&plan_made.checkpoint, &options, &plan), 0, "%s", hoist_error());
}

static void carry_out(size_t max_bytes)
{
	plan_check_extents(&plan);
	struct plan_destination destination = plan_run(&plan, max_bytes, &seen);
	for (size_t i = 0; i < plan.n_tensors; i++)
		cr_assert(plan_is_written(&destination, &plan.tensors[i]));
	plan_put_away(&destination);
}

/* --- tensors --- */

Test(lib_plan_reads, tensors_that_stay_aligned_share_a_run)
{
	static const int64_t even[] = {512}, odd[] = {100};
	plan_begin();
	plan_add(0, 1000, HOIST_U8, 1, even);
	plan_add(0, 1512, HOIST_U8, 1, even);
	plan_add(0, 2024, HOIST_U8, 1, odd);
	plan_add(0, 2124, HOIST_U8, 1, even);
	make_all(HOIST__PLAN_DEVICE, 256);
	carry_out(65536);
	cr_assert_eq(plan.n_extents, 1);
	cr_assert_eq(seen.pieces, 2); /* the third is 100 bytes: the fourth begins anew */
	cr_assert_eq(plan.tensors[3].target, 1280);
	cr_assert_eq(plan.lots[0].bytes, 1280 + 512);
	make_all(HOIST__PLAN_HOST, 256);
	cr_assert(plan.n_extents == 1 && plan.has_images && !plan.has_staged);
	cr_assert_eq(plan.tensors[3].target, 2124);
	hoist__plan_fini(&plan);
}

/* Staged: gaps up to 16 KiB are read through.  Images: if no block lies between. */
Test(lib_plan_reads, gaps_that_do_not_pay_are_read_through)
{
	static const struct {
		uint64_t gap;
		size_t staged, images; /* extents */
	} rows[] = {{1, 1, 1},	   {4096, 1, 1},  {7286, 1, 1},	 {7287, 1, 2},
		    {16384, 1, 2}, {16385, 2, 2}, {100000, 2, 2}};
	static const int64_t shape[] = {5000};
	for (size_t r = 0; r < HOIST__ARRAY_SIZE(rows); r++) {
		plan_begin();
		plan_add(0, 4096 * 3 + 1, HOIST_U8, 1, shape); /* ends 905 bytes behind 4 blocks */
		plan_add(0, 4096 * 3 + 1 + 5000 + rows[r].gap, HOIST_U8, 1, shape);
		make_all(HOIST__PLAN_DEVICE, 256);
		cr_assert_eq(plan.n_extents, rows[r].staged, "gap %d", (int)rows[r].gap);
		carry_out(65536);
		make_all(HOIST__PLAN_HOST, 256);
		cr_assert_eq(plan.n_extents, rows[r].images, "gap %d", (int)rows[r].gap);
		carry_out(65536);
	}
	hoist__plan_fini(&plan);
}

/* The same bytes have one place, whatever else lies there and in whatever order. */
Test(lib_plan_reads, tied_tensors_with_others_of_the_same_bytes_between_them)
{
	static const int64_t square[] = {64, 128}, narrow[] = {127, 64};
	const struct plan_one options = {
		.kind = HOIST__PLAN_DEVICE, .tensor_align = 256, .dtype = HOIST_F32};
	const hoist_load_slice slice = {.tensor = "*", .axis = -1, .begin = 0, .end = 64};
	plan_begin();
	plan_add(0, 4096, HOIST_F16, 2, square);
	plan_add(0, 4096, HOIST_I16, 2, square);
	plan_add(0, 4096, HOIST_F16, 2, square);
	plan_add(0, 4096, HOIST_BF16, 2, square);
	plan_add(0, 4096, HOIST_I16, 2, square);
	plan_add(0, 4096, HOIST_F16, 2, square);
	hoist__plan_fini(&plan);
	cr_assert_eq(plan_make_one(&plan_made.checkpoint, &options, &plan), 0);
	cr_assert(plan.n_runs == 3 && plan.bytes == 3 * 16384, "%zu runs", plan.n_runs);
	cr_assert_eq(plan.tensors[0].target, plan.tensors[2].target);
	cr_assert_eq(plan.tensors[0].target, plan.tensors[5].target);
	cr_assert_eq(plan.tensors[1].target, plan.tensors[4].target);
	carry_out(65536);
	/* Slices: from the first byte to the last the same, and other rows between them. */
	plan_begin();
	plan_add(0, 4096, HOIST_U8, 2, square);
	plan_add(0, 4096, HOIST_U8, 2, narrow);
	plan_add(0, 4096, HOIST_U8, 2, square);
	make_sliced(&slice, 1, HOIST_DTYPE_INVALID, 0);
	cr_assert_eq(plan.tensors[0].target, plan.tensors[2].target);
	carry_out(65536);
	hoist__plan_fini(&plan);
}

/* --- rows --- */

/* 16 rows of @stride bytes from 4096 on, @row bytes of each. */
static void slice_rows(int64_t stride, int64_t begin, int64_t row, unsigned max_parts)
{
	const int64_t shape[] = {16, stride};
	const hoist_load_slice slice = {
		.tensor = "t000", .axis = 1, .begin = begin, .end = begin + row};
	plan_begin();
	plan_add(0, 4096, HOIST_U8, 2, shape);
	make_sliced(&slice, 1, HOIST_DTYPE_INVALID, max_parts);
	carry_out(65536);
	cr_assert(plan.n_extents == 1 && plan.n_runs == 1);
}

Test(lib_plan_reads, rows_with_narrow_gaps_are_read_through)
{
	slice_rows(20480, 100, 4096, 0);
	cr_assert_eq(plan.extents[0].block_bytes, 0);
	cr_assert_leq(seen.chunks, 6);
	cr_assert_leq(seen.read, 16 * 20480);
	slice_rows(20480, 100, 4095, 0);
	cr_assert_eq(plan.extents[0].block_bytes, 4095);
}

Test(lib_plan_reads, rows_with_wide_gaps_are_read_alone_or_several_at_once)
{
	slice_rows(65536, 4096, 8192, 0);
	cr_assert_eq(seen.chunks, 16);
	cr_assert_eq(seen.read, 16 * 8192); /* and nothing else */
	slice_rows(65536, 4096, 8192, 64);
	cr_assert_eq(seen.chunks, 2); /* 65536 bytes: 8 parts */
	cr_assert_eq(seen.reads, 16);
	cr_assert_eq(seen.most_pieces, 1); /* of 8 rows */
	slice_rows(65536, 4096, 8192, 3);
	cr_assert_eq(seen.chunks, 6);
	slice_rows(65537, 4096, 8192, 64); /* rows that do not lie alike: each alone */
	cr_assert_eq(seen.chunks, 16);
	slice_rows(100000, 0, 70000, 64); /* rows that are cut */
	cr_assert_eq(seen.chunks, 32);
}

/* Rows of rows: along the inner axis gaps are narrow, along the outer they are wide. */
Test(lib_plan_reads, blocks_of_rows)
{
	static const int64_t shape[] = {4, 16, 8192};
	const hoist_load_slice slices[] = {{.tensor = "t000", .axis = 1, .begin = 2, .end = 6},
					   {.tensor = "t000", .axis = 2, .n_ranks = 4, .rank = 1}};
	plan_begin();
	plan_add(0, 4096, HOIST_U8, 3, shape);
	make_sliced(slices, 2, HOIST_DTYPE_INVALID, 0);
	carry_out(65536);
	cr_assert(plan.n_extents == 1 && plan.n_runs == 1);
	cr_assert_eq(plan.extents[0].block_bytes, 4 * 2048);
	cr_assert(seen.chunks == 4 && seen.pieces == 4);
	cr_assert_leq(seen.read, 4 * (3 * 8192 + 2 * 4096));
	make_sliced(slices, 2, HOIST_DTYPE_INVALID, 2);
	carry_out(65536);
	cr_assert(seen.chunks == 2 && seen.reads == 4 && seen.pieces == 4);
	hoist__plan_fini(&plan);
}

/* Gaps are wide along both: parts are rows of one outer item. */
Test(lib_plan_reads, rows_of_several_outer_items_are_not_parts_of_one_chunk)
{
	static const int64_t shape[] = {3, 4, 65536};
	const hoist_load_slice slices[] = {{.tensor = "t000", .axis = 1, .end = 3},
					   {.tensor = "t000", .axis = 2, .end = 8192}};
	plan_begin();
	plan_add(0, 4096, HOIST_U8, 3, shape);
	make_sliced(slices, 2, HOIST_DTYPE_INVALID, 2);
	carry_out(65536);
	cr_assert(seen.chunks == 6 && seen.reads == 9 && seen.read == 9 * 8192);
	make_sliced(slices, 2, HOIST_DTYPE_INVALID, 64);
	carry_out(65536);
	cr_assert(seen.chunks == 3 && seen.reads == 9 && seen.pieces == 3);
	hoist__plan_fini(&plan);
}

/* --- conversion --- */

Test(lib_plan_reads, elements_that_a_chunk_cuts_are_the_next_ones)
{
	static const int64_t shape[] = {100000};
	plan_begin();
	plan_add(0, 4099, HOIST_F32, 1, shape); /* each chunk ends within an element */
	make_sliced(NULL, 0, HOIST_BF16, 0);
	cr_assert(plan.has_conversion && plan.extents[0].share == 1);
	carry_out(65536);
	cr_assert_eq(plan.lots[0].bytes, 200000);
	cr_assert_eq(seen.chunks,
		     (400000 + 65536 - 4096) / (65536 - 4096)); /* a block again each */
	hoist__plan_fini(&plan);
}

Test(lib_plan_reads, a_widening_tensor_is_read_into_half_of_a_slot)
{
	static const int64_t shape[] = {100000};
	plan_begin();
	plan_add(0, 4096, HOIST_BF16, 1, shape);
	make_sliced(NULL, 0, HOIST_F32, 0);
	cr_assert(plan.extents[0].share == 2);
	carry_out(65536);
	cr_assert_eq(seen.chunks, (200000 + 32767) / 32768);
	cr_assert_eq(plan.tensors[0].bytes, 400000);
	make_sliced(NULL, 0, HOIST_BF16, 0);
	cr_assert(!plan.has_conversion && plan.extents[0].share == 1);
	hoist__plan_fini(&plan);
}

/* --- several wants --- */

enum { RANKS = 8 };

/* Each rank has @columns of the first tensor's columns, and all of the second tensor. */
static void make_ranks(hoist_dtype from, hoist_dtype to, int64_t columns)
{
	const int64_t shape[] = {64, columns * RANKS};
	hoist_load_slice slices[RANKS];
	struct hoist__plan_asked asked[RANKS];
	plan_begin();
	plan_add(0, 4096, from, 2, shape);
	plan_add(0, 4096 + plan_bytes(from, 64 * (uint64_t)shape[1]), from, 1, &shape[1]);
	for (int r = 0; r < RANKS; r++) {
		slices[r] = (hoist_load_slice){
			.tensor = "t000", .axis = 1, .rank = r, .n_ranks = RANKS};
		asked[r] = (struct hoist__plan_asked){.kind = HOIST__PLAN_DEVICE,
						      .slices = &slices[r],
						      .n_slices = 1,
						      .dtype = to};
	}
	const struct hoist__plan_options options = {
		.wants = asked, .n_wants = RANKS, .tensor_align = 256};
	hoist__plan_fini(&plan);
	cr_assert_eq(hoist__plan_make(&plan_made.checkpoint, &options, &plan), 0);
	carry_out(65536);
}

Test(lib_plan_reads, ranks_that_take_columns_read_the_file_once)
{
	static const struct {
		hoist_dtype from, to;
		uint64_t share;
	} rows[] = {{HOIST_U8, 0, 1},
		    {HOIST_F32, HOIST_BF16, 1},
		    {HOIST_BF16, HOIST_F16, 1},
		    {HOIST_BF16, HOIST_F32, 3}};
	for (size_t r = 0; r < HOIST__ARRAY_SIZE(rows); r++) {
		make_ranks(rows[r].from, rows[r].to, 1000);
		/* The second tensor is everybody's: one run with eight places. */
		cr_assert(plan.n_lots == RANKS && plan.n_runs == RANKS + 1);
		cr_assert_eq(plan.extents[0].share, rows[r].share);
		uint64_t file = plan_bytes(rows[r].from, 65 * 1000 * RANKS);
		cr_assert_eq(plan.bytes, file);
		/* Converted elements that a chunk cuts are read again, with their block. */
		cr_assert_leq(seen.read, file + (seen.chunks + 1) * 4096);
	}
	hoist__plan_fini(&plan);
}

/* --- lots --- */

Test(lib_plan_reads, small_tensors_that_follow_each_other_share_a_lot)
{
	static const int64_t sizes[] = {100, 3000, 5000, 9000, 200, 60000, 10};
	static const size_t lots[] = {0, 0, 0, 1, 2, 3, 4};
	for (int kind = HOIST__PLAN_HOST; kind <= HOIST__PLAN_DEVICE; kind++) {
		struct plan_one one = {.kind = (enum hoist__plan_kind)kind,
				       .tensor_align = 1,
				       .lot_bytes = kind == HOIST__PLAN_HOST ? 12288 : 8192};
		uint64_t offset = 4096;
		plan_begin();
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
			plan_add(i < 4 ? 0 : 1, i == 4 ? 4096 : offset, HOIST_U8, 1, &sizes[i]);
			offset = (i == 4 ? 4096 : offset) + (uint64_t)sizes[i];
		}
		hoist__plan_fini(&plan);
		cr_assert_eq(plan_make_one(&plan_made.checkpoint, &one, &plan), 0);
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++)
			cr_assert_eq(plan.tensors[i].lot, lots[i], "kind %d, tensor %zu", kind, i);
		cr_assert_eq(plan.n_lots, 5);
		carry_out(65536);
	}
	hoist__plan_fini(&plan);
}

/* --- many --- */

enum { MANY = 100000 };

/* 20 KiB each, one behind the other. */
static void make_many(hoist_checkpoint *checkpoint)
{
	static const int64_t shape[] = {20480};
	struct hoist__tensor *tensors = calloc(MANY, sizeof *tensors);
	char *names = calloc(MANY, 16);
	*checkpoint = plan_made.checkpoint;
	checkpoint->n_tensors = MANY;
	checkpoint->tensors = calloc(MANY, sizeof *checkpoint->tensors);
	checkpoint->by_name = calloc(MANY, sizeof *checkpoint->by_name);
	cr_assert(tensors != NULL && names != NULL && checkpoint->tensors != NULL &&
		  checkpoint->by_name != NULL);
	for (size_t i = 0; i < MANY; i++) {
		snprintf(names + 16 * i, 16, "t%05zu", i);
		tensors[i] = (struct hoist__tensor){.name = names + 16 * i,
						    .dtype = HOIST_F16,
						    .rank = 1,
						    .shape = shape,
						    .bytes = 20480,
						    .offset = 8000 + 20480 * i};
		checkpoint->tensors[i].tensor = &tensors[i];
		checkpoint->by_name[i] = i;
	}
}

static void put_away_many(hoist_checkpoint *checkpoint)
{
	free((void *)(uintptr_t)checkpoint->tensors[0].tensor->name);
	free((void *)(uintptr_t)checkpoint->tensors[0].tensor);
	free(checkpoint->tensors);
	free(checkpoint->by_name);
}

Test(lib_plan_reads, many_small_tensors_are_one_run_and_one_piece_in_a_chunk)
{
	hoist_checkpoint checkpoint;
	plan_begin();
	make_many(&checkpoint);
	struct plan_one options = {.kind = HOIST__PLAN_DEVICE, .tensor_align = 256};
	cr_assert_eq(plan_make_one(&checkpoint, &options, &plan), 0);
	cr_assert(plan.n_extents == 1 && plan.n_runs == 1);
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	size_t chunks = 0;
	for (; hoist__plan_next(&plan, 2 << 20, &cursor, &chunk); chunks++) {
		struct hoist__piece_cursor pieces = {0};
		struct hoist__plan_piece piece;
		cr_assert(hoist__plan_piece(&plan, &chunk, &pieces, &piece));
		cr_assert_eq(piece.row_bytes, chunk.useful);
		cr_assert_not(hoist__plan_piece(&plan, &chunk, &pieces, &piece));
	}
	cr_assert_eq(chunks, (8000 % 4096 + (uint64_t)MANY * 20480 + (2 << 20) - 1) >> 21);
	hoist__plan_fini(&plan);
	put_away_many(&checkpoint);
}
