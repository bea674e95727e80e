/* SPDX-License-Identifier: MIT */
/* The model's forecasts: each load is forecast, and then does what was said.  The linker (--wrap)
 * sends the library's questions about the page cache through this program, which answers half of
 * the trials from a pattern: what the real cache holds changes while a load runs. */
#include "config.h"

#include <string.h>

#include "io/engine.h"
#include "io/file.h"
#include "io/staging.h"
#include "tests/lib/load/model.h"
#include "tests/support/load-support.h"
#include "tests/support/random.h"
#include "tests/support/wrap.h"

#define GRANULE ((uint64_t)16384)

static bool patterned;
static uint64_t pattern;
static unsigned hot_of; /* so many of 8 granules are hot */
static bool forecasting;

/* --- the page cache --- */

static uint64_t count_hot(const struct hoist__file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t hot = 0;
	for (uint64_t at = offset, end; at < offset + bytes; at = end) {
		uint64_t state = pattern + file->ino * 1000003 + at / GRANULE;
		end = (at / GRANULE + 1) * GRANULE;
		end = end < offset + bytes ? end : offset + bytes;
		hot += random_below(&state, 8) < hot_of ? end - at : 0;
	}
	return hot;
}

WRAP(int, hoist__file_resident,
     (const struct hoist__file *file, uint64_t offset, uint64_t bytes, uint64_t *ret))
{
	if (!patterned)
		return __real_hoist__file_resident(file, offset, bytes, ret);
	*ret = count_hot(file, offset, bytes);
	return 0;
}

WRAP(int, hoist__file_resident_ahead,
     (const struct hoist__file *file, struct hoist__resident_window *window, uint64_t offset,
      uint64_t bytes, uint64_t end, uint64_t *ret))
{
	if (!patterned)
		return __real_hoist__file_resident_ahead(file, window, offset, bytes, end, ret);
	*ret = count_hot(file, offset, bytes);
	return 0;
}

/* --- a forecast reads nothing, and makes neither slots nor an engine --- */

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	CHECK(!forecasting);
	return __real_pread(fd, to, bytes, offset);
}

WRAP(int, hoist__engine_create,
     (const struct hoist__engine_options *options, struct hoist__engine **ret))
{
	CHECK(!forecasting);
	return __real_hoist__engine_create(options, ret);
}

WRAP(int, hoist__staging_create,
     (const struct hoist__staging_options *options, struct hoist__staging **ret))
{
	CHECK(!forecasting);
	return __real_hoist__staging_create(options, ret);
}

/* --- what is said --- */

static uint64_t in_use(hoist_memory *memory)
{
	hoist_memory_statistics has = {.size = sizeof has};
	OK(hoist_memory_get_statistics(memory, &has));
	return has.requested_bytes;
}

void forecast_begin(hoist_checkpoint *checkpoint, const struct trial *trial, hoist_forecast *ret)
{
	static const unsigned shares[] = {0, 3, 7, 8};
	size_t charged = trial->o.budget != NULL ? hoist_budget_peak(trial->o.budget) : 0;
	uint64_t used = trial->o.memory != NULL ? in_use(trial->o.memory) : 0;
	uint64_t state = random_state(); /* the loads of a seed are the same without forecasts */
	patterned = random_below(&state, 2) == 0;
	pattern = random_next(&state);
	hot_of = shares[random_below(&state, sizeof shares / sizeof shares[0])];
	*ret = (hoist_forecast){.size = sizeof *ret};
	forecasting = true;
	int err = hoist_load_forecast(checkpoint, &trial->o, ret);
	forecasting = false;
	if (err < 0)
		show(trial, "forecast", hoist_error());
	CHECK(err == 0);
	CHECK(trial->o.budget == NULL || hoist_budget_peak(trial->o.budget) == charged);
	CHECK(trial->o.memory == NULL || in_use(trial->o.memory) == used);
}

/* The memory of the load's targets that have memory of a resource. */
static void check_memory(const struct trial *trial, const hoist_forecast *f)
{
	hoist_memory *memory = trial->o.memory;
	uint64_t bytes = memory != NULL ? f->targets[0].bytes : 0;
	for (size_t t = 0; t < trial->o.n_targets; t++) {
		if (trial->targets[t].memory == NULL)
			continue;
		memory = trial->targets[t].memory;
		bytes += f->targets[t].bytes;
	}
	CHECK(memory == NULL || (trial->o.flags & HOIST_LOAD_STREAM) != 0 ||
	      in_use(memory) == bytes);
}

static bool is_as_said(const hoist_forecast *f, const hoist_load_report *r)
{
	bool said = f->bytes == r->bytes && f->n_tensors == r->n_tensors &&
		    f->mapped_bytes >= r->mapped_bytes && f->budget_bytes == r->budget_bytes;
	said = said && f->straight_bytes + f->staged_bytes <= f->bytes &&
	       (f->mapped_bytes > 0 || f->straight_bytes + f->staged_bytes == f->bytes);
	if (!patterned)
		return said;
	/* A direct read that the kernel refuses ends in the page cache. */
	bool refused = strstr(r->io_reason, "finished through the cache") != NULL;
	return said && f->mapped_bytes == r->mapped_bytes && f->n_reads == r->n_reads &&
	       (refused ||
		(f->direct_bytes == r->direct_bytes && f->cached_bytes == r->cached_bytes)) &&
	       r->staging_peak_bytes <= f->n_slots * f->slot_bytes &&
	       (r->staging_peak_bytes > 0) == (f->staged_bytes > 0) &&
	       f->resident_bytes <= f->direct_bytes + f->cached_bytes + f->mapped_bytes;
}

void forecast_end(const struct trial *trial, const hoist_forecast *f, hoist_load *load)
{
	const hoist_load_report r = support_report(load);
	if (!is_as_said(f, &r)) {
		(void)fprintf(
			stderr,
			"reads %llu, were %llu; direct %llu, was %llu; cached %llu, was "
			"%llu; mapped %llu, was %llu; slots %zu of %zu, were %zu; bytes "
			"%llu, %llu straight, %llu staged; %s; %s\n",
			(unsigned long long)f->n_reads, (unsigned long long)r.n_reads,
			(unsigned long long)f->direct_bytes, (unsigned long long)r.direct_bytes,
			(unsigned long long)f->cached_bytes, (unsigned long long)r.cached_bytes,
			(unsigned long long)f->mapped_bytes, (unsigned long long)r.mapped_bytes,
			f->n_slots, f->slot_bytes, r.staging_peak_bytes,
			(unsigned long long)f->bytes, (unsigned long long)f->straight_bytes,
			(unsigned long long)f->staged_bytes, f->io_reason, r.io_reason);
		show(trial, "forecast", "not what was said");
	}
	CHECK(is_as_said(f, &r));
	check_memory(trial, f);
	CHECK(f->n_targets == n_targets_of(trial));
	for (size_t t = 0; t < f->n_targets; t++)
		CHECK(f->targets[t].n_tensors == hoist_load_target_n_tensors(load, t));
}
