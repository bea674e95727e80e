/* SPDX-License-Identifier: MIT */
/* The plan against a model: every wanted byte is read once, into its place, at
 * the alignment promised, whatever the tensors' sizes and the selection. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lib/plan.h"

enum { MAX_TENSORS = 60, FILES = 3 };

static struct hoist__tensor tensors[MAX_TENSORS];
static struct hoist__entry entries[MAX_TENSORS];
static size_t by_name[MAX_TENSORS];
static char names[MAX_TENSORS][32];
static struct hoist__file files[FILES];
static struct hoist__shard shards[FILES];
static hoist_checkpoint checkpoint;

static unsigned seed;

static uint64_t below(uint64_t n)
{
	return (((uint64_t)(unsigned)rand_r(&seed) << 31) ^ (unsigned)rand_r(&seed)) % n;
}

/* Tensors of sizes that hit every edge: empty, tiny, around 4096, and large. */
static uint64_t some_bytes(void)
{
	static const uint64_t sizes[] = {0, 1, 7, 256, 4095, 4096, 4097, 65536, 300000};
	return below(3) == 0 ? below(100000) : sizes[below(HOIST__ARRAY_SIZE(sizes))];
}

static void make_checkpoint(uint32_t offset_align)
{
	size_t n = 1 + below(MAX_TENSORS);
	size_t file = 0;
	uint64_t offset = 8 + below(5000);
	for (size_t i = 0; i < n; i++) {
		if (file + 1 < FILES && below(20) == 0) {
			file++;
			offset = 8 + below(5000);
		}
		snprintf(names[i], sizeof names[i], "t%03zu", i);
		tensors[i] = (struct hoist__tensor){
			.name = names[i], .bytes = some_bytes(), .offset = offset};
		offset += tensors[i].bytes;
		entries[i] = (struct hoist__entry){.tensor = &tensors[i], .file = file};
		by_name[i] = i;
	}
	for (size_t f = 0; f < FILES; f++) {
		files[f] = (struct hoist__file){.offset_align = f == 1 ? offset_align : 512};
		shards[f].file = &files[f];
	}
	checkpoint = (hoist_checkpoint){.n_files = FILES,
					.files = shards,
					.n_tensors = n,
					.tensors = entries,
					.by_name = by_name};
}

static void select_some(struct hoist__plan *plan)
{
	const char *patterns[MAX_TENSORS];
	size_t n = 0;
	for (size_t i = 0; i < checkpoint.n_tensors; i++)
		if (below(3) > 0)
			patterns[n++] = names[i];
	cr_assert_eq(hoist__plan_select(&checkpoint, n > 0 ? patterns : NULL, n, plan), 0);
	cr_assert_eq(plan->n_tensors, n > 0 ? n : checkpoint.n_tensors);
}

/* Walks all chunks; what each reads is checked against extents and order. */
static void check_chunks(const struct hoist__plan *plan, size_t max_bytes)
{
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	uint64_t useful = 0;
	size_t extent = SIZE_MAX;
	uint64_t expected = 0;
	while (hoist__plan_next(plan, max_bytes, &cursor, &chunk)) {
		const struct hoist__extent *e = &plan->extents[chunk.extent];
		if (chunk.extent != extent)
			expected = e->begin;
		extent = chunk.extent;
		cr_assert_eq(chunk.offset % e->align, 0);
		cr_assert_eq(chunk.bytes % e->align, 0);
		cr_assert(chunk.bytes > 0 && chunk.bytes <= max_bytes);
		cr_assert(chunk.need <= chunk.bytes && chunk.skip < chunk.need);
		cr_assert_eq(chunk.offset + chunk.skip, expected, "chunks leave a gap");
		expected = chunk.offset + chunk.need;
		cr_assert_leq(expected, e->end);
		useful += hoist__chunk_useful(&chunk);
		if (plan->kind == HOIST__PLAN_HOST) {
			cr_assert_eq(chunk.target % e->align, 0);
			cr_assert_leq(chunk.target + chunk.bytes, plan->destination_bytes);
			cr_assert_eq(chunk.target - e->image,
				     chunk.offset - hoist__round_down(e->begin, e->align));
		}
	}
	cr_assert_eq(useful, plan->bytes);
	cr_assert_not(hoist__plan_next(plan, max_bytes, &cursor, &chunk));
}

/* Where byte @offset of @file lands, by the extents (host) or the pieces (device). */
static uint64_t place_of(const struct hoist__plan *plan, size_t file, uint64_t offset)
{
	for (size_t i = 0; i < plan->n_extents; i++) {
		const struct hoist__extent *e = &plan->extents[i];
		if (e->file != file || offset < e->begin || offset >= e->end)
			continue;
		if (plan->kind == HOIST__PLAN_HOST)
			return e->image + offset - hoist__round_down(e->begin, e->align);
		for (size_t p = e->first_piece; p < e->first_piece + e->n_pieces; p++)
			if (offset >= plan->pieces[p].begin &&
			    offset < plan->pieces[p].begin + plan->pieces[p].bytes)
				return plan->pieces[p].target + offset - plan->pieces[p].begin;
	}
	cr_assert_fail("byte %llu of file %zu is nowhere", (unsigned long long)offset, file);
	return 0;
}

