/* SPDX-License-Identifier: MIT */
/* Loads of four processes together.  The contract is in ranks.h.
 *
 * Servers run already when they load.  So the processes are started, and have hoist's device and
 * checkpoint open, before the clock starts; the clock stops once the last of them has all its
 * bytes.  Each run has new processes, whose destinations are fresh memory: each process touches
 * and gives back as much just before (pages.h).  Subjects alternate, and each run begins with
 * another one; figures are medians. */
#include "config.h"

#include "bench/ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hoist/group.h>

#include "bench/bench.h"
#include "bench/child.h"
#include "bench/pages.h"
#include "cli/fail.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

#define N_RANKS 4
#define PIECE_BYTES ((size_t)2 << 20)
#define SHARED_BYTES ((size_t)64 << 20) /* of each rank's slots, at most */
#define MOST_NOTE 160

static const char work[] = "a group of 4";

enum { PLAIN, HOT, QUARTERS, WHOLES, FAR, N_SUBJECTS };

static const char *const names[N_SUBJECTS] = {"one process, plain", "4 processes, hot copies",
					      "4 ranks, a quarter each", "4 ranks, everything each",
					      "4 ranks of tcp:, everything each"};

/* Figures that the ranks of one run share with the parent. */
struct shared {
	double ended[N_RANKS];
	uint64_t stored[N_RANKS]; /* bytes read from storage meanwhile */
	double cpu[N_RANKS];
	_Atomic unsigned n_touched; /* ranks that hold their touched memory */
	char note[MOST_NOTE];	    /* why a rank of tcp: had fewer others; "" */
};

struct run {
	struct bench_file *file;
	int subject;
	char name[64]; /* of the group */
	unsigned number;
	struct group_watch *watch; /* NULL: there is no subject FAR */
	int ready[2];
	int go[2];
	struct shared *shared;
};

/* The kernel's account of this process; UINT64_MAX: it has none. */
static uint64_t stored_bytes(void)
{
	char line[128];
	uint64_t bytes = UINT64_MAX;
	FILE *file = fopen("/proc/self/io", "re");
	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "read_bytes: %" SCNu64, &bytes) == 1)
			break;
	if (file != NULL)
		(void)fclose(file);
	return bytes;
}

/* Touches memory as bench_touch_memory() does.  No rank gives its memory back before all have
 * touched theirs: the others would touch the same memory again. */
static void touch(const struct run *run, size_t bytes)
{
	unsigned n = run->subject == PLAIN ? 1 : N_RANKS;
	void *memory;
	if (pages_touch(bytes + SHARED_BYTES, &memory) != STATUS_OK)
		bench_fail("no memory");
	atomic_fetch_add(&run->shared->n_touched, 1);
	pid_t parent = getppid(); /* another one: the benchmark has failed */
	while (atomic_load(&run->shared->n_touched) < n && getppid() == parent)
		(void)usleep(1000);
	(void)munmap(memory, bytes + SHARED_BYTES);
}

/* Touches as much memory as this process will take, says that it is ready, and waits for all.
 * Returns: the CPU time so far, of which the touches are most. */
static double await_start(const struct run *run)
{
	char byte = 0;
	size_t bytes = (size_t)run->file->bytes;
	touch(run, run->subject == QUARTERS ? bytes / N_RANKS : bytes);
	double cpu = bench_cpu_seconds();
	if (write(run->ready[1], &byte, 1) != 1)
		bench_fail("a pipe: %s", strerror(errno));
	(void)close(run->go[1]);
	if (read(run->go[0], &byte, 1) != 0)
		bench_fail("a pipe: %s", strerror(errno));
	return cpu;
}

/* Where the next bytes of a file go. */
struct copy {
	char *to;
};

static int add_span(const struct bench_span *span, void *context)
{
	*(size_t *)context += (size_t)span->bytes;
	return STATUS_OK;
}

