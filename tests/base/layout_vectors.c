/* SPDX-License-Identifier: MIT */
/* Layouts with known answers, as base-layout.h writes them. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/base-layout.h"
#include "base/error.h"
#include "hoist/layout.h"

#define N_OF(table) (sizeof(table) / sizeof((table)[0]))
#define REFUSED NULL

/* One vector; @asked holds words of ask(). */
struct case_of {
	const char *vector;
	const char *layout;
	int64_t itemsize;
	const char *steps;
	const char *result; /* REFUSED: -EINVAL, and the layout stays */
	const char *asked;
};

/* --- questions: "c !f any dense unique bounds=0:19 required=80 order=2,0,1 bytes=6 mask=14" --- */

static bool truth_of(const hoist_layout *layout, const char *word, size_t n)
{
	static const struct {
		const char *word;
		int (*ask)(const hoist_layout *);
	} words[] = {
		{"c", hoist_layout_is_contiguous_c},	 {"f", hoist_layout_is_contiguous_f},
		{"any", hoist_layout_is_contiguous_any}, {"dense", hoist_layout_is_dense},
		{"unique", hoist_layout_is_unique},
	};
	for (size_t i = 0; i < N_OF(words); i++)
		if (strlen(words[i].word) == n && strncmp(word, words[i].word, n) == 0)
			return words[i].ask(layout);
	cr_assert_fail("\"%s\" is no question", word);
	return false;
}

static bool is_number(const hoist_layout *layout, const char *word)
{
	int64_t min = 77;
	int64_t max = 77;
	int64_t bytes = 77;
	const char *value = strchr(word, '=') + 1;
	if (*word == 'b' && word[1] == 'o') {
		cr_assert_eq(hoist_layout_bounds(layout, &min, &max), 0);
		return min == atoll(value) && max == atoll(strchr(value, ':') + 1);
	}
	if (*word == 'b') {
		cr_assert_eq(hoist_layout_byte_offset(layout, &bytes), 0);
		return bytes == atoll(value);
	}
	if (*word == 'r') {
		cr_assert_eq(hoist_layout_required_bytes(layout, &bytes), 0);
		return bytes == atoll(value);
	}
	if (*word == 'm')
		return hoist_layout_flatten_mask(layout) == (uint64_t)atoll(value);
	int64_t wanted[HOIST_MAX_RANK];
	int order[HOIST_MAX_RANK];
	hoist_layout_stride_order(layout, order);
	if (read_list(value, wanted) != layout->rank)
		return false;
	for (int i = 0; i < layout->rank; i++)
		if (order[i] != wanted[i])
			return false;
	return true;
}

static void ask(const hoist_layout *layout, const char *asked, const char *vector)
{
	for (; *asked != '\0'; asked += strspn(asked, " ")) {
		size_t n = strcspn(asked, " ");
		bool found = memchr(asked, '=', n) != NULL ? is_number(layout, asked)
			     : *asked == '!'		   ? !truth_of(layout, asked + 1, n - 1)
							   : truth_of(layout, asked, n);
		cr_expect(found, "%s: %.*s is not so", vector, (int)n, asked);
		asked += n;
	}
}

static void run(const struct case_of *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct case_of *one = &cases[i];
		char text[500];
		hoist_layout layout = read_layout(one->layout, one->itemsize);
		int err = do_steps(one->steps, &layout);
		if (one->result == REFUSED) {
			cr_expect_eq(err, -EINVAL, "%s: %s, %s: %d", one->vector, one->layout,
				     one->steps, err);
			continue;
		}
		cr_expect_eq(err, 0, "%s: %s, %s: %s", one->vector, one->layout, one->steps,
			     err < 0 ? hoist_error() : "");
		cr_expect_str_eq(write_layout(&layout, text, sizeof text), one->result,
				 "%s: %s, %s: %s", one->vector, one->layout, one->steps, text);
		ask(&layout, one->asked, one->vector);
	}
}

