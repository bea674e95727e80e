/* SPDX-License-Identifier: MIT */
/* locked [--may NAME=WORDS]... CHECKPOINT FOLDER - what a program does with hoist, once more
 * where something is missing (jail): loads of all kinds, a save to FOLDER, memory that two
 * processes share, pinned memory, streams.  Each twice, so that the second one meets what a first
 * failure left; then no descriptor, thread or map of a file may be held that was not before, and no
 * byte of a budget (locked.h).
 *
 * Every byte is compared with what pread(2) gives.  A scenario that fails must have been allowed
 * to (--may), with an error whose text has the WORDS: why, or the remedy.  Crashes, hangs (120 s)
 * and wrong bytes are never allowed.  Each scenario's line goes to standard output. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hoist/hoist.h>
#include <hoist/ipc.h>

#include "tests/faults/locked.h"

#define BYTES 300000
#define WAIT_MS 20000

static const char *checkpoint_path;
static const char *folder;
static int peer = -1;  /* to the process that shares memory; -1: there is none */
static char said[512]; /* what the last scenario tells beside its name */

/* This program judges the bytes, the library does not: a wrong byte has no error code. */
static void wrong(const char *what)
{
	(void)printf("WRONG: %s\n", what);
	(void)fflush(stdout);
	_exit(1);
}

/* --- loads --- */

static bool same_bytes(hoist_buffer *buffer, const hoist_tensor_info *tensor, int fd)
{
	static unsigned char file[1 << 16], got[1 << 16];
	for (uint64_t at = 0; at < tensor->bytes;) {
		size_t n = sizeof file < tensor->bytes - at ? sizeof file
							    : (size_t)(tensor->bytes - at);
		if (pread(fd, file, n, (off_t)(tensor->offset + at)) != (ssize_t)n ||
		    hoist_buffer_read(buffer, (size_t)at, got, n) != 0 || memcmp(file, got, n) != 0)
			return false;
		at += n;
	}
	return true;
}

static int compare_tensor(hoist_checkpoint *checkpoint, hoist_load *load, size_t i, bool replica)
{
	size_t which = 0;
	hoist_buffer *buffer = NULL;
	hoist_tensor_info tensor = {.size = sizeof tensor};
	hoist_file_info file = {.size = sizeof file};
	int err = hoist_load_tensor(load, i, &which, &buffer);
	if (err == 0 && replica) {
		hoist_buffer_unref(buffer);
		err = hoist_load_replica(load, 0, i, &buffer);
	}
	if (err < 0)
		return err;
	(void)hoist_checkpoint_tensor(checkpoint, which, &tensor);
	(void)hoist_checkpoint_file(checkpoint, tensor.file, &file);
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || !same_bytes(buffer, &tensor, fd))
		wrong(tensor.name);
	(void)close(fd);
	hoist_buffer_unref(buffer);
	return 0;
}

static int compare_all(hoist_checkpoint *checkpoint, hoist_load *load, bool replica)
{
	int err = 0;
	for (size_t i = 0; err == 0 && i < hoist_load_n_tensors(load); i++)
		err = compare_tensor(checkpoint, load, i, false);
	for (size_t i = 0; err == 0 && replica && i < hoist_load_n_tensors(load); i++)
		err = compare_tensor(checkpoint, load, i, true);
	return err;
}

static void tell_report(hoist_load *load)
{
	hoist_load_report report = {.size = sizeof report};
	if (hoist_load_get_report(load, &report) != 0)
		wrong("a load has no report");
	(void)snprintf(said, sizeof said, "%s: %.200s; %.200s", report.engine, report.engine_reason,
		       report.io_reason);
}

static int load_path(const char *path, hoist_load_options *o)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	o->size = sizeof *o;
	o->budget = held_budget;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	if (err == 0)
		err = hoist_load_start(checkpoint, o, &load);
	if (err == 0)
		err = hoist_load_wait(load);
	if (err == 0)
		tell_report(load);
	if (err == 0)
		err = compare_all(checkpoint, load, o->n_replicas > 0);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return err;
}

static int load_as(enum hoist_io io, unsigned flags)
{
	hoist_load_options o = {.io = io, .flags = flags};
	return load_path(checkpoint_path, &o);
}

static int load_eager(void)
{
	return load_as(HOIST_IO_AUTO, 0);
}

static int load_direct(void)
{
	return load_as(HOIST_IO_DIRECT, HOIST_LOAD_CALLER_DRIVEN);
}

static int load_cached(void)
{
	return load_as(HOIST_IO_CACHED, HOIST_LOAD_DROP_CACHE);
}

static int load_map(void)
{
	return load_as(HOIST_IO_MAP, 0);
}

static int load_map_populate(void)
{
	return load_as(HOIST_IO_MAP, HOIST_LOAD_POPULATE);
}

static int load_threads(void)
{
	hoist_load_options o = {.engine = HOIST_ENGINE_THREADS, .io = HOIST_IO_DIRECT};
	return load_path(checkpoint_path, &o);
}

