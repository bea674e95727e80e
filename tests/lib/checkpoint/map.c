/* SPDX-License-Identifier: MIT */
/* Maps of a checkpoint's files.  The linker (--wrap) sends some of the library's calls through this
 * program: a slow disk, files that may not be written, memory that runs out. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "lib/device/device.h"
#include "lib/checkpoint/checkpoint-map.h"
#include "tests/support/count.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/read-gate.h"
#include "tests/support/touch.h"
#include "tests/support/under-tsan.h"
#include "tests/support/wrap.h"

#define MIB ((size_t)1 << 20)
#define N_TENSORS 6

static const size_t sizes[N_TENSORS] = {5 * MIB + 3, 100, 3 * MIB, 7 * MIB + 1234, 0, 2 * MIB};
static const char *const names[] = {"a.safetensors", "b.safetensors"};

/* --- the world --- */

static atomic_int no_writing; /* opening a file for writing fails so */
static atomic_int fail_at;    /* the n-th allocation from now on fails; 0: none */

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	gate_pass();
	return __real_pread(fd, to, bytes, offset);
}

WRAP(ssize_t, sendfile, (int to, int from, off_t *offset, size_t bytes))
{
	gate_pass();
	return __real_sendfile(to, from, offset, bytes);
}

WRAP(int, open, (const char *name, int flags, ...))
{
	errno = no_writing;
	if ((flags & O_ACCMODE) == O_RDWR && no_writing != 0 && strncmp(name, "/proc", 5) == 0)
		return -1;
	return __real_open(name, flags, 0600);
}

static bool fails(void)
{
	return atomic_load(&fail_at) > 0 && atomic_fetch_sub(&fail_at, 1) == 1;
}

WRAP(void *, calloc, (size_t n, size_t bytes))
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

WRAP(void *, malloc, (size_t bytes))
{
	return fails() ? NULL : __real_malloc(bytes);
}

/* --- support --- */

static hoist_device *cpu;
static char paths[2][512];

/* A thread that was joined may still be listed for a moment. */
static void nothing_is_left(size_t fds, size_t threads)
{
	for (uint64_t until = 0; count_entries("/proc/self/task") != threads && patience(&until);)
		continue;
	CHECK(count_entries("/proc/self/task") == threads && count_entries("/proc/self/fd") == fds);
}

/* Two files; the second one holds the last two tensors. */
static hoist_checkpoint *open_two(void)
{
	static const size_t first[] = {0, 4, N_TENSORS};
	hoist_checkpoint *checkpoint;
	for (int f = 0; f < 2; f++) {
		support_write(names[f], first[f], first[f + 1] - first[f], sizes + first[f], 8);
		(void)snprintf(paths[f], sizeof paths[f], "%s/%s", support_folder(), names[f]);
	}
	support_write_index(names, first, 2);
	OK(hoist_checkpoint_open(support_folder(), 0, &checkpoint));
	CHECK(checkpoint->n_tensors == N_TENSORS && checkpoint->n_files == 2);
	return checkpoint;
}

static struct hoist__checkpoint_part part_of(const hoist_checkpoint *checkpoint, size_t t)
{
	const struct hoist__checkpoint_tensor *entry = &checkpoint->tensors[t];
	uint64_t begin = entry->tensor->offset;
	return (struct hoist__checkpoint_part){entry->file, begin, begin + entry->tensor->bytes};
}

/* All tensors. */
static int open_map(hoist_checkpoint *checkpoint, enum hoist__file_map_mode mode, bool populate,
		    struct hoist__checkpoint_map **ret)
{
	struct hoist__checkpoint_part parts[N_TENSORS];
	for (size_t t = 0; t < N_TENSORS; t++)
		parts[t] = part_of(checkpoint, t);
	const struct hoist__checkpoint_map_options o = {
		.checkpoint = checkpoint,
		.device = cpu,
		.mode = mode,
		.populate = populate,
		.parts = parts,
		.n_parts = N_TENSORS,
	};
	return hoist__checkpoint_map_open(&o, ret);
}

