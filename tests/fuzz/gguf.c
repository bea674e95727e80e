/* SPDX-License-Identifier: MIT */
/* GGUF.  Changes are of its records, key-value pairs and tensors: some go, come twice, change
 * places, get other types, lengths, nesting; counts, and most of the time offsets and the file's
 * size, are made right afterwards, so that what lies behind those checks is reached. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "format/gguf.h"
#include "format/little.h"
#include "tests/fuzz/fuzz-json.h"
#include "tests/fuzz/fuzz-support.h"

#define MOST_RECORDS 512
#define MOST_BYTES ((size_t)1 << 16) /* of records; of one tensor */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	fuzz_format(bytes, n, HOIST__GGUF);
	return 0;
}

/* --- records --- */

struct record {
	size_t begin;
	size_t end;
};

struct records {
	const uint8_t *bytes;
	size_t n;  /* of bytes */
	size_t at; /* behind the last record */
	size_t n_pairs;
	size_t n_tensors;
	struct record of[MOST_RECORDS]; /* pairs, then tensors */
};

static uint64_t number(const struct records *r, size_t at, unsigned n)
{
	return at <= r->n && n <= r->n - at ? hoist__little(r->bytes + at, n) : UINT64_MAX;
}

/* Moves on by so many bytes; false: there are not as many. */
static bool pass(const struct records *r, size_t *at, uint64_t n)
{
	if (*at > r->n || n > r->n - *at)
		return false;
	*at += (size_t)n;
	return true;
}

static bool pass_string(const struct records *r, size_t *at)
{
	uint64_t n = number(r, *at, 8);
	return pass(r, at, 8) && pass(r, at, n);
}

