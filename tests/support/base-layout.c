/* SPDX-License-Identifier: MIT */
/* Reads layouts and steps in words, and takes the steps with the public functions. */
#include "config.h"

#include "tests/support/base-layout.h"
#include "hoist/layout.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For texts that the tests themselves got wrong. */
static void stop(const char *what, const char *text)
{
	fprintf(stderr, "the test's own text is wrong: %s: \"%s\"\n", what, text);
	abort();
}

int read_list(const char *text, int64_t *ret)
{
	int n = 0;
	while (*text == ' ')
		text++;
	if (*text == '-' && (text[1] < '0' || text[1] > '9'))
		return 0;
	for (;;) {
		char *end;
		ret[n++] = strtoll(text, &end, 10);
		if (end == text)
			stop("a number", text);
		if (*end != ',')
			return n;
		text = end + 1;
	}
}

static int read_axes(const char *text, int *ret)
{
	int64_t wide[HOIST_MAX_RANK];
	int n = read_list(text, wide);
	for (int i = 0; i < n; i++)
		ret[i] = (int)wide[i];
	return n;
}

static hoist_order read_order(const char *text, int *axes)
{
	switch (*text) {
	case 'C':
		return HOIST_ORDER_C;
	case 'F':
		return HOIST_ORDER_F;
	case 'K':
		return HOIST_ORDER_K;
	case 'X':
		return (hoist_order)99;
	default:
		read_axes(text, axes);
		return HOIST_ORDER_AXES;
	}
}

hoist_layout read_layout(const char *text, int64_t itemsize)
{
	hoist_layout made;
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK];
	int axes[HOIST_MAX_RANK];
	const char *second = strrchr(text, ' ');
	if (second == NULL)
		stop("a layout", text);
	int rank = read_list(second, shape);
	int err;
	if (strncmp(text, "implicit ", 9) == 0) {
		err = hoist_layout_make(rank, shape, NULL, itemsize, HOIST_STRIDES_IN_ITEMS, &made);
	} else if (strncmp(text, "strides ", 8) == 0) {
		read_list(text + 8, strides);
		err = hoist_layout_make(rank, shape, strides, itemsize, HOIST_STRIDES_IN_ITEMS,
					&made);
	} else {
		hoist_order order = read_order(text, axes);
		err = hoist_layout_dense(rank, shape, itemsize, order, axes, &made);
	}
	if (err < 0)
		stop(hoist_error(), text);
	return made;
}

/* A bound of a range, or nothing. */
static int64_t read_bound(const char **text)
{
	char *end;
	int64_t value = strtoll(*text, &end, 10);
	if (end == *text)
		value = HOIST_NONE;
	*text = end;
	return value;
}

/* "1:-1, ::-1, 0]" */
static int slice(const char *text, hoist_layout *layout)
{
	hoist_slice slices[HOIST_MAX_RANK + 1];
	int n = 0;
	while (*text != ']') {
		hoist_slice one = {read_bound(&text), HOIST_NONE, 1, 1};
		if (*text == ':') {
			text++;
			one.is_index = 0;
			one.stop = read_bound(&text);
		}
		if (*text == ':') {
			text++;
			one.step = read_bound(&text);
		}
		slices[n++] = one;
		text += strspn(text, ", ");
		if (*text == '\0')
			stop("a slice", "no ]");
	}
	return hoist_layout_slice(layout, n, slices, layout);
}

static int repack(const char *text, hoist_layout *layout)
{
	int64_t with[4] = {0, -1, 1, 0};
	read_list(text, with);
	return hoist_layout_repack(layout, with[0], (uintptr_t)with[3], (int)with[1], (int)with[2],
				   layout);
}

static int to_dense(const char *text, hoist_layout *layout)
{
	int axes[HOIST_MAX_RANK];
	hoist_order order = read_order(text, axes);
	int err = hoist_layout_to_dense(layout, order, axes, layout);
	return err < 0 ? err : 0;
}

static bool is_step(const char *text, const char *name, const char **rest)
{
	size_t n = strlen(name);
	*rest = text + n;
	return strncmp(text, name, n) == 0;
}

static int do_step(const char *text, hoist_layout *layout)
{
	int64_t list[HOIST_MAX_RANK];
	int axes[HOIST_MAX_RANK];
	const char *rest;
	if (is_step(text, "[", &rest))
		return slice(rest, layout);
	if (is_step(text, "permute ", &rest)) {
		int n = read_axes(rest, axes);
		return hoist_layout_permute(layout, n, axes, layout);
	}
	if (is_step(text, "reshape ", &rest)) {
		int n = read_list(rest, list);
		return hoist_layout_reshape(layout, n, list, layout);
	}
	if (is_step(text, "broadcast ", &rest)) {
		int n = read_list(rest, list);
		return hoist_layout_broadcast(layout, n, list, layout);
	}
	if (is_step(text, "flatten ", &rest)) {
		read_axes(rest, axes);
		return hoist_layout_flatten(layout, axes[0], axes[1], HOIST_MERGE_ALL, layout);
	}
	if (is_step(text, "mask ", &rest)) {
		read_list(rest, list);
		return hoist_layout_flatten(layout, 0, -1, (uint64_t)list[0], layout);
	}
	if (is_step(text, "unsqueeze ", &rest)) {
		int n = read_axes(rest, axes);
		return hoist_layout_unsqueeze(layout, n, axes, layout);
	}
	if (is_step(text, "squeeze", &rest))
		return hoist_layout_squeeze(layout, layout);
	if (is_step(text, "repack ", &rest))
		return repack(rest, layout);
	if (is_step(text, "dense ", &rest))
		return to_dense(rest, layout);
	stop("a step", text);
	return 0;
}

int do_steps(const char *steps, hoist_layout *layout)
{
	while (*steps != '\0') {
		int err = do_step(steps, layout);
		if (err < 0)
			return err;
		steps += strcspn(steps, ";");
		steps += strspn(steps, "; ");
	}
	return 0;
}

static size_t write_list(const int64_t *list, int n, char *text, size_t bytes)
{
	size_t at = (size_t)snprintf(text, bytes, "(");
	for (int i = 0; i < n && at < bytes; i++)
		at += (size_t)snprintf(text + at, bytes - at, "%s%lld", i > 0 ? "," : "",
				       (long long)list[i]);
	if (at < bytes)
		at += (size_t)snprintf(text + at, bytes - at, ")");
	return at;
}

const char *write_layout(const hoist_layout *layout, char *text, size_t bytes)
{
	size_t at = 0;
	if (layout->implicit) {
		at = (size_t)snprintf(text, bytes, "implicit ");
		write_list(layout->shape, layout->rank, text + at, bytes - at);
		return text;
	}
	at = write_list(layout->shape, layout->rank, text, bytes);
	if (at < bytes)
		at += (size_t)snprintf(text + at, bytes - at, "/");
	if (at < bytes)
		at += write_list(layout->strides, layout->rank, text + at, bytes - at);
	if (at < bytes)
		snprintf(text + at, bytes - at, "@%lld", (long long)layout->offset);
	return text;
}
