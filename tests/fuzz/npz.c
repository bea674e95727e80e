/* SPDX-License-Identifier: MIT */
/* A file that is read as .npz: an archive, of which each entry is an array. */
#include "config.h"

#include "tests/fuzz/fuzz-support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	fuzz_format(bytes, n, HOIST__NPZ);
	return 0;
}
