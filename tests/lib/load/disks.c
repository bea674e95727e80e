/* SPDX-License-Identifier: MIT */
/* Shards on two disks are read beside each other: in which order requests go to the engine, what a
 * disk that stalls holds up, digests, cancelling, errors.
 *
 * The files lie on one disk; the linker (--wrap) has the library ask here which it is, and sends
 * its requests and reads through here. */
#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/disks.h"
#include "io/engine.h"
#include "tests/support/load-support.h"
#include "tests/support/wrap.h"

#define N_FILES 4 /* every second one on the second disk */
#define N_TENSORS 3
#define CHUNK ((size_t)64 << 10)
#define DEPTH 4u

/* --- two disks --- */

static bool two_disks;

/* "m0", "m1", ...: the number is the only digit behind the last slash. */
static unsigned number_of(const char *path)
{
	const char *name = strrchr(path, '/');
	name = name != NULL ? name + 1 : path;
	return (unsigned)(name[strcspn(name, "0123456789")] - '0');
}

WRAP(void, hoist__disks_find,
     (const struct hoist__file *const *files, unsigned n_files, struct hoist__disks *ret))
{
	__real_hoist__disks_find(files, n_files, ret);
	CHECK(ret->n == 1);
	ret->n = two_disks ? 2 : 1;
}

unsigned __wrap_hoist__disk_of(const struct hoist__disks *disks, const struct hoist__file *file);
unsigned __wrap_hoist__disk_of(const struct hoist__disks *disks, const struct hoist__file *file)
{
	return disks->n > 1 ? number_of(file->path) % 2 : 0;
}

/* --- requests: the pump's thread alone is here --- */

static struct {
	unsigned first[2 * DEPTH]; /* the disks of the first requests */
	unsigned n;		   /* requests */
	unsigned n_before;	   /* of these, before any was taken back */
	unsigned in_engine[2];
	unsigned most[2];
	unsigned file[2]; /* where each disk is */
	uint64_t offset[2];
	bool ordered;
} seen;

static void start_watching(void)
{
	memset(&seen, 0, sizeof seen);
	seen.ordered = true;
}

WRAP(int, hoist__engine_submit,
     (struct hoist__engine * engine, struct hoist__request *const *requests, unsigned n))
{
	for (unsigned i = 0; i < n; i++) {
		unsigned file = number_of(requests[i]->file->path);
		unsigned disk = file % 2;
		uint64_t offset = requests[i]->offset;
		if (seen.n < 2 * DEPTH)
			seen.first[seen.n] = disk;
		seen.n++;
		if (++seen.in_engine[disk] > seen.most[disk])
			seen.most[disk] = seen.in_engine[disk];
		if (file < seen.file[disk] ||
		    (file == seen.file[disk] && offset < seen.offset[disk]))
			seen.ordered = false;
		seen.file[disk] = file;
		seen.offset[disk] = offset;
	}
	return __real_hoist__engine_submit(engine, requests, n);
}

WRAP(int, hoist__engine_reap,
     (struct hoist__engine * engine, struct hoist__request **ret, unsigned max,
      uint64_t timeout_ns))
{
	if (seen.n_before == 0)
		seen.n_before = seen.n;
	int n = __real_hoist__engine_reap(engine, ret, max, timeout_ns);
	for (int i = 0; i < n; i++)
		seen.in_engine[number_of(ret[i]->file->path) % 2]--;
	return n;
}

/* --- reads that wait --- */

static ino_t inodes[N_FILES];
static atomic_uint held;      /* a bit for each disk */
static atomic_bool hold_one;  /* only the first of its reads */
static atomic_uint n_waiting; /* reads */

static void pass(int fd)
{
	struct stat st;
	unsigned file = 0;
	if (atomic_load(&held) == 0 || fstat(fd, &st) < 0)
		return;
	while (file < N_FILES && inodes[file] != st.st_ino)
		file++;
	unsigned bit = 1u << (file % 2);
	if (file == N_FILES || (atomic_load(&held) & bit) == 0)
		return;
	unsigned n = atomic_fetch_add(&n_waiting, 1);
	while ((atomic_load(&held) & bit) != 0 && (n == 0 || !atomic_load(&hold_one)))
		(void)usleep(500);
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	pass(fd);
	return __real_pread(fd, to, bytes, offset);
}

