/* SPDX-License-Identifier: MIT */
/* Every allocation of the parsers fails once: the answer is -ENOMEM, nothing is
 * left behind, and no truncated name slips through.  The same counters bound
 * the memory that a header can make the parsers take.
 *
 * A plain program, because it takes the place of malloc; sanitizers do that
 * themselves, so under them it is skipped. */
#include "config.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "format/format.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

int main(void)
{
	fputs("the sanitizer has malloc\n", stderr);
	return 77;
}

#else

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);

static bool counting;
static long fail_at = -1; /* the call that fails, from 0; -1: none */
static long n_calls;
static long n_live;
static size_t live_bytes;
static size_t peak_bytes;
static clock_t begun;

static bool must_fail(void)
{
	return counting && n_calls++ == fail_at;
}

static void *count(void *memory)
{
	if (memory != NULL && counting) {
		n_live++;
		live_bytes += malloc_usable_size(memory);
		if (live_bytes > peak_bytes)
			peak_bytes = live_bytes;
	}
	return memory;
}

static void uncount(void *memory)
{
	if (memory != NULL && counting) {
		n_live--;
		live_bytes -= malloc_usable_size(memory);
	}
}

void *malloc(size_t bytes)
{
	return must_fail() ? NULL : count(__libc_malloc(bytes));
}

void *calloc(size_t n, size_t bytes)
{
	return must_fail() ? NULL : count(__libc_calloc(n, bytes));
}

void *realloc(void *memory, size_t bytes)
{
	if (must_fail())
		return NULL;
	/* Both are there while it is copied, as some libraries do and others need not. */
	size_t before = memory != NULL ? malloc_usable_size(memory) : 0;
	live_bytes += counting ? bytes : 0;
	peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
	live_bytes -= counting ? bytes + before : 0;
	n_live -= counting && memory != NULL;
	return count(__libc_realloc(memory, bytes));
}

void free(void *memory)
{
	uncount(memory);
	__libc_free(memory);
}

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, hoist_error()); \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static char text[4 << 20];
static size_t text_bytes;

static void put(const char *piece)
{
	size_t n = strlen(piece);
	memcpy(text + text_bytes, piece, n);
	text_bytes += n;
}

static void begin(void)
{
	text_bytes = 8;
	put("{");
}

static void end_header(void)
{
	put("}");
	for (int i = 0; i < 8; i++)
		text[i] = (char)((uint64_t)(text_bytes - 8) >> (8 * i));
}

static void start_counting(long which)
{
	fail_at = which;
	n_calls = n_live = 0;
	live_bytes = peak_bytes = 0;
	begun = clock();
	counting = true;
}

/* Positive: something that a parser must not do. */
static int parse_header(uint64_t data_bytes, size_t name_bytes)
{
	struct hoist__manifest *manifest = NULL;
	int err =
		hoist__safetensors_parse("f", text, text_bytes, text_bytes + data_bytes, &manifest);
	if (err < 0)
		return manifest != NULL ? 1 : err;
	for (size_t i = 0; i < manifest->n_tensors; i++)
		if (manifest->tensors[i].name_bytes < name_bytes)
			err = 2;
	hoist__manifest_destroy(manifest);
	return err;
}

static int parse_index_and_check(struct hoist__manifest *manifest)
{
	struct hoist__index *index = NULL;
	int err = hoist__index_parse("i", text, text_bytes, &index);
	if (err < 0)
		return index != NULL ? 1 : err;
	err = hoist__index_check(index, "i", 0, manifest, NULL);
	hoist__index_destroy(index);
	return err;
}

