/* SPDX-License-Identifier: MIT */
/* format/pickle-run.c - the instructions of a pickle.
 * The contract is in format/pickle.h.
 *
 * Their numbers are Python's (Lib/pickletools.py describes each); an instruction that has none here
 * is refused.  Containers are changed in place, and the memo refers to the same containers, so that
 * objects that a pickle shares are shared here, too. */
#include "config.h"

#include <string.h>

#include "base/checked.h"
#include "format/little.h"
#include "format/pickle.h"
#include "format/torch.h"

#define SLACK (64 * HOIST__KIB)
#define FIRST_PROTOCOL 2
#define LAST_PROTOCOL 5

/* --- the bytes --- */

const unsigned char *hoist__pickle_take(struct hoist__pickle *p, uint64_t n)
{
	if (n > p->n - p->at) {
		(void)hoist__pickle_fail(p, -EBADMSG,
					 "the pickle is cut short: %llu bytes are wanted, %zu left",
					 (unsigned long long)n, p->n - p->at);
		return NULL;
	}
	const unsigned char *bytes = p->bytes + p->at;
	p->at += (size_t)n;
	return bytes;
}

/* Reads a number of @n little-endian bytes. */
static int take_number(struct hoist__pickle *p, unsigned n, uint64_t *ret)
{
	const unsigned char *bytes = hoist__pickle_take(p, n);
	if (bytes == NULL)
		return -EBADMSG;
	*ret = hoist__little(bytes, n);
	return 0;
}

/* --- the memo --- */

static int memo_number(struct hoist__pickle *p, unsigned n, bool put)
{
	uint64_t at = 0;
	int err = take_number(p, n, &at);
	if (err < 0)
		return err;
	return put ? hoist__pickle_memo_put(p, at) : hoist__pickle_memo_get(p, at);
}

/* --- plain values --- */

static int push_kind(struct hoist__pickle *p, enum hoist__pickle_kind kind)
{
	return hoist__pickle_push(p, (struct hoist__pickle_value){.kind = (uint8_t)kind});
}

static int push_integer(struct hoist__pickle *p, enum hoist__pickle_kind kind, int64_t integer)
{
	return hoist__pickle_push(
		p, (struct hoist__pickle_value){.kind = (uint8_t)kind, .u.integer = integer});
}

/* Pushes a TEXT or BYTES, whose length comes first. */
static int push_text(struct hoist__pickle *p, enum hoist__pickle_kind kind, unsigned length_bytes)
{
	uint64_t n = 0;
	int err = take_number(p, length_bytes, &n);
	const unsigned char *text = err == 0 ? hoist__pickle_take(p, n) : NULL;
	if (text == NULL)
		return -EBADMSG;
	return hoist__pickle_push(p, (struct hoist__pickle_value){.kind = (uint8_t)kind,
								  .n = (uint32_t)n,
								  .u.text = (const char *)text});
}

