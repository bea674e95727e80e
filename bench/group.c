/* SPDX-License-Identifier: MIT */
/* group FILE - a checkpoint that four processes load together, cold: each a quarter of the rows of
 * every tensor, or each everything.
 *
 *   one process, plain     one load of everything, cold: what the disk gives
 *   4 processes, hot       each preads everything from the page cache at once, with one thread, in
 *                          pieces of 2 MiB, into huge pages that were never touched: what the
 *                          processors and the memory give
 *   a quarter each         time beside the plain load's
 *   everything each        time beside the longer of the plain load's and the hot copies'
 *   read                   bytes that the kernel read from storage for all ranks (/proc/self/io),
 *                          as a multiple of the file
 *
 * Servers run already when they load.  So the processes are started, and have hoist's device and
 * checkpoint open, before the clock starts; the clock stops once the last of them has all its
 * bytes.  Each run has new processes, whose destinations are fresh memory: each process touches
 * and gives back as much just before (pages.h).  Subjects alternate, and
 * each run begins with another one; figures are medians.  With --part, only subjects with that text
 * in their names run, for a profiler. */
#include "config.h"

#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hoist/group.h>
#include <hoist/hoist.h>

#define N_RANKS 4
#define PIECE_BYTES ((size_t)2 << 20)

static const char usage[] =
	"usage: group [--runs N] [--part NAME] [--json PATH] FILE.safetensors\n";

enum { PLAIN, HOT, QUARTERS, WHOLES, N_SUBJECTS };

static const char *const names[N_SUBJECTS] = {"one process, plain", "4 processes, hot copies",
					      "4 ranks, a quarter each",
					      "4 ranks, everything each"};

/* Figures that the ranks of one run share with the parent. */
struct shared {
	double ended[N_RANKS];
	uint64_t stored[N_RANKS]; /* bytes read from storage meanwhile */
	double cpu[N_RANKS];
};

