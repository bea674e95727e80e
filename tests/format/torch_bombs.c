/* SPDX-License-Identifier: MIT */
/* Small checkpoints of PyTorch's that would take much memory or work: both are bounded. */
#include "config.h"

#include <string.h>

#include "tests/format/pickles.h"

Test(torch_bombs, objects_do_not_nest_or_multiply_without_end)
{
	struct bytes pickle = {.n = 0};
	MALFORMED("]q\0h\0a.", "an object that holds itself");
	MALFORMED("}q\0" ONE("a") "]h\0as.", "an object that holds itself");
	/* 65 lists, and a million of them. */
	repeat(&pickle, "]", 65);
	repeat(&pickle, "a", 64);
	put_text(&pickle, ".");
	refused_bytes(&pickle, "nested more than 64 deep");
	repeat(&pickle, "]", 1000000);
	repeat(&pickle, "a", 999999);
	put_text(&pickle, ".");
	refused_bytes(&pickle, "more than 32 times their memory");
	/* Each list holds the one before it twice. */
	put_text(&pickle, "N");
	for (int i = 0; i < 60; i++) {
		unsigned char twice[] = {0x94, 'h', (unsigned char)i, 0x86};
		put(&pickle, twice, sizeof twice);
	}
	put_text(&pickle, ".");
	refused_bytes(&pickle, "the same ones are in many places");
}

/* A long name above many: each tensor would have a copy of it. */
Test(torch_bombs, names_do_not_multiply_without_end)
{
	struct bytes pickle = {.n = 0};
	put_text(&pickle, "}X");
	put_number(&pickle, 100000, 4);
	repeat(&pickle, "n", 100000);
	put_text(&pickle, "]");
	PUT(&pickle, TENSOR);
	put_text(&pickle, "\x94"
			  "a(");
	for (int i = 0; i < 1000; i++)
		put(&pickle, "h", 2);
	put_text(&pickle, "es.");
	refused_bytes(&pickle, "the same ones are in many places");
}

/* A value that is looked at in many places is work, though it takes no memory. */
Test(torch_bombs, work_is_bounded)
{
	struct bytes pickle = {.n = 0};
	/* A key of 100,000 bytes for each of 10,000 values that are passed over. */
	PUT(&pickle, "}(X");
	put_number(&pickle, 100000, 4);
	repeat(&pickle, "n", 100000);
	PUT(&pickle, "\x94N");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\0N");
	PUT(&pickle, "u.");
	refused_bytes(&pickle, "the same ones are in many places");
	/* A value as long that is no UTF-8, as often. */
	PUT(&pickle, "}(" ONE("a") "X");
	put_number(&pickle, 100000, 4);
	repeat(&pickle, "n", 99999);
	PUT(&pickle, "\xff\x94");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, ONE("b") "h\0");
	PUT(&pickle, "u.");
	refused_bytes(&pickle, "the same ones are in many places");
	/* A dict that says 10,000 times that nothing is negated, for 10,000 tensors. */
	PUT(&pickle, "](}(" ONE("n") "\x94\x89");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\0\x89");
	PUT(&pickle, "u\x94" V2 "\x94(" FLOATS "\x94" TWO_BY_THREE "h\1tR");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\2(h\3K\0))\x89Nh\1tR");
	PUT(&pickle, "e.");
	refused_bytes(&pickle, "the same ones are in many places");
}

/* As many tensors have a storage whose name is as long as an archive allows. */
Test(torch_bombs, names_of_storages_are_not_looked_for_without_end)
{
	char name[65000] = "m/data/";
	struct archive archive = {.align = 64, .flags = 0x800};
	struct bytes pickle = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	const size_t n = sizeof name - 8;
	memset(name + 7, 'k', n);
	PUT(&pickle, "](" V2 "\x94((X\7\0\0\0storagectorch\nFloatStorage\nX");
	put_number(&pickle, n, 4);
	put(&pickle, name + 7, n);
	PUT(&pickle, CPU "K\6tQ\x94" TWO_BY_THREE "tR");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\0(h\1K\0))\x89NtR");
	PUT(&pickle, "e.");
	archive_add(&archive, "m/data.pkl", pickle.p, pickle.n);
	archive_add(&archive, name, "0123456789abcdefghijklmn", 24);
	archive_end(&archive, "");
	cr_expect_eq(parse(&archive, &manifest), -EBADMSG);
	expect_text("the same ones are in many places");
	archive_free(&archive);
	bytes_free(&pickle);
}

Test(torch_bombs, memory_is_bounded)
{
	struct bytes pickle = {.n = 0};
	put_text(&pickle, "N");
	repeat(&pickle, "\x94", 1000000);
	refused_bytes(&pickle, "more than 32 times their memory");
	repeat(&pickle, "}", 1000000);
	refused_bytes(&pickle, "more than 32 times their memory");
	repeat(&pickle, "N\x85", 1000000);
	refused_bytes(&pickle, "more than 32 times their memory");
}
