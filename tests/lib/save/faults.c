/* SPDX-License-Identifier: MIT */
/* Failures while a save writes: each system call fails in turn, the disk is full, somebody
 * cancels, forks, saves to the same place, or kills the process.  The old file is whole, or the new
 * one is, and nothing else is in the folder. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/child.h"
#include "tests/support/count.h"
#include "tests/support/output-calls.h"
#include "tests/support/save-support.h"
#include "tests/support/under-tsan.h"

/* --- calls that fail: the linker sends the library's through here --- */

enum call { NONE, PREAD, PWRITE, FALLOCATE, FSYNC, FTRUNCATE, LINKAT, RENAMEAT };

static struct {
	enum call call;
	int err;    /* 0: half of the bytes */
	bool lasts; /* the Nth and all that follow */
	unsigned at;
} fault;
static atomic_uint n_calls;

static void set_fault(enum call call, int err, bool lasts, unsigned at)
{
	fault.call = call;
	fault.err = err;
	fault.lasts = lasts;
	fault.at = at;
	atomic_store(&n_calls, 0);
}

static bool spoil(enum call call)
{
	if (fault.call != call)
		return false;
	unsigned n = atomic_fetch_add(&n_calls, 1) + 1;
	return n == fault.at || (fault.lasts && n > fault.at);
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	if (!spoil(PREAD))
		return __real_pread(fd, to, bytes, offset);
	errno = fault.err;
	return -1;
}

WRAP(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t offset))
{
	const size_t half = (bytes / 2 + 4095) & ~(size_t)4095;
	if (!spoil(PWRITE))
		return __real_pwrite(fd, from, bytes, offset);
	if (fault.err == 0)
		return __real_pwrite(fd, from, half < bytes ? half : bytes, offset);
	errno = fault.err;
	return -1;
}

#define SPOILED(name, call, parameters, arguments)                                                 \
	WRAP(int, name, parameters)                                                                \
	{                                                                                          \
		if (!spoil(call))                                                                  \
			return __real_##name arguments;                                            \
		errno = fault.err;                                                                 \
		return -1;                                                                         \
	}

OUTPUT_CALLS(SPOILED)

/* --- a model, of which every byte tells which it is --- */

#define N_TENSORS 3
static const int64_t sizes[N_TENSORS] = {1000003, 1, 3 << 20};

static void fill(unsigned char *bytes, size_t n, unsigned model)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)(i * 13 + i / 4096 + model * 101);
}

static hoist_save *begin(const char *path, unsigned model, size_t times,
			 const hoist_save_options *options)
{
	static const char *const names[] = {"a", "b", "c"};
	hoist_device *cpu = support_device("cpu");
	hoist_save *save;
	OK(hoist_save_create(path, options, &save));
	for (size_t i = 0; i < N_TENSORS; i++) {
		hoist_buffer *buffer;
		const int64_t n = sizes[i] * (i == 2 ? (int64_t)times : 1);
		OK(hoist_buffer_create(cpu, HOIST_U8, 1, &n, 0, &buffer));
		fill(hoist_buffer_data(buffer), (size_t)n, model + (unsigned)i);
		OK(hoist_save_add(save, names[i], buffer));
		hoist_buffer_unref(buffer);
	}
	char text[16];
	snprintf(text, sizeof text, "%u", model);
	OK(hoist_save_metadata(save, "model", text));
	hoist_device_unref(cpu);
	return save;
}

static int save_model(const char *path, unsigned model, const hoist_save_options *options)
{
	hoist_save *save = begin(path, model, 1, options);
	return saved_run(save);
}

/* Returns: the model of which the whole file is; -1: none. */
static int whole_model(const char *path, size_t times)
{
	struct saved saved;
	if (saved_read(path, &saved) != 0)
		return -1;
	const char *key = strstr(saved.header, "\"model\":\"");
	CHECK(key != NULL);
	unsigned model = (unsigned)atoi(key + 9);
	size_t at = saved.data;
	int result = (int)model;
	for (size_t i = 0; i < N_TENSORS; i++) {
		size_t n = (size_t)sizes[i] * (i == 2 ? times : 1);
		unsigned char *want = malloc(n);
		CHECK(want != NULL);
		fill(want, n, model + (unsigned)i);
		if (at + n > saved.n || memcmp(saved.bytes + at, want, n) != 0)
			result = -1;
		free(want);
		at += n;
	}
	saved_free(&saved);
	return result;
}

