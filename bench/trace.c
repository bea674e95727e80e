/* SPDX-License-Identifier: MIT */
/* A recorded sequence of allocations and frees, read from CSV.  The contract is in trace.h. */
#include "config.h"

#include "bench/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fail.h"

#define HEADER "Thread,Time,Action,Pointer,Size,Stream"
#define N_COLUMNS 6

enum { COLUMN_THREAD, COLUMN_TIME, COLUMN_ACTION, COLUMN_POINTER, COLUMN_SIZE, COLUMN_STREAM };

/* Maps the numbers of the file to indices from 0, in the order of their appearance. */
struct ids {
	uint64_t *values;
	uint32_t n;
};

/* A block that is live at this point of the file; in a tree by pointer. */
struct live {
	uint64_t pointer;
	uint32_t block;
	size_t bytes;
};

struct reader {
	const char *path;
	size_t line;
	struct trace trace;
	struct ids threads;
	struct ids streams;
	void *live; /* tsearch() */
	uint64_t live_bytes;
	uint64_t peak_bytes;
};

static int malformed(const struct reader *reader, const char *why, const char *text)
{
	return fail("%s, line %zu: %s%s", reader->path, reader->line, why, text);
}

static int compare_live(const void *a, const void *b)
{
	const struct live *x = a;
	const struct live *y = b;
	return (x->pointer > y->pointer) - (x->pointer < y->pointer);
}

/* The index of @value, a new one if need be.  Traces have few values, and the latest is the
 * likeliest. */
static int index_of(struct ids *ids, uint64_t value, uint32_t *ret)
{
	for (uint32_t i = ids->n; i-- > 0;) {
		if (ids->values[i] == value) {
			*ret = i;
			return STATUS_OK;
		}
	}
	uint64_t *values = reallocarray(ids->values, (size_t)ids->n + 1, sizeof *values);
	if (values == NULL)
		return fail_memory();
	ids->values = values;
	values[ids->n] = value;
	*ret = ids->n++;
	return STATUS_OK;
}

/* "123" or "0x7f00". */
static bool number_of(const char *text, uint64_t *ret)
{
	char *end = NULL;
	bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, hex ? 16 : 10);
	return errno == 0 && *end == '\0';
}

/* Cuts @line at its commas.  False if there are not exactly as many columns. */
static bool split(char *line, char *columns[N_COLUMNS])
{
	size_t n = 0;
	for (char *next = line; next != NULL;) {
		char *column = strsep(&next, ",");
		if (n == N_COLUMNS)
			return false;
		columns[n++] = column;
	}
	return n == N_COLUMNS;
}

/* The array grows by doubling, whenever the number of events is a power of two. */
static int append(struct trace *trace, const struct event *event)
{
	size_t n = trace->n_events;
	if ((n & (n - 1)) == 0) {
		struct event *events =
			reallocarray(trace->events, n == 0 ? 1 : 2 * n, sizeof *events);
		if (events == NULL)
			return fail_memory();
		trace->events = events;
	}
	trace->events[trace->n_events++] = *event;
	return STATUS_OK;
}

static int take_allocation(struct reader *reader, struct event *event, uint64_t pointer)
{
	struct live *live = malloc(sizeof *live);
	if (live == NULL)
		return fail_memory();
	*live = (struct live){pointer, reader->trace.n_blocks, event->bytes};
	void *node = tsearch(live, &reader->live, compare_live);
	if (node == NULL || *(struct live **)node != live) {
		free(live);
		return node == NULL ? fail_memory()
				    : malformed(reader, "this address is allocated already", "");
	}
	event->block = reader->trace.n_blocks++;
	reader->live_bytes += event->bytes;
	if (reader->live_bytes > reader->peak_bytes) {
		reader->peak_bytes = reader->live_bytes;
		reader->trace.peak = reader->trace.n_events;
	}
	return append(&reader->trace, event);
}

static int take_free(struct reader *reader, struct event *event, uint64_t pointer)
{
	struct live key = {.pointer = pointer};
	void *node = tfind(&key, &reader->live, compare_live);
	if (node == NULL) {
		reader->trace.n_unknown++;
		return STATUS_OK;
	}
	struct live *live = *(struct live **)node;
	event->block = live->block;
	event->bytes = 0;
	reader->live_bytes -= live->bytes;
	(void)tdelete(&key, &reader->live, compare_live);
	free(live);
	return append(&reader->trace, event);
}

