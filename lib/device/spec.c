/* SPDX-License-Identifier: MIT */
/* lib/device/spec.c - specs as values and as text, and the number of devices they need.
 * The contract is in hoist/device.h.
 *
 * Only "gpu:all" asks for the devices of the machine here; device-spec.c opens devices. */
#include "config.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/error.h"
#include "hoist/compat.h"
#include "hoist/device.h"

static const char *const names[] = {
	[HOIST_SPEC_CPU] = "cpu",
	[HOIST_SPEC_GPU] = "gpu",
	[HOIST_SPEC_CUDA] = "cuda",
	[HOIST_SPEC_HIP] = "hip",
};

int hoist_spec_make(int type, int id, hoist_spec *ret)
{
	if (type < 0 || type >= (int)HOIST__ARRAY_SIZE(names))
		return hoist__fail(-EINVAL, "a spec of type %d; there are 0 (cpu) to %zu (%s)",
				   type, HOIST__ARRAY_SIZE(names) - 1,
				   names[HOIST__ARRAY_SIZE(names) - 1]);
	if (type != HOIST_SPEC_CPU && id < 0)
		return hoist__fail(-EINVAL, "a spec of %s with id %d; ids begin at 0", names[type],
				   id);
	*ret = (hoist_spec){type, id};
	return 0;
}

/* --- text --- */

static bool same(const char *a, const char *b, size_t length, unsigned flags)
{
	return flags & HOIST_SPEC_ANY_CASE ? strncasecmp(a, b, length) == 0
					   : memcmp(a, b, length) == 0;
}

static int parse_type(const char *text, size_t length, unsigned flags, int *ret)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == length && same(text, names[i], length, flags)) {
			*ret = (int)i;
			return 0;
		}
	return -EINVAL;
}

/* No machine has INT_MAX devices, so that a larger number becomes INT_MAX. */
static int parse_id(const char *digits, int *ret)
{
	size_t length = strspn(digits, "0123456789");
	if (length == 0 || digits[length] != '\0')
		return -EINVAL;
	int id = 0;
	for (; *digits != '\0'; digits++)
		if (__builtin_mul_overflow(id, 10, &id) ||
		    __builtin_add_overflow(id, *digits - '0', &id)) {
			id = INT_MAX;
			break;
		}
	*ret = id;
	return 0;
}

int hoist_spec_parse(const char *text, unsigned flags, hoist_spec *ret)
{
	hoist_spec spec = {HOIST_SPEC_CPU, 0};
	size_t length = text != NULL ? strcspn(text, ":") : 0;
	if ((flags & ~HOIST_SPEC_ANY_CASE) != 0)
		return hoist__fail(-EINVAL, "unknown flags %#x for reading a spec", flags);
	int err = length > 0 ? parse_type(text, length, flags, &spec.type) : -EINVAL;
	if (err == 0 && text[length] == ':')
		err = parse_id(text + length + 1, &spec.id);
	else if (spec.type == HOIST_SPEC_CPU)
		spec.id = -1;
	if (err < 0)
		return hoist__fail(err,
				   "\"%.64s\" names no device; say cpu, cuda:N, hip:N or gpu:N, "
				   "where N counts from 0",
				   text != NULL ? text : "");
	*ret = spec;
	return 0;
}

int hoist_spec_format(hoist_spec spec, char *text, size_t bytes)
{
	char made[HOIST_SPEC_BYTES];
	int err = hoist_spec_make(spec.type, spec.id, &spec);
	if (err < 0)
		return err;
	int n = spec.type == HOIST_SPEC_CPU && spec.id == -1
			? snprintf(made, sizeof made, "cpu")
			: snprintf(made, sizeof made, "%s:%d", names[spec.type], spec.id);
	if (bytes <= (size_t)n)
		return hoist__fail(-EINVAL,
				   "%zu bytes for the text of a spec that needs %d; "
				   "HOIST_SPEC_BYTES suffice always",
				   bytes, n + 1);
	memcpy(text, made, (size_t)n + 1);
	return 0;
}

