/* SPDX-License-Identifier: MIT */
/* Buffers that two processes use: host memory, device memory, shareable pools.  Exporter and
 * importer are children of a process that opens nothing.  On the stand-ins; plain and pooled device
 * memory on the real driver too, where there is one.  Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/lib-support.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,        \
				hoist_error());                                                    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#define OK(call) CHECK((call) == 0)
/* It fails with @code, and says @words. */
#define REFUSED(call, code, words)                                                                 \
	do {                                                                                       \
		CHECK((call) == (code));                                                           \
		CHECK(strstr(hoist_error(), words) != NULL);                                       \
	} while (0)

#define N 3000 /* elements of u16 */
#define BYTES (2 * (size_t)N)
#define ANY_TIME 20000

static const char *spec; /* the pair's device */
static hoist_device *device;
static int peer;

/* --- the two processes --- */

static void tell(void)
{
	CHECK(write(peer, "d", 1) == 1);
}

static void hear(void)
{
	char word = 0;
	CHECK(recv(peer, &word, 1, 0) == 1 && word == 'd');
}

static void run_side(int socket, void (*body)(void))
{
	peer = socket;
	alarm(60);
	OK(hoist_device_open(spec, &device));
	body();
	hoist_device_unref(device);
	exit(0);
}

static void run_pair_over(int type, const char *on, void (*exporter)(void), void (*importer)(void))
{
	int sockets[2];
	pid_t children[2];
	spec = on;
	OK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets));
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			close(sockets[!i]);
			run_side(sockets[i], i == 0 ? exporter : importer);
		}
	}
	close(sockets[0]);
	close(sockets[1]);
	for (int i = 0; i < 2; i++) {
		int status = -1;
		CHECK(waitpid(children[i], &status, 0) == children[i]);
		CHECK(status == 0);
	}
}

static void run_pair(const char *on, void (*exporter)(void), void (*importer)(void))
{
	run_pair_over(SOCK_STREAM, on, exporter, importer);
}

/* --- bytes --- */

static void make_pattern(unsigned seed, unsigned char *bytes)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + (i >> 8) + seed);
}

static void write_pattern(hoist_buffer *buffer, unsigned seed)
{
	unsigned char bytes[BYTES];
	make_pattern(seed, bytes);
	OK(hoist_buffer_write(buffer, 0, bytes, BYTES));
}

static void check_pattern(hoist_buffer *buffer, unsigned seed)
{
	unsigned char expected[BYTES];
	unsigned char bytes[BYTES];
	make_pattern(seed, expected);
	OK(hoist_buffer_read(buffer, 0, bytes, BYTES));
	CHECK(memcmp(bytes, expected, BYTES) == 0);
}

static hoist_buffer *make_buffer(hoist_device *on, unsigned flags)
{
	const int64_t shape[] = {N};
	hoist_buffer *made = NULL;
	OK(hoist_buffer_create(on, HOIST_U16, 1, shape, flags, &made));
	return made;
}

static hoist_buffer *make_from(hoist_memory *memory)
{
	const int64_t shape[] = {N};
	hoist_buffer *made = NULL;
	OK(hoist_buffer_create_from(memory, NULL, HOIST_U16, 1, shape, 0, &made));
	return made;
}

static hoist_buffer *get(void)
{
	hoist_buffer *got = NULL;
	OK(hoist_ipc_receive(peer, ANY_TIME, &got));
	return got;
}

static hoist_buffer_info info_of(hoist_buffer *buffer)
{
	hoist_buffer_info info = {.size = sizeof info};
	OK(hoist_buffer_get_info(buffer, &info));
	return info;
}

/* --- what both sides see, whatever the memory --- */

static void export_buffer(hoist_buffer *buffer)
{
	const hoist_slice part[] = {HOIST_STEP(2000, 500, -3)};
	hoist_buffer *view = NULL;
	hoist_buffer *back = NULL;
	write_pattern(buffer, 1);
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	hear();
	check_pattern(buffer, 2);
	/* A view with negative strides, from the middle. */
	OK(hoist_buffer_slice(buffer, 1, part, &view));
	OK(hoist_ipc_send(peer, view, ANY_TIME));
	/* And what comes back is this process's own, at its address. */
	back = get();
	CHECK(hoist_buffer_address(back) == hoist_buffer_address(view));
	CHECK(hoist_buffer_strides(back)[0] == -3);
	hoist_buffer_unref(back);
	hoist_buffer_unref(view);
	hear();
	check_pattern(buffer, 3);
}