WRAP(ssize_t, preadv2, (int fd, const struct iovec *to, int n, off_t offset, int flags))
{
	pass(fd);
	return __real_preadv2(fd, to, n, offset, flags);
}

static void hold(unsigned disks, bool one)
{
	atomic_store(&n_waiting, 0);
	atomic_store(&hold_one, one);
	atomic_store(&held, disks);
}

/* --- loads --- */

static char path[600];

/* @bytes of a tensor; odd ones begin anywhere. */
static void write_shards(size_t bytes)
{
	static const char *const names[] = {"m0.safetensors", "m1.safetensors", "m2.safetensors",
					    "m3.safetensors"};
	const size_t sizes[N_TENSORS] = {bytes, 1001, bytes + 77};
	size_t first[N_FILES + 1];
	for (size_t f = 0; f < N_FILES; f++) {
		struct stat st;
		first[f] = f * N_TENSORS;
		support_write(names[f], first[f], N_TENSORS, sizes, -1);
		snprintf(path, sizeof path, "%s/%s", support_folder(), names[f]);
		OK(stat(path, &st));
		inodes[f] = st.st_ino;
	}
	first[N_FILES] = N_FILES * N_TENSORS;
	support_write_index(names, first, N_FILES);
	snprintf(path, sizeof path, "%s/model.safetensors.index.json", support_folder());
}

static const char *const specs[] = {"cpu", "cuda:0"};

static hoist_load_options options_for(const char *spec, enum hoist_engine engine, unsigned flags)
{
	hoist_load_options o = {.size = sizeof o,
				.engine = engine,
				.flags = flags,
				.chunk_bytes = CHUNK,
				.depth = DEPTH};
	OK(hoist_device_open(spec, &o.device));
	return o;
}

static hoist_load *start(const hoist_load_options *o, hoist_checkpoint **checkpoint)
{
	hoist_load *load;
	OK(hoist_checkpoint_open(path, 0, checkpoint));
	start_watching();
	OK(hoist_load_start(*checkpoint, o, &load));
	return load;
}

static void end(const hoist_load_options *o, hoist_checkpoint *checkpoint, hoist_load *load)
{
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(o->device);
}

static void run(hoist_load *load, unsigned flags)
{
	while ((flags & HOIST_LOAD_CALLER_DRIVEN) != 0 && hoist_load_step(load, 1000000) == 0)
		continue;
	OK(hoist_load_wait(load));
}

/* --- the order --- */

static void check_order(bool populated)
{
	unsigned n_second = 0;
	CHECK(seen.ordered && seen.in_engine[0] == 0 && seen.in_engine[1] == 0);
	CHECK(seen.most[0] <= DEPTH && seen.most[1] <= (two_disks ? DEPTH : 0) + DEPTH);
	if (populated)
		return;
	/* Each disk gets its depth at once, one request of each in turn. */
	CHECK(seen.n_before == (two_disks ? 2 : 1) * DEPTH);
	for (unsigned i = 0; i < seen.n_before; i++)
		n_second += seen.first[i];
	CHECK(n_second == (two_disks ? DEPTH : 0));
	for (unsigned i = 0; two_disks && i < seen.n_before; i++)
		CHECK(seen.first[i] == i % 2);
}

/* Small ones, and ones to memory that is populated ahead (of 8 MiB and more). */
static void both_are_read_at_once(void)
{
	static const unsigned flags[] = {0, HOIST_LOAD_CALLER_DRIVEN, HOIST_LOAD_DIGEST,
					 HOIST_LOAD_DIGEST | HOIST_LOAD_CALLER_DRIVEN};
	for (int large = 0; large < 2; large++) {
		write_shards(large ? 6 << 20 : 700000);
		for (unsigned i = 0; i < 4 * 2 * 2 * 2; i++) {
			const char *spec = specs[i % 2];
			enum hoist_engine engine =
				i / 2 % 2 == 0 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
			hoist_load_options o = options_for(spec, engine, flags[i / 8]);
			hoist_checkpoint *checkpoint;
			two_disks = i / 4 % 2 == 0;
			hoist_load *load = start(&o, &checkpoint);
			run(load, o.flags);
			check_order(large && i % 2 == 0);
			support_compare(checkpoint, load);
			end(&o, checkpoint, load);
		}
		support_cleanup();
	}
}

