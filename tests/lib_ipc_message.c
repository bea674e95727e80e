/* SPDX-License-Identifier: MIT */
/* What a peer may send instead of a buffer: host memory, over sockets of this process, and the
 * descriptors themselves with each byte wrong. */
#include "config.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/lib-support.h"

#define N 5000
#define SOON 5000 /* ms: nothing waits as long */

static int ends[2]; /* a connected pair of sockets */
static hoist_buffer *buffer;
static hoist_ipc_descriptor good;
static int good_fd;
static int n_open; /* file descriptors, before what the test does */

static int count_fds(void)
{
	int n = 0;
	DIR *all = opendir("/proc/self/fd");
	cr_assert_not_null(all);
	while (readdir(all) != NULL)
		n++;
	closedir(all);
	return n;
}

static void set_up_type(int type)
{
	const int64_t shape[] = {N};
	hoist_device *cpu = NULL;
	int probe = memfd_create("probe", MFD_CLOEXEC);
	if (probe < 0)
		cr_skip_test("memfd_create() is forbidden here");
	close(probe);
	cr_assert_eq(hoist_device_open("cpu", &cpu), 0);
	cr_assert_eq(socketpair(AF_UNIX, type, 0, ends), 0);
	cr_assert_eq(hoist_buffer_create(cpu, HOIST_U8, 1, shape, HOIST_BUFFER_SHAREABLE, &buffer),
		     0, "%s", hoist_error());
	cr_assert_eq(hoist_ipc_export(buffer, &good, &good_fd), 0, "%s", hoist_error());
	memset(hoist_buffer_data(buffer), 0x33, N);
	n_open = count_fds();
}

static void set_up(void)
{
	set_up_type(SOCK_STREAM);
}

static void tear_down(void)
{
	hoist_buffer_unref(buffer);
	close(good_fd);
	close(ends[0]);
	close(ends[1]);
}

TestSuite(lib_ipc_message, .init = set_up, .fini = tear_down);

/* Sends @bytes bytes and @n file descriptors, as a peer that is not hoist would. */
static void send_raw(const void *data, size_t bytes, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(40 * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	memset(&control, 0, sizeof control);
	if (n > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n * sizeof(int));
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(head), fds, n * sizeof(int));
	}
	cr_assert_eq(sendmsg(ends[0], &message, 0), (ssize_t)bytes, "%s", strerror(errno));
}

static void refused(int code, const char *words)
{
	hoist_buffer *got = NULL;
	cr_expect_eq(hoist_ipc_receive(ends[1], SOON, &got), code, "%s", hoist_error());
	cr_expect(strstr(hoist_error(), words) != NULL, "\"%s\" lacks \"%s\"", hoist_error(),
		  words);
	cr_expect_null(got);
	cr_expect_eq(count_fds(), n_open, "no descriptor is left");
}

static void import_refused(const hoist_ipc_descriptor *d, int fd, int code, const char *words)
{
	hoist_buffer *got = NULL;
	cr_expect_eq(hoist_ipc_import(d, sizeof *d, fd, NULL, &got), code, "%s", hoist_error());
	cr_expect(strstr(hoist_error(), words) != NULL, "\"%s\" lacks \"%s\"", hoist_error(),
		  words);
	cr_expect_null(got);
}

/* --- what goes well --- */

/* proves: S2.16 S2.19 V159 */
Test(lib_ipc_message, what_is_sent_to_oneself_is_the_same_memory)
{
	hoist_buffer *got[2] = {NULL, NULL};
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(hoist_ipc_send(ends[0], buffer, SOON), 0, "%s", hoist_error());
		cr_assert_eq(hoist_ipc_receive(ends[1], SOON, &got[i]), 0, "%s", hoist_error());
		cr_expect_eq(hoist_buffer_data(got[i]), hoist_buffer_data(buffer));
	}
	hoist_buffer_info info = {.size = sizeof info};
	cr_assert_eq(hoist_buffer_get_info(got[0], &info), 0);
	cr_expect_not(info.is_mapped, "it is nobody else's");
	void *data = hoist_buffer_data(buffer);
	hoist_buffer_unref(buffer);
	buffer = NULL;
	hoist_buffer_unref(got[0]);
	cr_expect_eq(memcmp(data, "\x33\x33\x33", 3), 0, "the last one keeps it");
	hoist_buffer_unref(got[1]);
	cr_expect_eq(count_fds(), n_open - 1, "with the last buffer goes its file");
}

