/* SPDX-License-Identifier: MIT */
/* bench/once.h - one load in a process of its own, so that no pool, no context and
 * no page table of an earlier run helps a later one, unless that is asked for. */
#ifndef HOIST_BENCH_ONCE_H
#define HOIST_BENCH_ONCE_H

#include <hoist/hoist.h>

struct once_options {
	const char *path;
	const char *device; /* "cpu", "cuda:0" */
	enum hoist_engine engine;
	int hot;      /* 0: the file is made cold just before the load; 1: hot; 2: half of it hot */
	int warm_ups; /* loads before it in the same process, not measured: their memory,
		       * which a resource keeps (cpu), or the device's pool, serves again */
	int raw;      /* as a file of bytes, whatever it is */
	int follow_links; /* out of the checkpoint's folder */
	int in_place; /* a load into fresh memory comes first, and is not measured: the measured one
		       * reads into its buffers */
	int streams;  /* tensors are taken one by one and dropped, until none is left */
	const hoist_load_slice *slices;
	size_t n_slices;
	const char *emulate;	    /* HOIST_EMULATE for the child; NULL: as it is */
	uint64_t emulated_resident; /* bytes of the emulated device that need no page faults */
	uint64_t emulated_rate; /* bytes per second of the emulated copy engines; 0: unlimited */
};

struct once_result {
	double seconds; /* from hoist_load_start() until hoist_load_wait() is back; `streams`: or
			 * until the last tensor was dropped */
	double cpu_seconds;	  /* of the process meanwhile */
	double whole_cpu_seconds; /* of the whole process, its end included */
	hoist_load_report report;
};

/* Loads and frees everything.  The device (with its context) and the checkpoint
 * (its header) are opened before the clock starts.  Exits on any failure. */
void once_load(const struct once_options *options, struct once_result *ret);

#endif