static void import_buffer(void)
{
	hoist_buffer *got = get();
	hoist_buffer *again = NULL;
	CHECK(hoist_buffer_dtype(got) == HOIST_U16 && hoist_buffer_rank(got) == 1);
	CHECK(hoist_buffer_shape(got)[0] == N && hoist_buffer_is_contiguous(got));
	CHECK(hoist_buffer_device(got) == device);
	CHECK(info_of(got).is_mapped && !info_of(got).is_read_only);
	check_pattern(got, 1);
	write_pattern(got, 2);
	uintptr_t address = hoist_buffer_address(got);
	tell();
	hoist_buffer *view = get();
	CHECK(hoist_buffer_shape(view)[0] == 500 && hoist_buffer_strides(view)[0] == -3);
	/* One mapping, as long as any of them is open. */
	CHECK(hoist_buffer_address(view) == address + 2000 * 2);
	OK(hoist_ipc_send(peer, view, ANY_TIME));
	hoist_buffer_unref(view);
	again = hoist_buffer_ref(got);
	write_pattern(again, 3);
	hoist_buffer_unref(again);
	OK(hoist_buffer_close(got, NULL));
	hoist_buffer_unref(got);
	tell();
}

/* --- host memory --- */

/* proves: S2.19 V157 */
static void export_host(void)
{
	hoist_buffer *buffer = make_buffer(device, HOIST_BUFFER_SHAREABLE);
	export_buffer(buffer);
	hoist_buffer_unref(buffer);
}

/* The exporter lets go of it and ends: the bytes stay.  Empty ones travel as well. */
static void export_host_and_end(void)
{
	const int64_t none[] = {4, 0};
	hoist_buffer *buffer = make_buffer(device, HOIST_BUFFER_SHAREABLE);
	hoist_buffer *empty = NULL;
	OK(hoist_buffer_create(device, HOIST_F64, 2, none, 0, &empty));
	write_pattern(buffer, 8);
	OK(hoist_ipc_send(peer, empty, ANY_TIME));
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	hoist_buffer_unref(empty);
	hoist_buffer_unref(buffer);
}

static void import_host_that_ends(void)
{
	hoist_buffer *none = NULL;
	char end = 0;
	hoist_buffer *empty = get();
	CHECK(hoist_buffer_rank(empty) == 2 && hoist_buffer_shape(empty)[0] == 4);
	CHECK(hoist_buffer_elements(empty) == 0 && hoist_buffer_dtype(empty) == HOIST_F64);
	hoist_buffer *got = get();
	CHECK(recv(peer, &end, 1, 0) == 0);
	check_pattern(got, 8);
	write_pattern(got, 9);
	check_pattern(got, 9);
	hoist_buffer_unref(got);
	hoist_buffer_unref(empty);
	REFUSED(hoist_ipc_receive(peer, ANY_TIME, &none), -EPIPE, "closed");
	CHECK(none == NULL);
}

/* What is frozen is read-only for the importer, and the kernel knows. */
static void export_frozen(void)
{
	hoist_ipc_descriptor d;
	int fd = -1;
	hoist_buffer *buffer = make_buffer(device, HOIST_BUFFER_SHAREABLE);
	write_pattern(buffer, 5);
	OK(hoist_buffer_freeze(buffer));
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	OK(hoist_ipc_export(buffer, &d, &fd));
	CHECK((d.flags & HOIST_IPC_READ_ONLY) != 0);
	CHECK(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	close(fd);
	hear();
	check_pattern(buffer, 5);
	hoist_buffer_unref(buffer);
}

static void import_frozen(void)
{
	unsigned char byte = 0;
	hoist_buffer *got = get();
	CHECK(info_of(got).is_read_only);
	check_pattern(got, 5);
	CHECK(hoist_buffer_write(got, 0, &byte, 1) == -EROFS);
	hoist_buffer_unref(got);
	tell();
}

/* --- device memory --- */

/* proves: S2.19 V157 */
static void export_plain(void)
{
	hoist_buffer *neighbour = make_buffer(device, HOIST_BUFFER_ZERO);
	hoist_buffer *buffer = make_buffer(device, 0);
	unsigned char bytes[BYTES];
	unsigned char zeros[BYTES];
	export_buffer(buffer);
	memset(zeros, 0, BYTES);
	OK(hoist_buffer_read(neighbour, 0, bytes, BYTES));
	CHECK(memcmp(bytes, zeros, BYTES) == 0);
	hoist_buffer_unref(buffer);
	hoist_buffer_unref(neighbour);
}

static hoist_memory *make_pool(unsigned flags)
{
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_DRIVER_POOL,
					      .flags = flags,
					      .device = device};
	hoist_memory *made = NULL;
	OK(hoist_memory_create(&options, &made));
	return made;
}