static int push_number(struct hoist__pickle *p, unsigned bytes)
{
	uint64_t value = 0;
	int err = take_number(p, bytes, &value);
	if (err < 0)
		return err;
	return push_integer(p, HOIST__PICKLE_INT,
			    bytes == 4 ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
}

/* Reads a number in two's complement, of as many bytes as it needs. */
static int push_long(struct hoist__pickle *p, unsigned length_bytes)
{
	uint64_t n = 0;
	int err = take_number(p, length_bytes, &n);
	const unsigned char *bytes = err == 0 ? hoist__pickle_take(p, n) : NULL;
	if (bytes == NULL)
		return -EBADMSG;
	if (n > 8)
		return push_kind(p, HOIST__PICKLE_OTHER);
	uint64_t value = hoist__little(bytes, (unsigned)n);
	if (n > 0 && n < 8 && (bytes[n - 1] & 0x80) != 0)
		value |= UINT64_MAX << (8 * n);
	return push_integer(p, HOIST__PICKLE_INT, (int64_t)value);
}

/* The number is big-endian, unlike all others. */
static int push_float(struct hoist__pickle *p)
{
	const unsigned char *bytes = hoist__pickle_take(p, 8);
	if (bytes == NULL)
		return -EBADMSG;
	uint64_t pattern = 0;
	for (int i = 0; i < 8; i++)
		pattern = pattern << 8 | bytes[i];
	struct hoist__pickle_value value = {.kind = HOIST__PICKLE_FLOAT, .dtype = HOIST_F64};
	memcpy(&value.u.real, &pattern, sizeof pattern);
	return hoist__pickle_push(p, value);
}

/* --- containers --- */

static int push_object(struct hoist__pickle *p, enum hoist__pickle_kind kind)
{
	struct hoist__pickle_value value;
	int err = hoist__pickle_object(p, kind, &value);
	return err == 0 ? hoist__pickle_push(p, value) : err;
}

/* Makes the last @n values a tuple; a mark below them is removed, too. */
static int make_tuple(struct hoist__pickle *p, size_t n, bool marked)
{
	struct hoist__pickle_value tuple = {.kind = HOIST__PICKLE_TUPLE};
	int err = n > 0 ? hoist__pickle_object(p, HOIST__PICKLE_TUPLE, &tuple) : 0;
	if (err == 0 && n > 0)
		err = hoist__pickle_append(p, tuple.u.object, p->stack + p->depth - n, n);
	if (err < 0)
		return err;
	p->depth -= n + marked;
	return hoist__pickle_push(p, tuple);
}

static int tuple_of(struct hoist__pickle *p, size_t n)
{
	int err = hoist__pickle_need(p, n);
	return err == 0 ? make_tuple(p, n, false) : err;
}

static int tuple_to_mark(struct hoist__pickle *p)
{
	size_t n = 0;
	int err = hoist__pickle_to_mark(p, 0, &n);
	return err == 0 ? make_tuple(p, n, true) : err;
}

/* Puts the last @n values into the container below them, which must be of @kind, or opaque: of an
 * opaque list the items are not kept, since only its class knows what they are. */
static int add_items(struct hoist__pickle *p, size_t n, bool marked, enum hoist__pickle_kind kind)
{
	struct hoist__pickle_value *to = &p->stack[p->depth - 1 - n - marked];
	bool opaque = to->kind == HOIST__PICKLE_OPAQUE;
	if (to->kind != kind && !opaque)
		return hoist__pickle_fail(p, -EBADMSG, "items are added to a value that is no %s",
					  kind == HOIST__PICKLE_LIST ? "list" : "dict");
	if (kind == HOIST__PICKLE_DICT && n % 2 != 0)
		return hoist__pickle_fail(p, -EBADMSG, "a dict gets a key without a value");
	struct hoist__pickle_object *object = opaque ? &to->u.opaque->state : to->u.object;
	int err = 0;
	if (!opaque || kind == HOIST__PICKLE_DICT)
		err = hoist__pickle_append(p, object, p->stack + p->depth - n, n);
	if (err == 0)
		p->depth -= n + marked;
	return err;
}

static int add_last(struct hoist__pickle *p, size_t n, enum hoist__pickle_kind kind)
{
	int err = hoist__pickle_need(p, n + 1);
	return err == 0 ? add_items(p, n, false, kind) : err;
}

static int add_to_mark(struct hoist__pickle *p, enum hoist__pickle_kind kind)
{
	size_t n = 0;
	int err = hoist__pickle_to_mark(p, 1, &n);
	return err == 0 ? add_items(p, n, true, kind) : err;
}

/* --- the machine --- */

static int protocol(struct hoist__pickle *p)
{
	uint64_t version = 0;
	int err = take_number(p, 1, &version);
	if (err == 0 && (version < FIRST_PROTOCOL || version > LAST_PROTOCOL))
		err = hoist__pickle_fail(p, -ENOTSUP,
					 "pickle protocol %llu; torch.save writes %d, and up to %d "
					 "is read",
					 (unsigned long long)version, FIRST_PROTOCOL,
					 LAST_PROTOCOL);
	return err;
}

/* Reads how many bytes follow, which a reader may fetch at once. */
static int frame(struct hoist__pickle *p)
{
	uint64_t n = 0;
	int err = take_number(p, 8, &n);
	if (err == 0 && n > p->n - p->at)
		err = hoist__pickle_fail(p, -EBADMSG,
					 "the pickle is cut short: a frame of %llu bytes, %zu left",
					 (unsigned long long)n, p->n - p->at);
	return err;
}

/* Instructions that pickles of other objects often have are named, so that the message explains
 * more than a number. */
static int unknown(struct hoist__pickle *p, unsigned op)
{
	static const struct {
		unsigned char op;
		const char *name;
	} named[] = {
		{'i', " (INST)"},  {'o', " (OBJ)"},
		{0x82, " (EXT1)"}, {0x83, " (EXT2)"},
		{0x84, " (EXT4)"}, {'P', " (PERSID)"},
		{'0', " (POP)"},   {'1', " (POP_MARK)"},
		{'2', " (DUP)"},   {'U', " (a string of Python 2)"},
	};
	const char *name = "";
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(named); i++)
		if (named[i].op == op)
			name = named[i].name;
	return hoist__pickle_fail(
		p, -ENOTSUP,
		"the pickle has the instruction 0x%02x%s, which tensors and plain "
		"values do not need, and hoist executes no code; save "
		"model.state_dict() with torch.save, or a safetensors file",
		op, name);
}