static const unsigned sizes[HOIST__GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* NOLINTNEXTLINE(misc-no-recursion) */
static bool pass_value(const struct records *r, size_t *at, uint64_t type, int depth)
{
	if (type >= HOIST__GGUF_N_TYPES || depth > 20)
		return false;
	if (type == HOIST__GGUF_STRING)
		return pass_string(r, at);
	if (type != HOIST__GGUF_ARRAY)
		return pass(r, at, sizes[type]);
	uint64_t element = number(r, *at, 4);
	uint64_t n = number(r, *at + 4, 8);
	if (!pass(r, at, 12) || element >= HOIST__GGUF_N_TYPES || n > r->n)
		return false;
	if (sizes[element] > 0)
		return pass(r, at, n * sizes[element]);
	bool ret = true;
	while (ret && n-- > 0)
		ret = pass_value(r, at, element, depth + 1);
	return ret;
}

static bool pass_pair(const struct records *r, size_t *at)
{
	if (!pass_string(r, at))
		return false;
	uint64_t type = number(r, *at, 4);
	return pass(r, at, 4) && pass_value(r, at, type, 0);
}

static bool pass_tensor(const struct records *r, size_t *at)
{
	if (!pass_string(r, at))
		return false;
	uint64_t rank = number(r, *at, 4);
	return rank <= 64 && pass(r, at, 4 + 8 * rank + 12);
}

/* As many of each as there are, and as are whole. */
static void find_records(struct records *r)
{
	uint64_t n_tensors = number(r, 8, 8);
	uint64_t n_pairs = number(r, 16, 8);
	size_t at = r->at = HOIST__GGUF_PREFIX_BYTES;
	while (r->n_pairs < n_pairs && r->n_pairs < MOST_RECORDS / 2 && pass_pair(r, &at)) {
		r->of[r->n_pairs++] = (struct record){r->at, at};
		r->at = at;
	}
	if (r->n_pairs < n_pairs)
		return;
	while (r->n_tensors < n_tensors && r->n_tensors < MOST_RECORDS / 2 && pass_tensor(r, &at)) {
		r->of[r->n_pairs + r->n_tensors++] = (struct record){r->at, at};
		r->at = at;
	}
}

/* --- changes of one --- */

static size_t below(unsigned *random, size_t n)
{
	unsigned high = (unsigned)rand_r(random);
	return n == 0 ? 0 : ((size_t)high << 15 ^ (unsigned)rand_r(random)) % n;
}

static void put_number(struct fuzz_text *to, uint64_t value, unsigned n)
{
	while (n-- > 0) {
		fuzz_text_put(to, &(uint8_t){(uint8_t)value}, 1);
		value >>= 8;
	}
}

static uint64_t some_number(unsigned *random)
{
	static const uint64_t odd[] = {0,
				       1,
				       32,
				       255,
				       256,
				       4096,
				       INT32_MAX,
				       UINT32_MAX,
				       INT64_MAX,
				       UINT64_MAX,
				       UINT64_C(1) << 63,
				       3037000500,
				       31,
				       1u << 20,
				       16};
	return below(random, 2) ? below(random, 300) : odd[below(random, sizeof odd / sizeof *odd)];
}

static void put_string(struct fuzz_text *to, unsigned *random)
{
	static const char *const texts[] = {"general.alignment",
					    "split.no",
					    "split.count",
					    "split.tensors.count",
					    "a",
					    "",
					    "\xff\xfe",
					    "w\n\"\\",
					    "general.architecture",
					    "\xe2\x98\x83"};
	const char *text = texts[below(random, sizeof texts / sizeof *texts)];
	put_number(to, strlen(text), 8);
	fuzz_text_put(to, text, strlen(text));
}

/* NOLINTNEXTLINE(misc-no-recursion) */
static void put_value(struct fuzz_text *to, size_t type, unsigned *random, int depth)
{
	if (type == HOIST__GGUF_STRING) {
		put_string(to, random);
	} else if (type != HOIST__GGUF_ARRAY) {
		put_number(to, some_number(random), sizes[type]);
	} else {
		size_t element = depth > 0 ? HOIST__GGUF_ARRAY : below(random, HOIST__GGUF_ARRAY);
		size_t n = depth > 0 ? 1 + below(random, 8) / 7 : below(random, 20);
		put_number(to, element, 4);
		put_number(to, n, 8);
		for (size_t i = 0; i < n; i++)
			put_value(to, element, random, depth - 1);
	}
}

static void put_pair(struct fuzz_text *to, unsigned *random)
{
	size_t type = below(random, HOIST__GGUF_N_TYPES);
	put_string(to, random);
	put_number(to, type, 4);
	put_value(to, type, random, (int)(below(random, 4) ? 0 : below(random, 20)));
}

static void put_tensor(struct fuzz_text *to, unsigned *random)
{
	size_t rank = below(random, 5);
	put_string(to, random);
	put_number(to, rank, 4);
	for (size_t i = 0; i < rank; i++)
		put_number(to, below(random, 8) ? 32 * below(random, 4) : some_number(random), 8);
	put_number(to, below(random, 40), 4);
	put_number(to, 0, 8);
}

/* One of its numbers of 4 or 8 bytes, which may be a length, a type, an extent. */
static void change_number(uint8_t *record, size_t n, unsigned *random)
{
	size_t name = 8 + (size_t)hoist__little(record, 8);
	size_t at = below(random, 4) == 0 ? 0 : name + 4 * below(random, (n - name) / 4);
	uint64_t value = some_number(random);
	unsigned bytes = below(random, 2) ? 4 : 8;
	for (unsigned i = 0; i < bytes && at + i < n; i++)
		record[at + i] = (uint8_t)(value >> 8 * i);
}

/* --- changes of the list, written to @to --- */

static void put_record(const struct records *r, size_t i, struct fuzz_text *to)
{
	fuzz_text_put(to, r->bytes + r->of[i].begin, r->of[i].end - r->of[i].begin);
}

/* Returns how many more there are now. */
static int change(const struct records *r, size_t first, size_t n, unsigned *random,
		  struct fuzz_text *to)
{
	size_t which = below(random, n + 1);
	size_t other = below(random, n);
	unsigned way = (unsigned)below(random, 8);
	int more = 0;
	for (size_t i = 0; i < n; i++) {
		size_t begin = to->n;
		bool swapped = way == 0 && which < n && (i == which || i == other);
		if (way == 1 && i == which) {
			more = -1;
			continue;
		}
		put_record(r, first + (swapped ? which + other - i : i), to);
		size_t bytes = to->n - begin;
		if (i != which || bytes < 13)
			continue;
		if (way == 2) {
			put_record(r, first + i, to);
			more = 1;
		} else if (way == 3) {
			uint8_t *record = (uint8_t *)to->p + begin;
			size_t room = to->room - begin;
			to->n = begin + LLVMFuzzerMutate(record, bytes,
							 room < bytes + 64 ? room : bytes + 64);
		} else {
			change_number((uint8_t *)to->p + begin, bytes, random);
		}
	}
	if (which < n)
		return more;
	if (first == 0)
		put_pair(to, random);
	else
		put_tensor(to, random);
	return 1;
}

/* --- putting it together --- */

static uint64_t alignment_of(const struct records *r)
{
	static const char key[] = "general.alignment";
	for (size_t i = 0; i < r->n_pairs; i++) {
		size_t at = r->of[i].begin;
		uint64_t value = number(r, at + 8 + strlen(key) + 4, 4);
		if (number(r, at, 8) == strlen(key) &&
		    memcmp(r->bytes + at + 8, key, strlen(key)) == 0 && value > 0 && value <= 4096)
			return value;
	}
	return HOIST__GGUF_ALIGNMENT;
}

static uint64_t tensor_bytes(const struct records *r, const struct record *tensor)
{
	size_t at = tensor->begin + 8 + (size_t)number(r, tensor->begin, 8);
	uint64_t rank = number(r, at, 4);
	uint64_t elements = 1;
	for (uint64_t i = 0; i < rank; i++)
		elements *= number(r, at + 4 + 8 * i, 8);
	uint64_t type = number(r, at + 4 + 8 * rank, 4);
	const struct hoist__dtype_info *info = hoist__dtype_info(
		type < 256 ? hoist__dtype_from_gguf((int)type) : HOIST_DTYPE_INVALID);
	size_t bytes = 0;
	if (info == NULL || elements > MOST_BYTES ||
	    hoist_dtype_bytes(info->dtype, elements, &bytes) < 0)
		return 0;
	return bytes;
}

/* Each behind the one before.  Returns the file's bytes, as far as there is room. */
static size_t lay_out(uint8_t *bytes, size_t n, size_t room)
{
	static struct records r;
	r = (struct records){.bytes = bytes, .n = n};
	find_records(&r);
	uint64_t align = alignment_of(&r);
	uint64_t end = 0;
	for (size_t i = r.n_pairs; i < r.n_pairs + r.n_tensors; i++) {
		uint64_t more = tensor_bytes(&r, &r.of[i]);
		for (unsigned b = 0; b < 8; b++)
			bytes[r.of[i].end - 8 + b] = (uint8_t)(end >> 8 * b);
		end += (more + align - 1) / align * align;
	}
	uint64_t whole = (n + align - 1) / align * align + end;
	if (whole > room)
		return n;
	memset(bytes + n, 0, (size_t)whole - n);
	return (size_t)whole;
}

static void set_count(uint8_t *bytes, size_t at, size_t n, int more)
{
	uint64_t value = (uint64_t)((int64_t)n + more);
	for (unsigned i = 0; i < 8; i++)
		bytes[at + i] = (uint8_t)(value >> 8 * i);
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed)
{
	static struct records r;
	static char kept[MOST_BYTES];
	struct fuzz_text to = {kept, 0, room < sizeof kept ? room : sizeof kept};
	unsigned random = seed;
	unsigned way = (unsigned)rand_r(&random) % 16;
	r = (struct records){.bytes = bytes, .n = n};
	if (way == 0 || n < HOIST__GGUF_PREFIX_BYTES || room < HOIST__GGUF_PREFIX_BYTES)
		return LLVMFuzzerMutate(bytes, n, room);
	find_records(&r);
	bool pairs = below(&random, 2) == 0;
	fuzz_text_put(&to, bytes, HOIST__GGUF_PREFIX_BYTES);
	int more_pairs = pairs ? change(&r, 0, r.n_pairs, &random, &to) : 0;
	for (size_t i = 0; !pairs && i < r.n_pairs; i++)
		put_record(&r, i, &to);
	int more_tensors = pairs ? 0 : change(&r, r.n_pairs, r.n_tensors, &random, &to);
	for (size_t i = 0; pairs && i < r.n_tensors; i++)
		put_record(&r, r.n_pairs + i, &to);
	size_t rest = way == 1 ? r.at : n; /* the data, if offsets stay as they are */
	size_t n_pairs = r.n_pairs;
	size_t n_tensors = r.n_tensors;
	if (rest < n)
		fuzz_text_put(&to, bytes + rest, n - rest);
	memcpy(bytes, to.p, to.n);
	if (way != 2) {
		set_count(bytes, 16, n_pairs, more_pairs);
		set_count(bytes, 8, n_tensors, more_tensors);
	}
	return way == 1 ? to.n : lay_out(bytes, to.n, room);
}