/* proves: S2.19 S2.22 V157 */
static void export_pooled(void)
{
	hoist_memory *pool = make_pool(HOIST_MEMORY_SHAREABLE);
	hoist_memory_info info = {.size = sizeof info};
	OK(hoist_memory_get_info(pool, &info));
	CHECK(info.is_shareable && !info.is_mapped);
	hoist_buffer *buffer = make_from(pool);
	export_buffer(buffer);
	hoist_buffer_unref(buffer);
	hoist_memory_unref(pool);
}

/* Plain memory of the driver's whose regions come from a shareable pool. */
static void export_carved(void)
{
	hoist_memory *pool = make_pool(HOIST_MEMORY_SHAREABLE);
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_DEVICE,
					      .region_bytes = (size_t)4 << 20,
					      .device = device,
					      .upstream = pool};
	hoist_memory *memory = NULL;
	OK(hoist_memory_create(&options, &memory));
	hoist_buffer *buffer = make_from(memory);
	export_buffer(buffer);
	hoist_buffer_unref(buffer);
	hoist_memory_unref(memory);
	hoist_memory_unref(pool);
}

/* --- descriptors and resources, one by one: what a binding does --- */

struct letter {
	hoist_ipc_descriptor d;
	unsigned char uuid[16];
};

static void send_fd(int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.header = {0}};
	char byte = 'f';
	struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(part), &fd, sizeof fd);
	CHECK(sendmsg(peer, &message, 0) == 1);
}

static int get_fd(void)
{
	int fd = -1;
	char byte = 0;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &bytes,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	CHECK(recvmsg(peer, &message, MSG_CMSG_CLOEXEC) == 1);
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	CHECK(part != NULL && part->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(part), sizeof fd);
	return fd;
}

static void export_letters(void)
{
	hoist_memory *pools[2];
	hoist_buffer *buffers[2];
	for (int i = 0; i < 2; i++) {
		struct letter letter;
		int fd = -1;
		pools[i] = make_pool(HOIST_MEMORY_SHAREABLE);
		buffers[i] = make_from(pools[i]);
		write_pattern(buffers[i], (unsigned)i);
		OK(hoist_ipc_memory_uuid(pools[i], letter.uuid));
		OK(hoist_ipc_export(buffers[i], &letter.d, NULL));
		CHECK(memcmp(letter.d.memory, letter.uuid, 16) == 0);
		CHECK(write(peer, &letter, sizeof letter) == (ssize_t)sizeof letter);
		OK(hoist_ipc_export_memory(pools[i], &fd));
		CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
		send_fd(fd);
		close(fd);
	}
	hear();
	for (int i = 0; i < 2; i++) {
		check_pattern(buffers[i], 20 + (unsigned)i);
		hoist_buffer_unref(buffers[i]);
		hoist_memory_unref(pools[i]);
	}
}

