/* SPDX-License-Identifier: MIT */
/* JSON that names files, and which tensors are in them. */
#include "config.h"

#include "tests/fuzz/fuzz-support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	fuzz_format(bytes, n, HOIST__INDEX);
	return 0;
}
