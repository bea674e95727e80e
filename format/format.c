/* SPDX-License-Identifier: MIT */
/* format/format.c - tells which format a file has, and calls its parser.
 * The contract is in format/format.h.
 *
 * The first bytes tell every format except the two in zip archives: for these the directory tells.
 * A file of no known format gets a message that names it, if people often have such a file by
 * mistake. */
#include "config.h"

#include "format/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/quote.h"
#include "format/torch.h"
#include "format/zip.h"

/* How many bytes are looked at, and how many of them a message shows. */
#define START_BYTES 64
#define SHOWN_BYTES 16

#define FORMATS                                                                                    \
	"safetensors and its index, GGUF, .npy, .npz, .max and PyTorch's zip checkpoints "         \
	"(torch.save, 1.6 or later)"

const char *hoist__format_name(enum hoist__format format)
{
	static const char *const names[] = {
		[HOIST__SAFETENSORS] = "safetensors",
		[HOIST__INDEX] = "safetensors index",
		[HOIST__GGUF] = "gguf",
		[HOIST__NPY] = "npy",
		[HOIST__NPZ] = "npz",
		[HOIST__MAX] = "max",
		[HOIST__TORCH] = "pytorch",
		[HOIST__RAW] = "raw",
	};
	return names[format];
}

/* --- files of no known format --- */

struct start {
	unsigned char bytes[START_BYTES];
	size_t n;
};

static bool begins(const struct start *start, const void *magic, size_t n)
{
	return start->n >= n && memcmp(start->bytes, magic, n) == 0;
}

