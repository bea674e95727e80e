/* SPDX-License-Identifier: MIT */
/* The planner: an input chooses tensors, their dtypes, shapes, strides, gaps and overlaps, what is
 * selected and sliced, into which dtype, in which chunks; the plan is carried out in memory, and
 * each element must be read once, within file and slot, and be in its place, converted. */
#include "config.h"

#include "tests/fuzz/fuzz-support.h"
#include "tests/support/lib-plan-model.h"

static struct fuzz_bytes input;

static uint64_t choose(uint64_t n)
{
	return fuzz_below(&input, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static const struct plan_model_size size = {6, 48000};
	if (n == 0)
		return -1;
	input = (struct fuzz_bytes){bytes, n};
	struct plan_model_saw saw = {0};
	plan_model_check(0, &size, choose, &saw);
	return 0;
}
