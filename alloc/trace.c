/* SPDX-License-Identifier: MIT */
/* alloc/trace.c - writes a pool's trace.
 * The contract is in alloc/trace.h. */
#include "config.h"

#include "alloc/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/limit.h"
#include "device/device.h"

#define BUFFER_BYTES (64 * HOIST__KIB)
#define LINE_MOST 160 /* the longest line has some 120 */

static const char header[] = "Thread,Time,Action,Pointer,Size,Stream\n";

struct hoist__trace {
	int fd;
	int err;	  /* of the first write that failed */
	unsigned process; /* hoist__fork_now() of the process that opened the trace */
	uint64_t written; /* whole lines in the file */
	time_t second;	  /* whose local time `clock` is */
	char clock[16];	  /* "09:30:00" */
	size_t n;	  /* in the buffer */
	char *path;
	char buffer[BUFFER_BYTES];
};

int hoist__trace_open(const char *path, struct hoist__trace **ret)
{
	/* A child of fork must not write to its parent's trace: see `process`. */
	int err = hoist__fork_watch();
	if (err != 0)
		return err;
	struct hoist__trace *trace = malloc(sizeof *trace);
	char *name = strdup(path);
	if (trace == NULL || name == NULL) {
		free(trace);
		free(name);
		return hoist__fail_nomem("a trace", sizeof *trace);
	}
	trace->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (trace->fd < 0) {
		err = hoist__fail_errno(-errno, "opening the trace %s", path);
		free(trace);
		free(name);
		return err;
	}
	trace->err = 0;
	trace->process = hoist__fork_now();
	trace->written = 0;
	trace->second = (time_t)-1;
	trace->path = name;
	trace->n = sizeof header - 1;
	memcpy(trace->buffer, header, trace->n);
	*ret = trace;
	return 0;
}

/* A child of fork has a copy of the buffer, and the parent's file. */
static bool is_ours(const struct hoist__trace *trace)
{
	return trace->process == hoist__fork_now();
}

static void flush(struct hoist__trace *trace)
{
	size_t done = 0;
	while (trace->err == 0 && done < trace->n) {
		ssize_t n = hoist__write(trace->fd, trace->buffer + done, trace->n - done);
		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			trace->err = n == 0 ? -EIO : -errno;
	}
	if (trace->err == 0)
		trace->written += done;
	else if (done != 0 && ftruncate(trace->fd, (off_t)trace->written) != 0)
		(void)0; /* a pipe, say, cannot be truncated: half a line stays */
	trace->n = 0;
}

static void tell_time(struct hoist__trace *trace, struct timespec *now)
{
	(void)clock_gettime(CLOCK_REALTIME, now);
	if (now->tv_sec == trace->second)
		return;
	struct tm local;
	if (localtime_r(&now->tv_sec, &local) == NULL ||
	    strftime(trace->clock, sizeof trace->clock, "%H:%M:%S", &local) == 0)
		(void)snprintf(trace->clock, sizeof trace->clock, "00:00:00");
	trace->second = now->tv_sec;
}

void hoist__trace_line(struct hoist__trace *trace, const char *action, uintptr_t address,
		       size_t bytes, const void *stream)
{
	struct timespec now;
	if (trace->err != 0 || !is_ours(trace))
		return;
	if (BUFFER_BYTES - trace->n < LINE_MOST)
		flush(trace);
	tell_time(trace, &now);
	char pointer[24] = "(nil)";
	char handle[24] = "0";
	if (address != 0)
		(void)snprintf(pointer, sizeof pointer, "%#" PRIxPTR, address);
	if (stream != NULL)
		(void)snprintf(handle, sizeof handle, "%#" PRIxPTR, (uintptr_t)stream);
	int n = snprintf(trace->buffer + trace->n, LINE_MOST, "%ld,%s.%06ld,%s,%s,%zu,%s\n",
			 (long)gettid(), trace->clock, now.tv_nsec / 1000, action, pointer, bytes,
			 handle);
	trace->n += (size_t)n;
}

int hoist__trace_close(struct hoist__trace *trace)
{
	if (trace == NULL)
		return 0;
	if (is_ours(trace))
		flush(trace);
	int err = trace->err;
	if (close(trace->fd) != 0 && err == 0 && errno != EINTR)
		err = -errno;
	if (err != 0)
		err = hoist__fail_errno(err, "writing the trace %s", trace->path);
	free(trace->path);
	free(trace);
	return err;
}