static int load_device(void)
{
	hoist_device *first = NULL;
	hoist_device *second = NULL;
	int err = hoist_device_open("cuda:0", &first);
	if (err == 0)
		err = hoist_device_open("cuda:1", &second);
	hoist_load_options o = {.device = first, .replicas = &second, .n_replicas = 1};
	if (err == 0)
		err = load_path(checkpoint_path, &o);
	hoist_device_unref(second);
	hoist_device_unref(first);
	return err;
}

/* --- memory --- */

static void fill(unsigned char *bytes, unsigned seed)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static void expect_bytes(hoist_buffer *buffer, unsigned seed, const char *what)
{
	static unsigned char expected[BYTES], got[BYTES];
	fill(expected, seed);
	if (hoist_buffer_read(buffer, 0, got, BYTES) != 0 || memcmp(expected, got, BYTES) != 0)
		wrong(what);
}

static int new_buffer(const char *on, unsigned flags, unsigned seed, hoist_buffer **ret)
{
	static unsigned char bytes[BYTES];
	const int64_t shape[] = {BYTES};
	hoist_device *device = NULL;
	int err = hoist_device_open(on, &device);
	if (err == 0)
		err = hoist_buffer_create(device, HOIST_U8, 1, shape, flags, ret);
	hoist_device_unref(device);
	fill(bytes, seed);
	return err < 0 ? err : hoist_buffer_write(*ret, 0, bytes, BYTES);
}

static int share(void)
{
	hoist_buffer *buffer = NULL;
	char word = 0;
	if (peer < 0) {
		(void)snprintf(said, sizeof said, "not tried: no second process");
		return 0;
	}
	int err = new_buffer("cpu", HOIST_BUFFER_SHAREABLE, 3, &buffer);
	if (err == 0)
		err = hoist_ipc_send(peer, buffer, WAIT_MS);
	if (err == 0 && (recv(peer, &word, 1, 0) != 1 || word != 'y'))
		wrong("what another process sees");
	if (err == 0)
		expect_bytes(buffer, 4, "what another process wrote");
	hoist_buffer_unref(buffer);
	return err;
}

/* The other one: sees what is there, writes, and says so. */
static int be_peer(int socket)
{
	static unsigned char bytes[BYTES];
	hoist_buffer *buffer = NULL;
	int err;
	while ((err = hoist_ipc_receive(socket, 10 * WAIT_MS, &buffer)) == 0) {
		expect_bytes(buffer, 3, "what came from another process");
		fill(bytes, 4);
		if (hoist_buffer_write(buffer, 0, bytes, BYTES) != 0 || write(socket, "y", 1) != 1)
			return 1;
		hoist_buffer_unref(buffer);
	}
	return err == -EPIPE ? 0 : 1;
}

static int pinned(void)
{
	const int64_t shape[] = {BYTES};
	static unsigned char bytes[BYTES];
	hoist_memory *memory = NULL;
	hoist_buffer *buffer = NULL;
	const hoist_memory_options o = {
		.size = sizeof o, .kind = HOIST_MEMORY_PINNED, .budget = held_budget};
	int err = hoist_memory_create(&o, &memory);
	if (err == 0)
		err = hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, shape, 0, &buffer);
	fill(bytes, 5);
	if (err == 0)
		err = hoist_buffer_write(buffer, 0, bytes, BYTES);
	if (err == 0)
		expect_bytes(buffer, 5, "pinned memory");
	hoist_buffer_unref(buffer);
	hoist_memory_unref(memory);
	return err;
}

static int placed(void)
{
	static const int node = 0;
	const int64_t shape[] = {BYTES};
	hoist_memory *memory = NULL;
	hoist_buffer *buffer = NULL;
	const hoist_memory_options o = {.size = sizeof o,
					.placement = HOIST_PLACE_BIND,
					.nodes = &node,
					.n_nodes = 1,
					.region_bytes = (size_t)2 << 20,
					.budget = held_budget};
	int err = hoist_memory_create(&o, &memory);
	if (err == 0)
		err = hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, shape, 0, &buffer);
	hoist_buffer_unref(buffer);
	hoist_memory_unref(memory);
	return err;
}

static int copy_over(const char *on)
{
	hoist_device *device = NULL;
	hoist_stream *stream = NULL;
	hoist_buffer *from = NULL;
	hoist_buffer *there = NULL;
	int err = hoist_device_open(on, &device);
	if (err == 0)
		err = hoist_stream_create(device, &stream);
	if (err == 0)
		err = new_buffer("cpu", 0, 6, &from);
	if (err == 0)
		err = hoist_buffer_copy_to_stream(from, stream, &there);
	if (err == 0)
		err = hoist_stream_synchronize(stream);
	if (err == 0)
		expect_bytes(there, 6, "a copy on a stream");
	hoist_buffer_unref(there);
	hoist_buffer_unref(from);
	hoist_stream_unref(stream);
	hoist_device_unref(device);
	return err;
}

static int streams(void)
{
	int err = copy_over("cpu");
	return err == 0 ? copy_over("cuda:0") : err;
}

/* --- a save --- */