static int sweep_header(void)
{
	const int n = 70;
	char piece[256];
	begin();
	put("\"__metadata__\":{\"format\":\"pt\",\"step\":\"7\"}");
	for (int i = 0; i < n; i++) {
		snprintf(piece, sizeof piece,
			 ",\"model.layers.%02d.mlp.up.weight\":{\"dtype\":\"U8\",\"shape\":[1,1],"
			 "\"data_offsets\":[%d,%d]}",
			 i, i, i + 1);
		put(piece);
	}
	end_header();
	int err = -ENOMEM;
	long which = 0;
	for (; err == -ENOMEM; which++) {
		start_counting(which);
		err = parse_header((uint64_t)n, strlen("model.layers.00.mlp.up.weight"));
		counting = false;
		CHECK(err == 0 || err == -ENOMEM);
		CHECK(err == 0 || strstr(hoist_error(), "host memory is exhausted") != NULL);
		CHECK(n_live == 0);
	}
	CHECK(err == 0);
	CHECK(which > 8); /* the manifest, chunks, vectors, orders: each failed once */
	return 0;
}

static int sweep_index(void)
{
	char piece[256];
	begin();
	end_header();
	struct hoist__manifest *empty = NULL;
	CHECK(hoist__safetensors_parse("f", text, text_bytes, text_bytes, &empty) == 0);
	text_bytes = 0;
	put("{\"metadata\":{\"total_size\":123},\"weight_map\":{");
	for (int i = 0; i < 70; i++) {
		/* The first shard has no tensor of the others, so that the check passes. */
		snprintf(piece, sizeof piece, "%s\"model.layers.%02d.mlp.up.weight\":\"m-%d\"",
			 i > 0 ? "," : "", i, i % 3);
		put(piece);
	}
	put("}}");
	int err = -ENOMEM;
	long which = 0;
	for (; err == -ENOMEM; which++) {
		start_counting(which);
		err = parse_index_and_check(empty);
		counting = false;
		CHECK(err == -EBADMSG || err == -ENOMEM);
		CHECK(n_live == 0);
	}
	/* All memory was there: what is left is that the empty shard lacks its tensors. */
	CHECK(strstr(hoist_error(), "is not in its shard m-0") != NULL);
	CHECK(which > 8);
	hoist__manifest_destroy(empty);
	return 0;
}

static double most_ratio;
static double most_seconds;
static const char *slow; /* a header that took more than its part of the time in this pass */

/* All is measured twice, of an eighth of the size at first: what is quadratic takes eight times as
 * long for each byte the second time. */
#define SMALLER 8
static int smaller = SMALLER; /* then 1 */
static double first_seconds[32];
static unsigned n_measured;

/* Below 12 times the header's bytes, and 1 MiB; of the processor's time as much for each byte of a
 * long header as of a short one (what takes hardly any time, is not to be compared). */
static int check_peak(const char *what)
{
	CHECK(n_live == 0);
	double ratio = (double)peak_bytes / (double)text_bytes;
	printf("%-24s %.2f bytes of memory per byte of header\n", what, ratio);
	double seconds =
		(double)(clock() - begun) / CLOCKS_PER_SEC * (1 << 20) / (double)text_bytes;
	CHECK(n_measured < sizeof first_seconds / sizeof first_seconds[0]);
	double *first = &first_seconds[n_measured++];
	if (smaller > 1) {
		*first = seconds;
		return 0;
	}
	if (seconds >= 0.05 && seconds >= SMALLER / 2 * *first)
		slow = what;
	most_seconds = seconds > most_seconds ? seconds : most_seconds;
	most_ratio = ratio > most_ratio ? ratio : most_ratio;
	CHECK(peak_bytes < 12 * text_bytes + (1 << 20));
	return 0;
}

/* A header of @before <number> @after, again and again, between @prefix and @suffix. */
static int measure(const char *what, const char *prefix, const char *before, const char *after,
		   const char *suffix)
{
	begin();
	put(prefix);
	/* One more than a power of two: just behind the doubling of a vector. */
	for (int i = 0; i <= 65536 / smaller && text_bytes < sizeof text - 1024; i++) {
		char number[16];
		snprintf(number, sizeof number, "%x", (unsigned)i);
		put(i > 0 ? "," : "");
		put(before);
		put(number);
		put(after);
	}
	put(suffix);
	end_header();
	start_counting(-1);
	int err = parse_header(0, 0);
	counting = false;
	CHECK(err == 0);
	return check_peak(what);
}