static hoist_buffer *buffer_of(const struct hoist__checkpoint_map *map,
			       const hoist_checkpoint *checkpoint, size_t t)
{
	const struct hoist__checkpoint_tensor *entry = &checkpoint->tensors[t];
	size_t at;
	struct hoist__storage *storage =
		hoist__checkpoint_map_place(map, entry->file, entry->tensor->offset, &at);
	hoist_buffer *buffer;
	CHECK(storage != NULL);
	OK(hoist__buffer_over(storage, at, entry->tensor->dtype, entry->tensor->rank,
			      entry->tensor->shape, &buffer));
	return buffer;
}

static unsigned char *bytes_of(const struct hoist__checkpoint_map *map,
			       const hoist_checkpoint *checkpoint, size_t t)
{
	hoist_buffer *buffer = buffer_of(map, checkpoint, t);
	unsigned char *data = hoist_buffer_data(buffer);
	hoist_buffer_unref(buffer);
	return data;
}

/* The bytes of a tensor in its file; freed by the caller. */
static unsigned char *read_tensor(const hoist_checkpoint *checkpoint, size_t t)
{
	const struct hoist__checkpoint_tensor *entry = &checkpoint->tensors[t];
	size_t bytes = (size_t)entry->tensor->bytes;
	unsigned char *want = malloc(bytes + 1);
	CHECK(want != NULL);
	CHECK(__real_pread(checkpoint->files[entry->file].file->fd, want, bytes,
			   (off_t)entry->tensor->offset) == (ssize_t)bytes);
	return want;
}

static void compare(const struct hoist__checkpoint_map *map, const hoist_checkpoint *checkpoint,
		    size_t t)
{
	if (sizes[t] == 0)
		return;
	unsigned char *want = read_tensor(checkpoint, t);
	CHECK(memcmp(bytes_of(map, checkpoint, t), want, sizes[t]) == 0);
	free(want);
}

static int run_to_end(struct hoist__checkpoint_map *map)
{
	int err = 1;
	uint64_t before = 0;
	while (!hoist__checkpoint_map_step(map, 1000000, &err)) {
		uint64_t now = hoist__checkpoint_map_arrived(map, 1000);
		CHECK(err == 1 && now >= before && now <= 1000);
		before = now;
	}
	return err;
}

/* Closes both, and removes the files. */
static void end_case(struct hoist__checkpoint_map *map, hoist_checkpoint *checkpoint)
{
	hoist__checkpoint_map_close(map);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
}

/* --- modes --- */

static void every_mode_shows_the_files(void)
{
	hoist_checkpoint *checkpoint = open_two();
	for (int populate = 0; populate < 2; populate++)
		for (int mode = HOIST__MAP_READ_ONLY; mode <= HOIST__MAP_READ_WRITE; mode++) {
			struct hoist__checkpoint_map *map;
			OK(open_map(checkpoint, (enum hoist__file_map_mode)mode, populate == 1,
				    &map));
			OK(run_to_end(map));
			CHECK(hoist__checkpoint_map_arrived(map, 77) == (populate ? 77 : 0));
			for (size_t t = N_TENSORS; t-- > 0;)
				compare(map, checkpoint, t);
			size_t at;
			CHECK(hoist__storage_is_read_only(hoist__checkpoint_map_place(
				      map, 0, part_of(checkpoint, 1).begin, &at)) ==
			      (mode == HOIST__MAP_READ_ONLY));
			hoist__checkpoint_map_close(map);
		}
	end_case(NULL, checkpoint);
}

