/* SPDX-License-Identifier: MIT */
/* A file of any format: what it is, is found out, and then it is parsed. */
#include "config.h"

#include "tests/fuzz/fuzz-support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct fuzz_parsed parsed;
	(void)fuzz_parse(bytes, n, &parsed);
	fuzz_parsed_free(&parsed);
	return 0;
}
