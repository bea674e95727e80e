/* SPDX-License-Identifier: MIT */
/* Every allocation of the parsers fails once: the answer is -ENOMEM, nothing is left behind, and no
 * truncated name slips through.  The same counters bound the memory that a header can make the
 * parsers take; format.h, zip.h and pickle.h have the bounds. */
#include "config.h"

#include "tests/format/nomem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/format.h"
#include "tests/format/gguf-bytes.h"
#include "tests/support/check.h"

static struct bytes text;

static void begin(void)
{
	text.n = 0;
	put_zeros(&text, 8);
	put_text(&text, "{");
}

static void end_header(void)
{
	put_text(&text, "}");
	set_number(&text, 0, text.n - 8, 8);
}

struct header {
	uint64_t data_bytes;
	size_t name_bytes; /* of each tensor, at least */
};

static int parse_header(void *context)
{
	const struct header *header = context;
	struct hoist__manifest *manifest = NULL;
	int err = hoist__safetensors_parse("f", text.p, text.n, text.n + header->data_bytes,
					   &manifest);
	CHECK(err == 0 || manifest == NULL);
	for (size_t i = 0; err == 0 && i < manifest->n_tensors; i++)
		CHECK(manifest->tensors[i].name_bytes >= header->name_bytes);
	hoist__manifest_destroy(manifest);
	return err;
}

static int parse_index_and_check(void *manifest)
{
	struct hoist__index *index = NULL;
	int err = hoist__index_parse("i", text.p, text.n, &index);
	CHECK(err == 0 || index == NULL);
	if (err == 0 && manifest != NULL)
		err = hoist__index_check(index, "i", 0, manifest, NULL);
	hoist__index_destroy(index);
	return err;
}

/* The manifest, chunks, vectors, orders: each failed once. */
#define LEAST 8

static void sweep_header(void)
{
	struct header header = {70, strlen("model.layers.00.mlp.up.weight")};
	begin();
	put_text(&text, "\"__metadata__\":{\"format\":\"pt\",\"step\":\"7\"}");
	for (int i = 0; i < 70; i++)
		put_format(&text,
			   ",\"model.layers.%02d.mlp.up.weight\":{\"dtype\":\"U8\",\"shape\":[1,1],"
			   "\"data_offsets\":[%d,%d]}",
			   i, i, i + 1);
	end_header();
	fail_each(parse_header, &header, 0, LEAST);
}

static void sweep_index(void)
{
	struct hoist__manifest *empty = NULL;
	begin();
	end_header();
	OK(hoist__safetensors_parse("f", text.p, text.n, text.n, &empty));
	text.n = 0;
	put_text(&text, "{\"metadata\":{\"total_size\":123},\"weight_map\":{");
	for (int i = 0; i < 70; i++)
		put_format(&text, "%s\"model.layers.%02d.mlp.up.weight\":\"m-%d\"",
			   i > 0 ? "," : "", i, i % 3);
	put_text(&text, "}}");
	/* With all memory there, the empty shard still lacks its tensors. */
	fail_each(parse_index_and_check, empty, -EBADMSG, LEAST);
	CHECK(strstr(hoist_error(), "is not in its shard m-0") != NULL);
	hoist__manifest_destroy(empty);
}

static double most_ratio;
static double most_seconds;
static const char *slow; /* a header that took more than its part of the time in this pass */

/* All is measured twice, with an eighth of the size at first: a quadratic parser takes eight times
 * as long for each byte the second time. */
#define SMALLER 8
static int smaller = SMALLER; /* then 1 */
static double first_seconds[32];
static unsigned n_measured;

/* Parses; then the peak is below 12 times the header's bytes, and 1 MiB, and each byte of a long
 * header took as much of the processor's time as each of a short one (next to no time is not
 * compared). */