/* Writes go where the mode says. */
static void writes_go_where_they_belong(void)
{
	hoist_checkpoint *checkpoint = open_two();
	struct hoist__checkpoint_map *cow, *shared, *only;
	OK(open_map(checkpoint, HOIST__MAP_COPY_ON_WRITE, true, &cow));
	OK(open_map(checkpoint, HOIST__MAP_READ_ONLY, false, &only));
	OK(open_map(checkpoint, HOIST__MAP_READ_WRITE, true, &shared));
	CHECK(run_to_end(cow) == 0 && run_to_end(shared) == 0);
	unsigned char *was = read_tensor(checkpoint, 3);
	unsigned char before = was[0];
	bytes_of(cow, checkpoint, 3)[0] = (unsigned char)(before + 1);
	CHECK(bytes_of(only, checkpoint, 3)[0] == before);
	bytes_of(shared, checkpoint, 3)[0] = (unsigned char)(before + 3);
	CHECK(bytes_of(only, checkpoint, 3)[0] == (unsigned char)(before + 3));
	CHECK(bytes_of(cow, checkpoint, 3)[0] == (unsigned char)(before + 1));
	CHECK(touch(bytes_of(only, checkpoint, 3)) == (unsigned char)(before + 3));
	free(was);
	was = read_tensor(checkpoint, 3);
	CHECK(was[0] == (unsigned char)(before + 3));
	free(was);
	hoist__checkpoint_map_close(cow);
	hoist__checkpoint_map_close(only);
	hoist__checkpoint_map_close(shared);
	end_case(NULL, checkpoint);
}

static void a_file_that_cannot_be_written_is_refused(void)
{
	static const int errors[] = {EACCES, EROFS, EPERM, ETXTBSY};
	hoist_checkpoint *checkpoint = open_two();
	struct hoist__checkpoint_map *map = NULL;
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
		no_writing = errors[i];
		CHECK(open_map(checkpoint, HOIST__MAP_READ_WRITE, false, &map) == -errors[i]);
		support_said(names[0]);
		support_said("copy-on-write");
	}
	no_writing = ENOENT;
	CHECK(open_map(checkpoint, HOIST__MAP_READ_WRITE, false, &map) == -ENOTSUP);
	support_said("/proc");
	no_writing = 0;
	CHECK(map == NULL);
	end_case(NULL, checkpoint);
}

static void two_processes(void)
{
	hoist_checkpoint *checkpoint = open_two();
	struct hoist__checkpoint_map *cow, *shared;
	OK(open_map(checkpoint, HOIST__MAP_COPY_ON_WRITE, false, &cow));
	OK(open_map(checkpoint, HOIST__MAP_READ_WRITE, false, &shared));
	unsigned char *private_bytes = bytes_of(cow, checkpoint, 2);
	unsigned char *file_bytes = bytes_of(shared, checkpoint, 2);
	unsigned char first = file_bytes[0];
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		private_bytes[0]++;
		file_bytes[1]++;
		_exit(private_bytes[0] != (unsigned char)(first + 1));
	}
	unsigned char second = private_bytes[1]; /* before or after: the page is the file's */
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(private_bytes[0] == first && file_bytes[0] == first);
	CHECK(private_bytes[1] == file_bytes[1]);
	CHECK(second == file_bytes[1] || second + 1 == file_bytes[1] || second == 255);
	hoist__checkpoint_map_close(cow);
	hoist__checkpoint_map_close(shared);
	end_case(NULL, checkpoint);
}

/* --- parts --- */

/* A tensor here and there, and a part of a span. */
static void only_wanted_parts_are_read(void)
{
	hoist_checkpoint *checkpoint = open_two();
	struct hoist__checkpoint_part parts[] = {part_of(checkpoint, 1), part_of(checkpoint, 3),
						 part_of(checkpoint, 4), part_of(checkpoint, 5)};
	struct hoist__checkpoint_part wanted[] = {parts[0], parts[1], parts[3]};
	wanted[1].begin += 3 * MIB;
	wanted[1].end -= 2 * MIB;
	wanted[2].end += 5; /* beyond the file: nobody asked for that */
	struct hoist__checkpoint_map_options o = {
		.checkpoint = checkpoint,
		.device = cpu,
		.mode = HOIST__MAP_COPY_ON_WRITE,
		.populate = true,
		.parts = parts,
		.n_parts = 4,
		.wanted = wanted,
		.n_wanted = 3,
	};
	struct hoist__checkpoint_map *map;
	size_t at;
	CHECK(hoist__checkpoint_map_open(&o, &map) == 0 && run_to_end(map) == 0);
	compare(map, checkpoint, 1);
	compare(map, checkpoint, 3);
	compare(map, checkpoint, 5);
	CHECK(hoist__checkpoint_map_place(map, 1, 0, &at) == NULL);
	CHECK(hoist__checkpoint_map_place(map, 7, parts[0].begin, &at) == NULL);
	hoist__checkpoint_map_close(map);
	o.n_parts = 0; /* nothing at all */
	o.n_wanted = 0;
	CHECK(hoist__checkpoint_map_open(&o, &map) == 0 && run_to_end(map) == 0);
	CHECK(hoist__checkpoint_map_place(map, 0, parts[0].begin, &at) == NULL);
	end_case(map, checkpoint);
}

