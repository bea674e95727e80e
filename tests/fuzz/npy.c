/* SPDX-License-Identifier: MIT */
/* A file that is read as .npy, whatever it begins with. */
#include "config.h"

#include "tests/fuzz/fuzz-support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	fuzz_format(bytes, n, HOIST__NPY);
	return 0;
}