/* --- digests --- */

static void digests_are_the_same(void)
{
	write_shards(700000);
	for (size_t d = 0; d < 2; d++) {
		unsigned char digests[2][N_FILES * N_TENSORS][16];
		for (unsigned two = 0; two < 2; two++) {
			hoist_load_options o =
				options_for(specs[d], HOIST_ENGINE_THREADS, HOIST_LOAD_DIGEST);
			hoist_checkpoint *checkpoint;
			two_disks = two != 0;
			hoist_load *load = start(&o, &checkpoint);
			run(load, 0);
			for (size_t i = 0; i < N_FILES * N_TENSORS; i++)
				OK(hoist_load_digest(load, i, digests[two][i]));
			end(&o, checkpoint, load);
		}
		CHECK(memcmp(digests[0], digests[1], sizeof digests[0]) == 0);
	}
	support_cleanup();
}

/* --- a disk that stalls --- */

static uint64_t arrived(const hoist_load *load, uint64_t *total)
{
	uint64_t done;
	hoist_load_progress(load, &done, total);
	return done;
}

/* The other one's bytes all arrive: with all reads of the first waiting, and with one, for which
 * the turn of those behind it waits. */
static void the_other_goes_on(void)
{
	write_shards(700000);
	two_disks = true;
	for (unsigned i = 0; i < 2 * 2 * 2 * 2; i++) {
		unsigned stalled = i / 4 % 2;
		hoist_load_options o = options_for(specs[i % 2], HOIST_ENGINE_THREADS,
						   i / 2 % 2 != 0 ? HOIST_LOAD_DIGEST : 0);
		hoist_checkpoint *checkpoint = support_open(path);
		uint64_t total = 1;
		hoist_load *load;
		start_watching();
		hold(1u << stalled, i / 8 != 0);
		OK(hoist_load_start(checkpoint, &o, &load));
		while (arrived(load, &total) < total &&
		       (arrived(load, &total) < total / 2 || atomic_load(&n_waiting) == 0))
			(void)usleep(1000);
		CHECK(arrived(load, &total) < total);
		hold(0, false);
		run(load, 0);
		support_compare(checkpoint, load);
		end(&o, checkpoint, load);
	}
	support_cleanup();
}

/* --- failures --- */

static void cancelled_in_the_middle(void)
{
	write_shards(700000);
	two_disks = true;
	for (unsigned i = 0; i < 2 * 3; i++) {
		hoist_load_options o = options_for(specs[i % 2], HOIST_ENGINE_THREADS,
						   i < 2 ? HOIST_LOAD_DIGEST : 0);
		hoist_checkpoint *checkpoint = support_open(path);
		hoist_load *load;
		start_watching();
		hold(i < 4 ? 3 : 1, i < 2);
		OK(hoist_load_start(checkpoint, &o, &load));
		while (atomic_load(&n_waiting) == 0)
			(void)usleep(500);
		hoist_load_cancel(load);
		hold(0, false);
		CHECK(hoist_load_wait(load) == -ECANCELED);
		end(&o, checkpoint, load);
	}
	support_cleanup();
}

/* A file of the second disk is cut. */
static void one_fails(void)
{
	two_disks = true;
	for (unsigned i = 0; i < 2 * 2; i++) {
		hoist_load_options o =
			options_for(specs[i % 2], i < 2 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS,
				    HOIST_LOAD_DIGEST);
		hoist_checkpoint *checkpoint;
		char cut[600];
		write_shards(700000);
		checkpoint = support_open(path);
		snprintf(cut, sizeof cut, "%s/m3.safetensors", support_folder());
		OK(truncate(cut, 300000));
		hoist_load *load;
		start_watching();
		OK(hoist_load_start(checkpoint, &o, &load));
		CHECK(hoist_load_wait(load) == -ENODATA);
		support_said("m3.safetensors");
		support_said("t000009");
		end(&o, checkpoint, load);
		support_cleanup();
	}
}

int main(void)
{
	support_emulate("cuda:1");
	both_are_read_at_once();
	digests_are_the_same();
	the_other_goes_on();
	cancelled_in_the_middle();
	one_fails();
	return 0;
}