static void refuse_fds(int good, const struct letter *letter)
{
	hoist_memory *none = NULL;
	hoist_device *cpu = NULL;
	OK(hoist_device_open("cpu", &cpu));
	REFUSED(hoist_ipc_import_memory(device, -1, letter->uuid, &none), -EINVAL, "-1");
	int closed = dup(good);
	close(closed);
	CHECK(hoist_ipc_import_memory(device, closed, letter->uuid, &none) == -EBADF);
	REFUSED(hoist_ipc_import_memory(cpu, good, letter->uuid, &none), -EINVAL, "CPU");
	CHECK(hoist_ipc_import_memory(device, good, NULL, &none) == -EINVAL);
	CHECK(hoist_ipc_import_memory(NULL, good, letter->uuid, &none) == -EINVAL);
	int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK(hoist_ipc_import_memory(device, other, letter->uuid, &none) < 0);
	close(other);
	CHECK(none == NULL);
	hoist_device_unref(cpu);
}

/* proves: S2.17 S2.18 S2.19 S2.20 S2.22 V155 V156 V159 V160 */
static void import_letters(void)
{
	struct letter letters[2];
	hoist_memory *pools[2] = {NULL, NULL};
	hoist_memory *found = NULL;
	hoist_buffer *none = NULL;
	int fds[2];
	for (int i = 0; i < 2; i++) {
		CHECK(recv(peer, &letters[i], sizeof letters[i], MSG_WAITALL) ==
		      (ssize_t)sizeof letters[i]);
		fds[i] = get_fd();
	}
	const hoist_ipc_descriptor *d = &letters[0].d;
	/* The resource was never sent. */
	REFUSED(hoist_ipc_import(d, sizeof *d, -1, NULL, &none), -ENOENT, "was not found");
	CHECK(hoist_ipc_find_memory(letters[0].uuid, &found) == -ENOENT);
	refuse_fds(fds[0], &letters[0]);
	for (int i = 0; i < 2; i++) {
		hoist_memory_info info = {.size = sizeof info};
		unsigned char uuid[16];
		OK(hoist_ipc_import_memory(device, fds[i], letters[i].uuid, &pools[i]));
		CHECK(fcntl(fds[i], F_GETFD) >= 0); /* it is the caller's */
		close(fds[i]);
		OK(hoist_memory_get_info(pools[i], &info));
		CHECK(info.is_mapped && info.is_shareable);
		OK(hoist_ipc_memory_uuid(pools[i], uuid));
		CHECK(memcmp(uuid, letters[i].uuid, 16) == 0);
		OK(hoist_ipc_find_memory(uuid, &found));
		CHECK(found == pools[i]);
		hoist_memory_unref(found);
	}
	uintptr_t address = 0;
	REFUSED(hoist_memory_alloc(pools[0], 64, 0, &address), -ENOTSUP, "another process's");
	REFUSED(hoist_ipc_import(d, sizeof *d, -1, pools[1], &none), -EINVAL,
		"not the memory resource");
	/* Another's block under this one's name: the driver knows better. */
	hoist_ipc_descriptor swapped = letters[0].d;
	memcpy(swapped.memory, letters[1].uuid, 16);
	CHECK(hoist_ipc_import(&swapped, sizeof swapped, -1, NULL, &none) == -EREMOTEIO);
	CHECK(none == NULL);
	for (int i = 0; i < 2; i++) {
		hoist_buffer *twice[2];
		for (int k = 0; k < 2; k++)
			OK(hoist_ipc_import(&letters[i].d, sizeof letters[i].d, -1,
					    k == 0 ? pools[i] : NULL, &twice[k]));
		CHECK(hoist_buffer_address(twice[0]) == hoist_buffer_address(twice[1]));
		check_pattern(twice[0], (unsigned)i);
		hoist_buffer_unref(twice[0]);
		write_pattern(twice[1], 20 + (unsigned)i);
		hoist_memory_unref(pools[i]);
		check_pattern(twice[1], 20 + (unsigned)i); /* it keeps what it needs */
		hoist_buffer_unref(twice[1]);
	}
	CHECK(hoist_ipc_find_memory(letters[0].uuid, &found) == -ENOENT);
	tell();
}

/* --- sizes and payloads --- */

