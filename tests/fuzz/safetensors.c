/* SPDX-License-Identifier: MIT */
/* safetensors.  Changes are of the header's JSON; its length, and most of the time the offsets in
 * it and the file's size, are made right afterwards, so that what lies behind those checks is
 * reached. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "tests/fuzz/fuzz-json.h"
#include "tests/fuzz/fuzz-support.h"

#define PREFIX_BYTES 8
#define MOST_BYTES ((size_t)1 << 16) /* of a header, of all tensors */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	fuzz_format(bytes, n, HOIST__SAFETENSORS);
	return 0;
}

/* --- offsets --- */

/* The facts that are known of the tensor that is being read. */
struct entry {
	unsigned bits; /* 0: unknown */
	uint64_t elements;
	bool has_shape;
	size_t offsets; /* the token of '[' of its data_offsets; 0: there was none */
};

static bool is_text(const char *text, const struct fuzz_token *token, const char *expected)
{
	size_t n = strlen(expected);
	return token->kind == '"' && token->end - token->begin == n + 2 &&
	       memcmp(text + token->begin + 1, expected, n) == 0;
}

static unsigned bits_of(const char *text, const struct fuzz_token *token)
{
	static const struct {
		const char *name;
		unsigned bits;
	} known[] = {{"F32", 32}, {"F16", 16}, {"BF16", 16}, {"F64", 64},    {"U8", 8},
		     {"I8", 8},	  {"BOOL", 8}, {"I64", 64},  {"F8_E4M3", 8}, {"C64", 64},
		     {"F4", 4},	  {"I32", 32}, {"U16", 16},  {"F8_E8M0", 8}, {"F6_E2M3", 6}};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(known); i++)
		if (is_text(text, token, known[i].name))
			return known[i].bits;
	return 0;
}

static void read_key(const char *text, const struct fuzz_token *tokens, size_t n, size_t i,
		     struct entry *entry)
{
	const struct fuzz_token *value = &tokens[i + 2];
	if (is_text(text, &tokens[i], "dtype"))
		entry->bits = bits_of(text, value);
	if (is_text(text, &tokens[i], "shape") && value->kind == '[') {
		entry->has_shape = true;
		entry->elements = 1;
		for (size_t k = i + 3; k < n && tokens[k].kind != ']'; k++)
			if (tokens[k].kind == '0')
				entry->elements *= strtoull(text + tokens[k].begin, NULL, 10);
	}
	if (is_text(text, &tokens[i], "data_offsets") && value->kind == '[')
		entry->offsets = i + 2;
}

/* The header with each tensor's bytes behind those of the one before; the bytes of all. */
static uint64_t lay_out(const char *text, size_t n, struct fuzz_text *to)
{
	static struct fuzz_token tokens[FUZZ_MOST_TOKENS];
	size_t n_tokens = fuzz_json_tokens(text, n, tokens);
	struct entry entry = {.bits = 0};
	uint64_t end = 0;
	size_t done = 0; /* of the text */
	int depth = 0;
	for (size_t i = 0; i < n_tokens; i++) {
		char kind = tokens[i].kind;
		depth += kind == '{';
		depth -= kind == '}';
		if (depth == 2 && kind == '"' && i + 2 < n_tokens && tokens[i + 1].kind == ':')
			read_key(text, tokens, n_tokens, i, &entry);
		if (kind != '}' || depth != 1)
			continue;
		uint64_t bytes = entry.elements * entry.bits / 8;
		/* Behind what is done: an array may hold the '}'. */
		if (entry.has_shape && entry.offsets > 0 && tokens[entry.offsets].begin >= done &&
		    bytes <= MOST_BYTES - end) {
			size_t behind = fuzz_json_behind(tokens, n_tokens, entry.offsets);
			fuzz_text_put(to, text + done, tokens[entry.offsets].begin - done);
			fuzz_text_print(to, "[%llu,%llu]", (unsigned long long)end,
					(unsigned long long)(end + bytes));
			done = tokens[behind - 1].end;
			end += bytes;
		}
		entry = (struct entry){.bits = 0};
	}
	fuzz_text_put(to, text + done, n - done);
	return end;
}

/* --- changing --- */

static size_t header_bytes(const uint8_t *bytes, size_t n)
{
	uint64_t header = 0;
	for (unsigned i = PREFIX_BYTES; i-- > 0 && n >= PREFIX_BYTES;)
		header = header << 8 | bytes[i];
	return n < PREFIX_BYTES || header > n - PREFIX_BYTES ? 0 : (size_t)header;
}

/* @header is all but the tensors, of which there are so many bytes. */
static size_t assemble(uint8_t *bytes, size_t room, const struct fuzz_text *header, uint64_t data)
{
	if (room < PREFIX_BYTES)
		return 0;
	size_t n = header->n < room - PREFIX_BYTES ? header->n : room - PREFIX_BYTES;
	for (unsigned i = 0; i < PREFIX_BYTES; i++)
		bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
	memcpy(bytes + PREFIX_BYTES, header->p, n);
	n += PREFIX_BYTES;
	size_t more = data < room - n ? (size_t)data : room - n;
	memset(bytes + n, 0, more);
	return n + more;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed)
{
	static char first[MOST_BYTES];
	static char second[MOST_BYTES];
	struct fuzz_text changed = {first, 0, sizeof first};
	struct fuzz_text laid_out = {second, 0, sizeof second};
	unsigned random = seed;
	size_t header = header_bytes(bytes, n);
	unsigned way = (unsigned)rand_r(&random) % 16;
	if (way == 0 || header == 0)
		return LLVMFuzzerMutate(bytes, n, room);
	uint64_t data = n - PREFIX_BYTES - header;
	if (way <= 3) { /* any bytes of the header */
		fuzz_text_put(&changed, bytes + PREFIX_BYTES, header);
		changed.n = LLVMFuzzerMutate((uint8_t *)first, changed.n,
					     room < sizeof first ? room : sizeof first);
	} else {
		fuzz_json_change((const char *)bytes + PREFIX_BYTES, header, &random, &changed);
	}
	if (way == 4) /* the next change goes on from here */
		return assemble(bytes, room, &changed, data);
	data = lay_out(changed.p, changed.n, &laid_out);
	return assemble(bytes, room, &laid_out, data);
}