static int copy_span(const struct bench_span *span, void *context)
{
	struct copy *copy = context;
	for (uint64_t done = 0; done < span->bytes;) {
		uint64_t left = span->bytes - done;
		ssize_t n =
			pread(span->fd, copy->to, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES,
			      (off_t)(span->offset + done));
		if (n <= 0)
			return fail("reading: %s", n < 0 ? strerror(errno) : "the file ends");
		copy->to += n;
		done += (uint64_t)n;
	}
	return STATUS_OK;
}

/* Returns: as await_start(). */
static double copy_hot(const struct run *run)
{
	size_t bytes = 0; /* with the gaps between tensors */
	if (bench_file_each(run->file, add_span, &bytes) != STATUS_OK)
		exit(1);
	char *memory = mmap(NULL, bytes + PIECE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		bench_fail("no memory: %s", strerror(errno));
	struct copy copy = {memory + PIECE_BYTES - (uintptr_t)memory % PIECE_BYTES};
	(void)madvise(copy.to, bytes, MADV_HUGEPAGE);
	double cpu = await_start(run);
	if (bench_file_each(run->file, copy_span, &copy) != STATUS_OK)
		exit(1);
	return cpu;
}

/* A quarter of the rows of each tensor that is loaded; one of a single number, or whose rows are no
 * whole bytes, is everybody's. */
static hoist_load_slice *quarters_of(const struct bench_file *file, hoist_checkpoint *checkpoint,
				     unsigned rank, size_t *n)
{
	hoist_load_slice *slices = calloc(file->n_names + 1, sizeof *slices);
	if (slices == NULL)
		bench_fail("no memory");
	for (size_t i = 0; i < file->n_names; i++) {
		size_t tensor = 0;
		hoist_tensor_info info = {.size = sizeof info};
		bench_must(hoist_checkpoint_find(checkpoint, file->names[i], &tensor), "finding",
			   file->names[i]);
		bench_must(hoist_checkpoint_tensor(checkpoint, tensor, &info), "listing",
			   file->names[i]);
		int64_t rows = info.rank == 0	    ? 0
			       : file->n_slices > 0 ? file->slice.end
						    : info.shape[0];
		bool whole_bytes = rows > 0 && info.bytes % (uint64_t)info.shape[0] == 0;
		if (whole_bytes)
			slices[(*n)++] = (hoist_load_slice){.tensor = file->names[i],
							    .begin = rows * rank / N_RANKS,
							    .end = rows * (rank + 1) / N_RANKS};
	}
	return slices;
}

static void note_members(const struct run *run, hoist_load *load)
{
	hoist_group_report report = {.size = sizeof report};
	bench_must(hoist_group_get_report(load, &report), "reporting", run->name);
	if (report.n_members < N_RANKS)
		(void)snprintf(run->shared->note, MOST_NOTE, "%.150s", report.note);
}

/* Returns: as await_start(). */
static double load(const struct run *run, unsigned rank)
{
	const struct bench_file *file = run->file;
	hoist_device *device = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_load_slice *slices = NULL;
	const hoist_group group = {
		.size = sizeof group, .name = run->name, .rank = rank, .n_ranks = N_RANKS};
	bench_must(hoist_device_open("cpu", &device), "opening", "cpu");
	bench_must(hoist_checkpoint_open(file->path, file->open_flags, &checkpoint), "opening",
		   file->path);
	hoist_load_options options = {.size = sizeof options,
				      .device = device,
				      .tensors = file->whole ? NULL : file->names,
				      .n_tensors = file->whole ? 0 : file->n_names,
				      .slices = file->n_slices > 0 ? &file->slice : NULL,
				      .n_slices = file->n_slices};
	if (run->subject == QUARTERS) {
		options.n_slices = 0;
		slices = quarters_of(file, checkpoint, rank, &options.n_slices);
		options.slices = slices;
	}
	double cpu = await_start(run);
	bench_must(run->subject == PLAIN ? hoist_load_start(checkpoint, &options, &load)
					 : hoist_group_load(&group, checkpoint, &options, &load),
		   "loading", file->path);
	bench_must(hoist_load_wait(load), "loading", file->path);
	run->shared->ended[rank] = clock_seconds();
	if (run->subject == FAR)
		note_members(run, load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	free(slices);
	return cpu;
}

static void rank_main(const struct run *run, unsigned rank)
{
	uint64_t stored = stored_bytes();
	double cpu;
	if (run->subject == HOT) {
		cpu = copy_hot(run);
		run->shared->ended[rank] = clock_seconds();
	} else {
		cpu = load(run, rank);
	}
	run->shared->stored[rank] = stored == UINT64_MAX ? UINT64_MAX : stored_bytes() - stored;
	run->shared->cpu[rank] = bench_cpu_seconds() - cpu;
}

/* True if one of the processes has ended: the others wait for it. */
static bool has_ended(unsigned n, const pid_t *children)
{
	bool ended = false;
	for (unsigned r = 0; r < n && !ended; r++)
		ended = child_has_ended(children[r]);
	return ended;
}

/* Starts the processes; false: one of them ended before it was ready. */
static bool start(const struct run *run, unsigned n, pid_t *children)
{
	bool ready = true;
	(void)fflush(NULL);
	for (unsigned r = 0; r < n; r++) {
		children[r] = fork();
		if (children[r] < 0)
			bench_fail("fork: %s", strerror(errno));
		if (children[r] == 0) {
			(void)close(run->ready[0]);
			rank_main(run, r);
			_exit(0);
		}
	}
	(void)close(run->ready[1]);
	for (unsigned r = 0; r < n && ready; r++) {
		struct pollfd fd = {.fd = run->ready[0], .events = POLLIN};
		char byte;
		while (poll(&fd, 1, 100) == 0 && !has_ended(n, children))
			continue;
		ready = (fd.revents & POLLIN) != 0 && read(run->ready[0], &byte, 1) == 1;
	}
	return ready;
}

/* Waits for the end of all.  If @good is false, none of them can go on: they are killed.
 * Returns: false if one failed. */
static bool await_end(unsigned n, const pid_t *children, bool good)
{
	for (unsigned r = 0; r < n && !good; r++)
		(void)kill(children[r], SIGKILL);
	for (unsigned r = 0; r < n; r++) {
		int status = 0;
		bool ended = waitpid(children[r], &status, 0) == children[r] && status == 0;
		good = good && ended;
	}
	return good;
}

static void name_group(struct run *run)
{
	if (run->subject == FAR)
		(void)snprintf(run->name, sizeof run->name, "tcp://127.0.0.1:%u/bench",
			       group_watch_port());
	else
		(void)snprintf(run->name, sizeof run->name, "shm:bench-%d-%u", (int)getpid(),
			       run->number);
}

/* *seconds: from the start to the last end.  Returns a STATUS_*; *good false: a process failed, and
 * has printed why. */
static int measure(struct run *run, double *seconds, bool *good)
{
	unsigned n = run->subject == PLAIN ? 1 : N_RANKS;
	pid_t children[N_RANKS];
	const struct bench_way way = {.hot = run->subject == HOT};
	memset(run->shared, 0, sizeof *run->shared);
	name_group(run);
	if (bench_file_prepare(run->file, &way) != STATUS_OK)
		return STATUS_FAILED;
	if (pipe(run->ready) < 0 || pipe(run->go) < 0)
		bench_fail("pipe: %s", strerror(errno));
	*good = start(run, n, children);
	double begin = clock_seconds();
	(void)close(run->go[1]);
	if (run->subject == FAR)
		group_watch_begin(run->watch, begin);
	while (run->subject == FAR && *good && !has_ended(n, children))
		group_watch_look(run->watch, run->name);
	*good = await_end(n, children, *good);
	double end = begin;
	for (unsigned r = 0; r < n; r++)
		end = run->shared->ended[r] > end ? run->shared->ended[r] : end;
	(void)close(run->ready[0]);
	(void)close(run->go[0]);
	run->number++;
	*seconds = end - begin;
	return STATUS_OK;
}

/* Bytes from storage for each byte that is loaded; below 0: the kernel does not say. */
static double read_for_each(const struct run *run)
{
	double sum = 0;
	for (unsigned r = 0; r < N_RANKS; r++) {
		if (run->shared->stored[r] == UINT64_MAX)
			return -1;
		sum += (double)run->shared->stored[r];
	}
	return sum / (double)run->file->bytes;
}

/* All runs. */
struct figures {
	struct samples seconds[N_SUBJECTS];
	struct samples cpu[N_SUBJECTS];
	struct samples reads[N_SUBJECTS];
};

static void add(struct results *results, const struct figures *figures)
{
	double plain = samples_median(&figures->seconds[PLAIN]);
	double hot = samples_median(&figures->seconds[HOT]);
	double longer = hot > plain ? hot : plain;
	for (int s = 0; s < N_SUBJECTS; s++) {
		if (figures->seconds[s].n == 0)
			continue;
		results_samples(results, work, names[s], "s", &figures->seconds[s]);
		char cpu[64];
		(void)snprintf(cpu, sizeof cpu, "%s, CPU of all", names[s]);
		results_samples(results, work, cpu, "s", &figures->cpu[s]);
	}
	results_bar(results, work, "a quarter each: time / one plain load's",
		    samples_median(&figures->seconds[QUARTERS]) / plain, "x", false, 1.15);
	results_bar(results, work, "everything each: time / max(plain, hot copies)",
		    samples_median(&figures->seconds[WHOLES]) / longer, "x", false, 1.15);
	if (figures->seconds[FAR].n > 0)
		results_value(results, work, "everything each: time of tcp: / time of shm:",
			      samples_median(&figures->seconds[FAR]) /
				      samples_median(&figures->seconds[WHOLES]),
			      "x");
	for (int s = QUARTERS; s < N_SUBJECTS; s++) {
		char read[80];
		if (figures->seconds[s].n == 0)
			continue;
		(void)snprintf(read, sizeof read, "%s, read for each byte", names[s]);
		if (samples_median(&figures->reads[s]) < 0)
			results_missing(results, read, "/proc/self/io has no account of them");
		else
			results_bar(results, work, read, samples_median(&figures->reads[s]),
				    "bytes", false, 1.02);
	}
}

static int measure_all(struct run *run, unsigned runs, struct figures *figures,
		       struct results *results)
{
	unsigned n = run->watch != NULL ? N_SUBJECTS : FAR;
	bool no_ucx = false;
	for (unsigned i = 0; i < runs * n; i++) {
		int s = (int)((i + i / n) % n);
		double seconds = 0;
		double cpu = 0;
		bool good = true;
		if (s == FAR && no_ucx)
			continue;
		if (interrupted())
			return fail("stopped by a signal");
		progress_steps("groups", names[s], i, (size_t)runs * n);
		run->subject = s;
		if (measure(run, &seconds, &good) != STATUS_OK)
			return STATUS_FAILED;
		if (!good || run->file->never_cold) {
			results_missing(results, work,
					good ? "the files stay in the page cache"
					     : "a process failed, and said why on stderr");
			return STATUS_OK;
		}
		if (s == FAR && run->shared->note[0] != '\0') {
			no_ucx = true;
			results_missing(results, names[s], run->shared->note);
			continue;
		}
		for (unsigned r = 0; r < N_RANKS; r++)
			cpu += run->shared->cpu[r];
		samples_add(&figures->seconds[s], seconds);
		samples_add(&figures->cpu[s], cpu);
		samples_add(&figures->reads[s], read_for_each(run));
	}
	add(results, figures);
	return STATUS_OK;
}

int bench_ranks(struct bench_file *file, unsigned runs, struct group_watch *watch,
		struct results *results)
{
	struct run run = {.file = file, .watch = watch};
	struct figures *figures = calloc(1, sizeof *figures);
	run.shared = mmap(NULL, sizeof *run.shared, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = figures != NULL && run.shared != MAP_FAILED
			     ? measure_all(&run, runs, figures, results)
			     : fail_memory();
	if (run.shared != MAP_FAILED)
		(void)munmap(run.shared, sizeof *run.shared);
	free(figures);
	return status;
}