/* proves: S2.16 S2.17 V154 */
static void import_wrong(void)
{
	hoist_ipc_descriptor d;
	hoist_buffer *none = NULL;
	char api[8];
	CHECK(recv(peer, &d, sizeof d, MSG_WAITALL) == (ssize_t)sizeof d);
	(void)snprintf(api, sizeof api, "%.4s", spec);
	if (api[3] == ':')
		api[3] = '\0';
	uint64_t before = lib_counters(api).calls;
	CHECK(hoist_ipc_import(&d, 8, -1, NULL, &none) == -EINVAL);
	CHECK(hoist_ipc_import(d.payload, sizeof d.payload, -1, NULL, &none) == -EINVAL);
	CHECK(hoist_ipc_import(NULL, sizeof d, -1, NULL, &none) == -EINVAL);
	CHECK(lib_counters(api).calls == before); /* no driver was asked */
	d.bytes *= 100000;
	REFUSED(hoist_ipc_import(&d, sizeof d, -1, NULL, &none), -EINVAL,
		"exceeds the mapped allocation extent");
	d.bytes /= 100000;
	memset(d.payload, 0x55, sizeof d.payload);
	CHECK(hoist_ipc_import(&d, sizeof d, -1, NULL, &none) == -EREMOTEIO);
	CHECK(none == NULL);
	CHECK(lib_counters(api).live_imports == 0);
	tell();
}

static void export_described(void)
{
	hoist_ipc_descriptor d;
	int fd = 7;
	hoist_buffer *buffer = make_buffer(device, 0);
	OK(hoist_ipc_export(buffer, &d, &fd));
	CHECK(fd == -1 && d.kind == HOIST_IPC_DEVICE && d.bytes == BYTES && d.pid == getpid());
	CHECK(write(peer, &d, sizeof d) == (ssize_t)sizeof d);
	hear();
	/* The exporter's own: an alias; not if it was never exported. */
	hoist_buffer *own = NULL;
	OK(hoist_ipc_import(&d, sizeof d, -1, NULL, &own));
	CHECK(hoist_buffer_address(own) == hoist_buffer_address(buffer));
	hoist_buffer_unref(own);
	own = NULL;
	hoist_ipc_descriptor bad = d;
	bad.address += 512;
	CHECK(hoist_ipc_import(&bad, sizeof bad, -1, NULL, &own) == -EINVAL);
	bad = d;
	bad.payload[63] ^= 1;
	CHECK(hoist_ipc_import(&bad, sizeof bad, -1, NULL, &own) == -EINVAL);
	CHECK(own == NULL);
	hoist_buffer_unref(buffer);
}

/* --- fork --- */

static void import_and_fork(void)
{
	int status = -1;
	hoist_buffer *none = NULL;
	hoist_buffer *got = get();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		unsigned char byte = 0;
		hoist_ipc_descriptor d;
		CHECK(hoist_buffer_read(got, 0, &byte, 1) == -ESTALE);
		CHECK(hoist_ipc_export(got, &d, NULL) == -ESTALE);
		hoist_buffer_unref(got);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	check_pattern(got, 1); /* it was not closed */
	hoist_buffer_unref(got);
	CHECK(none == NULL);
	tell();
}

static void export_simply(void)
{
	hoist_buffer *buffer = make_buffer(device, 0);
	write_pattern(buffer, 1);
	OK(hoist_ipc_send(peer, buffer, ANY_TIME));
	hear();
	hoist_buffer_unref(buffer);
}

/* --- what cannot be shared: in one process --- */

static void refuse_buffer(hoist_buffer *buffer, const char *words)
{
	hoist_ipc_descriptor d;
	int fd = -1;
	REFUSED(hoist_ipc_export(buffer, &d, &fd), -ENOTSUP, words);
	CHECK(fd == -1);
	hoist_buffer_unref(buffer);
}

