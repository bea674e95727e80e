/* SPDX-License-Identifier: MIT */
/* format/npy-literal.c - reads the header of a .npy: the one Python literal that NumPy writes.
 * The contract is in format/npy.h.
 *
 * No other Python is read.  Keys come in any order.  Spaces are allowed wherever NumPy's writers
 * put them. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "format/npy.h"

struct literal {
	const char *what; /* for messages */
	const char *text;
	size_t n;
	size_t at;
	uint64_t base;
};

static int fail(const struct literal *l, int err, size_t at, const char *format, ...)
	HOIST__PRINTF(4, 5);
static int fail(const struct literal *l, int err, size_t at, const char *format, ...)
{
	char text[384];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	return hoist__fail(err, "%s: %s (byte %llu)", l->what, text,
			   (unsigned long long)(l->base + at));
}

/* Returns the next byte that is not a space, or '\0' at the end. */
static char peek(struct literal *l)
{
	for (; l->at < l->n; l->at++) {
		char c = l->text[l->at];
		if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
			return c;
	}
	return '\0';
}

static bool take(struct literal *l, char c)
{
	if (peek(l) != c || c == '\0')
		return false;
	l->at++;
	return true;
}

static int expect(struct literal *l, char c, const char *where)
{
	if (take(l, c))
		return 0;
	return fail(l, -EBADMSG, l->at, "the header lacks '%c' %s", c, where);
}

static int read_string(struct literal *l, const char *what, const char **ret, size_t *n)
{
	char quote = peek(l);
	if (quote != '\'' && quote != '"')
		return fail(l, -EBADMSG, l->at, "the header has no string for %s", what);
	size_t begin = ++l->at;
	while (l->at < l->n && l->text[l->at] != quote && l->text[l->at] != '\\' &&
	       (unsigned char)l->text[l->at] >= ' ')
		l->at++;
	if (l->at == l->n || l->text[l->at] != quote)
		return fail(l, -EBADMSG, begin - 1, "the string for %s has no plain end", what);
	*ret = l->text + begin;
	*n = l->at++ - begin;
	return 0;
}

/* --- descr --- */

static int fail_dtype(const struct literal *l, size_t at, const char *descr, size_t n,
		      const char *why)
{
	char shown[HOIST__QUOTED_BYTES];
	return fail(l, -ENOTSUP, at, "the dtype %s %s", hoist__quoted(descr, n, shown), why);
}

static hoist_dtype lookup(const char *code)
{
	static const struct {
		const char *code;
		hoist_dtype dtype;
	} known[] = {
		{"b1", HOIST_BOOL}, {"i1", HOIST_I8},	 {"i2", HOIST_I16},	{"i4", HOIST_I32},
		{"i8", HOIST_I64},  {"u1", HOIST_U8},	 {"u2", HOIST_U16},	{"u4", HOIST_U32},
		{"u8", HOIST_U64},  {"f2", HOIST_F16},	 {"f4", HOIST_F32},	{"f8", HOIST_F64},
		{"c8", HOIST_C64},  {"c16", HOIST_C128}, {"f1", HOIST_F8_E5M2},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(known); i++)
		if (strcmp(known[i].code, code) == 0)
			return known[i].dtype;
	return HOIST_DTYPE_INVALID;
}

static const char *why_refused(char kind)
{
	switch (kind) {
	case 'O':
		return "is Python objects, which only Python can read; save numbers";
	case 'S':
	case 'U':
	case 'a':
		return "is text, which no tensor holds";
	case 'M':
	case 'm':
		return "is dates, which no tensor holds; save .view('int64')";
	case 'V':
		return "is raw bytes, which no tensor holds; save .view('uint8') or a dtype of "
		       "ml_dtypes in a safetensors file";
	default:
		return "is none that hoist has";
	}
}

static int read_dtype(struct literal *l, hoist_dtype *ret)
{
	const char *descr;
	size_t n;
	char c = peek(l);
	size_t at = l->at;
	if (c == '[' || c == '(')
		return fail(l, -ENOTSUP, at,
			    "a structured dtype, of several fields; save each field as an array of "
			    "its own");
	int err = read_string(l, "'descr'", &descr, &n);
	char code[32];
	if (err < 0)
		return err;
	if (n == 0 || n >= sizeof code)
		return fail_dtype(l, at, descr, n, "is none that hoist has");
	memcpy(code, descr, n);
	code[n] = '\0';
	char order = strchr("<>|=", code[0]) != NULL ? code[0] : '\0';
	const char *kind = order != '\0' ? code + 1 : code;
	hoist_dtype dtype = lookup(kind);
	/* The name of a dtype, which NumPy reads, too.  Types that hoist packs below a byte are not
	 * packed in NumPy, and are refused. */
	if (dtype == HOIST_DTYPE_INVALID && hoist_dtype_from_numpy(code, &dtype) == 0 &&
	    hoist_dtype_bits(dtype) < 8)
		dtype = HOIST_DTYPE_INVALID;
	/* NumPy writes the bfloat16 of ml_dtypes so: as two bytes without a meaning. */
	if (strcmp(code, "<V2") == 0) {
		*ret = HOIST_BF16;
		return 0;
	}
	if (strcmp(code, "<V1") == 0)
		return fail_dtype(l, at, descr, n,
				  "is what NumPy leaves of any small dtype of ml_dtypes; save "
				  ".view('uint8') or a safetensors file");
	if (dtype == HOIST_DTYPE_INVALID)
		return fail_dtype(l, at, descr, n, why_refused(kind[0]));
	if (order == '>' && hoist_dtype_bits(dtype) > 8)
		return fail_dtype(l, at, descr, n,
				  "is big-endian; save .astype(a.dtype.newbyteorder('<'))");
	*ret = dtype;
	return 0;
}

