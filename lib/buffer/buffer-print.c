/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-print.c - hoist_buffer_describe(): buffers as text.
 * The contract is in hoist/element.h.
 *
 * The numbers to show are read first, in C order, into memory of our own.  If the CPU cannot touch
 * the buffer, they are read through a window of some KiB: a small buffer is read at once, a large
 * one only near its edges.  Then the numbers are measured, and written. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hoist/element.h"
#include "hoist/number.h"
#include "lib/buffer/buffer-item.h"

#define SHOWN_WHOLE 1000 /* elements; a larger buffer's axes are cut */
#define SHOWN_MOST 10000 /* if the cut buffer has more, the edges become shorter */
#define EDGE 3
#define WINDOW_BYTES ((size_t)16 << 10)

static const char prefix[] = "hoist.Buffer(";

/* --- text that may be cut --- */

struct text {
	char *text;
	size_t bytes;
	size_t length; /* of the whole text, whether it fits or not */
};

static void append(struct text *out, const char *more, size_t n)
{
	if (out->length < out->bytes) {
		size_t room = out->bytes - out->length - 1;
		size_t fits = n < room ? n : room;
		memcpy(out->text + out->length, more, fits);
		out->text[out->length + fits] = '\0';
	}
	out->length += n;
}

static void append_string(struct text *out, const char *more)
{
	append(out, more, strlen(more));
}

static void append_repeated(struct text *out, char c, size_t n)
{
	for (; n > 0; n--)
		append(out, &c, 1);
}

/* Appends the numbers as Python writes a tuple. */
static void append_tuple(struct text *out, int n, const int64_t *values)
{
	char number[HOIST__NUMBER_TEXT];
	append_string(out, "(");
	for (int i = 0; i < n; i++) {
		size_t length = hoist__number_text(hoist_number_i64(values[i]), HOIST_I64, number);
		append_string(out, i > 0 ? ", " : "");
		append(out, number, length);
	}
	append_string(out, n == 1 ? ",)" : ")");
}

/* --- the elements that are shown --- */

struct shown {
	int rank;
	uint64_t elements;
	int64_t edge; /* elements on either side of "..." */
	int64_t extents[HOIST_MAX_RANK];
	int64_t counts[HOIST_MAX_RANK]; /* elements shown of each axis; fewer than the extent if the
					 * axis is cut */
};

/* Cuts each axis that is longer than twice @edge.
 * Returns: how many elements are shown. */
static uint64_t cut(struct shown *shown, int64_t edge)
{
	uint64_t n = 1;
	shown->edge = edge;
	for (int i = 0; i < shown->rank; i++) {
		int64_t extent = shown->extents[i];
		shown->counts[i] = extent > 2 * edge ? 2 * edge : extent;
		if (__builtin_mul_overflow(n, (uint64_t)shown->counts[i], &n))
			n = UINT64_MAX;
	}
	return n;
}

static struct shown choose(const hoist_buffer *buffer)
{
	struct shown shown = {.rank = buffer->rank, .elements = buffer->elements};
	for (int i = 0; i < buffer->rank; i++)
		shown.extents[i] = buffer->dims[i];
	if (shown.elements <= SHOWN_WHOLE) {
		cut(&shown, INT64_MAX / 2);
		return shown;
	}
	int64_t edge = EDGE;
	for (shown.elements = cut(&shown, edge); shown.elements > SHOWN_MOST && edge > 0;)
		shown.elements = cut(&shown, --edge);
	return shown;
}

/* --- reading --- */

struct reader {
	const hoist_buffer *buffer;
	const struct hoist__dtype_info *info;
	const unsigned char *bytes; /* bytes [begin, end), counted from the first element's byte */
	unsigned char *window;	    /* NULL: `bytes` are the buffer's own, all of them */
	int64_t begin, end;
	int64_t low, high; /* the bytes that the elements cover */
};

static void cover(struct reader *reader)
{
	const hoist_buffer *buffer = reader->buffer;
	int64_t low = 0;
	int64_t high = 0;
	for (int i = 0; i < buffer->rank; i++) {
		int64_t far = (buffer->dims[i] - 1) * buffer->strides[i];
		low += far < 0 ? far : 0;
		high += far > 0 ? far : 0;
	}
	int64_t last = hoist__place_of(buffer, reader->info, high) + (int64_t)reader->info->bits;
	reader->low = hoist__place_byte(hoist__place_of(buffer, reader->info, low));
	reader->high = hoist__place_byte(last + 7);
}

