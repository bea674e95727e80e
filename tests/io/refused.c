/* SPDX-License-Identifier: MIT */
/* System calls that a filter refuses, as containers do: each case in a child that
 * installs a seccomp filter around itself. */
#include "config.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/error.h"
#include "tests/support/io-helpers.h"
#include "tests/support/numa-refuse.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#define BYTES 300000

/* From now on the system calls @first..@last answer @err in this process. */
static void refuse_calls(long first, long last, int err)
{
	for (long call = first; call <= last; call++)
		OK(refuse(call, err));
}

static int create(enum hoist__engine_kind kind, const struct hoist__file *file,
		  unsigned char *memory, struct hoist__engine **ret)
{
	struct hoist__engine_buffer buffer = {memory, BYTES};
	struct hoist__engine_options options = {.kind = kind,
						.depth = 4,
						.buffers = &buffer,
						.n_buffers = 1,
						.files = &file,
						.n_files = 1};
	return hoist__engine_create(&options, ret);
}

/* Reads all of the file in one request; its result. */
static int read_file(struct hoist__engine *engine, const struct hoist__file *file,
		     unsigned char *memory)
{
	struct hoist__request request = {
		.file = file, .address = memory, .bytes = BYTES, .need = BYTES};
	struct hoist__request *ready = &request;
	OK(hoist__engine_submit(engine, &ready, 1));
	CHECK(hoist__engine_reap(engine, &ready, 1, UINT64_MAX) == 1);
	if (request.result == 0)
		CHECK(first_wrong(file->fd, memory, 0, BYTES) == BYTES);
	return request.result;
}

/* AUTO takes threads and says why; URING fails and says why. */
static void threads_instead(int err, const char *why)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	struct hoist__engine *engine = NULL;
	char note[128], expected[160];

	CHECK(hoist__uring_probe(note, sizeof note) == -err);
	CHECK(strcmp(note, why) == 0);
	CHECK(create(HOIST__ENGINE_URING, file, memory, &engine) == -err && engine == NULL);
	CHECK(strcmp(hoist__error_text(), why) == 0);
	OK(create(HOIST__ENGINE_AUTO, file, memory, &engine));
	CHECK(strcmp(hoist__engine_name(engine), "threads") == 0);
	(void)snprintf(expected, sizeof expected, "%s; threads: 4", why);
	CHECK(strcmp(hoist__engine_reason(engine), expected) == 0);
	OK(read_file(engine, file, memory));
	hoist__engine_destroy(engine);
	free(memory);
	hoist__file_close(file);
}

static void uring_with_eperm(void)
{
	refuse_calls(SYS_io_uring_setup, SYS_io_uring_register, EPERM);
	threads_instead(EPERM, "io_uring refused: EPERM (seccomp or kernel.io_uring_disabled)");
}

static void uring_with_enosys(void)
{
	refuse_calls(SYS_io_uring_setup, SYS_io_uring_register, ENOSYS);
	threads_instead(ENOSYS, "io_uring refused: ENOSYS (this kernel or sandbox has none)");
}

/* A ring can be made, but not entered: the probe tries both. */
static void entering(void)
{
	struct hoist__engine *engine = NULL;
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	OK(refuse(SYS_io_uring_enter, EPERM));
	OK(create(HOIST__ENGINE_AUTO, file, memory, &engine));
	CHECK(strcmp(hoist__engine_name(engine), "threads") == 0);
	OK(read_file(engine, file, memory));
	hoist__engine_destroy(engine);
	hoist__file_close(file);
	free(memory);
}

