/* SPDX-License-Identifier: MIT */
/* Threads that import, use and close the same memory of another process, of each kind.  The
 * exporter is this program once more, so that a thread sanitizer can watch.  Exit: 0, 1, 77. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hoist/ipc.h"
#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/threads.h"

#define BYTES 5000
#define N_THREADS 4
#define ROUNDS 150
#define ANY_TIME 30000

/* --- the exporter --- */

static void fill(hoist_buffer *buffer, unsigned char value)
{
	unsigned char bytes[BYTES];
	memset(bytes, value, BYTES);
	OK(hoist_buffer_write(buffer, 0, bytes, BYTES));
}

static int run_exporter(int socket)
{
	const int64_t shape[] = {BYTES};
	hoist_device *cpu = open_device("cpu");
	hoist_device *cuda = open_device("cuda:0");
	char byte = 0;
	hoist_memory *pool = make_memory(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = cuda,
						 .flags = HOIST_MEMORY_SHAREABLE));
	hoist_buffer *buffers[] = {
		make_buffer(cpu, HOIST_U8, 1, shape, HOIST_BUFFER_SHAREABLE),
		make_buffer(cuda, HOIST_U8, 1, shape, 0),
		make_buffer_from(pool, NULL, HOIST_U8, 1, shape, 0),
	};
	for (int i = 0; i < 3; i++) {
		fill(buffers[i], (unsigned char)(i + 1));
		/* Once for each thread. */
		for (int k = 0; k < N_THREADS; k++)
			OK(hoist_ipc_send(socket, buffers[i], ANY_TIME));
	}
	CHECK(recv(socket, &byte, 1, 0) == 1);
	drop_buffers(buffers, 3);
	hoist_memory_unref(pool);
	return 0;
}

static pid_t start_exporter(int sockets[2], const char *self)
{
	char number[16];
	OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
	(void)snprintf(number, sizeof number, "%d", sockets[1]);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		(void)fcntl(sockets[1], F_SETFD, 0);
		execl(self, self, number, (char *)NULL);
		_exit(1);
	}
	close(sockets[1]);
	return pid;
}

/* --- the importers --- */

struct importer {
	int number;
	hoist_buffer *first[3]; /* as received */
};

static void check(hoist_buffer *buffer, unsigned char value)
{
	unsigned char bytes[BYTES];
	OK(hoist_buffer_read(buffer, 0, bytes, BYTES));
	for (size_t i = 0; i < BYTES; i++)
		CHECK(bytes[i] == value);
}

/* Exports the buffer, and drops it before or after the new import, so that at times nobody has
 * the buffer. */
static void use(struct importer *importer, int which)
{
	hoist_ipc_descriptor d;
	hoist_buffer *again = NULL;
	int fd = -1;
	OK(hoist_ipc_export(importer->first[which], &d, &fd));
	if ((importer->number + which) % 2 == 0) {
		hoist_buffer_unref(importer->first[which]);
		importer->first[which] = NULL;
	}
	OK(hoist_ipc_import(&d, sizeof d, fd, NULL, &again));
	if (importer->first[which] != NULL)
		CHECK(hoist_buffer_address(again) == hoist_buffer_address(importer->first[which]));
	check(again, (unsigned char)(which + 1));
	hoist_buffer_unref(importer->first[which]);
	importer->first[which] = again;
	if (fd >= 0)
		close(fd);
}

static void *run_importer(void *arg)
{
	struct importer *importer = arg;
	for (int round = 0; round < ROUNDS; round++)
		for (int which = 0; which < 3; which++)
			use(importer, which);
	drop_buffers(importer->first, 3);
	return NULL;
}

int main(int argc, char **argv)
{
	hoist_device *devices[LIB_N_DEVICES];
	struct importer importers[N_THREADS];
	int sockets[2];
	int fd = memfd_create("probe", MFD_CLOEXEC);
	if (fd < 0 || !lib_emulate()) {
		printf("skipped: no memfd_create(), or the emulators are not built\n");
		return 77;
	}
	close(fd);
	alarm(100);
	if (argc > 1)
		return run_exporter(atoi(argv[1]));
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	CHECK(n > 0);
	self[n] = '\0';
	pid_t exporter = start_exporter(sockets, self);
	lib_open_all(devices);
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < N_THREADS; k++)
			OK(hoist_ipc_receive(sockets[0], ANY_TIME, &importers[k].first[i]));
	for (int k = 0; k < N_THREADS; k++)
		importers[k].number = k;
	run_threads(N_THREADS, run_importer, importers, sizeof importers[0]);
	CHECK(lib_counters("cuda").live_imports == 0 && lib_counters("cuda").live_pools == 0);
	CHECK(lib_drivers_content());
	CHECK(write(sockets[0], "d", 1) == 1);
	CHECK(child_status(exporter) == 0);
	return 0;
}