/* proves: S3.21 S3.24 S3.25 S3.26 S3.28 S3.29 V161 V162 */
Test(base_layout_vectors, dense_layouts_in_every_order)
{
	static const struct case_of cases[] = {
		{"V161", "C 5,3,7", 1, "", "(5,3,7)/(21,7,1)@0", "c !f any dense unique"},
		{"V161", "F 5,3,7", 1, "", "(5,3,7)/(1,5,15)@0", "!c f any dense order=2,1,0"},
		{"V161", "2,0,1 5,3,7", 1, "", "(5,3,7)/(3,1,15)@0", "!c !f any order=2,0,1"},
		{"S3.21", "-1,0,-2 5,3,7", 1, "", "(5,3,7)/(3,1,15)@0", ""},
		{"V162", "C 5,4", 4, "", "(5,4)/(4,1)@0", "bounds=0:19 required=80"},
		{"S3.21", "C 5,0,7", 1, "", "(5,0,7)/(0,0,0)@0",
		 "c f any dense unique bounds=0:-1"},
		{"S3.21", "F 0,7", 1, "", "(0,7)/(0,0)@0", "required=0"},
		{"S3.21", "2,1,0 3,0,7", 1, "", "(3,0,7)/(0,0,0)@0", ""},
		{"S3.24", "C -", 8, "", "()/()@0", "c f any dense unique bounds=0:0 required=8"},
		{"S3.25", "strides 0,-6,2,2,6 3,2,1,3,4", 1, "", "(3,2,1,3,4)/(0,-6,2,2,6)@0",
		 "order=4,1,3,2,0 !c !f !any !unique bounds=-6:22"},
		{"S3.25", "implicit 1,3,0", 1, "", "implicit (1,3,0)", "order=0,1,2"},
		{"S3.26", "implicit 1,5,1", 1, "", "implicit (1,5,1)", "c f any dense"},
		{"S3.26", "implicit 1,5,2", 1, "", "implicit (1,5,2)", "c !f any dense"},
		{"S3.26", "strides -9,1,77 1,5,1", 1, "", "(1,5,1)/(-9,1,77)@0", "c f any unique"},
		{"S3.26", "strides -1 5", 1, "", "(5)/(-1)@0", "!c !f !any unique bounds=-4:0"},
		{"S3.27", "strides 2,3 3,2", 1, "", "(3,2)/(2,3)@0", "!unique"},
		{"S3.27", "strides 2,5 3,2", 1, "", "(3,2)/(2,5)@0", "unique"},
		{"S3.28", "implicit 2,3", 2, "[1, 1:]", "(2)/(1)@4",
		 "bounds=4:5 required=12 bytes=8"},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.30 V164 V165 V166 V167 V169 V170 V171 */
Test(base_layout_vectors, slices)
{
	static const struct case_of cases[] = {
		{"V164", "C 13", 4, "[::-1]; [1:-1]; [::-1]", "(11)/(1)@1", "c !dense"},
		{"V165", "C 13", 4, "[2:-3:2]", "(4)/(2)@2", "required=36"},
		{"V166", "C 13", 4, "[-3:2:-2]", "(4)/(-2)@10", ""},
		{"V166", "C 13", 4, "[-3:2:-2]; [1:3]", "(2)/(-2)@8", ""},
		{"V167", "C 3,5", 4, "[:2]; [:, 3:]", "(2,2)/(5,1)@3", ""},
		{"V169", "C 11,12,3", 4, "[:, 0, :-1]", "(11,2)/(36,1)@0", ""},
		{"V169", "C 11,12,3", 4, "[0, 1, 2]", "()/()@5", "required=24"},
		{"V169", "C 11,12,3", 4, "[-2]", "(12,3)/(3,1)@324", ""},
		{"V170", "C 11,12,3", 4, "[0, 1, 5]", REFUSED, ""},
		{"V170", "C 11,12,3", 4, "[-42]", REFUSED, ""},
		{"V170", "C 3,5", 4, "[:, ::0]", REFUSED, ""},
		{"V170", "C 3,5", 4, "[:, :-1, :2]", REFUSED, ""},
		{"V171", "C 5,7", 2, "[:-2, 3:]", "(3,4)/(7,1)@3", "bytes=6"},
		{"V171", "F 5,7", 2, "[:-2, 3:]", "(3,4)/(1,5)@15", "bytes=30"},
		{"S3.30", "implicit 3,5", 4, "[]", "(3,5)/(5,1)@0", ""},
		{"S3.30", "C 3,5", 4, "[2:2, 1:]", "(0,4)/(0,0)@1", "bounds=0:-1 required=0"},
		{"S3.30", "C 3,5", 4, "[1, 4:1]", "(0)/(0)@5", ""},
		{"S3.30", "C 3,5", 4, "[-99:99, 99:-99:-3]", "(3,2)/(5,-3)@4", "required=60"},
		{"S3.30", "C 3", 4, "[5:]", "(0)/(0)@0", ""},
		{"S3.30", "C 3", 4, "[:-5:-1]", "(3)/(-1)@2", ""},
		{"S3.30", "C 3", 4, "[-4:]", "(3)/(1)@0", ""},
		{"S3.30", "C 0", 4, "[0]", REFUSED, ""},
		{"S3.30", "C 0", 4, "[::-1]", "(0)/(0)@0", ""},
		{"S3.30", "C 3", 4, "[3]", REFUSED, ""},
		{"S3.30", "C 3", 4, "[-3]", "()/()@0", ""},
		{"S3.30", "C -", 4, "[0]", REFUSED, ""},
		{"S3.30", "C 2,3", 4, "[::4611686018427387904, 0]", "(1)/(3)@0", ""},
		{"S3.30", "C 3", 4, "[::-9223372036854775807]", "(1)/(-9223372036854775807)@2", ""},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.31 V173 */
Test(base_layout_vectors, permuted)
{
	static const struct case_of cases[] = {
		{"V173", "C 5,3,7", 4, "permute 0,1", REFUSED, ""},
		{"V173", "C 5,3,7", 4, "permute 0,1,2,0", REFUSED, ""},
		{"V173", "C 5,3,7", 4, "permute 1,0,1", REFUSED, ""},
		{"V173", "C 5,3,7", 4, "permute 1,3,0", REFUSED, ""},
		{"V173", "C 5,3,7", 4, "permute 1,-2000,0", REFUSED, ""},
		{"S3.31", "implicit 5,3,7", 4, "[1:]; permute 2,-3,1", "(7,4,3)/(1,21,7)@21", ""},
		{"S3.31", "implicit 5,3", 4, "permute 0,1", "(5,3)/(3,1)@0", ""},
		{"S3.31", "C -", 4, "permute -", "()/()@0", ""},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.32 V174 V175 V177 V178 V179 V180 */
Test(base_layout_vectors, reshaped)
{
	static const struct case_of cases[] = {
		{"V174", "C -", 4, "reshape 1", "(1)/(1)@0", ""},
		{"V174", "C -", 4, "reshape -1", "(1)/(1)@0", ""},
		{"V174", "C 1", 4, "reshape -", "()/()@0", ""},
		{"V175", "C 12", 4, "reshape 11", REFUSED, ""},
		{"V175", "C 0", 4, "reshape 1,-1", "(1,0)/(0,0)@0", ""},
		{"V175", "C 0", 4, "reshape 0,-1", REFUSED, ""},
		{"V175", "C 7,0,5", 4, "reshape 5,0,-1", REFUSED, ""},
		{"V177", "C 2,3,2", 4, "permute 1,2,0; reshape 6,2", "(6,2)/(1,6)@0", ""},
		{"V177", "C 2,3,2", 4, "permute 1,2,0; reshape 2,6", REFUSED, ""},
		{"V177", "C 2,3,2", 4, "permute 1,2,0; reshape 12", REFUSED, ""},
		{"V178", "C 10,10,10", 4, "[::-1, ::-1, ::-1]; reshape 1000", "(1000)/(-1)@999",
		 ""},
		{"V178", "C 10,10,10", 4, "[::-1, ::-1, :]; reshape 100,10", "(100,10)/(-10,1)@990",
		 ""},
		{"V178", "C 10,10,10", 4, "[::-1, ::-1, :]; reshape 10,100", REFUSED, ""},
		{"V178", "C 10,10,10", 4, "[::-1, :, ::-1]; reshape 1000", REFUSED, ""},
		{"V179", "C 12,4", 4, "[:, :-1]; reshape 6,2,3", "(6,2,3)/(8,4,1)@0", ""},
		{"V179", "C 12,4", 4, "[:, :-1]; reshape 6,6", REFUSED, ""},
		{"V179", "C 13,3", 4, "[1:, :]; reshape 6,6", "(6,6)/(6,1)@3", ""},
		{"V180", "C 7,6,5", 4, "reshape 70,-1", "(70,3)/(3,1)@0", ""},
		{"V180", "C 7,6,5", 4, "reshape 71,-1", REFUSED, ""},
		{"V180", "C 7,6,5", 4, "reshape 71,-2", REFUSED, ""},
		{"V180", "C 7,6,5", 4, "reshape -1,6,-1", REFUSED, ""},
		{"V180", "C 7,6,5", 4, "reshape -2,-1,-1", REFUSED, ""},
		{"S3.32", "C 3,5", 4, "[:, 2:3]; reshape 3,1", "(3,1)/(5,1)@2", ""},
		{"S3.32", "strides 3,99,1 2,1,3", 4, "reshape 6", "(6)/(1)@0", ""},
		{"S3.32", "strides 0,1 4,3", 4, "reshape 2,2,3", "(2,2,3)/(0,0,1)@0", ""},
		{"S3.32", "strides 0,1 4,3", 4, "reshape 12", REFUSED, ""},
		{"S3.32", "implicit 4,0", 4, "reshape 0,9", "(0,9)/(0,0)@0", ""},
		{"S3.32", "C 4,0", 4, "reshape 4", REFUSED, ""},
		{"S3.32", "C 2", 4, "reshape -", REFUSED, ""},
		{"S3.32", "C 4", 4, "reshape 8,-1", REFUSED, ""},
		{"S3.32", "C 5,3,4", 1, "permute 2,0,1; reshape 4,15", "(4,15)/(1,4)@0", ""},
		{"S3.32", "C 5,3,4", 1, "permute 2,0,1; reshape 20,3", REFUSED, ""},
		/* No stride would lead past the axis: none is needed for an extent of 1. */
		{"S3.32", "strides 4611686018427387904 2", 1, "reshape 1,2",
		 "(1,2)/(4611686018427387904,4611686018427387904)@0", ""},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.33 V182 V183 */
Test(base_layout_vectors, flattened)
{
#define V182 "[:, :, :, :, ::-2]; "
	static const struct case_of cases[] = {
		{"V182", "C 5,1,2,4,3", 4, V182, "(5,1,2,4,2)/(24,24,12,3,-2)@2", "mask=14"},
		{"V182", "C 5,1,2,4,3", 4, V182 "flatten 0,-1", "(40,2)/(3,-2)@2", ""},
		{"V182", "C 5,1,2,4,3", 4, V182 "flatten 0,2", "(10,4,2)/(12,3,-2)@2", ""},
		{"V182", "C 5,1,2,4,3", 4, V182 "flatten 1,2", "(5,2,4,2)/(24,12,3,-2)@2", ""},
		{"V182", "C 5,1,2,4,3", 4, V182 "flatten 1,3", "(5,8,2)/(24,3,-2)@2", ""},
		{"V182", "C 5,1,2,4,3", 4, V182 "flatten 1,4", "(5,8,2)/(24,3,-2)@2", ""},
		{"V183", "C 5,2,4,3", 4, "[:, ::-1]", "(5,2,4,3)/(24,-12,3,1)@12", "mask=8"},
		{"V183", "C 5,2,4,3", 4, "[:, ::-1]; flatten 0,-1", "(5,2,12)/(24,-12,1)@12", ""},
		{"V183", "C 5,7,4,3", 4, "[:, ::-1, ::-1]", "(5,7,4,3)/(84,-12,-3,1)@81", "mask=4"},
		{"V183", "C 5,7,4,3", 4, "[:, ::-1, ::-1]; flatten 0,-1", "(5,28,3)/(84,-3,1)@81",
		 ""},
		{"S3.33", "C -", 4, "flatten 0,-1", "(1)/(1)@0", "mask=0"},
		{"S3.33", "C 3,2", 4, "[1, 1]; flatten 0,-1", "(1)/(1)@3", ""},
		{"S3.33", "C -", 4, "flatten 0,0", REFUSED, ""},
		{"S3.33", "C 2,3", 4, "flatten 0,2", REFUSED, ""},
		{"S3.33", "C 2,3", 4, "flatten -3,1", REFUSED, ""},
		{"S3.33", "C 2,3,4", 4, "flatten 2,1", REFUSED, ""},
		{"S3.33", "C 2,3,4", 4, "flatten -2,-1", "(2,12)/(12,1)@0", ""},
		{"S3.33", "implicit 2,3,4", 4, "", "implicit (2,3,4)", "mask=6"},
		{"S3.33", "implicit 2,0,4", 4, "", "implicit (2,0,4)", "mask=6"},
		{"S3.33", "implicit 2,3,4", 4, "mask 4", "(2,12)/(12,1)@0", ""},
		{"S3.33", "implicit 2,3,4", 4, "mask 0", "(2,3,4)/(12,4,1)@0", ""},
		/* A bit that is not in the layout's own mask counts for nothing. */
		{"S3.33", "F 2,3,4", 4, "mask 7", "(2,3,4)/(1,2,6)@0", "mask=0"},
	};
#undef V182
	run(cases, N_OF(cases));
}

/* proves: S3.33 V185 V186 */
Test(base_layout_vectors, flattened_together)
{
	static const struct {
		const char *vector, *layouts[2], *results[2];
	} cases[] = {
		{"V185",
		 {"3,1,2,0 5,7,13,2", "implicit 3,5,11,1"},
		 {"(5,91,2)/(1,5,455)@0", "(3,55,1)/(55,1,1)@0"}},
		{"V186",
		 {"C 2,7,13,5", "2,3,0,1 11,1,3,5"},
		 {"(14,65)/(65,1)@0", "(11,15)/(1,11)@0"}},
	};
	for (size_t i = 0; i < N_OF(cases); i++) {
		uint64_t mask = HOIST_MERGE_ALL;
		for (int k = 0; k < 2; k++) {
			hoist_layout layout = read_layout(cases[i].layouts[k], 4);
			mask &= hoist_layout_flatten_mask(&layout);
		}
		for (int k = 0; k < 2; k++) {
			char text[200];
			hoist_layout layout = read_layout(cases[i].layouts[k], 4);
			cr_expect_eq(hoist_layout_flatten(&layout, 0, -1, mask, &layout), 0);
			cr_expect_str_eq(write_layout(&layout, text, sizeof text),
					 cases[i].results[k], "%s: %s", cases[i].vector, text);
		}
	}
}

/* proves: S3.34 S3.35 V188 */
Test(base_layout_vectors, axes_of_extent_one)
{
	static const struct case_of cases[] = {
		{"V188", "C -", 4, "unsqueeze 0", "(1)/(1)@0", ""},
		{"V188", "C 7", 4, "unsqueeze 0", "(1,7)/(7,1)@0", ""},
		{"V188", "C 7", 4, "unsqueeze 1", "(7,1)/(1,1)@0", ""},
		{"V188", "C 2,3", 4, "unsqueeze 9", REFUSED, ""},
		{"V188", "C 2,3", 4, "unsqueeze 0,0", REFUSED, ""},
		{"V188", "implicit 2,3", 4, "unsqueeze -", "implicit (2,3)", ""},
		{"S3.35", "C 2,3", 4, "unsqueeze -1,1", "(2,1,3,1)/(3,3,1,1)@0", "c"},
		{"S3.35", "C 2,3", 4, "unsqueeze 1,2", "(2,1,1,3)/(3,3,3,1)@0", "c mask=14"},
		{"S3.35", "C 2,3", 4, "[:, ::-2]; unsqueeze 1", "(2,1,2)/(3,-4,-2)@2", ""},
		{"S3.35", "C 2,3", 4, "unsqueeze -4", REFUSED, ""},
		{"S3.35", "C 2,3", 4, "unsqueeze 0,-4", REFUSED, ""},
		{"S3.34", "C 1,5,1,7,1", 4, "squeeze", "(5,7)/(7,1)@0", ""},
		{"S3.34", "implicit 2,3", 4, "squeeze", "(2,3)/(3,1)@0", ""},
		{"S3.34", "C 5,3,1", 4, "[2:3, 1:2]; squeeze", "()/()@7", ""},
		{"S3.34", "C 5,3", 4, "[2]; [3:]; squeeze", "(0)/(0)@6", ""},
		{"S3.34", "C 5,0,1", 4, "squeeze", "(0)/(0)@0", ""},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.36 V194 */
Test(base_layout_vectors, broadcast)
{
	static const struct case_of cases[] = {
		{"V194", "C -", 4, "broadcast 17,1,5", "(17,1,5)/(0,0,0)@0", "!unique"},
		{"V194", "C 5,11", 4, "[1:-1, ::-1]; broadcast 7,3,11", "(7,3,11)/(0,11,-1)@21",
		 ""},
		{"V194", "C 5,11", 4, "[-1:]; broadcast 4,13,11", "(4,13,11)/(0,0,1)@44",
		 "!unique"},
		{"S3.36", "C 2,3", 4, "broadcast 3", REFUSED, ""},
		{"S3.36", "C 2,3", 4, "broadcast 4,3", REFUSED, ""},
		{"S3.36", "C 2,3", 4, "broadcast 2,1", REFUSED, ""},
		{"S3.36", "C 1,3", 4, "broadcast -2,3", REFUSED, ""},
		{"S3.36", "C 1,3", 4, "broadcast 0,3", "(0,3)/(0,1)@0", ""},
		{"S3.36", "implicit 1,3", 4, "broadcast 1,3", "(1,3)/(3,1)@0", "unique"},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.37 V191 */
Test(base_layout_vectors, repacked)
{
	static const struct case_of cases[] = {
		{"V191", "C 5,4", 4, "repack 2", "(5,8)/(8,1)@0", "required=80"},
		{"V191", "C 5,4", 4, "repack 8", "(5,2)/(2,1)@0", "required=80"},
		{"V191", "C 5,4", 4, "repack 16", "(5,1)/(1,1)@0", "required=80"},
		{"V191", "C 5,4", 4, "repack 16,-1,0", "(5)/(1)@0", "required=80"},
		{"S3.37", "implicit 5,4", 4, "repack 4,99", "implicit (5,4)", ""},
		{"S3.37", "F 4,5", 4, "repack 16,0,0", "(5)/(1)@0", ""},
		{"S3.37", "F 4,5", 4, "repack 8,-2", "(2,5)/(1,2)@0", ""},
		{"S3.37", "F 4,5", 4, "repack 8", REFUSED, ""},
		{"S3.37", "C 5,4", 4, "repack 8,-1,1,4", REFUSED, ""},
		{"S3.37", "C 5,4", 4, "repack 8,-1,1,24", "(5,2)/(2,1)@0", ""},
		{"S3.37", "C 5,4", 4, "repack 2,-1,1,1", "(5,8)/(8,1)@0", ""},
		{"S3.37", "C 5,4", 4, "repack 32", REFUSED, ""},
		{"S3.37", "C 5,4", 4, "repack 6", REFUSED, ""},
		{"S3.37", "C 5,4", 4, "repack 3", REFUSED, ""},
		{"S3.37", "C 5,4", 4, "repack 0", REFUSED, ""},
		{"S3.37", "C 5,4", 4, "repack -4", REFUSED, ""},
		{"S3.37", "C 5,4", 4, "repack 8,2", REFUSED, ""},
		{"S3.37", "C -", 4, "repack 8", REFUSED, ""},
		{"S3.37", "C 0", 4, "repack 2", REFUSED, ""},
		{"S3.37", "strides 1 0", 4, "repack 2", REFUSED, ""},
		{"S3.37", "strides 1 0", 4, "repack 8", REFUSED, ""},
		{"S3.37", "C 5,6", 4, "[:, 1:3]; repack 8", REFUSED, ""},
		{"S3.37", "C 5,6", 4, "[1:, 2:4]; repack 8", "(4,1)/(3,1)@4", ""},
		{"S3.37", "C 5,5", 4, "[:, :4]; repack 8", REFUSED, ""},
		{"S3.37", "C 5,6", 4, "[::-1]; repack 2", "(5,12)/(-12,1)@48", ""},
		{"S3.37", "C 5,6", 4, "[::-1]; repack 8", "(5,3)/(-3,1)@12", ""},
		/* An axis of extent 1 is no exception, as the row has it. */
		{"S3.37", "strides 3,1 1,4", 4, "repack 8", REFUSED, ""},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.38 V189 V193 */
Test(base_layout_vectors, the_largest_itemsize)
{
	static const struct {
		const char *vector, *layout;
		int64_t itemsize;
		const char *steps;
		int64_t max;
		uintptr_t data;
		int axis;
		int64_t result; /* or an error */
	} cases[] = {
		{"V189", "C 12", 1, "", 16, 0, -1, 4},
		{"V189", "C 12", 4, "", 16, 0, -1, 16},
		{"V189", "C 16,5,4,6", 2, "", 16, 0, -1, 4},
		{"V189", "F 16,5,4,6", 2, "", 16, 0, 0, 16},
		{"V189", "C 11,5,9", 2, "[:, :, -1:]", 16, 0, -1, 2},
		{"V193", "C 12", 4, "", 0, 0, -1, -EINVAL},
		{"V193", "C 12", 4, "", 16, 0, 9, -EINVAL},
		{"V193", "C 12", 8, "", 4, 0, -1, -EINVAL},
		{"V193", "C 3,5", 8, "", 16, 0, 0, 8},
		{"S3.38", "C 12", 4, "", -8, 0, -1, -EINVAL},
		{"S3.38", "C -", 4, "", 16, 0, -1, -EINVAL},
		{"S3.38", "strides 1 0", 2, "", 16, 0, -1, 2},
		{"S3.38", "C 12", 4, "", 16, 0x1008, -1, 8},
		{"S3.38", "C 12", 4, "", 16, 0x1002, -1, 2},
		{"S3.38", "C 13", 4, "[1:]", 16, 0, -1, 4},
		{"S3.38", "C 4,8", 1, "[::-1]", 16, 0, -1, 8},
		{"S3.38", "C 30", 1, "", 12, 0, -1, 6},
	};
	for (size_t i = 0; i < N_OF(cases); i++) {
		hoist_layout layout = read_layout(cases[i].layout, cases[i].itemsize);
		int64_t found = 77;
		cr_assert_eq(do_steps(cases[i].steps, &layout), 0);
		int err = hoist_layout_max_itemsize(&layout, cases[i].max, cases[i].data,
						    cases[i].axis, &found);
		cr_expect_eq(err, cases[i].result < 0 ? cases[i].result : 0, "%s, case %zu",
			     cases[i].vector, i);
		cr_expect_eq(found, cases[i].result < 0 ? 77 : cases[i].result,
			     "%s, case %zu: %lld", cases[i].vector, i, (long long)found);
	}
}

/* proves: S3.22 V196 V197 */
Test(base_layout_vectors, made_dense)
{
	static const struct case_of cases[] = {
		{"V196", "C 5,11", 4, "[::-1, 3:10]; dense K", "(5,7)/(7,1)@0",
		 "dense bounds=0:34 required=140"},
		{"V197", "C 5,3,7", 4, "dense X", REFUSED, ""},
		{"S3.22", "F 5,7", 4, "[::-1, ::2]; dense K", "(5,4)/(1,5)@0", "dense required=80"},
		{"S3.22", "F 5,7", 4, "[1:]; dense C", "(4,7)/(7,1)@0", "c"},
		{"S3.22", "C 5,7", 4, "dense F", "(5,7)/(1,5)@0", "f"},
		{"S3.22", "C 5,7,2", 4, "dense 1,-1,0", "(5,7,2)/(1,10,5)@0", "dense order=1,2,0"},
		{"S3.22", "C 5,7", 4, "dense 0,0", REFUSED, ""},
		{"S3.22", "C 5,7", 4, "dense 0,2", REFUSED, ""},
		{"S3.22", "strides 0,0,1 4,13,11", 4, "dense K", "(4,13,11)/(1,4,52)@0", ""},
		{"S3.22", "strides 3,1 0,5", 4, "dense K", "(0,5)/(3,1)@0", ""},
	};
	run(cases, N_OF(cases));
}

/* proves: S3.22 V196 */
Test(base_layout_vectors, made_dense_says_whether_it_was)
{
	static const struct {
		const char *layout, *steps;
		hoist_order order;
		int same;
	} cases[] = {
		{"C 5,7", "", HOIST_ORDER_C, 1},	  {"C 5,7", "", HOIST_ORDER_K, 1},
		{"C 5,7", "", HOIST_ORDER_F, 0},	  {"F 5,7", "", HOIST_ORDER_F, 1},
		{"F 5,7", "", HOIST_ORDER_K, 1},	  {"F 5,7", "", HOIST_ORDER_C, 0},
		{"1,0,2 5,7,2", "", HOIST_ORDER_K, 1},	  {"C 5,7", "", HOIST_ORDER_AXES, 0},
		{"implicit 5,7", "", HOIST_ORDER_C, 1},	  {"implicit 5,7", "", HOIST_ORDER_K, 1},
		{"implicit 5,7", "", HOIST_ORDER_F, 0},	  {"implicit 5,7", "", HOIST_ORDER_AXES, 0},
		{"C 5,7", "[1:]", HOIST_ORDER_C, 0},	  {"C 5,7", "[1:]", HOIST_ORDER_K, 0},
		{"C 5,7", "[:, ::-1]", HOIST_ORDER_K, 0},
	};
	static const int axes[] = {0, 1, 2};
	for (size_t i = 0; i < N_OF(cases); i++) {
		hoist_layout layout = read_layout(cases[i].layout, 4);
		hoist_layout made;
		cr_assert_eq(do_steps(cases[i].steps, &layout), 0);
		cr_expect_eq(hoist_layout_to_dense(&layout, cases[i].order, axes, &made),
			     cases[i].same, "case %zu", i);
		if (cases[i].same)
			cr_expect(hoist_layout_equal(&layout, &made), "case %zu", i);
		cr_expect(hoist_layout_is_dense(&made), "case %zu", i);
	}
}

/* proves: S3.23 V198 */
Test(base_layout_vectors, equality)
{
	static const struct {
		const char *vector, *a, *b;
		int64_t itemsizes[2];
		int equal;
	} cases[] = {
		{"V198", "C 5,3,7", "C 5,3,7", {4, 4}, 1},
		{"V198", "C 5,3,7", "C 5,3,8", {4, 4}, 0},
		{"V198", "implicit 2,3", "C 2,3", {4, 4}, 0},
		{"V198", "implicit 2,3", "implicit 2,3", {4, 4}, 1},
		{"S3.23", "C 2,3", "F 2,3", {4, 4}, 0},
		{"S3.23", "C 2,3", "C 2,3", {4, 8}, 0},
		{"S3.23", "C 2,3", "C 2,3,1", {4, 4}, 0},
		{"S3.23", "strides 9,1 1,3", "strides 3,1 1,3", {4, 4}, 0},
		{"S3.23", "C -", "C -", {4, 4}, 1},
	};
	for (size_t i = 0; i < N_OF(cases); i++) {
		hoist_layout a = read_layout(cases[i].a, cases[i].itemsizes[0]);
		hoist_layout b = read_layout(cases[i].b, cases[i].itemsizes[1]);
		cr_expect_eq(hoist_layout_equal(&a, &b), cases[i].equal, "%s: %s, %s",
			     cases[i].vector, cases[i].a, cases[i].b);
		cr_expect_eq(hoist_layout_equal(&b, &a), cases[i].equal);
		b = a;
		b.offset++;
		cr_expect_not(hoist_layout_equal(&a, &b));
	}
}