static int take_line(struct reader *reader, char *line)
{
	char *columns[N_COLUMNS];
	uint64_t thread = 0;
	uint64_t pointer = 0;
	uint64_t bytes = 0;
	uint64_t stream = 0;
	struct event event = {.line = (uint32_t)reader->line};
	if (!split(line, columns))
		return malformed(reader, "it has not the 6 columns ", HEADER);
	if (!number_of(columns[COLUMN_THREAD], &thread))
		return malformed(reader, "Thread is no number: ", columns[COLUMN_THREAD]);
	/* "(nil)" is a failed allocation, or one of 0 bytes. */
	if (strcmp(columns[COLUMN_POINTER], "(nil)") != 0 &&
	    !number_of(columns[COLUMN_POINTER], &pointer))
		return malformed(reader, "Pointer is no number: ", columns[COLUMN_POINTER]);
	if (!number_of(columns[COLUMN_SIZE], &bytes) || bytes > SIZE_MAX / 2)
		return malformed(reader, "Size is no number of bytes: ", columns[COLUMN_SIZE]);
	if (!number_of(columns[COLUMN_STREAM], &stream))
		return malformed(reader, "Stream is no number: ", columns[COLUMN_STREAM]);
	bool frees = strcmp(columns[COLUMN_ACTION], "free") == 0 ||
		     strcmp(columns[COLUMN_ACTION], "deallocate") == 0;
	if (!frees && strcmp(columns[COLUMN_ACTION], "allocate") != 0) {
		if (strcmp(columns[COLUMN_ACTION], "allocate failure") == 0)
			return STATUS_OK;
		return malformed(reader,
				 "Action is neither allocate nor free: ", columns[COLUMN_ACTION]);
	}
	if (index_of(&reader->threads, thread, &event.thread) != STATUS_OK ||
	    index_of(&reader->streams, stream, &event.stream) != STATUS_OK)
		return STATUS_FAILED;
	event.bytes = (size_t)bytes;
	if (frees)
		return take_free(reader, &event, pointer);
	return bytes > 0 ? take_allocation(reader, &event, pointer) : STATUS_OK;
}

static int read_lines(struct reader *reader, FILE *file)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	int status = STATUS_OK;
	errno = 0;
	while (status == STATUS_OK && (length = getline(&line, &room, file)) >= 0) {
		reader->line++;
		while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
			line[--length] = '\0';
		if (strlen(line) != (size_t)length)
			status = malformed(reader, "it holds a NUL", "");
		else if (reader->line > UINT32_MAX)
			status = malformed(reader, "there are too many lines", "");
		else if (reader->line == 1 && strcmp(line, HEADER) != 0)
			status = malformed(reader, "it should be ", HEADER);
		else if (reader->line > 1 && length > 0)
			status = take_line(reader, line);
		errno = 0;
	}
	/* getline() returns -1 at the end, too. */
	if (status == STATUS_OK && !feof(file))
		status = fail("%s: %s", reader->path, strerror(errno != 0 ? errno : EIO));
	else if (status == STATUS_OK && reader->trace.n_events == 0)
		status = fail("%s: there is no allocation in it", reader->path);
	free(line);
	return status;
}

int trace_read(const char *path, struct trace *ret)
{
	struct reader reader = {.path = path};
	uint32_t none = 0;
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return fail("%s: %s", path, strerror(errno));
	int status = index_of(&reader.streams, 0, &none); /* stream 0 has the index 0 */
	if (status == STATUS_OK)
		status = read_lines(&reader, file);
	(void)fclose(file);
	tdestroy(reader.live, free);
	reader.trace.n_threads = reader.threads.n;
	reader.trace.n_streams = reader.streams.n > 0 ? reader.streams.n - 1 : 0;
	free(reader.threads.values);
	free(reader.streams.values);
	if (status == STATUS_OK)
		*ret = reader.trace;
	else
		trace_free(&reader.trace);
	return status;
}

void trace_free(struct trace *trace)
{
	free(trace->events);
	trace->events = NULL;
}