/* One key again and again is refused, but only once all are read: the shortest pairs there are. */
static int measure_same_key(bool index)
{
	struct hoist__index *none = NULL;
	begin();
	text_bytes = index ? 0 : text_bytes;
	put(index ? "{\"metadata\":{\"\":1" : "\"__metadata__\":{\"\":\"\"");
	for (int i = 0; i < 131072 / smaller; i++)
		put(index ? ",\"\":1" : ",\"\":\"\"");
	put("}");
	if (index)
		put(",\"weight_map\":{\"a\":\"b\"}}");
	else
		end_header();
	start_counting(-1);
	int err = index ? hoist__index_parse("i", text, text_bytes, &none) : parse_header(0, 0);
	counting = false;
	CHECK(err == -EBADMSG && strstr(hoist_error(), "comes twice") != NULL);
	return check_peak(index ? "an index's metadata" : "metadata of one key");
}

static int bounds(void)
{
	char wide[512] = "\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[0";
	for (int i = 1; i < 64; i++)
		strcat(wide, ",0");
	strcat(wide, "]}");
	return measure("empty tensors", "", "\"",
		       "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "") ||
	       measure("tensors of rank 64", "", "\"", wide, "") ||
	       measure("metadata", "\"__metadata__\":{", "\"", "\":\"\"", "}") ||
	       measure_same_key(false) || measure_same_key(true) ||
	       measure("unknown keys",
		       "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":[",
		       "{\"", "\":{}}", "]}");
}

/* --- GGUF --- */

static void put_number(unsigned n, uint64_t value)
{
	for (; n > 0; n--, value >>= 8)
		text[text_bytes++] = (char)value;
}

static void put_string(const char *string)
{
	put_number(8, strlen(string));
	put(string);
}

static void begin_gguf(uint64_t n_tensors, uint64_t n_pairs)
{
	text_bytes = 0;
	put("GGUF");
	put_number(4, 3);
	put_number(8, n_tensors);
	put_number(8, n_pairs);
}

static int read_text(void *context, uint64_t offset, void *buffer, size_t bytes)
{
	(void)context;
	memcpy(buffer, text + offset, bytes);
	return 0;
}

static int parse_gguf(void)
{
	const struct hoist__reader reader = {.name = "f", .bytes = text_bytes, .read = read_text};
	struct hoist__manifest *manifest = NULL;
	int err = hoist__gguf_parse(&reader, &manifest);
	if (err < 0)
		return manifest != NULL ? 1 : err;
	hoist__manifest_destroy(manifest);
	return 0;
}

static int sweep_gguf(void)
{
	begin_gguf(40, 40);
	char name[16];
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "key.%02d", i);
		put_string(name);
		put_number(4, 8);
		put_string("a text that does not fit where another one was");
	}
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "tensor.%02d", i);
		put_string(name);
		put_number(4, 2);
		put_number(8, 0);
		put_number(8, 0);
		put_number(4, 0);
		put_number(8, 0);
	}
	put_number((unsigned)(-text_bytes % 32), 0);
	int err = -ENOMEM;
	long which = 0;
	for (; err == -ENOMEM; which++) {
		start_counting(which);
		err = parse_gguf();
		counting = false;
		CHECK(err == 0 || err == -ENOMEM);
		CHECK(n_live == 0);
	}
	CHECK(err == 0);
	CHECK(which > 8);
	return 0;
}

static int measure_gguf(const char *what)
{
	start_counting(-1);
	int err = parse_gguf();
	counting = false;
	CHECK(err == 0);
	return check_peak(what);
}