static void check_targets(const struct hoist__plan *plan, uint64_t tensor_align)
{
	uint64_t end = 0;
	for (size_t i = 0; i < plan->n_tensors; i++) {
		const struct hoist__entry *entry = &entries[plan->tensors[i]];
		const struct hoist__tensor *tensor = entry->tensor;
		if (tensor->bytes == 0)
			continue;
		cr_assert_geq(plan->targets[i], end, "tensors overlap in the destination");
		end = plan->targets[i] + tensor->bytes;
		cr_assert_leq(end, plan->destination_bytes);
		cr_assert_eq(place_of(plan, entry->file, tensor->offset), plan->targets[i]);
		cr_assert_eq(place_of(plan, entry->file, tensor->offset + tensor->bytes - 1),
			     end - 1);
		if (plan->kind == HOIST__PLAN_DEVICE)
			cr_assert_eq(plan->targets[i] % tensor_align, 0);
		cr_assert_eq(hoist__plan_tensor_at(&checkpoint, plan, entry->file,
						   tensor->offset + below(tensor->bytes)),
			     tensor);
	}
}

Test(load_plan, every_byte_is_read_once_and_lands_in_its_place)
{
	for (seed = 1; seed < 400; seed += 2) {
		make_checkpoint(below(2) ? 512 : 16384);
		uint64_t align = UINT64_C(1) << below(13);
		for (int kind = HOIST__PLAN_HOST; kind <= HOIST__PLAN_DEVICE; kind++) {
			struct hoist__plan plan = {0};
			select_some(&plan);
			cr_assert_eq(hoist__plan_lay_out(&checkpoint, (enum hoist__plan_kind)kind,
							 align, &plan),
				     0);
			check_chunks(&plan, 65536);
			check_chunks(&plan, 1 << 20);
			check_targets(&plan, align);
			hoist__plan_fini(&plan);
		}
	}
}

Test(load_plan, tensors_that_stay_aligned_share_a_piece)
{
	for (size_t i = 0; i < 4; i++) {
		snprintf(names[i], sizeof names[i], "t%03zu", i);
		tensors[i] = (struct hoist__tensor){
			.name = names[i], .bytes = i == 2 ? 100 : 512, .offset = 1000 + 512 * i};
		entries[i] = (struct hoist__entry){.tensor = &tensors[i], .file = 0};
		by_name[i] = i;
	}
	tensors[3].offset = tensors[2].offset + 100;
	files[0] = (struct hoist__file){.offset_align = 512};
	shards[0].file = &files[0];
	checkpoint = (hoist_checkpoint){.n_files = 1,
					.files = shards,
					.n_tensors = 4,
					.tensors = entries,
					.by_name = by_name};
	struct hoist__plan plan = {0};
	cr_assert_eq(hoist__plan_select(&checkpoint, NULL, 0, &plan), 0);
	cr_assert_eq(hoist__plan_lay_out(&checkpoint, HOIST__PLAN_DEVICE, 256, &plan), 0);
	cr_assert_eq(plan.n_extents, 1);
	cr_assert_eq(plan.n_pieces, 2); /* the third is 100 bytes: the fourth begins anew */
	cr_assert_eq(plan.targets[3], 1280);
	cr_assert_eq(plan.destination_bytes, 1280 + 512);
	hoist__plan_fini(&plan);
}

Test(load_plan, a_name_that_looks_like_a_glob_is_a_name_first)
{
	static const char *const odd[] = {"a[0]", "a0", "b*"};
	for (size_t i = 0; i < 3; i++) {
		tensors[i] = (struct hoist__tensor){.name = odd[i], .bytes = 1, .offset = 100 + i};
		entries[i] = (struct hoist__entry){.tensor = &tensors[i], .file = 0};
	}
	by_name[0] = 1; /* "a0" < "a[0]" < "b*" */
	by_name[1] = 0;
	by_name[2] = 2;
	shards[0].file = &files[0];
	checkpoint = (hoist_checkpoint){.n_files = 1,
					.files = shards,
					.n_tensors = 3,
					.tensors = entries,
					.by_name = by_name};
	struct hoist__plan plan = {0};
	const char *exact[] = {"a[0]"};
	cr_assert_eq(hoist__plan_select(&checkpoint, exact, 1, &plan), 0);
	cr_assert_eq(plan.n_tensors, 1);
	cr_assert_eq(plan.tensors[0], 0);
	hoist__plan_fini(&plan);
	const char *glob[] = {"a*", "a0"};
	cr_assert_eq(hoist__plan_select(&checkpoint, glob, 2, &plan), 0);
	cr_assert_eq(plan.n_tensors, 2);
	hoist__plan_fini(&plan);
	cr_assert_eq(hoist__plan_select(&checkpoint, glob, 0, &plan), 0);
	cr_assert_eq(plan.n_tensors, 0); /* a list of none is none, no list is all */
	hoist__plan_fini(&plan);
	const char *none[] = {"a0", "c"};
	cr_assert_eq(hoist__plan_select(&checkpoint, none, 2, &plan), -ENOENT);
	hoist__plan_fini(&plan);
}