static unsigned n_descriptors(void)
{
	return count_entries("/proc/self/fd");
}

/* --- each call, each time --- */

static const struct {
	const char *name;
	enum call call;
	int err;
	bool lasts;
	bool refused; /* whenever it strikes, the save fails */
} sweeps[] = {
	{"pwrite EIO", PWRITE, EIO, false, true},
	{"pwrite ENOSPC", PWRITE, ENOSPC, true, true},
	{"pwrite EDQUOT", PWRITE, EDQUOT, false, true},
	{"pwrite, less", PWRITE, 0, false, false},
	{"pwrite, always less", PWRITE, 0, true, false},
	{"pwrite EINTR", PWRITE, EINTR, false, false},
	{"pwrite EINVAL", PWRITE, EINVAL, false, false},
	{"fallocate ENOSPC", FALLOCATE, ENOSPC, false, true},
	{"fallocate EOPNOTSUPP", FALLOCATE, EOPNOTSUPP, true, false},
	{"fallocate EINTR", FALLOCATE, EINTR, false, false},
	{"ftruncate EIO", FTRUNCATE, EIO, false, true},
	{"fsync EIO", FSYNC, EIO, false, true},
	{"linkat EIO", LINKAT, EIO, true, true},
	{"renameat EIO", RENAMEAT, EIO, false, true},
};

static void sweep(size_t s, hoist_budget *budget, unsigned flags)
{
	const char *path = support_path("m.safetensors");
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.flags = flags,
	};
	unsigned model = 0;
	OK(save_model(path, model, &options));
	unsigned before = n_descriptors();
	unsigned n = 1;
	for (;; n++) {
		set_fault(sweeps[s].call, sweeps[s].err, sweeps[s].lasts, n);
		int err = save_model(path, model + 1, &options);
		bool struck = atomic_load(&n_calls) >= n;
		set_fault(NONE, 0, false, 0);
		int now = whole_model(path, 1);
		/* The folder is synchronised after the new file has its name. */
		bool late = sweeps[s].call == FSYNC && n == 2;
		int expected = (int)(err == 0 || late ? model + 1 : model);
		if (now != expected || (struck && sweeps[s].refused) != (err < 0))
			fprintf(stderr, "%s, number %u: %d, model %d\n", sweeps[s].name, n, err,
				now);
		CHECK(now == expected);
		CHECK((struck && sweeps[s].refused) == (err < 0));
		CHECK(err == 0 || err == -sweeps[s].err);
		CHECK(saved_n_names() == 1);
		CHECK(hoist_budget_used(budget) == 0);
		CHECK(n_descriptors() == before);
		model = (unsigned)now;
		if (!struck)
			break;
	}
	CHECK(n > 1);
}

static void every_call_fails(void)
{
	hoist_budget *budget;
	OK(hoist_budget_create(4 << 20, &budget));
	for (size_t s = 0; s < sizeof sweeps / sizeof sweeps[0]; s++)
		/* The header with its digests goes through the page cache: no other way is left. */
		sweep(s, budget, sweeps[s].err == EINVAL ? 0 : HOIST_SAVE_DIGEST);
	hoist_budget_unref(budget);
	OK(unlink(support_path("m.safetensors")));
}

/* --- a file is removed once its replacement is on the disk --- */

/* A second save, with NO_SYNC, where there is another: in one file (0), or in shards. */
static const struct {
	uint64_t before, after; /* shard_bytes */
	unsigned n_fsyncs;	/* of files, their index, and the folder each time */
	const char *old;	/* goes last, or stays */
} replaced[] = {
	{0, 0, 0, "m.safetensors"},
	{1, 1, 0, "m-00003-of-00003.safetensors"},
	{1, 0, 1 + 2, "m-00003-of-00003.safetensors"},
	{1, 2 << 20, 2 + 1 + 2, "m-00003-of-00003.safetensors"},
	{0, 1, 3 + 1 + 2, "m.safetensors"},
};

static int save_in(uint64_t shard_bytes, unsigned model)
{
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.shard_bytes = shard_bytes,
		.flags = HOIST_SAVE_NO_SYNC,
	};
	return save_model(support_path("m.safetensors"), model, &options);
}

static void remove_files(const char *pattern)
{
	char command[700];
	snprintf(command, sizeof command, "rm -f '%s'/%s", support_folder(), pattern);
	OK(system(command));
}