/* The filter comes while reads are in flight. */
static void a_ring_that_breaks(void)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	struct hoist__engine *engine = NULL;
	if (create(HOIST__ENGINE_URING, file, memory, &engine) != 0)
		return;
	struct hoist__request requests[4], *ready[4];
	for (unsigned i = 0; i < 4; i++) {
		requests[i] = (struct hoist__request){
			.file = file, .address = memory + i * 4096, .bytes = 4096, .need = 4096};
		ready[i] = &requests[i];
	}
	OK(hoist__engine_submit(engine, ready, 3));
	OK(refuse(SYS_io_uring_enter, EPERM));
	OK(hoist__engine_submit(engine, ready + 3, 1));
	reap_all(engine, 4);
	CHECK(requests[3].result == -EPERM);
	for (unsigned i = 0; i < 3; i++)
		CHECK(requests[i].result == 0 || requests[i].result == -EPERM);
	CHECK(hoist__engine_submit(engine, ready, 1) == -EPERM);
	CHECK(hoist__engine_room(engine) == 4);
	hoist__engine_cancel(engine);
	hoist__engine_destroy(engine);
	hoist__file_close(file);
	free(memory);
}

/* The same, with two reads that the kernel still has: nobody ever sees their end.  Nor where it
 * is seen after all, in a ring that any thread may enter: they are their owner's again. */
static void reads_in_a_broken_ring(void)
{
	int ends[2];
	char name[] = "a pipe";
	OK(pipe(ends));
	struct hoist__file file = {
		.path = name, .fd = ends[0], .direct_fd = -1, .memory_align = 1, .offset_align = 1};
	struct hoist__engine *engines[2];
	struct hoist__request requests[2][2], *ready[2];
	for (unsigned i = 0; i < 2; i++) {
		struct hoist__engine_options options = {
			.kind = HOIST__ENGINE_URING, .depth = 2, .shared = i == 1};
		if (hoist__engine_create(&options, &engines[i]) != 0)
			return;
		for (unsigned k = 0; k < 2; k++) {
			requests[i][k] = read_of(&file, new_memory(BYTES), 0, 100);
			ready[k] = &requests[i][k];
		}
		OK(hoist__engine_submit(engines[i], ready, 2));
		CHECK(hoist__engine_reap(engines[i], ready, 2, 1000000) == 0);
		CHECK(!hoist__engine_abandoned(engines[i]));
	}
	OK(refuse(SYS_io_uring_enter, EPERM));
	for (unsigned i = 0; i < 2; i++) /* both find out now */
		CHECK(hoist__engine_reap(engines[i], ready, 2, 0) == 0);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(hoist__engine_reap(engines[i], ready, 1, UINT64_MAX) == 1);
		CHECK(hoist__engine_abandoned(engines[i]));
		CHECK(ready[0] == &requests[i][0] && ready[0]->result == -EPERM);
		memset(ready[0], 0xee, sizeof *ready[0]);
	}
	char bytes[400] = {0};
	CHECK(write(ends[1], bytes, sizeof bytes) == sizeof bytes);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(hoist__engine_reap(engines[i], ready, 2, UINT64_MAX) == 1);
		CHECK(ready[0] == &requests[i][1] && ready[0]->result == -EPERM);
		hoist__engine_destroy(engines[i]);
	}
	/* The memory is the kernel's now. */
}

/* Reads with plain descriptors and addresses instead. */
static void registering(void)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	struct hoist__engine *engine = NULL;
	OK(refuse(SYS_io_uring_register, EPERM));
	if (create(HOIST__ENGINE_URING, file, memory, &engine) != 0)
		return;
	CHECK(strstr(hoist__engine_reason(engine), "files not registered: EPERM") != NULL);
	CHECK(strstr(hoist__engine_reason(engine), "buffers not registered: ") != NULL);
	OK(read_file(engine, file, memory));
	hoist__engine_destroy(engine);
	hoist__file_close(file);
	free(memory);
}

static int open_beneath(int dir, const char *path)
{
	struct hoist__file *file = NULL;
	int err = hoist__file_open(dir, path, NULL, HOIST__FILE_BENEATH, &file);
	hoist__file_close(file);
	return err;
}