Test(lib_ipc_message, a_message_may_come_in_any_pieces)
{
	/* The socket holds a few hundred of them. */
	for (size_t piece = 7; piece < sizeof good; piece = piece * 3 + 1) {
		hoist_buffer *got = NULL;
		for (size_t at = 0; at < sizeof good; at += piece) {
			size_t left = sizeof good - at;
			send_raw((const char *)&good + at, left < piece ? left : piece, &good_fd,
				 at == 0);
		}
		cr_assert_eq(hoist_ipc_receive(ends[1], SOON, &got), 0, "%s", hoist_error());
		cr_expect_eq(hoist_buffer_data(got), hoist_buffer_data(buffer));
		hoist_buffer_unref(got);
	}
	cr_expect_eq(count_fds(), n_open);
}

Test(lib_ipc_message, sub_byte_views_begin_within_a_byte)
{
	const int64_t shape[] = {100};
	hoist_buffer *view = NULL;
	hoist_buffer *part = NULL;
	hoist_buffer *got = NULL;
	hoist_ipc_descriptor d;
	hoist_buffer_info info = {.size = sizeof info};
	int fd = -1;
	cr_assert_eq(hoist_buffer_view(buffer, 10, HOIST_F4_E2M1FN, 1, shape, &view), 0, "%s",
		     hoist_error());
	const hoist_slice from_3[] = {HOIST_RANGE(3, 8)};
	cr_assert_eq(hoist_buffer_slice(view, 1, from_3, &part), 0, "%s", hoist_error());
	cr_assert_eq(hoist_ipc_export(part, &d, &fd), 0, "%s", hoist_error());
	cr_expect(d.offset == 11 && d.bit == 4 && d.bytes == 3 && d.first == 0);
	cr_assert_eq(hoist_ipc_import(&d, sizeof d, fd, NULL, &got), 0, "%s", hoist_error());
	cr_assert_eq(hoist_buffer_get_info(got, &info), 0);
	cr_expect(info.bit_offset == 4 && hoist_buffer_shape(got)[0] == 5);
	d.bytes = 2;
	import_refused(&d, fd, -EBADMSG, "leave its 2 bytes");
	close(fd);
	hoist_buffer_unref(got);
	hoist_buffer_unref(part);
	hoist_buffer_unref(view);
}

/* --- sockets --- */

Test(lib_ipc_message, a_peer_that_ends_between_two_buffers)
{
	close(ends[0]);
	ends[0] = -1;
	n_open--;
	refused(-EPIPE, "closed");
}

Test(lib_ipc_message, a_peer_that_ends_half_way)
{
	send_raw(&good, sizeof good / 2, &good_fd, 1);
	close(ends[0]);
	ends[0] = -1;
	n_open--;
	refused(-ECONNRESET, "612 of 1224 bytes");
}

Test(lib_ipc_message, a_peer_that_stops_half_way)
{
	hoist_buffer *got = NULL;
	send_raw(&good, 100, &good_fd, 1);
	cr_expect_eq(hoist_ipc_receive(ends[1], 20, &got), -ETIMEDOUT);
	cr_expect(strstr(hoist_error(), "100 of 1224") != NULL, "%s", hoist_error());
	cr_expect_eq(hoist_ipc_receive(ends[1], 0, &got), -ETIMEDOUT);
	cr_expect_null(got);
	cr_expect_eq(count_fds(), n_open);
}

Test(lib_ipc_message, a_peer_that_takes_nothing)
{
	int err = 0;
	for (int i = 0; err == 0 && i < 10000; i++)
		err = hoist_ipc_send(ends[0], buffer, 10);
	/* Linux counts what is under way, too. */
	cr_expect(err == -ETIMEDOUT || err == -ETOOMANYREFS, "%s", hoist_error());
}

Test(lib_ipc_message, sending_to_a_peer_that_has_gone)
{
	close(ends[1]);
	ends[1] = -1;
	cr_expect_eq(hoist_ipc_send(ends[0], buffer, SOON), -EPIPE, "%s", hoist_error());
	cr_expect_eq(count_fds(), n_open - 1);
}

