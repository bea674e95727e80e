/* SPDX-License-Identifier: MIT */
/* The first bytes of a file tell its format; files that hoist does not read are named. */
#include "config.h"

#include <stdlib.h>

#include "tests/support/format-expect.h"

#define FILE_NAME "f"

static int detect(const void *content, size_t n, bool fail, enum hoist__format *ret)
{
	/* A block of its exact size, so that a sanitizer sees a read beyond the end. */
	struct bytes copy = {.p = malloc(n > 0 ? n : 1), .n = n, .fail_at = fail};
	cr_assert_not_null(copy.p);
	memcpy(copy.p, content, n);
	const struct hoist__reader reader = reader_of(&copy, FILE_NAME);
	int err = hoist__format_detect(&reader, ret);
	free(copy.p);
	return err;
}

#define BYTES(text) text, sizeof(text) - 1

static const struct known {
	const char *content;
	size_t n;
	enum hoist__format format;
} known[] = {
	{BYTES("\2\0\0\0\0\0\0\0{}"), HOIST__SAFETENSORS},
	{BYTES("\2\0\0\0\0\0\0\0{"), HOIST__SAFETENSORS},
	/* Too long by far, and so said by the parser. */
	{BYTES("\xff\xff\xff\xff\xff\xff\xff\xff{"), HOIST__SAFETENSORS},
	/* Its length reads as JSON does, but for the zeros. */
	{BYTES("{ \0\0\0\0\0\0{}"), HOIST__SAFETENSORS},
	{BYTES("{\"a\":1}"), HOIST__INDEX},
	{BYTES("{"), HOIST__INDEX},
	{BYTES(" \t\r\n\r\n{}"), HOIST__INDEX},
	/* Byte 8 is a brace here, too. */
	{BYTES("{\"meta\":{\"total_size\":1}}"), HOIST__INDEX},
	{BYTES("GGUF"), HOIST__GGUF},
	{BYTES("GGUF\3\0\0\0{"), HOIST__GGUF},
	{BYTES("FUGG\0\0\0\3"), HOIST__GGUF},
	{BYTES("\x93NUMPY"), HOIST__NPY},
	{BYTES("\x93NUMPY\1\0{"), HOIST__NPY},
	{BYTES("\x93\xf0\x9f\x94\xa5\x2b\x2b\x93"), HOIST__MAX},
};

Test(format_detect, known_formats)
{
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		enum hoist__format format = HOIST__N_FORMATS;
		cr_expect_eq(detect(known[i].content, known[i].n, false, &format), 0, "%zu: %s", i,
			     hoist_error());
		cr_expect_eq(format, known[i].format, "%zu: %d", i, format);
	}
}

#define WEB_PAGE "this is a web page: the download went wrong (is a login needed?)"
#define PICKLE                                                                                     \
	"this is a Python pickle, as PyTorch before 1.6 wrote its checkpoints: reading it would "  \
	"run its instructions; save it again with a newer torch.save, or as safetensors"
#define READS                                                                                      \
	"; hoist reads safetensors and its index, GGUF, .npy, .npz, .max and PyTorch's zip "       \
	"checkpoints (torch.save, 1.6 or later)"

static const struct unknown {
	const char *content;
	size_t n;
	const char *message; /* all of it behind "f: " */
} unknown[] = {
	{BYTES(""), "the file is empty"},
	{BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
	 "this is the pointer that Git LFS leaves in a file's place: `git lfs pull` gets the file"},
	{BYTES("<!DOCTYPE html>\n<html>"), WEB_PAGE},
	{BYTES("\n <HTML lang=\"en\">"), WEB_PAGE},
	{BYTES("<?xml version=\"1.0\"?><Error>"), WEB_PAGE},
	{BYTES("\x80\2}q\0"), PICKLE},
	{BYTES("\x80\5\x95"), PICKLE},
	{BYTES("\x1f\x8b\x08"), "this is compressed by gzip: decompress it first"},
	{BYTES("\x28\xb5\x2f\xfd"), "this is compressed by zstd: decompress it first"},
	{BYTES("\xfd\x37zXZ\0"), "this is compressed by xz: decompress it first"},
	{BYTES("BZh91AY"), "this is compressed by bzip2: decompress it first"},
	{BYTES("\x89HDF\r\n\x1a\n"), "this is an HDF5 file, a format that is not read"},
	{BYTES("tjgg\3\0\0\0"),
	 "this is a GGML file of the time before GGUF: convert it with llama.cpp"},
	{BYTES("\x93\xf0\x9f\x94\xa5\x93"),
	 "this is a .max file of the format before this one, of one tensor without a header"},
	{BYTES("\0\0\0\0\0\0\0\0\0\0\0\0"),
	 "its first 12 bytes are zero, as a download leaves them that was not completed" READS},
	{BYTES("not a\n\x80 checkpoint at all"),
	 "no format that is known: its 25 bytes begin with 6e 6f 74 20 61 0a 80 20 63 68 65 63 6b "
	 "70 6f 69 (\"not a\\u000a? checkpoi\")" READS},
	{BYTES("\2\0\0\0\0\0\0\0"),
	 "no format that is known: its 8 bytes begin with 02 00 00 00 00 00 00 00 "
	 "(\"\\u0002\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\")" READS},
};

Test(format_detect, an_unknown_format_is_named_if_it_can_be)
{
	for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
		enum hoist__format format = HOIST__N_FORMATS;
		cr_expect_eq(detect(unknown[i].content, unknown[i].n, false, &format), -EBADMSG,
			     "%zu", i);
		cr_expect_str_eq(hoist_error() + strlen(FILE_NAME ": "), unknown[i].message);
		cr_expect_eq(format, HOIST__N_FORMATS, "%zu: the result was touched", i);
	}
}

/* Whatever the first 9 bytes are, the answer is a format or -EBADMSG. */
Test(format_detect, every_first_byte_has_an_answer)
{
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		for (size_t at = 0; at < known[i].n; at++)
			for (unsigned value = 0; value < 256; value++) {
				unsigned char content[64];
				enum hoist__format format;
				memcpy(content, known[i].content, known[i].n);
				content[at] = (unsigned char)value;
				int err = detect(content, known[i].n, false, &format);
				cr_assert(err == 0 || err == -EBADMSG);
				err = detect(content, at, false, &format);
				cr_assert(err == 0 || err == -EBADMSG);
			}
}

Test(format_detect, a_failing_read_is_passed_on)
{
	enum hoist__format format = HOIST__N_FORMATS;
	cr_expect_eq(detect(BYTES("GGUF"), true, &format), -EIO);
	cr_expect_str_eq(hoist_error(), "reading failed");
	cr_expect_eq(format, HOIST__N_FORMATS);
}

Test(format_detect, every_format_has_a_name)
{
	static const char *const names[] = {
		"safetensors", "safetensors index", "gguf", "npy", "npz", "max", "pytorch", "raw"};
	for (enum hoist__format format = 0; format < HOIST__N_FORMATS; format++)
		cr_expect_str_eq(hoist__format_name(format), names[format]);
}