/* proves: S2.15 V149 */
static void refuse_all(void)
{
	hoist_ipc_descriptor d;
	hoist_memory *pool = make_pool(0);
	hoist_memory *none = NULL;
	hoist_device *cpu = NULL;
	unsigned char uuid[16];
	int fd = -1;
	OK(hoist_device_open("cpu", &cpu));
	REFUSED(hoist_ipc_export_memory(pool, &fd), -ENOTSUP, "not IPC-enabled");
	REFUSED(hoist_ipc_memory_uuid(pool, uuid), -ENOTSUP, "not IPC-enabled");
	REFUSED(hoist_ipc_register_memory(pool, &none), -ENOTSUP, "not IPC-enabled");
	CHECK(hoist_ipc_export_memory(NULL, &fd) == -EINVAL);
	refuse_buffer(make_from(pool), "not IPC-enabled");
	refuse_buffer(make_buffer(cpu, 0), "HOIST_BUFFER_SHAREABLE");
	refuse_buffer(make_buffer(device, HOIST_BUFFER_PINNED), "pinned");
	CHECK(hoist_ipc_export(NULL, &d, &fd) == -EINVAL);
	hoist_buffer *closed = make_buffer(cpu, HOIST_BUFFER_SHAREABLE);
	REFUSED(hoist_ipc_export(closed, &d, NULL), -EINVAL, "file descriptor");
	OK(hoist_buffer_close(closed, NULL));
	CHECK(hoist_ipc_export(closed, &d, &fd) == -EBADF);
	hoist_buffer_unref(closed);
	CHECK(fd == -1 && none == NULL);
	const hoist_memory_options both = {.size = sizeof both,
					   .kind = HOIST_MEMORY_DRIVER_POOL,
					   .flags = HOIST_MEMORY_SHAREABLE |
						    HOIST_MEMORY_CURRENT_POOL,
					   .device = device};
	CHECK(hoist_memory_create(&both, &none) == -EINVAL);
	const hoist_memory_options host = {.size = sizeof host, .flags = HOIST_MEMORY_SHAREABLE};
	CHECK(hoist_memory_create(&host, &none) == -EINVAL);
	hoist_memory_unref(pool);
	hoist_device_unref(cpu);
}

/* A register that has one already gives that. */
static void register_own(void)
{
	hoist_memory *pool = make_pool(HOIST_MEMORY_SHAREABLE);
	hoist_memory *got = NULL;
	unsigned char uuid[16];
	int fd = -1;
	OK(hoist_ipc_memory_uuid(pool, uuid));
	CHECK(hoist_ipc_find_memory(uuid, &got) == -ENOENT);
	for (int i = 0; i < 2; i++) {
		OK(hoist_ipc_register_memory(pool, &got));
		CHECK(got == pool);
		hoist_memory_unref(got);
	}
	/* Its own descriptor, in the exporter: the same resource. */
	OK(hoist_ipc_export_memory(pool, &fd));
	OK(hoist_ipc_import_memory(device, fd, uuid, &got));
	CHECK(got == pool);
	hoist_memory_unref(got);
	close(fd);
	hoist_memory_unref(pool);
	CHECK(hoist_ipc_find_memory(uuid, &got) == -ENOENT);
}

static void nothing(void)
{
}

static void check_alone(void)
{
	refuse_all();
	register_own();
}

/* --- all of it --- */

static void run_device(const char *on, bool emulated)
{
	run_pair(on, export_plain, import_buffer);
	run_pair(on, export_pooled, import_buffer);
	run_pair(on, export_carved, import_buffer);
	run_pair(on, export_letters, import_letters);
	run_pair(on, check_alone, nothing);
	run_pair(on, export_simply, import_and_fork);
	if (emulated)
		run_pair(on, export_described, import_wrong);
}

static bool has_real(const char *api)
{
	int status = -1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		int n = 0;
		_exit(hoist_device_count(api, &n) == 0 ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status == 0;
}

int main(void)
{
	if (UNDER_TSAN) {
		printf("skipped: ThreadSanitizer cannot start threads in a child of fork\n");
		return 77;
	}
	int fd = memfd_create("probe", MFD_CLOEXEC);
	if (fd < 0) {
		printf("skipped: memfd_create() is forbidden here\n");
		return 77;
	}
	close(fd);
	unsetenv("HOIST_EMULATE");
	run_pair("cpu", export_host, import_buffer);
	run_pair_over(SOCK_SEQPACKET, "cpu", export_host, import_buffer);
	run_pair("cpu", export_host_and_end, import_host_that_ends);
	run_pair("cpu", export_frozen, import_frozen);
	if (has_real("cuda"))
		run_device("cuda:0", false);
	if (has_real("hip"))
		run_device("hip:0", false);
	if (!lib_emulate()) {
		printf("the stand-in drivers are not built: host memory only\n");
		return 0;
	}
	run_device("cuda:1", true);
	run_device("hip:0", true);
	return 0;
}