struct run {
	const char *path;
	int subject;
	unsigned number; /* of the group, for its name */
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

/* Touches as much memory as this process will take, says that it is ready, and waits for all. */
static void await_start(const struct run *run)
{
	char byte = 0;
	size_t bytes = (size_t)bench_file_bytes(run->path);
	bench_touch_memory(run->subject == QUARTERS ? bytes / N_RANKS : bytes);
	if (write(run->ready[1], &byte, 1) != 1)
		bench_fail("a pipe: %s", strerror(errno));
	(void)close(run->go[1]);
	if (read(run->go[0], &byte, 1) != 0)
		bench_fail("a pipe: %s", strerror(errno));
}

static void copy_hot(const struct run *run)
{
	size_t bytes = (size_t)bench_file_bytes(run->path);
	int fd = open(run->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		bench_fail("%s: %s", run->path, strerror(errno));
	char *memory = mmap(NULL, bytes + PIECE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		bench_fail("no memory: %s", strerror(errno));
	memory += PIECE_BYTES - (uintptr_t)memory % PIECE_BYTES;
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	await_start(run);
	for (size_t done = 0; done < bytes;) {
		size_t left = bytes - done;
		ssize_t n = pread(fd, memory + done, left < PIECE_BYTES ? left : PIECE_BYTES,
				  (off_t)done);
		if (n <= 0)
			bench_fail("%s: %s", run->path, n < 0 ? strerror(errno) : "it ends");
		done += (size_t)n;
	}
}

/* A quarter of the rows of each tensor; a tensor of a single number is everybody's. */
static hoist_load_slice *quarters_of(hoist_checkpoint *checkpoint, unsigned rank, size_t *n)
{
	size_t n_tensors = hoist_checkpoint_n_tensors(checkpoint);
	hoist_load_slice *slices = calloc(n_tensors + 1, sizeof *slices);
	if (slices == NULL)
		bench_fail("no memory");
	for (size_t t = 0; t < n_tensors; t++) {
		hoist_tensor_info info = {.size = sizeof info};
		bench_must(hoist_checkpoint_tensor(checkpoint, t, &info), "listing", "tensors");
		if (info.rank > 0)
			slices[(*n)++] =
				(hoist_load_slice){.tensor = info.name,
						   .begin = info.shape[0] * rank / N_RANKS,
						   .end = info.shape[0] * (rank + 1) / N_RANKS};
	}
	return slices;
}

static void load(const struct run *run, unsigned rank)
{
	char name[64];
	hoist_device *device = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_load_slice *slices = NULL;
	(void)snprintf(name, sizeof name, "shm:bench-%d-%u", (int)getppid(), run->number);
	const hoist_group group = {
		.size = sizeof group, .name = name, .rank = rank, .n_ranks = N_RANKS};
	bench_must(hoist_device_open("cpu", &device), "opening", "cpu");
	bench_must(hoist_checkpoint_open(run->path, 0, &checkpoint), "opening", run->path);
	hoist_load_options options = {.size = sizeof options, .device = device};
	if (run->subject == QUARTERS)
		slices = quarters_of(checkpoint, rank, &options.n_slices);
	options.slices = slices;
	await_start(run);
	bench_must(run->subject == PLAIN ? hoist_load_start(checkpoint, &options, &load)
					 : hoist_group_load(&group, checkpoint, &options, &load),
		   "loading", run->path);
	bench_must(hoist_load_wait(load), "loading", run->path);
	run->shared->ended[rank] = clock_seconds();
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	free(slices);
}

static void rank_main(const struct run *run, unsigned rank)
{
	uint64_t stored = stored_bytes();
	if (run->subject == HOT) {
		copy_hot(run);
		run->shared->ended[rank] = clock_seconds();
	} else {
		load(run, rank);
	}
	run->shared->stored[rank] = stored == UINT64_MAX ? UINT64_MAX : stored_bytes() - stored;
	run->shared->cpu[rank] = bench_cpu_seconds();
}

static void start(const struct run *run, unsigned n, pid_t *children)
{
	(void)fflush(NULL);
	for (unsigned r = 0; r < n; r++) {
		children[r] = fork();
		if (children[r] < 0)
			bench_fail("fork: %s", strerror(errno));
		if (children[r] == 0) {
			rank_main(run, r);
			_exit(0);
		}
	}
	for (unsigned r = 0; r < n; r++) {
		char byte;
		if (read(run->ready[0], &byte, 1) != 1)
			bench_fail("a process of the group ended");
	}
}

static void prepare(const struct run *run)
{
	if (run->subject == HOT)
		bench_make_hot(run->path);
	else
		bench_make_cold(run->path);
}

/* Returns: seconds from the start to the last end. */
static double measure(struct run *run)
{
	unsigned n = run->subject == PLAIN ? 1 : N_RANKS;
	pid_t children[N_RANKS];
	memset(run->shared, 0, sizeof *run->shared);
	if (pipe(run->ready) < 0 || pipe(run->go) < 0)
		bench_fail("pipe: %s", strerror(errno));
	prepare(run);
	start(run, n, children);
	(void)close(run->ready[1]);
	double begin = clock_seconds();
	(void)close(run->go[1]);
	double end = begin;
	for (unsigned r = 0; r < n; r++) {
		int status = 0;
		if (waitpid(children[r], &status, 0) < 0 || status != 0)
			bench_fail("a process of the group ended with status %#x",
				   (unsigned)status);
	}
	for (unsigned r = 0; r < n; r++)
		end = run->shared->ended[r] > end ? run->shared->ended[r] : end;
	(void)close(run->ready[0]);
	(void)close(run->go[0]);
	run->number++;
	return end - begin;
}

/* Bytes from storage for each byte of the file; below 0: the kernel does not say. */
static double read_for_each(const struct run *run)
{
	double sum = 0;
	for (unsigned r = 0; r < N_RANKS; r++) {
		if (run->shared->stored[r] == UINT64_MAX)
			return -1;
		sum += (double)run->shared->stored[r];
	}
	return sum / (double)bench_file_bytes(run->path);
}

static void add(struct results *results, const struct samples seconds[N_SUBJECTS],
		const struct samples *cpu, const struct samples reads[N_SUBJECTS])
{
	double plain = samples_median(&seconds[PLAIN]);
	double hot = samples_median(&seconds[HOT]);
	double longer = hot > plain ? hot : plain;
	bool all = true;
	for (int s = 0; s < N_SUBJECTS; s++) {
		all = all && seconds[s].n > 0;
		if (seconds[s].n == 0)
			continue;
		results_samples(results, "time", names[s], "s", &seconds[s]);
		results_samples(results, "CPU time of all", names[s], "s", &cpu[s]);
	}
	if (!all) {
		results_missing(results, "the bars", "--part left subjects out");
		return;
	}
	results_bar(results, names[QUARTERS], "time / one plain load's",
		    samples_median(&seconds[QUARTERS]) / plain, "x", false, 1.15);
	results_bar(results, names[WHOLES], "time / max(plain, hot copies)",
		    samples_median(&seconds[WHOLES]) / longer, "x", false, 1.15);
	for (int s = QUARTERS; s <= WHOLES; s++) {
		if (samples_median(&reads[s]) < 0)
			results_missing(results, "bytes from storage",
					"/proc/self/io has no account of them");
		else
			results_bar(results, names[s], "read for each byte of the file",
				    samples_median(&reads[s]), "bytes", false, 1.02);
	}
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	struct bench_option part = {.name = "part", .text = "all"};
	bench_parse(argc, argv, usage, 1, 1, &part, &args);
	struct run run = {.path = args.operands[0]};
	struct samples seconds[N_SUBJECTS] = {{.n = 0}};
	struct samples cpu[N_SUBJECTS] = {{.n = 0}};
	struct samples reads[N_SUBJECTS] = {{.n = 0}};
	struct results results;
	results_create("group", &results);
	run.shared = mmap(NULL, sizeof *run.shared, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run.shared == MAP_FAILED)
		bench_fail("no memory: %s", strerror(errno));
	for (size_t i = 0; i < args.n_runs * N_SUBJECTS; i++) {
		double sum = 0;
		run.subject = (int)((i + i / N_SUBJECTS) % N_SUBJECTS);
		/* For a profiler. */
		if (strcmp(part.text, "all") != 0 && strstr(names[run.subject], part.text) == NULL)
			continue;
		double taken = measure(&run);
		for (unsigned r = 0; r < N_RANKS; r++)
			sum += run.shared->cpu[r];
		samples_add(&seconds[run.subject], taken);
		samples_add(&cpu[run.subject], sum);
		samples_add(&reads[run.subject], read_for_each(&run));
		(void)fprintf(stderr, "%s: %.3f s, CPU %.3f s, read %.3f\n", names[run.subject],
			      taken, sum, read_for_each(&run));
	}
	add(&results, seconds, cpu, reads);
	bench_print(&results, args.json);
	return 0;
}
