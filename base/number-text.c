/* SPDX-License-Identifier: MIT */
/* base/number-text.c - writes numbers in the fewest digits that identify the element.
 * The contract is in base/number.h. */
#include "config.h"

#include "base/number.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minifloat.h"
#include "hoist/number.h"

/* 17 digits tell all doubles apart. */
#define MOST_DIGITS 17
/* Exponents from here on, and those below -4, are written as exponents: as Python's repr() does. */
#define POSITIONAL 16

struct decimal {
	char digits[MOST_DIGITS + 1]; /* digits without the point; no zeros at the end */
	int n;
	int exponent; /* power of ten of the first digit */
};

/* Parses the output of printf's %e, whatever its decimal point is. */
static struct decimal parse(const char *text)
{
	struct decimal decimal = {"", 0, 0};
	for (; *text != 'e' && *text != '\0'; text++)
		if (*text >= '0' && *text <= '9' && decimal.n < MOST_DIGITS)
			decimal.digits[decimal.n++] = *text;
	if (*text == 'e')
		decimal.exponent = (int)strtol(text + 1, NULL, 10);
	while (decimal.n > 1 && decimal.digits[decimal.n - 1] == '0')
		decimal.n--;
	decimal.digits[decimal.n] = '\0';
	return decimal;
}

/* Finds the fewest digits that read back as @value, which is positive and a value of the format.
 * All digits before the point are kept: 448 stays 448 in f8_e4m3fn, too, where 450 is the same
 * element. */
static struct decimal shortest(double value, const struct hoist__minifloat *format)
{
	char text[48];
	uint64_t code = hoist__minifloat_encode(format, hoist__real_of(value), 0);
	snprintf(text, sizeof text, "%.*e", MOST_DIGITS - 1, value);
	int exponent = parse(text).exponent;
	int least = exponent >= 0 && exponent < POSITIONAL ? exponent + 1 : 1;
	for (int digits = least; digits <= MOST_DIGITS; digits++) {
		snprintf(text, sizeof text, "%.*e", digits - 1, value);
		/* Printing and reading both use the locale's decimal point. */
		struct hoist__real read = hoist__real_of(strtod(text, NULL));
		if (hoist__minifloat_encode(format, read, 0) == code)
			break;
	}
	return parse(text);
}

static size_t append(char *text, size_t at, const char *more, size_t n)
{
	memcpy(text + at, more, n);
	text[at + n] = '\0';
	return at + n;
}

static size_t append_zeros(char *text, size_t at, int n)
{
	for (; n > 0; n--)
		at = append(text, at, "0", 1);
	return at;
}

static size_t append_scientific(char *text, size_t at, const struct decimal *d)
{
	char exponent[8];
	at = append(text, at, d->digits, 1);
	if (d->n > 1) {
		at = append(text, at, ".", 1);
		at = append(text, at, d->digits + 1, (size_t)d->n - 1);
	}
	int n = snprintf(exponent, sizeof exponent, "e%+03d", d->exponent);
	return append(text, at, exponent, (size_t)n);
}

/* Writes a float as Python's repr() does, in the fewest digits that tell @value from the other
 * values of @f. */
static size_t append_float(char *text, size_t at, double value, const struct hoist__minifloat *f)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	if (value != value)
		return append(text, at, "nan", 3);
	if (bits >> 63 != 0) {
		at = append(text, at, "-", 1);
		value = -value;
	}
	if (value == 0)
		return append(text, at, "0.0", 3);
	if (hoist__real_of(value).kind == HOIST__REAL_INFINITE)
		return append(text, at, "inf", 3);
	struct decimal d = shortest(value, f);
	if (d.exponent < -4 || d.exponent >= POSITIONAL)
		return append_scientific(text, at, &d);
	if (d.exponent < 0) {
		at = append(text, at, "0.", 2);
		at = append_zeros(text, at, -d.exponent - 1);
		return append(text, at, d.digits, (size_t)d.n);
	}
	int whole = d.exponent + 1; /* digits before the point */
	int given = d.n < whole ? d.n : whole;
	at = append(text, at, d.digits, (size_t)given);
	at = append_zeros(text, at, whole - given);
	at = append(text, at, ".", 1);
	return d.n > given ? append(text, at, d.digits + given, (size_t)(d.n - given))
			   : append(text, at, "0", 1);
}

size_t hoist__number_text(hoist_number number, hoist_dtype dtype, char text[HOIST__NUMBER_TEXT])
{
	const struct hoist__minifloat *format = hoist__minifloat_of(dtype);
	char imaginary[HOIST__NUMBER_TEXT / 2];
	size_t at, n;
	switch (number.kind) {
	case HOIST_NUMBER_BOOL:
		return append(text, 0, number.as.i64 ? "True" : "False", number.as.i64 ? 4 : 5);
	case HOIST_NUMBER_I64:
		return (size_t)snprintf(text, HOIST__NUMBER_TEXT, "%lld", (long long)number.as.i64);
	case HOIST_NUMBER_U64:
		return (size_t)snprintf(text, HOIST__NUMBER_TEXT, "%llu",
					(unsigned long long)number.as.u64);
	case HOIST_NUMBER_F64:
		return append_float(text, 0, number.as.f64, format);
	case HOIST_NUMBER_C128:
		at = append_float(text, 0, number.as.c128.re, format);
		n = append_float(imaginary, 0, number.as.c128.im, format);
		/* Python writes complex numbers so, but in brackets. */
		if (imaginary[0] != '-')
			at = append(text, at, "+", 1);
		at = append(text, at, imaginary, n);
		return append(text, at, "j", 1);
	}
	return append(text, 0, "?", 1);
}