/* The instructions are in four switches.  step() hands an instruction that it does not have to
 * hoist__pickle_make(), step_container() and step_value(), which refuses the rest. */
static int step_value(struct hoist__pickle *p, unsigned op)
{
	switch (op) {
	case '(':
		return push_kind(p, HOIST__PICKLE_MARK);
	case 'N':
		return push_kind(p, HOIST__PICKLE_NONE);
	case 0x88:
	case 0x89:
		return push_integer(p, HOIST__PICKLE_BOOL, op == 0x88);
	case 'J':
		return push_number(p, 4);
	case 'K':
		return push_number(p, 1);
	case 'M':
		return push_number(p, 2);
	case 0x8a:
		return push_long(p, 1);
	case 0x8b:
		return push_long(p, 4);
	case 'G':
		return push_float(p);
	case 'X':
		return push_text(p, HOIST__PICKLE_TEXT, 4);
	case 0x8c:
		return push_text(p, HOIST__PICKLE_TEXT, 1);
	case 0x8d:
		return push_text(p, HOIST__PICKLE_TEXT, 8);
	case 'C':
		return push_text(p, HOIST__PICKLE_BYTES, 1);
	case 'B':
		return push_text(p, HOIST__PICKLE_BYTES, 4);
	case 0x8e:
	case 0x96:
		return push_text(p, HOIST__PICKLE_BYTES, 8);
	default:
		return unknown(p, op);
	}
}

static int step_container(struct hoist__pickle *p, unsigned op)
{
	switch (op) {
	case '}':
		return push_object(p, HOIST__PICKLE_DICT);
	case ']':
		return push_object(p, HOIST__PICKLE_LIST);
	case ')':
		return push_kind(p, HOIST__PICKLE_TUPLE);
	case 't':
		return tuple_to_mark(p);
	case 0x85:
	case 0x86:
	case 0x87:
		return tuple_of(p, op - 0x84);
	case 'a':
		return add_last(p, 1, HOIST__PICKLE_LIST);
	case 'e':
		return add_to_mark(p, HOIST__PICKLE_LIST);
	case 's':
		return add_last(p, 2, HOIST__PICKLE_DICT);
	case 'u':
		return add_to_mark(p, HOIST__PICKLE_DICT);
	default:
		return step_value(p, op);
	}
}

static int step(struct hoist__pickle *p, unsigned op)
{
	switch (op) {
	case 0x80:
		return protocol(p);
	case 0x95:
		return frame(p);
	case 'q':
		return memo_number(p, 1, true);
	case 'r':
		return memo_number(p, 4, true);
	case 0x94:
		return hoist__pickle_memo_put(p, p->n_memo);
	case 'h':
		return memo_number(p, 1, false);
	case 'j':
		return memo_number(p, 4, false);
	default:
		break;
	}
	int err = hoist__pickle_make(p, op);
	return err == 1 ? step_container(p, op) : err;
}

int hoist__pickle_run(struct hoist__pickle *p, struct hoist__pickle_value *ret)
{
	int err = 0;
	p->left = HOIST__PICKLE_FACTOR * (uint64_t)p->n + SLACK;
	while (err == 0) {
		p->op_at = p->at;
		const unsigned char *op = hoist__pickle_take(p, 1);
		if (op == NULL)
			return -EBADMSG;
		if (*op == '.')
			break;
		err = step(p, *op);
	}
	if (err < 0)
		return err;
	if (p->depth != 1 || p->stack[0].kind == HOIST__PICKLE_MARK || p->at < p->n)
		return hoist__pickle_fail(p, -EBADMSG,
					  "the pickle ends with %zu values on its stack and %zu "
					  "bytes behind it, not one and none",
					  p->depth, p->n - p->at);
	*ret = p->stack[0];
	return 0;
}
