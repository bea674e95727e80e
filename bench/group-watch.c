/* SPDX-License-Identifier: MIT */
/* The course of a group.  The contract is in group-watch.h. */
#include "config.h"

#include "bench/group-watch.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hoist/group.h>

#include "bench/bench.h"
#include "bench/plot.h"
#include "bench/samples.h"
#include "cli/fail.h"

#define LOOK_US 5000
#define TIMEOUT_NS UINT64_C(1000000000) /* of a look */
#define MIB (1024.0 * 1024.0)

unsigned group_watch_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, bytes) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &bytes) < 0)
		bench_fail("a port: %s", strerror(errno));
	(void)close(fd);
	return ntohs(at.sin_port);
}

void group_watch_begin(struct group_watch *watch, double begin)
{
	watch->begin = begin;
	watch->n = 0;
}

static int take(void *context, const hoist_group_member *member)
{
	struct group_watch *watch = context;
	if (watch->n < GROUP_WATCH_SAMPLES)
		watch->samples[watch->n++] = (struct group_sample){
			.seconds = clock_seconds() - watch->begin,
			.id = member->id,
			.storage_bytes = member->storage_bytes,
			.received_bytes = member->received_bytes,
			.sent_bytes = member->sent_bytes,
		};
	return 0;
}

void group_watch_look(struct group_watch *watch, const char *name)
{
	const hoist_group group = {.size = sizeof group, .name = name, .timeout_ns = TIMEOUT_NS};
	/* No rank is there before the first has come, and after the last has left. */
	(void)hoist_group_look(&group, take, watch);
	(void)usleep(LOOK_US);
}

/* --- the image --- */

/* The ranks' ids, in the order in which they came.  Returns: how many. */
static size_t ranks_of(const struct group_watch *watch, uint64_t ids[GROUP_WATCH_RANKS])
{
	size_t n = 0;
	for (size_t i = 0; i < watch->n; i++) {
		size_t r = 0;
		while (r < n && ids[r] != watch->samples[i].id)
			r++;
		if (r == n && n < GROUP_WATCH_RANKS)
			ids[n++] = watch->samples[i].id;
	}
	return n;
}

static void write_rank(FILE *out, const struct group_watch *watch, size_t number, uint64_t id)
{
	(void)fputs("$data << END\n0 0 0 0\n", out);
	for (size_t i = 0; i < watch->n; i++) {
		const struct group_sample *s = &watch->samples[i];
		if (s->id == id)
			(void)fprintf(out, "%.4f %.3f %.3f %.3f\n", s->seconds,
				      (double)s->storage_bytes / MIB,
				      (double)s->received_bytes / MIB, (double)s->sent_bytes / MIB);
	}
	(void)fprintf(out,
		      "END\nset title 'rank %zu, %016" PRIx64 "'\n"
		      "plot $data using 1:2 with lines lw 2 title 'from storage', "
		      "$data using 1:3 with lines lw 2 title 'from other ranks', "
		      "$data using 1:4 with lines lw 2 title 'to other ranks'\n",
		      number, id);
}

static void write_script(FILE *out, const void *context)
{
	const struct group_watch *watch = context;
	uint64_t ids[GROUP_WATCH_RANKS];
	size_t n = ranks_of(watch, ids);
	double most = 0;
	for (size_t i = 0; i < watch->n; i++)
		most = watch->samples[i].seconds > most ? watch->samples[i].seconds : most;
	(void)fprintf(out,
		      "set terminal svg size 1400,%u noenhanced font 'sans,12' background 'white'\n"
		      "set grid\n"
		      "set key left top\n"
		      "set xrange [0:%.4f]\n"
		      "set yrange [0:*]\n"
		      "set xlabel 'seconds'\n"
		      "set ylabel 'MiB'\n"
		      "set multiplot layout %zu,2\n",
		      400 * (unsigned)((n + 1) / 2), most, (n + 1) / 2);
	for (size_t r = 0; r < n; r++)
		write_rank(out, watch, r, ids[r]);
}

int group_watch_draw(const struct group_watch *watch, const char *path, int fd)
{
	if (fd < 0)
		return STATUS_OK;
	if (watch->n == 0)
		return fail(
			"%s: no group of several machines was seen, so there is nothing to draw",
			path);
	return plot_run(write_script, watch, path, fd);
}