/* Pre: the buffer has elements, and is settled. */
static int open_reader(struct reader *reader)
{
	cover(reader);
	const struct hoist__span first = hoist__buffer_span(reader->buffer, 0);
	if (first.kind == HOIST__MEMORY_HOST) {
		reader->bytes = (const unsigned char *)first.address + reader->low;
		reader->begin = reader->low;
		reader->end = reader->high;
		return 0;
	}
	size_t room = (size_t)(reader->high - reader->low);
	if (room > WINDOW_BYTES)
		room = WINDOW_BYTES;
	reader->window = malloc(room);
	reader->bytes = reader->window;
	return reader->window != NULL ? 0 : hoist__fail_nomem("a window onto a buffer", room);
}

/* Moves the window over bytes [begin, end).  A window that moves forward begins with these bytes;
 * one that moves back ends with them, so that the next steps in either direction are covered. */
static int move(struct reader *reader, int64_t begin, int64_t end)
{
	int64_t most = (int64_t)WINDOW_BYTES;
	if (begin >= reader->begin)
		end = reader->high - begin > most ? begin + most : reader->high;
	else
		begin = end - reader->low > most ? end - most : reader->low;
	int err = hoist__buffer_peek(reader->buffer, begin, reader->window, (size_t)(end - begin));
	reader->begin = err < 0 ? 0 : begin;
	reader->end = err < 0 ? 0 : end;
	return err;
}

static int read_element(struct reader *reader, int64_t element, hoist_number *ret)
{
	int64_t place = hoist__place_of(reader->buffer, reader->info, element);
	unsigned bit = hoist__place_bit(place);
	int64_t begin = hoist__place_byte(place);
	int64_t end = begin + (int64_t)hoist__number_span(reader->info, bit);
	int err = 0;
	if (begin < reader->begin || end > reader->end)
		err = move(reader, begin, end);
	if (err == 0)
		*ret = hoist__number_load(reader->info, reader->bytes + (begin - reader->begin),
					  bit);
	return err;
}

/* Returns the index on the axis of the @i-th element that is shown. */
static int64_t index_of(const struct shown *shown, int axis, int64_t i)
{
	int64_t hidden = shown->extents[axis] - shown->counts[axis];
	return hidden > 0 && i >= shown->edge ? i + hidden : i;
}

static int read_shown(struct reader *reader, const struct shown *shown, hoist_number *numbers)
{
	int64_t at[HOIST_MAX_RANK] = {0};
	int err = 0;
	for (uint64_t k = 0; k < shown->elements && err == 0; k++) {
		int64_t element = 0;
		for (int i = 0; i < shown->rank; i++)
			element += index_of(shown, i, at[i]) * reader->buffer->strides[i];
		err = read_element(reader, element, &numbers[k]);
		for (int i = shown->rank - 1; i >= 0 && ++at[i] == shown->counts[i]; i--)
			at[i] = 0;
	}
	return err;
}

/* *ret is NULL if nothing is shown; otherwise the caller frees it. */
static int read_numbers(hoist_buffer *buffer, const struct hoist__dtype_info *info,
			const struct shown *shown, hoist_number **ret)
{
	struct reader reader = {.buffer = buffer, .info = info};
	hoist_number *numbers = NULL;
	if (shown->elements > 0) {
		size_t bytes = (size_t)shown->elements * sizeof *numbers;
		numbers = malloc(bytes);
		if (numbers == NULL)
			return hoist__fail_nomem("the numbers to print", bytes);
		int err = hoist__buffer_settle(buffer);
		if (err == 0)
			err = open_reader(&reader);
		if (err == 0)
			err = read_shown(&reader, shown, numbers);
		free(reader.window);
		if (err < 0) {
			free(numbers);
			return err;
		}
	}
	*ret = numbers;
	return 0;
}

/* --- writing --- */

struct printer {
	struct text *out;
	const struct shown *shown;
	hoist_dtype dtype;
	const hoist_number *next;
	size_t width; /* of each number; 0 if there are no columns */
};