static int save_buffer(const char *path, hoist_buffer *buffer)
{
	hoist_save *save = NULL;
	hoist_save_report report = {.size = sizeof report};
	const hoist_save_options o = {.size = sizeof o, .budget = held_budget};
	int err = hoist_save_create(path, &o, &save);
	if (err == 0)
		err = hoist_save_add(save, "a", buffer);
	if (err == 0)
		err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	if (err == 0 && hoist_save_get_report(save, &report) == 0)
		(void)snprintf(said, sizeof said, "%.200s; %.200s", report.engine_reason,
			       report.io_reason);
	hoist_save_destroy(save);
	return err;
}

static int save(void)
{
	char path[4096];
	char why[sizeof said];
	hoist_buffer *buffer = NULL;
	hoist_load_options o = {0};
	(void)snprintf(path, sizeof path, "%s/saved.safetensors", folder);
	int err = new_buffer("cpu", 0, 7, &buffer);
	if (err == 0)
		err = save_buffer(path, buffer);
	memcpy(why, said, sizeof why);
	if (err == 0)
		err = load_path(path, &o);
	memcpy(said, why, sizeof said);
	hoist_buffer_unref(buffer);
	/* The kernel's word for what stays behind: nothing, or the whole file. */
	if (unlink(path) < 0 && err == 0)
		wrong("a save that left no file");
	return err;
}

static const struct scenario {
	const char *name;
	int (*run)(void);
} scenarios[] = {
	{"eager", load_eager},	   {"direct", load_direct}, {"cached", load_cached},
	{"threads", load_threads}, {"map", load_map},	    {"map-populate", load_map_populate},
	{"device", load_device},   {"save", save},	    {"share", share},
	{"pinned", pinned},	   {"placed", placed},	    {"streams", streams},
};

#define N_SCENARIOS (sizeof scenarios / sizeof scenarios[0])

/* --- all of them --- */

static char **may; /* "NAME=WORDS" */
static int n_may;

static bool may_fail(const char *name, const char *text)
{
	size_t n = strlen(name);
	for (int i = 0; i < n_may; i++)
		if (strncmp(may[i], name, n) == 0 && may[i][n] == '=' &&
		    strstr(text, may[i] + n + 1) != NULL)
			return true;
	return false;
}

static bool run_once(const struct scenario *scenario)
{
	said[0] = '\0';
	int err = scenario->run();
	bool right =
		err == 0 || (hoist_error()[0] != '\0' && may_fail(scenario->name, hoist_error()));
	(void)printf("%-14s %s%s%s\n", scenario->name,
		     err == 0 ? "done"
		     : right  ? "refused: "
			      : "FAILED: ",
		     err == 0 ? (said[0] != '\0' ? ", " : "") : "",
		     err == 0 ? said : hoist_error());
	if (!right)
		(void)printf("%-14s that was %s\n", "", strerrorname_np(-err));
	(void)fflush(stdout);
	return right;
}

/* A stand-in's streams are threads, and a device keeps up to four streams for the next copies: how
 * many there are by the second round is how many copies met.  A leak adds up in each round. */
#define ROUNDS_MOST 7

static int run_all(void)
{
	int n_wrong = 0;
	enum held_verdict verdict = HELD_MORE_THREADS;
	if (hoist_budget_create(HOIST_BUDGET_DEFAULT, &held_budget) < 0)
		wrong("no budget");
	for (int round = 0; round < ROUNDS_MOST && verdict == HELD_MORE_THREADS; round++) {
		struct held before = {0};
		if (round > 0)
			before = held_idle();
		for (size_t i = 0; i < N_SCENARIOS; i++)
			n_wrong += !run_once(&scenarios[i]);
		if (round > 0)
			verdict = held_compare(&before);
	}
	n_wrong += verdict != HELD_AS_BEFORE;
	hoist_budget_unref(held_budget);
	return n_wrong == 0 ? 0 : 1;
}

/* Before anything of the library's is used: a child of fork begins as this does. */
static pid_t start_peer(void)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	pid_t child = fork();
	if (child == 0) {
		(void)close(ends[0]);
		_exit(be_peer(ends[1]));
	}
	(void)close(ends[1]);
	if (child > 0)
		peer = ends[0];
	else
		(void)close(ends[0]);
	return child;
}

int main(int argc, char **argv)
{
	may = argv;
	int i = 1;
	for (; i + 1 < argc && strcmp(argv[i], "--may") == 0; i += 2)
		may[n_may++] = argv[i + 1];
	if (argc - i != 2) {
		(void)fprintf(stderr,
			      "usage: locked [--may NAME=WORDS]... CHECKPOINT FOLDER\n");
		return 2;
	}
	checkpoint_path = argv[i];
	folder = argv[i + 1];
	(void)alarm(120);
	pid_t child = start_peer();
	int status = run_all();
	int ended = 0;
	(void)close(peer);
	if (child > 0 && (waitpid(child, &ended, 0) != child || ended != 0)) {
		(void)printf("the process that shares memory ended with %#x\n", (unsigned)ended);
		status = 1;
	}
	return status;
}