static void remove_all(void)
{
	remove_files("m*");
	CHECK(saved_n_names() == 0);
}

static void removed_once_synced(void)
{
	for (size_t i = 0; i < sizeof replaced / sizeof replaced[0]; i++)
		for (unsigned at = 0; at <= replaced[i].n_fsyncs; at++) {
			OK(save_in(replaced[i].before, 0));
			set_fault(FSYNC, EIO, false, at); /* 0: they are counted only */
			int err = save_in(replaced[i].after, 1);
			unsigned n = atomic_load(&n_calls);
			set_fault(NONE, 0, false, 0);
			if (n != (at == 0 ? replaced[i].n_fsyncs : at))
				fprintf(stderr, "case %zu, %u: %u calls of fsync\n", i, at, n);
			CHECK(n == (at == 0 ? replaced[i].n_fsyncs : at));
			CHECK(err == (at == 0 ? 0 : -EIO));
			CHECK(at == 0 || access(support_path(replaced[i].old), F_OK) == 0);
			bool same = replaced[i].before == replaced[i].after;
			CHECK(at > 0 || same || access(support_path(replaced[i].old), F_OK) < 0);
			remove_all();
		}
}

/* --- an index that cannot be read, of the checkpoint that is replaced --- */

/* One of its shards is read: whether tensors of the others would be lost is not known. */
static void unreadable_index(void)
{
	const hoist_save_options options = {.size = sizeof options};
	const char *shard = "m-00003-of-00003.safetensors";
	hoist_checkpoint *checkpoint;
	hoist_save *save;
	CHECK(save_in(1, 0) == 0 && saved_n_names() == 4);
	OK(hoist_checkpoint_open(support_path(shard), 0, &checkpoint));
	OK(hoist_save_create(support_path("m.safetensors"), &options, &save));
	OK(hoist_save_add_tensor(save, NULL, checkpoint, 0));
	hoist_checkpoint_close(checkpoint);
	set_fault(PREAD, ENOMEM, false, 1);
	int err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	set_fault(NONE, 0, false, 0);
	CHECK(err == -ENOMEM && strstr(hoist_error(), "m.safetensors.index.json") != NULL);
	support_said("where an index must be read, or removed");
	hoist_save_destroy(save);
	CHECK(access(support_path(shard), F_OK) == 0 && saved_n_names() == 4);
	remove_all();
}

/* --- a disk that is too small --- */

static void on_small_disk(const char *folder)
{
	char path[600];
	snprintf(path, sizeof path, "%s/m.safetensors", folder);
	OK(save_model(path, 1, NULL));
	CHECK(save_model(path, 2, NULL) == -ENOSPC); /* two do not fit */
	support_said("free");
	set_fault(FALLOCATE, EOPNOTSUPP, true, 1); /* known only when it is full */
	CHECK(save_model(path, 3, NULL) == -ENOSPC);
	set_fault(NONE, 0, false, 0);
	CHECK(whole_model(path, 1) == 1);
	OK(unlink(path));
	CHECK(rmdir(folder) < 0 && errno == EBUSY); /* a mount, and empty */
	OK(save_model(path, 4, NULL));
}

static void full_disk(void)
{
	char folder[512];
	snprintf(folder, sizeof folder, "%s", support_path("small"));
	OK(mkdir(folder, 0700));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (unshare(CLONE_NEWNS) < 0 ||
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("small", folder, "tmpfs", 0, "size=6m") < 0) {
			printf("no small disk: %s\n", strerror(errno));
			_exit(0);
		}
		on_small_disk(folder);
		exit(0);
	}
	OK(child_status(child));
	OK(rmdir(folder));
}

/* --- cancelling --- */

static void cancelled(void)
{
	const char *path = support_path("m.safetensors");
	unsigned n_cancelled = 0;
	OK(save_model(path, 0, NULL));
	unsigned before = n_descriptors();
	int model = 0;
	for (unsigned i = 0; i < 24 || n_cancelled == 0; i++) {
		hoist_save *save = begin(path, (unsigned)model + 1, 1, NULL);
		OK(hoist_save_start(save));
		usleep(i % 24 * (i % 24) * 60);
		hoist_save_cancel(save);
		int err = hoist_save_wait(save);
		CHECK(err == 0 || err == -ECANCELED);
		n_cancelled += err < 0;
		hoist_save_destroy(save);
		model += err == 0;
		CHECK(whole_model(path, 1) == model);
		CHECK(saved_n_names() == 1);
	}
	CHECK(n_descriptors() == before);
	/* Destroying is cancelling; never started is nothing at all. */
	hoist_save *save = begin(path, 100, 1, NULL);
	OK(hoist_save_start(save));
	hoist_save_destroy(save);
	hoist_save_destroy(begin(path, 101, 1, NULL));
	CHECK(whole_model(path, 1) == model || whole_model(path, 1) == 100);
	OK(unlink(path));
}