static void beneath_without(int err)
{
	char folder[256], path[300];
	OK(mkdir(scratch(folder, sizeof folder, "dir"), 0700));
	(void)snprintf(path, sizeof path, "%s/inside", folder);
	make_file(path, 10);
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(dir >= 0 && symlinkat("inside", dir, "in") == 0);
	OK(symlinkat("/etc/passwd", dir, "out"));
	char outside[300];
	(void)snprintf(outside, sizeof outside, "%s/../hoist-io-outside", folder);
	make_file(outside, 10);
	OK(refuse(SYS_openat2, err));
	CHECK(open_beneath(dir, "inside") == 0 && open_beneath(dir, "in") == 0);
	CHECK(open_beneath(dir, "out") == -EXDEV && open_beneath(dir, path) == -EXDEV);
	CHECK(open_beneath(dir, "../hoist-io-outside") == -EXDEV);
	CHECK(open_beneath(dir, "nothing") == -ENOENT);
	CHECK(chdir(folder) == 0 && open_beneath(AT_FDCWD, "inside") == 0);
	CHECK(open_beneath(AT_FDCWD, "out") == -EXDEV);
	unlinkat(dir, "../hoist-io-outside", 0);
	unlinkat(dir, "in", 0);
	unlinkat(dir, "out", 0);
	unlinkat(dir, "inside", 0);
	close(dir);
	rmdir(folder);
}

static void openat2_with_enosys(void)
{
	beneath_without(ENOSYS);
}

static void openat2_with_eperm(void)
{
	beneath_without(EPERM);
}

/* Without the count there is an estimate, and without that an honest no. */
static void cachestat_call(void)
{
	size_t bytes = 8 << 20;
	struct hoist__file *file = new_file(bytes);
	unsigned char *memory = new_memory(bytes);
	uint64_t resident = 1;
	OK(refuse(SYS_cachestat, EPERM));
	OK(hoist__file_read(file, 0, memory, bytes));
	CHECK(hoist__file_resident(file, 0, bytes, &resident) == 0 && resident == bytes);
	CHECK(hoist__file_resident(file, bytes - 1, 1, &resident) == 0 && resident == 1);
	if (!file->in_memory) {
		OK(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED));
		OK(hoist__file_resident(file, 0, bytes, &resident));
		/* Few places were looked at: it is not known that there is nothing.  And what
		 * looking brings in is not taken for the rest. */
		CHECK(resident > 0 && resident < bytes);
		for (int i = 0; i < 5; i++) {
			(void)usleep(10000);
			CHECK(hoist__file_resident(file, 0, bytes, &resident) == 0 &&
			      resident < bytes);
		}
		OK(refuse(SYS_preadv2, EPERM));
		CHECK(hoist__file_resident(file, 0, bytes, &resident) == -ENOTSUP);
	}
	hoist__file_close(file);
	free(memory);
}

/* An old kernel that does not say what direct reads want: one is tried. */
static void statx_call(void)
{
	struct hoist__file *told = new_file(BYTES);
	bool direct = told->direct_fd >= 0;
	hoist__file_close(told);
	OK(refuse(SYS_statx, ENOSYS));
	struct hoist__file *file = new_file(BYTES);
	if (direct)
		CHECK(file->direct_fd >= 0 && file->offset_align == 4096 &&
		      file->memory_align == 4096);
	hoist__file_close(file);
}

static int in_child(const char *name, void (*run)(void))
{
	fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		run();
		fflush(stdout);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	printf("%s: %s\n", name, status == 0 ? "ok" : "FAILED");
	return status != 0;
}

int main(void)
{
	int failed = 0;
#define IN_CHILD(name) failed += in_child(#name, name)
	IN_CHILD(uring_with_eperm);
	IN_CHILD(uring_with_enosys);
	IN_CHILD(entering);
	IN_CHILD(a_ring_that_breaks);
	IN_CHILD(reads_in_a_broken_ring);
	IN_CHILD(registering);
	IN_CHILD(openat2_with_enosys);
	IN_CHILD(openat2_with_eperm);
	IN_CHILD(cachestat_call);
	IN_CHILD(statx_call);
	return failed != 0;
}