static void measure(const char *what, int (*parse)(void *context), void *context, int expected,
		    size_t header_bytes)
{
	count_begin(-1);
	CHECK(parse(context) == expected);
	count_end();
	double seconds = counted_seconds() * (1 << 20) / (double)header_bytes;
	double ratio = (double)counted_peak / (double)header_bytes;
	printf("%-24s %.2f bytes of memory per byte of header\n", what, ratio);
	CHECK(n_measured < sizeof first_seconds / sizeof first_seconds[0]);
	double *first = &first_seconds[n_measured++];
	if (smaller > 1) {
		*first = seconds;
		return;
	}
	if (seconds >= 0.05 && seconds >= SMALLER / 2 * *first)
		slow = what;
	most_seconds = seconds > most_seconds ? seconds : most_seconds;
	most_ratio = ratio > most_ratio ? ratio : most_ratio;
	CHECK(counted_peak < 12 * header_bytes + (1 << 20));
}

/* A header of @before <number> @after, again and again, between @prefix and @suffix. */
static void measure_header(const char *what, const char *prefix, const char *before,
			   const char *after, const char *suffix)
{
	struct header header = {0, 0};
	begin();
	put_text(&text, prefix);
	/* One more than a power of two: just behind the doubling of a vector. */
	for (int i = 0; i <= 65536 / smaller && text.n < (4 << 20) - 1024; i++)
		put_format(&text, "%s%s%x%s", i > 0 ? "," : "", before, (unsigned)i, after);
	put_text(&text, suffix);
	end_header();
	measure(what, parse_header, &header, 0, text.n);
}

/* One key again and again is refused, but only once all are read: the shortest pairs there are. */
static void measure_same_keys(void)
{
	struct header header = {0, 0};
	begin();
	put_text(&text, "\"__metadata__\":{\"\":\"\"");
	for (int i = 0; i < 131072 / smaller; i++)
		put_text(&text, ",\"\":\"\"");
	put_text(&text, "}");
	end_header();
	measure("metadata of one key", parse_header, &header, -EBADMSG, text.n);
	CHECK(strstr(hoist_error(), "comes twice") != NULL);
	text.n = 0;
	put_text(&text, "{\"metadata\":{\"\":1");
	for (int i = 0; i < 131072 / smaller; i++)
		put_text(&text, ",\"\":1");
	put_text(&text, "},\"weight_map\":{\"a\":\"b\"}}");
	measure("an index's metadata", parse_index_and_check, NULL, -EBADMSG, text.n);
	CHECK(strstr(hoist_error(), "comes twice") != NULL);
}