/* --- fortran_order and shape --- */

static int read_bool(struct literal *l, bool *ret)
{
	(void)peek(l);
	for (int value = 0; value < 2; value++) {
		const char *word = value ? "True" : "False";
		size_t n = strlen(word);
		if (l->n - l->at >= n && memcmp(l->text + l->at, word, n) == 0) {
			l->at += n;
			*ret = value;
			return 0;
		}
	}
	return fail(l, -EBADMSG, l->at, "'fortran_order' is neither True nor False");
}

static int read_extent(struct literal *l, int64_t *ret)
{
	size_t begin = l->at;
	int64_t value = 0;
	while (l->at < l->n && l->text[l->at] >= '0' && l->text[l->at] <= '9')
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, l->text[l->at++] - '0', &value))
			return fail(l, -EBADMSG, begin, "an extent does not fit in 63 bits");
	if (l->at == begin)
		return fail(l, -EBADMSG, begin, "an extent is no number from 0 on");
	if (l->at < l->n && l->text[l->at] == 'L') /* Python 2's long */
		l->at++;
	*ret = value;
	return 0;
}

/* Reads a tuple: (), (n,), (n, m), (n, m,).  (n) is not a tuple. */
static int read_shape(struct literal *l, struct hoist__npy_header *header)
{
	bool comma = true;
	int err = expect(l, '(', "before the shape");
	header->rank = 0;
	while (err == 0 && peek(l) != ')') {
		if (!comma)
			return fail(l, -EBADMSG, l->at, "the shape lacks a comma");
		if (header->rank == HOIST__MAX_RANK)
			return fail(l, -EBADMSG, l->at, "the shape has more than %d axes",
				    HOIST__MAX_RANK);
		err = read_extent(l, &header->shape[header->rank]);
		header->rank++;
		comma = err == 0 && take(l, ',');
	}
	if (err == 0 && header->rank == 1 && !comma)
		return fail(l, -EBADMSG, l->at, "the shape is a number, not a tuple");
	return err == 0 ? expect(l, ')', "behind the shape") : err;
}

/* The keys come in any order, each once.  @seen: as in hoist__npy_literal(). */
static int read_value(struct literal *l, unsigned *seen, struct hoist__npy_header *header)
{
	static const char *const keys[] = {"descr", "fortran_order", "shape"};
	const char *key;
	size_t n;
	(void)peek(l);
	size_t at = l->at;
	char shown[HOIST__QUOTED_BYTES];
	int err = read_string(l, "a key", &key, &n);
	if (err < 0)
		return err;
	unsigned which = 0;
	while (which < 3 && (strlen(keys[which]) != n || memcmp(keys[which], key, n) != 0))
		which++;
	if (which == 3)
		return fail(l, -EBADMSG, at, "the header has the unknown key %s",
			    hoist__quoted(key, n, shown));
	if ((*seen & 1u << which) != 0)
		return fail(l, -EBADMSG, at, "'%s' comes twice", keys[which]);
	*seen |= 1u << which;
	err = expect(l, ':', "behind a key");
	if (err < 0)
		return err;
	if (which == 0)
		return read_dtype(l, &header->dtype);
	return which == 1 ? read_bool(l, &header->fortran_order) : read_shape(l, header);
}

/* `seen` has a bit for each of the three keys. */
int hoist__npy_literal(const char *what, const char *text, size_t bytes, uint64_t base,
		       struct hoist__npy_header *ret)
{
	struct literal l = {.what = what, .text = text, .n = bytes, .base = base};
	unsigned seen = 0;
	bool comma = true;
	int err = expect(&l, '{', "at its beginning");
	while (err == 0 && peek(&l) != '}' && l.at < l.n) {
		if (!comma)
			return fail(&l, -EBADMSG, l.at, "the header lacks a comma");
		err = read_value(&l, &seen, ret);
		comma = err == 0 && take(&l, ',');
	}
	if (err == 0)
		err = expect(&l, '}', "at its end");
	if (err < 0)
		return err;
	if (seen != 7)
		return fail(&l, -EBADMSG, 0, "the header lacks %s",
			    (seen & 1) == 0   ? "'descr'"
			    : (seen & 2) == 0 ? "'fortran_order'"
					      : "'shape'");
	(void)peek(&l);
	return l.at == l.n ? 0 : fail(&l, -EBADMSG, l.at, "something follows the header");
}