static bool is_space(unsigned char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Returns the first byte that is not white space; @start->n if there is none. */
static size_t skip_space(const struct start *start)
{
	size_t i = 0;
	while (i < start->n && is_space(start->bytes[i]))
		i++;
	return i;
}

static bool is_html(const struct start *start)
{
	static const char *const tags[] = {"<!doctype", "<html", "<head", "<?xml"};
	size_t i = skip_space(start);
	for (size_t t = 0; t < HOIST__ARRAY_SIZE(tags); t++) {
		size_t n = strlen(tags[t]);
		if (start->n - i >= n &&
		    strncasecmp((const char *)start->bytes + i, tags[t], n) == 0)
			return true;
	}
	return false;
}

static bool is_zero(const struct start *start)
{
	for (size_t i = 0; i < start->n; i++)
		if (start->bytes[i] != 0)
			return false;
	return true;
}

/* Returns the name of the other format and the remedy; NULL if it is not known. */
static const char *other_format(const struct start *start)
{
	static const struct {
		const char *magic;
		size_t n;
		const char *what;
	} known[] = {
		{"version https://git-lfs", 23,
		 "the pointer that Git LFS leaves in a file's place: `git lfs pull` gets the file"},
		{"\x1f\x8b", 2, "compressed by gzip: decompress it first"},
		{"\x28\xb5\x2f\xfd", 4, "compressed by zstd: decompress it first"},
		{"\xfd"
		 "7zXZ",
		 5, "compressed by xz: decompress it first"},
		{"BZh", 3, "compressed by bzip2: decompress it first"},
		{"\x89HDF\r\n\x1a\n", 8, "an HDF5 file, a format that is not read"},
		{"tjgg", 4, "a GGML file of the time before GGUF: convert it with llama.cpp"},
		{"fmgg", 4, "a GGML file of the time before GGUF: convert it with llama.cpp"},
		{"lmgg", 4, "a GGML file of the time before GGUF: convert it with llama.cpp"},
		{"\x93\xf0\x9f\x94\xa5\x93", 6,
		 "a .max file of the format before this one, of one tensor without a header"},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(known); i++)
		if (begins(start, known[i].magic, known[i].n))
			return known[i].what;
	if (hoist__torch_is_old(start->bytes, start->n))
		return HOIST__TORCH_OLD;
	if (is_html(start))
		return "a web page: the download went wrong (is a login needed?)";
	return NULL;
}

/* The commonest mistakes have texts of their own: an empty file, a format that hoist knows but does
 * not read, a download that was cut off. */
static int fail_unknown(const struct hoist__reader *reader, const struct start *start)
{
	char file[HOIST__QUOTED_BYTES];
	char text[HOIST__QUOTED_BYTES];
	char hex[3 * SHOWN_BYTES + 1] = "";
	(void)hoist__file_quoted(reader->name, file);
	if (start->n == 0)
		return hoist__fail(-EBADMSG, "%s: the file is empty", file);
	const char *other = other_format(start);
	if (other != NULL)
		return hoist__fail(-EBADMSG, "%s: this is %s", file, other);
	if (is_zero(start))
		return hoist__fail(-EBADMSG,
				   "%s: its first %zu bytes are zero, as a download leaves them "
				   "that was not completed; hoist reads " FORMATS,
				   file, start->n);
	size_t n = hoist__min_u64(start->n, SHOWN_BYTES);
	for (size_t i = 0; i < n; i++)
		(void)snprintf(hex + 3 * i, 4, " %02x", start->bytes[i]);
	return hoist__fail(-EBADMSG,
			   "%s: no format that is known: its %llu bytes begin with%s (%s); hoist "
			   "reads " FORMATS,
			   file, (unsigned long long)reader->bytes, hex,
			   hoist__quoted((const char *)start->bytes, n, text));
}

/* --- files of a known format --- */

/* JSON has no zero byte.  A safetensors file begins with a length in 8 bytes, of at most 100 MB. */
static bool is_json(const struct start *start)
{
	size_t i = skip_space(start);
	return i < start->n && start->bytes[i] == '{' &&
	       memchr(start->bytes, 0, hoist__min_u64(start->n, 8)) == NULL;
}

/* The two formats in zip archives begin alike: the archive's directory tells them apart. */
int hoist__format_detect(const struct hoist__reader *reader, enum hoist__format *ret)
{
	struct start start = {.n = hoist__min_u64(reader->bytes, START_BYTES)};
	int err = start.n > 0 ? reader->read(reader->context, 0, start.bytes, start.n) : 0;
	bool torch = false;
	if (err < 0)
		return err;
	if (begins(&start, "GGUF", 4) || begins(&start, "FUGG", 4)) {
		*ret = HOIST__GGUF;
	} else if (begins(&start, "\x93NUMPY", 6)) {
		*ret = HOIST__NPY;
	} else if (hoist__max_is(start.bytes, start.n)) {
		*ret = HOIST__MAX;
	} else if (begins(&start, "PK\3\4", 4) || begins(&start, "PK\5\6", 4)) {
		err = hoist__zip_is_torch(reader, &torch);
		if (err == 0)
			*ret = torch ? HOIST__TORCH : HOIST__NPZ;
	} else if (is_json(&start)) {
		*ret = HOIST__INDEX;
	} else if (start.n > 8 && start.bytes[8] == '{') {
		*ret = HOIST__SAFETENSORS;
	} else if (reader->lenient && hoist__torch_is_old(start.bytes, start.n)) {
		*ret = HOIST__TORCH;
	} else {
		err = fail_unknown(reader, &start);
	}
	return err;
}

/* --- parsing --- */

/* Formats whose first bytes tell the length of their header. */
static const struct parser {
	size_t prefix_bytes;
	int (*header_bytes)(const char *file, const void *prefix, size_t n_prefix,
			    uint64_t file_bytes, size_t *ret);
	int (*parse)(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		     struct hoist__manifest **ret);
} safetensors = {8, hoist__safetensors_header_bytes, hoist__safetensors_parse},
  max = {HOIST__MAX_FILE_PREFIX, hoist__max_header_bytes, hoist__max_parse};

static int parse_header(const struct hoist__reader *reader, const struct parser *parser,
			struct hoist__manifest **ret)
{
	unsigned char prefix[HOIST__MAX_FILE_PREFIX] = {0};
	size_t n = hoist__min_u64(reader->bytes, parser->prefix_bytes);
	size_t bytes;
	int err = n > 0 ? reader->read(reader->context, 0, prefix, n) : 0;
	if (err == 0)
		err = parser->header_bytes(reader->name, prefix, n, reader->bytes, &bytes);
	if (err < 0)
		return err;
	unsigned char *header = malloc(bytes);
	if (header == NULL)
		return hoist__fail_nomem("a header", bytes);
	err = reader->read(reader->context, 0, header, bytes);
	if (err == 0)
		err = parser->parse(reader->name, header, bytes, reader->bytes, ret);
	free(header);
	return err;
}

int hoist__format_parse(const struct hoist__reader *reader, enum hoist__format format,
			struct hoist__manifest **ret)
{
	char file[HOIST__QUOTED_BYTES];
	switch (format) {
	case HOIST__SAFETENSORS:
		return parse_header(reader, &safetensors, ret);
	case HOIST__MAX:
		return parse_header(reader, &max, ret);
	case HOIST__RAW:
		return hoist__raw_parse(reader, ret);
	case HOIST__GGUF:
		return hoist__gguf_parse(reader, ret);
	case HOIST__NPY:
		return hoist__npy_parse(reader, ret);
	case HOIST__NPZ:
		return hoist__npz_parse(reader, ret);
	case HOIST__TORCH:
		return hoist__torch_parse(reader, ret);
	case HOIST__INDEX:
	case HOIST__N_FORMATS:
		break;
	}
	return hoist__fail(-EINVAL, "%s: an index holds no tensors",
			   hoist__file_quoted(reader->name, file));
}
