/* SPDX-License-Identifier: MIT */
/* attach FILE - how long a process that starts needs until it has every tensor of a checkpoint that
 * is cached in memory, beside loading it from the page cache.
 *
 *   attached      hoist_cache_attach() until the buffer of every tensor is there, in a process of
 * its own; nothing is touched yet: pages are shared, and come on first touch touched       the
 * same, and one byte of every page loaded hot    hoist_load_start() until hoist_load_wait() is
 * back, likewise
 *
 * The image is added first, and dropped at the end if it was not there before. */
#include "config.h"

#include "bench/bench.h"
#include "bench/once.h"

#include <stdio.h>

static const char usage[] = "usage: attach [--runs N] [--json PATH] FILE.safetensors\n";

struct request {
	const char *path;
	int touch;
};

static volatile unsigned sink; /* keeps the compiler from removing the reads */

static void attach(const void *argument, void *ret)
{
	const struct request *request = argument;
	double *seconds = ret;
	hoist_image *image = NULL;
	double begin = clock_seconds();
	bench_must(hoist_cache_attach(request->path, 0, &image), "attaching", request->path);
	for (size_t i = 0; i < hoist_image_n_tensors(image); i++) {
		hoist_buffer *buffer = NULL;
		bench_must(hoist_image_buffer(image, i, &buffer), "a buffer of", request->path);
		if (request->touch) {
			const unsigned char *bytes = hoist_buffer_data(buffer);
			for (size_t at = 0; at < hoist_buffer_bytes(buffer); at += 4096)
				sink += bytes[at];
		}
		hoist_buffer_unref(buffer);
	}
	*seconds = clock_seconds() - begin;
	hoist_image_close(image);
}

static void add(const char *path)
{
	hoist_image *image = NULL;
	double begin = clock_seconds();
	bench_must(hoist_cache_add(path, NULL, &image), "caching", path);
	(void)fprintf(stderr, "attach: cached in %.2f s\n", clock_seconds() - begin);
	hoist_image_close(image);
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 9};
	struct samples attached = {.n = 0};
	struct samples touched = {.n = 0};
	struct samples loaded = {.n = 0};
	bench_parse(argc, argv, usage, 1, 1, NULL, &args);
	const char *path = args.operands[0];
	struct results results;
	results_create("attach", &results);
	hoist_image *image = NULL;
	/* A checkpoint that was in the cache before stays there at the end. */
	int before = hoist_cache_attach(path, 0, &image) == 0;
	hoist_image_close(image);
	if (!before)
		add(path);
	for (size_t i = 0; i < args.n_runs; i++) {
		double seconds = 0;
		struct once_result result;
		const struct once_options how = {.path = path, .device = "cpu", .hot = 1};
		const struct request plain = {path, 0};
		const struct request touch = {path, 1};
		(void)bench_in_child(attach, &plain, &seconds, sizeof seconds);
		samples_add(&attached, seconds * 1e3);
		(void)bench_in_child(attach, &touch, &seconds, sizeof seconds);
		samples_add(&touched, seconds * 1e3);
		once_load(&how, &result);
		samples_add(&loaded, result.seconds * 1e3);
	}
	if (!before)
		bench_must(hoist_cache_drop(path, NULL), "dropping", path);
	static const char work[] = "a cached checkpoint";
	results_samples(&results, work, "the same, each page touched", "ms", &touched);
	results_samples(&results, work, "loaded hot instead", "ms", &loaded);
	results_ratio(&results, work, 1, "loading hot",
		      samples_median(&loaded) / samples_median(&attached));
	results_bar(&results, work, "attached, all buffers", samples_median(&attached), "ms", false,
		    20);
	bench_print(&results, args.json);
	return 0;
}