Test(lib_ipc_message, what_is_no_unix_socket_is_refused)
{
	hoist_buffer *got = NULL;
	int pipes[2];
	int datagrams[2];
	int internet = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams), 0);
	cr_expect_eq(hoist_ipc_send(pipes[1], buffer, SOON), -EINVAL);
	cr_expect_eq(hoist_ipc_receive(pipes[0], SOON, &got), -EINVAL);
	cr_expect_eq(hoist_ipc_send(datagrams[0], buffer, SOON), -EINVAL);
	cr_expect_eq(hoist_ipc_receive(datagrams[1], SOON, &got), -EINVAL);
	if (internet >= 0) {
		cr_expect_eq(hoist_ipc_send(internet, buffer, SOON), -EINVAL);
		close(internet);
	}
	cr_expect_eq(hoist_ipc_receive(-1, SOON, &got), -EBADF);
	cr_expect_null(got);
	close(pipes[0]);
	close(pipes[1]);
	close(datagrams[0]);
	close(datagrams[1]);
}

static void *send_late(void *arg)
{
	(void)arg;
	usleep(30000);
	return (void *)(intptr_t)hoist_ipc_send(ends[0], buffer, SOON);
}

Test(lib_ipc_message, sockets_may_be_non_blocking)
{
	hoist_buffer *got = NULL;
	pthread_t thread;
	void *result = NULL;
	for (int i = 0; i < 2; i++)
		cr_assert_eq(fcntl(ends[i], F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(pthread_create(&thread, NULL, send_late, NULL), 0);
	cr_expect_eq(hoist_ipc_receive(ends[1], -1, &got), 0, "%s", hoist_error());
	cr_expect_eq(pthread_join(thread, &result), 0);
	cr_expect_null(result);
	hoist_buffer_unref(got);
}

/* --- records --- */

Test(lib_ipc_packets, a_record_is_a_whole_message)
{
	hoist_buffer *got = NULL;
	char longer[sizeof good + 1] = {0};
	set_up_type(SOCK_SEQPACKET);
	send_raw(&good, 100, &good_fd, 1);
	refused(-EBADMSG, "no descriptor");
	memcpy(longer, &good, sizeof good);
	send_raw(longer, sizeof longer, &good_fd, 1);
	refused(-EBADMSG, "no descriptor");
	cr_assert_eq(hoist_ipc_send(ends[0], buffer, SOON), 0);
	cr_expect_eq(hoist_ipc_receive(ends[1], SOON, &got), 0, "%s", hoist_error());
	hoist_buffer_unref(got);
	tear_down();
}

/* --- file descriptors --- */

/* proves: V160 */
Test(lib_ipc_message, as_many_file_descriptors_as_the_kind_takes)
{
	const int many[40] = {[0 ... 39] = good_fd};
	send_raw(&good, sizeof good, NULL, 0);
	refused(-EBADMSG, "0 file descriptors came");
	send_raw(&good, sizeof good, many, 2);
	refused(-EBADMSG, "2 file descriptors came");
	send_raw(&good, sizeof good, many, 40);
	refused(-EBADMSG, "and more");
	/* Spread over the message. */
	send_raw(&good, 600, many, 1);
	send_raw((const char *)&good + 600, sizeof good - 600, many, 1);
	refused(-EBADMSG, "2 file descriptors came");
	hoist_ipc_descriptor empty = good;
	empty.kind = HOIST_IPC_EMPTY;
	empty.shape[0] = 0;
	send_raw(&empty, sizeof empty, many, 1);
	refused(-EBADMSG, "1 file descriptors came");
	import_refused(&good, -1, -EBADMSG, "file descriptor did not come");
	import_refused(&good, 9999, -EBADF, "9999");
}

static int make_file(size_t bytes, int seals)
{
	int fd = memfd_create("theirs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void import_file(int fd, int code, const char *words)
{
	import_refused(&good, fd, code, words);
	close(fd);
}

Test(lib_ipc_message, files_that_could_be_cut_off_are_refused)
{
	int disk = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int pipes[2];
	if (disk >= 0) {
		cr_assert_eq(ftruncate(disk, 1 << 20), 0);
		import_file(disk, -EBADMSG, "no memfd");
	}
	cr_assert_eq(pipe(pipes), 0);
	close(pipes[1]);
	import_file(pipes[0], -EBADMSG, "no memfd");
	import_file(open("/dev/zero", O_RDWR | O_CLOEXEC), -EBADMSG, "no memfd");
	import_file(make_file(8192, 0), -EBADMSG, "not sealed");
	import_file(make_file(8192, F_SEAL_GROW), -EBADMSG, "not sealed");
	import_file(make_file(0, F_SEAL_SHRINK), -EBADMSG, "no bytes");
	import_file(make_file(N - 1, F_SEAL_SHRINK), -EINVAL, "exceed");
}

Test(lib_ipc_message, files_of_others_that_are_sound_are_taken)
{
	hoist_buffer *got = NULL;
	unsigned char byte = 1;
	hoist_buffer_info info = {.size = sizeof info};
	int fd = make_file(N, F_SEAL_SHRINK); /* not whole pages */
	cr_assert_eq(pwrite(fd, "abc", 3, 0), 3);
	cr_assert_eq(hoist_ipc_import(&good, sizeof good, fd, NULL, &got), 0, "%s", hoist_error());
	cr_expect_eq(memcmp(hoist_buffer_data(got), "abc", 3), 0);
	cr_assert_eq(hoist_buffer_get_info(got, &info), 0);
	cr_expect(info.is_mapped);
	hoist_buffer_unref(got);
	close(fd);
	/* What nobody may write to is read-only whatever its descriptor says. */
	fd = make_file(N, F_SEAL_SHRINK | F_SEAL_WRITE);
	cr_assert_eq(hoist_ipc_import(&good, sizeof good, fd, NULL, &got), 0, "%s", hoist_error());
	cr_expect_eq(hoist_buffer_write(got, 0, &byte, 1), -EROFS);
	hoist_buffer_unref(got);
	close(fd);
	cr_expect_eq(count_fds(), n_open);
}

/* --- descriptors --- */

struct change {
	const char *what;
	size_t at;
	size_t bytes;
	int64_t value;
	const char *words;
};

#define FIELD(field) offsetof(hoist_ipc_descriptor, field), sizeof good.field
static const struct change changes[] = {
	{"magic", 0, 1, 'x', "no bytes of one"},
	{"version", FIELD(version), 2, "version 2"},
	{"size", FIELD(size), 100, "100 bytes"},
	{"kind 0", FIELD(kind), 0, "no kind"},
	{"kind 9", FIELD(kind), 9, "no kind"},
	{"a device's", FIELD(kind), HOIST_IPC_DEVICE, "memory of kind 2 of \"cpu\""},
	{"none", FIELD(kind), HOIST_IPC_EMPTY, "5000 elements in memory of kind 4"},
	{"flags", FIELD(flags), 2, "no flags"},
	{"api", offsetof(hoist_ipc_descriptor, api), 3, 0x787878, "no devices"},
	{"api without an end", offsetof(hoist_ipc_descriptor, api), 8, 0x7878787878787878,
	 "no end"},
	{"rank", FIELD(rank), 65, "rank 65"},
	{"negative rank", FIELD(rank), -1, "rank -1"},
	{"dtype", FIELD(dtype), 9999, "no dtype"},
	{"bit", FIELD(bit), 4, "at bit 4"},
	{"large bit", FIELD(bit), 8, "at bit 8"},
	{"negative extent", offsetof(hoist_ipc_descriptor, shape), 8, -5, "no size"},
	{"large extent", offsetof(hoist_ipc_descriptor, shape), 8, INT64_MAX, "no size"},
	{"longer", offsetof(hoist_ipc_descriptor, shape), 8, N + 1, "leave its 5000 bytes"},
	{"no elements", offsetof(hoist_ipc_descriptor, shape), 8, 0, "0 elements"},
	{"stride", offsetof(hoist_ipc_descriptor, strides), 8, 2, "leave its 5000 bytes"},
	{"negative stride", offsetof(hoist_ipc_descriptor, strides), 8, -1, "leave"},
	{"large stride", offsetof(hoist_ipc_descriptor, strides), 8, INT64_MAX / 2, "63 bits"},
	{"least stride", offsetof(hoist_ipc_descriptor, strides), 8, INT64_MIN, "63 bits"},
	{"first", FIELD(first), 1, "leave"},
	{"first beyond", FIELD(first), N + 1, "the first element at 5001"},
	{"offset", FIELD(offset), -1, "bytes from 18446744073709551615"},
	{"bytes", FIELD(bytes), -1, "18446744073709551615 bytes"},
	{"few bytes", FIELD(bytes), N - 1, "leave its 4999 bytes"},
};

/* proves: S2.16 S2.17 V154 */
Test(lib_ipc_message, each_field_of_a_descriptor_is_looked_at)
{
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		const struct change *c = &changes[i];
		hoist_ipc_descriptor bad = good;
		hoist_buffer *got = NULL;
		memcpy((char *)&bad + c->at, &c->value, c->bytes);
		cr_expect_eq(hoist_ipc_import(&bad, sizeof bad, good_fd, NULL, &got), -EBADMSG,
			     "%s: %s", c->what, hoist_error());
		cr_expect(strstr(hoist_error(), c->words) != NULL, "%s: \"%s\" lacks \"%s\"",
			  c->what, hoist_error(), c->words);
		cr_expect_null(got);
	}
	for (size_t n = 0; n < sizeof good; n += 97) {
		hoist_buffer *got = NULL;
		cr_expect_eq(hoist_ipc_import(&good, n, good_fd, NULL, &got), -EINVAL);
	}
	hoist_ipc_descriptor large = good;
	large.bytes = large.bytes * 100;
	import_refused(&large, good_fd, -EINVAL, "exceed the shared memory");
	cr_expect_eq(count_fds(), n_open);
}

/* Blocks of elements have their own rules. */
Test(lib_ipc_message, block_types_come_in_whole_blocks)
{
	const int64_t shape[] = {2, 64};
	hoist_buffer *view = NULL;
	hoist_buffer *got = NULL;
	hoist_ipc_descriptor d;
	int fd = -1;
	cr_assert_eq(hoist_buffer_view(buffer, 0, HOIST_Q8_0, 2, shape, &view), 0, "%s",
		     hoist_error());
	cr_assert_eq(hoist_ipc_export(view, &d, &fd), 0, "%s", hoist_error());
	cr_expect_eq(d.bytes, hoist_buffer_bytes(view));
	cr_assert_eq(hoist_ipc_import(&d, sizeof d, fd, NULL, &got), 0, "%s", hoist_error());
	cr_expect_eq(hoist_buffer_dtype(got), HOIST_Q8_0);
	hoist_ipc_descriptor bad = d;
	bad.shape[1] = 63;
	import_refused(&bad, fd, -EBADMSG, "no size");
	bad = d;
	bad.strides[0] = 33;
	import_refused(&bad, fd, -EBADMSG, "whole blocks");
	bad = d;
	bad.strides[1] = 2;
	import_refused(&bad, fd, -EBADMSG, "whole blocks");
	bad = d;
	bad.strides[0] = 96;
	import_refused(&bad, fd, -EBADMSG, "leave");
	close(fd);
	hoist_buffer_unref(got);
	hoist_buffer_unref(view);
}

/* --- anything at all --- */

static void touch_all(hoist_buffer *got)
{
	hoist_buffer *copy = NULL;
	if (hoist_buffer_elements(got) > 100000)
		return; /* a stride of 0 makes them many */
	if (hoist_buffer_clone(got, NULL, &copy) == 0)
		hoist_buffer_unref(copy);
}

/* A recorded message with some bytes changed: whatever is accepted can be read. */
Test(lib_ipc_message, any_bytes_are_refused_or_make_a_buffer)
{
	uint64_t random = 4;
	unsigned taken = 0;
	for (int i = 0; i < 20000; i++) {
		hoist_ipc_descriptor d = good;
		hoist_buffer *got = NULL;
		unsigned n = 1 + (unsigned)(lib_random(&random) % 3);
		/* Mostly where there is something, ranks included. */
		if (lib_random(&random) % 4 == 0)
			d.rank = (int32_t)(lib_random(&random) % 4);
		for (unsigned k = 0; k < n; k++) {
			size_t at = lib_random(&random) % 8 < 6 ? lib_random(&random) % 216
								: lib_random(&random) % sizeof d;
			((unsigned char *)&d)[at] = (unsigned char)lib_random(&random);
		}
		int err = hoist_ipc_import(&d, sizeof d, good_fd, NULL, &got);
		cr_assert(err <= 0);
		if (err < 0)
			continue;
		taken++;
		touch_all(got);
		hoist_buffer_unref(got);
	}
	cr_expect(taken > 100, "%u were taken: the loop proves something", taken);
	cr_expect_eq(count_fds(), n_open);
}

/* The same over a socket, which stays in step or is given up. */
Test(lib_ipc_message, any_bytes_over_a_socket)
{
	uint64_t random = 9;
	for (int i = 0; i < 300; i++) {
		hoist_ipc_descriptor d = good;
		hoist_buffer *got = NULL;
		((unsigned char *)&d)[lib_random(&random) % 64] ^=
			(unsigned char)lib_random(&random);
		send_raw(&d, sizeof d, &good_fd, lib_random(&random) % 2);
		if (hoist_ipc_receive(ends[1], SOON, &got) == 0)
			hoist_buffer_unref(got);
		int left = 0;
		char rest[sizeof d];
		while (recv(ends[1], rest, sizeof rest, MSG_DONTWAIT) > 0)
			left++;
		cr_expect(left <= 1);
	}
	cr_expect_eq(count_fds(), n_open);
}