static size_t widest(const struct shown *shown, hoist_dtype dtype, const hoist_number *numbers)
{
	char text[HOIST__NUMBER_TEXT];
	size_t width = 0;
	for (uint64_t i = 0; i < shown->elements; i++) {
		size_t n = hoist__number_text(numbers[i], dtype, text);
		width = n > width ? n : width;
	}
	return width;
}

static void print_number(struct printer *printer)
{
	char text[HOIST__NUMBER_TEXT];
	size_t n = hoist__number_text(*printer->next++, printer->dtype, text);
	append_repeated(printer->out, ' ', printer->width > n ? printer->width - n : 0);
	append(printer->out, text, n);
}

/* Separates two elements of @axis: rows of a matrix by a line break, the parts of a larger axis by
 * more. */
static void print_separator(const struct printer *printer, int axis)
{
	int inner = printer->shown->rank - 1 - axis;
	append_string(printer->out, inner == 0 ? ", " : ",");
	if (inner > 0) {
		append_repeated(printer->out, '\n', (size_t)inner);
		append_repeated(printer->out, ' ', strlen(prefix) + (size_t)axis + 1);
	}
}

/* Recursion goes at most 64 deep, one level for each axis. */
static void print_axis(struct printer *printer, int axis)
{
	const struct shown *shown = printer->shown;
	if (axis == shown->rank) {
		print_number(printer);
		return;
	}
	bool is_cut = shown->counts[axis] < shown->extents[axis];
	append_string(printer->out, "[");
	for (int64_t i = 0; i < shown->counts[axis]; i++) {
		if (i > 0)
			print_separator(printer, axis);
		if (is_cut && i == shown->edge) {
			append_string(printer->out, "...");
			print_separator(printer, axis);
		}
		print_axis(printer, axis + 1);
	}
	append_string(printer->out, is_cut && shown->edge == 0 ? "...]" : "]");
}

static int append_values(struct text *out, hoist_buffer *buffer)
{
	const struct hoist__dtype_info *info;
	hoist_number *numbers = NULL;
	int err = hoist__buffer_check_elements(buffer, "the buffer to print", &info);
	if (err < 0)
		return err;
	const struct shown shown = choose(buffer);
	err = read_numbers(buffer, info, &shown, &numbers);
	if (err < 0)
		return err;
	struct printer printer = {out, &shown, buffer->dtype, numbers, 0};
	if (shown.rank > 1)
		printer.width = widest(&shown, buffer->dtype, numbers);
	append_string(out, prefix);
	if (buffer->elements == 0)
		append_string(out, "[]");
	else
		print_axis(&printer, 0);
	append_string(out, ", ");
	free(numbers);
	return 0;
}

static void append_facts(struct text *out, const hoist_buffer *buffer)
{
	append_string(out, "dtype=");
	append_string(out, hoist_dtype_name(buffer->dtype));
	append_string(out, ", shape=");
	append_tuple(out, buffer->rank, buffer->dims);
	append_string(out, ", device=");
	append_string(out, hoist_device_spec(buffer->device));
	if (!buffer->contiguous) {
		append_string(out, ", strides=");
		append_tuple(out, buffer->rank, buffer->strides);
	}
	if (buffer->storage == NULL) {
		append_string(out, ", closed");
	} else {
		if (hoist_buffer_is_pinned(buffer))
			append_string(out, ", pinned");
		if (buffer->read_only || hoist__storage_is_read_only(buffer->storage))
			append_string(out, ", read-only");
	}
	append_string(out, ")");
}

int64_t hoist_buffer_describe(hoist_buffer *buffer, unsigned flags, char *text, size_t bytes)
{
	struct text out = {text, bytes, 0};
	int err = 0;
	if (buffer == NULL)
		return hoist__buffer_check(buffer, "the buffer to describe");
	if ((flags & ~HOIST_DESCRIBE_VALUES) != 0)
		return hoist__fail(-EINVAL, "0x%x are no flags of describing a buffer", flags);
	if (text == NULL && bytes > 0)
		return hoist__fail(-EINVAL, "the memory for %zu bytes of text is NULL", bytes);
	if (flags & HOIST_DESCRIBE_VALUES)
		err = append_values(&out, buffer);
	else
		append_string(&out, prefix);
	if (err < 0)
		return err;
	append_facts(&out, buffer);
	return (int64_t)out.length;
}