static int bounds_gguf(void)
{
	const int n = 65536 / smaller + 1;
	const size_t n_items = ((size_t)1 << 21) / (size_t)smaller + 1;
	char name[16];
	begin_gguf(0, (uint64_t)n);
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof name, "%x", (unsigned)i);
		put_string(name);
		put_number(4, 0);
		put_number(1, 7);
	}
	int failed = measure_gguf("gguf, pairs");
	begin_gguf((uint64_t)n, 0);
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof name, "%x", (unsigned)i);
		put_string(name);
		put_number(4, 1);
		put_number(8, 0);
		put_number(4, 0);
		put_number(8, 0);
	}
	put_number((unsigned)(-text_bytes % 32), 0);
	failed |= measure_gguf("gguf, tensors");
	/* One array just above a power of two: of truth values, and of a string of control
	 * characters, whose texts are the longest. */
	begin_gguf(0, 1);
	put_string("k");
	put_number(4, 9);
	put_number(4, 7);
	put_number(8, n_items);
	memset(text + text_bytes, 0, n_items);
	text_bytes += n_items;
	failed |= measure_gguf("gguf, truth values");
	begin_gguf(0, 1);
	put_string("k");
	put_number(4, 9);
	put_number(4, 8);
	put_number(8, 1);
	put_number(8, n_items);
	memset(text + text_bytes, 1, n_items);
	text_bytes += n_items;
	return failed || measure_gguf("gguf, control characters");
}

/* --- the smallest entries, whose names are all the same: that is known at the end only --- */

static int parse_as(enum hoist__format format)
{
	const struct hoist__reader reader = {.name = "f", .bytes = text_bytes, .read = read_text};
	struct hoist__manifest *manifest = NULL;
	return hoist__format_parse(&reader, format, &manifest);
}

static int bounds_twins(void)
{
	const int n = (1 << 17) / smaller + 1; /* just behind the doubling of a vector */
	struct hoist__index *index = NULL;
	text_bytes = 0;
	put("{\"weight_map\":{\"a\":\"b\"");
	for (int i = 1; i < n; i++)
		put(",\"a\":\"b\"");
	put("}}");
	start_counting(-1);
	int err = hoist__index_parse("i", text, text_bytes, &index);
	counting = false;
	CHECK(err == -EBADMSG);
	int failed = check_peak("index, twins");
	/* Tensors without a name, of one element. */
	text_bytes = 0;
	put("\x93\xf0\x9f\x94\xa5++\x93");
	put_number(8, 0);
	put_number(8, (uint64_t)n * 14);
	for (int i = 0; i < n; i++) {
		put_number(4, 0);
		put_number(1, 81);
		put_number(1, 0);
		put_number(8, 24 + (uint64_t)n * 14 + 4 * (uint64_t)i);
	}
	const size_t header_bytes = text_bytes;
	memset(text + text_bytes, 0, 4 * (size_t)n);
	text_bytes += 4 * (size_t)n;
	start_counting(-1);
	err = parse_as(HOIST__MAX);
	counting = false;
	text_bytes = header_bytes;
	CHECK(err == -EBADMSG);
	CHECK(strstr(hoist_error(), "two tensors are called \"buffer\"") != NULL);
	return failed || check_peak("max, twins");
}

int main(void)
{
	if (sweep_header() || sweep_index() || sweep_gguf())
		return 1;
	/* Another process may take the caches or the processor away in the middle of a pass.  A
	 * parser that is quadratic is slow in each pass. */
	for (int pass = 0; pass == 0 || (slow != NULL && pass < 20); pass++) {
		slow = NULL;
		for (smaller = SMALLER; smaller >= 1; smaller -= SMALLER - 1, n_measured = 0)
			if (bounds() || bounds_gguf() || bounds_twins())
				return 1;
	}
	if (slow != NULL) {
		printf("%s: a long header takes more time for each byte than a short one\n", slow);
		return 1;
	}
	printf("figure: format.memory %.1f times the header's bytes, at most\n", most_ratio);
	printf("figure: format.seconds %.2f s of the processor for a header of 1 MiB, at most\n",
	       most_seconds);
	return 0;
}

#endif