/* --- how many devices --- */

/* @highest is the highest index, -1 for none. */
static int count_for(long highest, int *ret)
{
	if (highest >= INT_MAX)
		return hoist__fail(-EOVERFLOW,
				   "id %ld is the last of more devices than an int counts",
				   highest);
	*ret = highest > 0 ? (int)highest + 1 : 1;
	return 0;
}

int hoist_virtual_count(const hoist_spec *specs, size_t n, int *ret)
{
	long highest = -1;
	for (size_t i = 0; i < n; i++) {
		hoist_spec spec;
		int err = hoist_spec_make(specs[i].type, specs[i].id, &spec);
		if (err < 0)
			return err;
		if (spec.type != HOIST_SPEC_CPU && spec.id > highest)
			highest = spec.id;
	}
	return count_for(highest, ret);
}

/* Narrows [*text, *text + *length) to the part without blanks at its ends. */
static void strip(const char **text, size_t *length)
{
	while (*length > 0 && isspace((unsigned char)**text)) {
		(*text)++;
		(*length)--;
	}
	while (*length > 0 && isspace((unsigned char)(*text)[*length - 1]))
		(*length)--;
}

/* Reads an integer of ASCII digits as Python's int() does.  An integer out of range becomes
 * LONG_MIN or LONG_MAX. */
static bool parse_integer(const char *text, size_t length, long *ret)
{
	bool negative = *text == '-';
	size_t i = *text == '-' || *text == '+';
	bool digit = false; /* the character before was a digit */
	long value = 0;
	for (; i < length; i++) {
		if (text[i] == '_' && digit) {
			digit = false;
			continue;
		}
		digit = text[i] >= '0' && text[i] <= '9';
		if (!digit)
			return false;
		int d = text[i] - '0';
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_sub_overflow(value, d, &value))
			value = LONG_MIN;
	}
	*ret = negative ? value : value == LONG_MIN ? LONG_MAX : -value;
	return digit;
}

static int raise_to_part(const char *word, const char *part, size_t length, long *highest)
{
	long id;
	strip(&part, &length);
	if (length == 0 || (length == 3 && strncasecmp(part, "all", 3) == 0))
		return 0;
	if (!parse_integer(part, length, &id))
		return hoist__fail(
			-EINVAL,
			"\"%.64s\": \"%.*s\" is no number; say gpu:all, or ids with commas "
			"between them, as in gpu:0,3",
			word, (int)(length < 64 ? length : 64), part);
	if (id > *highest)
		*highest = id;
	return 0;
}

/* Words other than "gpu" and "gpu:IDS" name no accelerator and are passed over. */
static int raise_to_word(const char *word, long *highest)
{
	int n = 0;
	int err = 0;
	if (strcmp(word, "gpu") == 0)
		return raise_to_part(word, "0", 1, highest);
	if (strncasecmp(word, "gpu:", 4) != 0)
		return 0;
	if (strcasecmp(word + 4, "all") == 0) {
		err = hoist_accelerator_count(&n);
		if (n - 1 > *highest)
			*highest = n - 1;
		return err;
	}
	for (const char *part = word + 4; err == 0; part++) {
		size_t length = strcspn(part, ",");
		err = raise_to_part(word, part, length, highest);
		part += length;
		if (*part == '\0')
			break;
	}
	return err;
}

int hoist_virtual_count_of(const char *const *words, size_t n, int *ret)
{
	long highest = -1;
	for (size_t i = 0; i < n; i++) {
		if (words[i] == NULL)
			return hoist__fail(-EINVAL, "word %zu of %zu is NULL", i, n);
		int err = raise_to_word(words[i], &highest);
		if (err < 0)
			return err;
	}
	return count_for(highest, ret);
}
