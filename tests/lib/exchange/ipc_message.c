/* SPDX-License-Identifier: MIT */
/* Messages that a peer may send instead of a buffer, and peers that end, over sockets of this
 * process. */
#include "config.h"

#include <pthread.h>
#include <sys/resource.h>

#include "hoist/ipc.h"
#include "tests/support/lib-ipc-message.h"
#include "tests/support/pass-fd.h"
#include "tests/support/random.h"

TestSuite(lib_ipc_message, .init = set_up, .fini = tear_down);

/* Sends @bytes bytes and @n file descriptors, as a peer that is not hoist would. */
static void send_raw(const void *data, size_t bytes, const int *fds, size_t n)
{
	cr_assert(pass_fds(ends[0], data, bytes, fds, n), "%s", strerror(errno));
}

static void refused(int code, const char *words)
{
	hoist_buffer *got = NULL;
	REFUSED(hoist_ipc_receive(ends[1], SOON, &got), code, words);
	cr_expect_null(got);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open, "no descriptor is left");
}

/* --- messages that arrive --- */

/* proves: S2.19 V159 */
Test(lib_ipc_message, a_buffer_sent_to_oneself_is_the_same_memory)
{
	hoist_buffer *got[2] = {NULL, NULL};
	for (int i = 0; i < 2; i++) {
		OK(hoist_ipc_send(ends[0], buffer, SOON));
		OK(hoist_ipc_receive(ends[1], SOON, &got[i]));
		cr_expect_eq(hoist_buffer_data(got[i]), hoist_buffer_data(buffer));
	}
	hoist_buffer_info info = info_of(got[0]);
	cr_expect_not(info.is_mapped, "it is nobody else's");
	void *data = hoist_buffer_data(buffer);
	hoist_buffer_unref(buffer);
	buffer = NULL;
	hoist_buffer_unref(got[0]);
	cr_expect_eq(memcmp(data, "\x33\x33\x33", 3), 0, "the last one keeps it");
	hoist_buffer_unref(got[1]);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open - 1,
		     "with the last buffer goes its file");
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
		OK(hoist_ipc_receive(ends[1], SOON, &got));
		cr_expect_eq(hoist_buffer_data(got), hoist_buffer_data(buffer));
		hoist_buffer_unref(got);
	}
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
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
	REFUSED(hoist_ipc_receive(ends[1], 20, &got), -ETIMEDOUT, "100 of 1224");
	cr_expect_eq(hoist_ipc_receive(ends[1], 0, &got), -ETIMEDOUT);
	cr_expect_null(got);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}

Test(lib_ipc_message, a_peer_that_takes_nothing)
{
	int err = 0;
	for (int i = 0; err == 0 && i < 10000; i++)
		err = hoist_ipc_send(ends[0], buffer, 10);
	/* Linux counts descriptors that are under way, too. */
	cr_expect(err == -ETIMEDOUT || err == -ETOOMANYREFS, "%s", hoist_error());
}

Test(lib_ipc_message, sending_to_a_peer_that_has_gone)
{
	close(ends[1]);
	ends[1] = -1;
	cr_expect_eq(hoist_ipc_send(ends[0], buffer, SOON), -EPIPE, "%s", hoist_error());
	cr_expect_eq(count_entries("/proc/self/fd"), n_open - 1);
}

Test(lib_ipc_message, other_files_than_unix_sockets_are_refused)
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
	OK(hoist_ipc_receive(ends[1], -1, &got));
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
	OK(hoist_ipc_send(ends[0], buffer, SOON));
	OK(hoist_ipc_receive(ends[1], SOON, &got));
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

Test(lib_ipc_message, a_process_without_room_for_descriptors_says_so)
{
	hoist_buffer *got = NULL;
	struct rlimit limit;
	int next = dup(good_fd);
	cr_assert(next >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	close(next);
	const struct rlimit low = {(rlim_t)next, limit.rlim_max};
	for (int i = 0; i < 2; i++)
		send_raw(&good, sizeof good, &good_fd, 1);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	int err = hoist_ipc_receive(ends[1], SOON, &got);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	cr_expect_eq(err, -EMFILE, "%s", hoist_error());
	expect_text("RLIMIT_NOFILE");
	cr_expect_null(got);
	cr_assert_eq(hoist_ipc_receive(ends[1], SOON, &got), 0, "the next one: %s", hoist_error());
	hoist_buffer_unref(got);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif

/* The kernel adds one to each part that is received. */
Test(lib_ipc_message, descriptors_of_the_peer_itself_are_closed)
{
	const int yes = 1;
	hoist_buffer *got = NULL;
	if (setsockopt(ends[1], SOL_SOCKET, SO_PASSPIDFD, &yes, sizeof yes) < 0)
		cr_skip_test("SO_PASSPIDFD came with Linux 6.5");
	send_raw(&good, 600, &good_fd, 1);
	send_raw((const char *)&good + 600, sizeof good - 600, NULL, 0);
	OK(hoist_ipc_receive(ends[1], SOON, &got));
	hoist_buffer_unref(got);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}

/* The same over a socket, which stays in step or is given up. */
Test(lib_ipc_message, any_bytes_over_a_socket)
{
	uint64_t random = 9;
	for (int i = 0; i < 300; i++) {
		hoist_ipc_descriptor d = good;
		hoist_buffer *got = NULL;
		((unsigned char *)&d)[random_next(&random) % 64] ^=
			(unsigned char)random_next(&random);
		send_raw(&d, sizeof d, &good_fd, random_next(&random) % 2);
		if (hoist_ipc_receive(ends[1], SOON, &got) == 0)
			hoist_buffer_unref(got);
		int left = 0;
		char rest[sizeof d];
		while (recv(ends[1], rest, sizeof rest, MSG_DONTWAIT) > 0)
			left++;
		cr_expect(left <= 1);
	}
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}