/* Bytes outlive the map and the checkpoint, and go with the last buffer. */
static void buffers_outlive_the_rest(void)
{
	size_t fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
	for (int i = 0; i < 2; i++) {
		hoist_checkpoint *checkpoint = open_two();
		struct hoist__checkpoint_map *map;
		OK(open_map(checkpoint, HOIST__MAP_COPY_ON_WRITE, i == 1, &map));
		hoist_buffer *buffer = buffer_of(map, checkpoint, 3);
		unsigned char *want = read_tensor(checkpoint, 3);
		hoist__checkpoint_map_close(map);
		hoist_checkpoint_close(checkpoint);
		CHECK(memcmp(hoist_buffer_data(buffer), want, sizes[3]) == 0);
		free(want);
		void *page = (void *)((uintptr_t)hoist_buffer_data(buffer) / 4096 * 4096);
		unsigned char there;
		OK(mincore(page, 4096, &there));
		hoist_buffer_unref(buffer);
		CHECK(mincore(page, 4096, &there) == -1);
		nothing_is_left(fds, threads);
		support_cleanup();
	}
}

static void populating_can_be_cancelled(void)
{
	hoist_checkpoint *checkpoint = open_two();
	struct hoist__checkpoint_map *map;
	int err = 1;
	gate_shut_after(2);
	OK(open_map(checkpoint, HOIST__MAP_COPY_ON_WRITE, true, &map));
	CHECK(!hoist__checkpoint_map_step(map, 0, &err) && err == 1);
	hoist__checkpoint_map_cancel(map);
	gate_open();
	CHECK(hoist__checkpoint_map_step(map, UINT64_MAX, &err) && err == -ECANCELED);
	CHECK(gate_asked <= 2 + 4);  /* no thread began another */
	compare(map, checkpoint, 0); /* it is usable even so */
	end_case(map, checkpoint);
}

/* --- failures --- */

/* Touches of a map's pages end in a signal; calls that can know say so. */
static void maps_of_a_file_that_shrinks(void)
{
	for (int mode = HOIST__MAP_READ_ONLY; mode <= HOIST__MAP_READ_WRITE; mode++) {
		hoist_checkpoint *checkpoint = open_two();
		struct hoist__checkpoint_map *map;
		int err = 0;
		OK(open_map(checkpoint, (enum hoist__file_map_mode)mode, false, &map));
		unsigned char *data = bytes_of(map, checkpoint, 3);
		if (mode != HOIST__MAP_READ_ONLY)
			data[0]++;
		uint64_t end = checkpoint->tensors[0].tensor->offset + MIB;
		OK(truncate(paths[0], (off_t)end));
		CHECK(touch(data) == -SIGBUS && "even what was written");
		CHECK(touch(bytes_of(map, checkpoint, 0) + 2 * MIB) == -SIGBUS);
		CHECK(touch(bytes_of(map, checkpoint, 0) + MIB) == 0 && "in the last page");
		CHECK(touch(bytes_of(map, checkpoint, 0) + MIB - 5000) >= 0);
		compare(map, checkpoint, 5);
		hoist__checkpoint_map_close(map);
		CHECK(open_map(checkpoint, (enum hoist__file_map_mode)mode, true, &map) ==
		      -ENODATA);
		support_said(names[0]);
		CHECK(hoist__file_changed(checkpoint->files[0].file) == -EBADMSG && err == 0);
		end_case(NULL, checkpoint);
	}
}