/* --- two at once --- */

static void *save_in_thread(void *argument)
{
	const unsigned *model = argument;
	char path[600];
	snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
	for (unsigned i = 0; i < 4; i++)
		OK(save_model(path, *model, NULL));
	return NULL;
}

static void two_at_once(void)
{
	unsigned models[2] = {7, 9};
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		OK(pthread_create(&threads[i], NULL, save_in_thread, &models[i]));
	for (int i = 0; i < 2; i++)
		OK(pthread_join(threads[i], NULL));
	int model = whole_model(support_path("m.safetensors"), 1);
	CHECK(model == 7 || model == 9);
	CHECK(saved_n_names() == 1);
	OK(unlink(support_path("m.safetensors")));
}

/* --- fork --- */

static void forked(void)
{
	const char *path = support_path("m.safetensors");
	hoist_save *idle = begin(path, 1, 1, NULL);
	hoist_save *save = begin(path, 2, 1, NULL);
	OK(hoist_save_start(save));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		int err = hoist_save_wait(save);
		int start = hoist_save_start(idle);
		hoist_save_cancel(save);
		hoist_save_destroy(save);
		hoist_save_destroy(idle);
		_exit(err == -ESTALE && start == -ESTALE ? 0 : 1);
	}
	OK(child_status(child));
	OK(hoist_save_wait(save));
	hoist_save_destroy(save);
	hoist_save_destroy(idle);
	CHECK(whole_model(path, 1) == 2);
	OK(unlink(path));
}

/* --- a crash --- */

#define TIMES 5 /* 16 MiB */

static void killed(unsigned rounds)
{
	const char *path = support_path("m.safetensors");
	unsigned n_new = 0;
	hoist_save *first = begin(path, 0, TIMES, NULL);
	CHECK(hoist_save_start(first) == 0 && hoist_save_wait(first) == 0);
	hoist_save_report report = {.size = sizeof report};
	OK(hoist_save_get_report(first, &report));
	/* Shorter after a save that ended, longer after one that did not: so half of them do. */
	uint64_t most = report.ns / 1000 * 2;
	hoist_save_destroy(first);
	int model = 0;
	for (unsigned i = 1; i <= rounds; i++) {
		int ready[2];
		char byte;
		OK(pipe(ready));
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			hoist_save *save = begin(path, i, TIMES, NULL);
			if (write(ready[1], "", 1) != 1 || hoist_save_start(save) != 0)
				_exit(1);
			(void)hoist_save_wait(save);
			for (;;)
				pause();
		}
		CHECK(read(ready[0], &byte, 1) == 1);
		usleep((useconds_t)(most * (i * 7919 % 997) / 997));
		OK(kill(child, SIGKILL));
		CHECK(waitpid(child, NULL, 0) == child);
		close(ready[0]);
		close(ready[1]);
		int now = whole_model(path, TIMES);
		CHECK(now == model || now == (int)i);
		n_new += now == (int)i;
		most = now == (int)i ? most * 3 / 4 : most * 4 / 3;
		model = now;
		/* A hidden file may stay, and nothing else. */
		remove_files(".m.safetensors.hoist-??????");
		CHECK(saved_n_names() == 1);
	}
	printf("%u of %u saves ended before they were killed\n", n_new, rounds);
	OK(unlink(path));
}

int main(void)
{
	const char *rounds = getenv("HOIST_TEST_ROUNDS");
	/* First, while nothing of the library's has run that a fork would leave behind. */
	if (!UNDER_TSAN)
		full_disk();
	every_call_fails();
	removed_once_synced();
	unreadable_index();
	cancelled();
	two_at_once();
	forked();
	if (!UNDER_TSAN)
		killed(rounds != NULL ? (unsigned)atoi(rounds) : 12);
	support_cleanup();
	return 0;
}