static void bounds(void)
{
	char wide[512] = "\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[0";
	for (int i = 1; i < 64; i++)
		strcat(wide, ",0");
	strcat(wide, "]}");
	measure_header("empty tensors", "", "\"",
		       "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "");
	measure_header("tensors of rank 64", "", "\"", wide, "");
	measure_header("metadata", "\"__metadata__\":{", "\"", "\":\"\"", "}");
	measure_same_keys();
	measure_header("unknown keys",
		       "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":[",
		       "{\"", "\":{}}", "]}");
}

/* --- GGUF --- */

static void put_tensors(int n, const char *name, int rank)
{
	for (int i = 0; i < n; i++) {
		char text_of[32];
		(void)snprintf(text_of, sizeof text_of, "%s%02x", name, (unsigned)i);
		put_string(&text, text_of);
		put_number(&text, (uint64_t)rank, 4);
		put_zeros(&text, 8 * (size_t)rank + 4 + 8);
	}
	put_zeros(&text, -text.n % 32);
}

static int parse_as(void *format)
{
	const struct hoist__reader reader = reader_of(&text, "f");
	struct hoist__manifest *manifest = NULL;
	int err = hoist__format_parse(&reader, *(const enum hoist__format *)format, &manifest);
	CHECK(err == 0 || manifest == NULL);
	hoist__manifest_destroy(manifest);
	return err;
}

static enum hoist__format gguf = HOIST__GGUF;

static void sweep_gguf(void)
{
	begin_gguf(&text, 40, 40);
	for (int i = 0; i < 40; i++) {
		char name[16];
		(void)snprintf(name, sizeof name, "key.%02d", i);
		put_string(&text, name);
		put_number(&text, 8, 4);
		put_string(&text, "a text that does not fit where another one was");
	}
	put_tensors(40, "tensor.", 2);
	fail_each(parse_as, &gguf, 0, LEAST);
}

/* One array of @n_items just above a power of two: type @of, of which each item is @item. */
static void measure_array(const char *what, unsigned of, int item)
{
	const size_t n_items = ((size_t)1 << 21) / (size_t)smaller + 1;
	begin_gguf(&text, 0, 1);
	put_string(&text, "k");
	put_number(&text, 9, 4);
	put_number(&text, of, 4);
	if (of == 8)
		put_number(&text, 1, 8); /* one string of so many bytes */
	put_number(&text, n_items, 8);
	size_t at = text.n;
	put_zeros(&text, n_items);
	memset(text.p + at, item, n_items);
	measure(what, parse_as, &gguf, 0, text.n);
}

static void bounds_gguf(void)
{
	const int n = 65536 / smaller + 1;
	begin_gguf(&text, 0, (uint64_t)n);
	for (int i = 0; i < n; i++) {
		char name[16];
		(void)snprintf(name, sizeof name, "%x", (unsigned)i);
		put_string(&text, name);
		put_number(&text, 0, 4);
		put_number(&text, 7, 1);
	}
	measure("gguf, pairs", parse_as, &gguf, 0, text.n);
	begin_gguf(&text, (uint64_t)n, 0);
	put_tensors(n, "", 1);
	measure("gguf, tensors", parse_as, &gguf, 0, text.n);
	/* Truth values; control characters, whose texts are the longest. */
	measure_array("gguf, truth values", 7, 0);
	measure_array("gguf, control characters", 8, 1);
}

/* The smallest entries, all of one name: the parsers find that out at the end only. */
static void bounds_twins(void)
{
	const int n = (1 << 17) / smaller + 1; /* just behind the doubling of a vector */
	enum hoist__format max = HOIST__MAX;
	text.n = 0;
	put_text(&text, "{\"weight_map\":{\"a\":\"b\"");
	for (int i = 1; i < n; i++)
		put_text(&text, ",\"a\":\"b\"");
	put_text(&text, "}}");
	measure("index, twins", parse_index_and_check, NULL, -EBADMSG, text.n);
	/* Tensors without a name, of one element. */
	text.n = 0;
	put_text(&text, "\x93\xf0\x9f\x94\xa5++\x93");
	put_number(&text, 0, 8);
	put_number(&text, (uint64_t)n * 14, 8);
	for (int i = 0; i < n; i++) {
		put_number(&text, 0, 4);
		put_number(&text, 81, 1);
		put_number(&text, 0, 1);
		put_number(&text, 24 + (uint64_t)n * 14 + 4 * (uint64_t)i, 8);
	}
	const size_t header_bytes = text.n;
	put_zeros(&text, 4 * (size_t)n);
	measure("max, twins", parse_as, &max, -EBADMSG, header_bytes);
	CHECK(strstr(hoist_error(), "two tensors are called \"buffer\"") != NULL);
}

int main(void)
{
	const char *sanitizers = getenv("HOIST_TEST_SANITIZERS");
	sweep_header();
	sweep_index();
	sweep_gguf();
	test_archives();
	/* Another process may take the caches or the processor away in the middle of a pass.  A
	 * parser that is quadratic is slow in each pass.  Sanitizers have a malloc and a pace of
	 * their own. */
	const bool measures = sanitizers == NULL || sanitizers[0] == '\0';
	for (int pass = 0; measures && (pass == 0 || (slow != NULL && pass < 20)); pass++) {
		slow = NULL;
		for (smaller = SMALLER; smaller >= 1; smaller -= SMALLER - 1, n_measured = 0) {
			bounds();
			bounds_gguf();
			bounds_twins();
		}
	}
	if (slow != NULL) {
		printf("%s: a long header takes more time for each byte than a short one\n", slow);
		return 1;
	}
	if (measures) {
		printf("figure: format.memory %.1f times the header's bytes, at most\n",
		       most_ratio);
		printf("figure: format.seconds %.2f s of the processor for a header of 1 MiB, at "
		       "most\n",
		       most_seconds);
	}
	bytes_free(&text);
	return 0;
}