static void populating_a_file_that_shrinks(void)
{
	hoist_checkpoint *checkpoint = open_two();
	struct hoist__checkpoint_map *map;
	uint64_t end = checkpoint->tensors[0].tensor->offset + MIB;
	gate_shut_after(2);
	OK(open_map(checkpoint, HOIST__MAP_COPY_ON_WRITE, true, &map));
	OK(truncate(paths[0], (off_t)end));
	gate_open();
	CHECK(run_to_end(map) == -ENODATA);
	support_said(names[0]);
	end_case(map, checkpoint);
}

static void allocations_that_fail(void)
{
	hoist_checkpoint *checkpoint = open_two();
	size_t fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
	for (int way = 0; way < 2; way++) {
		int n_failed = 0, n = 1;
		for (bool failed = true; failed && n < 200; n++) {
			struct hoist__checkpoint_map *map = NULL;
			fail_at = n;
			int err = open_map(checkpoint, HOIST__MAP_COPY_ON_WRITE, way == 1, &map);
			if (err == 0)
				err = run_to_end(map);
			failed = atomic_load(&fail_at) <= 0;
			fail_at = 0;
			CHECK(err == 0 || err == -ENOMEM);
			n_failed += err < 0;
			if (err == 0) /* one of each file */
				compare(map, checkpoint, 1);
			if (err == 0)
				compare(map, checkpoint, 5);
			hoist__checkpoint_map_close(map);
			CHECK(count_entries("/proc/self/fd") == fds);
		}
		CHECK(n_failed >= 2 && n > 4);
	}
	nothing_is_left(fds, threads);
	end_case(NULL, checkpoint);
}

/* --- to a device --- */

/* Through pinned slots: a driver never sees such pages. */
static void copies_to_a_device_are_staged(void)
{
	hoist_device *device = support_device("cuda:0");
	hoist_checkpoint *checkpoint = open_two();
	struct hoist__checkpoint_map *map;
	OK(open_map(checkpoint, HOIST__MAP_COPY_ON_WRITE, false, &map));
	for (size_t t = 0; t < 4; t++) {
		hoist_buffer *buffer = buffer_of(map, checkpoint, t), *copy;
		unsigned char *want = read_tensor(checkpoint, t), *got = malloc(sizes[t]);
		CHECK(got != NULL);
		OK(hoist_buffer_copy(buffer, device, &copy));
		OK(hoist_buffer_read(copy, 0, got, sizes[t]));
		CHECK(memcmp(got, want, sizes[t]) == 0);
		hoist_buffer_unref(copy);
		hoist_buffer_unref(buffer);
		free(got);
		free(want);
	}
	hoist__checkpoint_map_close(map);
	struct hoist_emulator_counters counters = support_counters("cuda");
	CHECK(counters.host_to_device_bytes > 15 * MIB && counters.pageable_copies == 0);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	support_cleanup();
}

int main(void)
{
	if (getenv("HOIST_EMULATOR_DIR") != NULL)
		support_emulate("cuda:1");
	OK(hoist__device_cpu(&cpu));
	if (!UNDER_TSAN)
		CASE(two_processes);
	CASE(every_mode_shows_the_files);
	CASE(writes_go_where_they_belong);
	CASE(a_file_that_cannot_be_written_is_refused);
	CASE(only_wanted_parts_are_read);
	CASE(buffers_outlive_the_rest);
	CASE(populating_can_be_cancelled);
	CASE(maps_of_a_file_that_shrinks);
	CASE(populating_a_file_that_shrinks);
	CASE(allocations_that_fail);
	if (getenv("HOIST_EMULATOR_DIR") != NULL)
		CASE(copies_to_a_device_are_staged);
	return 0;
}
