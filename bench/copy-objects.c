/* SPDX-License-Identifier: MIT */
/* Making and dropping buffers and views, timed.  The contract is in copy.h. */
#include "config.h"

#include "bench/copy.h"

#include <hoist/hoist.h>

#include <stdlib.h>
#include <string.h>

enum { PAIRS = 20000 };

static hoist_buffer *make(hoist_device *device, int64_t bytes)
{
	hoist_buffer *buffer = NULL;
	copy_must(hoist_buffer_create(device, HOIST_F32, 1, (int64_t[]){bytes / 4}, 0, &buffer),
		  "making a buffer");
	return buffer;
}

static hoist_buffer *slice(hoist_buffer *of)
{
	hoist_buffer *view = NULL;
	copy_must(hoist_buffer_slice(of, 2,
				     (hoist_slice[]){HOIST_RANGE(1, -1),
						     HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)},
				     &view),
		  "slicing");
	return view;
}

static hoist_buffer *row(hoist_buffer *of)
{
	hoist_buffer *view = NULL;
	copy_must(hoist_buffer_slice(of, 1, (hoist_slice[]){HOIST_AT(-1)}, &view), "indexing");
	return view;
}

static hoist_buffer *permute(hoist_buffer *of)
{
	hoist_buffer *view = NULL;
	copy_must(hoist_buffer_permute(of, (int[]){1, 0}, &view), "permuting");
	return view;
}

static hoist_buffer *reshape(hoist_buffer *of)
{
	hoist_buffer *view = NULL;
	copy_must(hoist_buffer_reshape(of, 3, (int64_t[]){8, 8, -1}, &view), "reshaping");
	return view;
}

static hoist_buffer *bytes_of(hoist_buffer *of)
{
	hoist_buffer *view = NULL;
	copy_must(hoist_buffer_view(of, 4096, HOIST_U8, 1, (int64_t[]){1024}, &view), "viewing");
	return view;
}

static const struct {
	const char *name;
	hoist_buffer *(*make)(hoist_buffer *of);
} views[] = {{"slice [1:-1, ::2]", slice},
	     {"slice [-1]", row},
	     {"permute", permute},
	     {"reshape to rank 3", reshape},
	     {"view of bytes", bytes_of}};
enum { N_VIEWS = sizeof views / sizeof views[0] };

static double time_views(hoist_buffer *(*make_view)(hoist_buffer *of), hoist_buffer *of)
{
	double begin = clock_seconds();
	for (int i = 0; i < PAIRS; i++)
		hoist_buffer_unref(make_view(of));
	return (clock_seconds() - begin) / PAIRS * 1e9;
}

static void add(struct results *results, const char *work, const char *subject,
		const struct samples *samples, double bar, bool emulated)
{
	const struct result_row row = {.work = work,
				       .subject = subject,
				       .unit = "ns",
				       .threads = 1,
				       .emulated = emulated,
				       .has_bar = true,
				       .bar = bar};
	for (size_t i = 0; i < samples->n; i++)
		results_add(results, &row, samples->values[i]);
}

static void measure_views(struct results *results, unsigned n_runs)
{
	static struct samples samples[N_VIEWS];
	hoist_device *cpu = NULL;
	hoist_buffer *base = NULL;
	copy_must(hoist_device_open("cpu", &cpu), "opening the cpu");
	copy_must(hoist_buffer_create(cpu, HOIST_F32, 2, (int64_t[]){64, 64}, 0, &base),
		  "making a buffer");
	for (size_t i = 0; i < n_runs; i++)
		for (size_t v = 0; v < N_VIEWS; v++)
			samples_add(&samples[v], time_views(views[v].make, base));
	for (size_t v = 0; v < N_VIEWS; v++)
		add(results, "a view", views[v].name, &samples[v], 100, false);
	hoist_buffer_unref(base);
	hoist_device_unref(cpu);
}

static const struct {
	const char *name;
	int64_t bytes;
} sizes[] = {{"64 B", 64}, {"4 KiB", 4096}, {"1 MiB", 1 << 20}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

struct times {
	struct samples of[N_SIZES];
};

struct request {
	const char *spec;
	unsigned n_runs;
};

/* The pool is warm after the first pair: a block of each size has been given back to it. */
static void time_buffers(const void *argument, void *result)
{
	const struct request *request = argument;
	struct times *times = result;
	hoist_device *device = NULL;
	copy_must(setenv("HOIST_EMULATE", "cuda:1", 1), "emulating");
	copy_must(hoist_device_open(request->spec, &device), request->spec);
	for (size_t i = 0; i <= request->n_runs; i++)
		for (size_t s = 0; s < N_SIZES; s++) {
			double begin = clock_seconds();
			for (int pair = 0; pair < PAIRS; pair++)
				hoist_buffer_unref(make(device, sizes[s].bytes));
			if (i > 0) /* the first warms up */
				samples_add(&times->of[s], (clock_seconds() - begin) / PAIRS * 1e9);
		}
	hoist_device_unref(device);
}

static void measure_buffers(struct results *results, const char *spec, const char *work,
			    unsigned n_runs)
{
	static struct times times;
	struct request request = {spec, n_runs};
	times = (struct times){.of = {{.n = 0}}};
	(void)bench_in_child(time_buffers, &request, &times, sizeof times);
	for (size_t s = 0; s < N_SIZES; s++)
		add(results, work, sizes[s].name, &times.of[s], 150, strcmp(spec, "cpu") != 0);
}

void copy_objects(struct results *results, unsigned n_runs)
{
	measure_buffers(results, "cpu", "a buffer, cpu", n_runs);
	measure_buffers(results, "cuda:0", "a buffer, cuda:0", n_runs);
	measure_views(results, n_runs);
}
