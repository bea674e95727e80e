/* SPDX-License-Identifier: MIT */
/* Fabrics of two processes: transfers both ways, and peers that die, hang or close amid transfers.
 * The other process is this program, run again: a child of fork must not touch UCX.
 * Plain C.  Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/net-fabric.h"
#include "tests/support/no-leak-check.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"

enum { N = 20 };
#define BYTES ((size_t)2 << 20)

static struct side side;
static int socket_fd;
static pid_t child;
static size_t their_at[N];

static void kill_child(void)
{
	if (child > 0)
		(void)kill(child, SIGKILL);
}

static void tell(const void *bytes, size_t n)
{
	CHECK(send(socket_fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

static size_t hear(void *bytes, size_t most)
{
	ssize_t n = recv(socket_fd, bytes, most, 0);
	CHECK(n > 0);
	return (size_t)n;
}

static unsigned char theirs[HOIST__FABRIC_ADDRESS_MOST];

/* Opens, and exchanges addresses.  Returns: the bytes of the other's. */
static size_t greet(const char *transports)
{
	const void *address;
	size_t n;
	side_open(&side, transports[0] != '\0' ? transports : NULL);
	hoist__fabric_address(side.fabric, &address, &n);
	tell(address, n);
	return hear(theirs, sizeof theirs);
}

/* Both sides do the same at once: open, exchange addresses, connect, exchange tickets of @bytes. */
static void meet(const char *transports, const size_t *bytes, uint64_t tickets[static N])
{
	side_connect(&side, theirs, greet(transports));
	uint64_t ours[N];
	for (unsigned i = 0; i < N; i++)
		ours[i] = side_ticket(&side, bytes[i])->ticket;
	tell(ours, sizeof ours);
	CHECK(hear(tickets, sizeof ours) == sizeof ours);
}

static void send_all(const uint64_t tickets[static N], const size_t *bytes)
{
	for (unsigned i = 0; i < N; i++) {
		their_at[i] = i * 1001;
		OK(side_send_ticket(&side, tickets[i], 0, their_at[i], bytes[i]));
	}
}

/* Turns until nothing of this side is in flight. */
static void end_flights(void)
{
	uint64_t end = patience_now() + UINT64_C(1000000000) * PATIENCE_SECONDS;
	while (hoist__fabric_in_flight(side.fabric) > 0) {
		CHECK(patience_now() < end);
		side_turn(&side, NULL, 100);
	}
	CHECK(side.n_sent == side.n_begun);
}

/* --- what the other process does --- */

static void exchange(const char *transports)
{
	static size_t bytes[N];
	uint64_t tickets[N];
	for (unsigned i = 0; i < N; i++)
		bytes[i] = i == 0 ? 1 : i == 1 ? (size_t)16 << 20 : i * i * 6007;
	meet(transports, bytes, tickets);
	send_all(tickets, bytes);
	side_settle(&side, NULL);
	CHECK(side.n_sent_badly == 0 && side.n_broken == 0);
	for (unsigned i = 0; i < N; i++)
		side_check(&side, &side.tickets[i], their_at[i]);
	/* Nobody closes while the other still needs answers. */
	char done = 1;
	tell(&done, 1);
	struct timeval wait = {.tv_usec = 10000};
	OK(setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait));
	uint64_t until = 0;
	while (recv(socket_fd, &done, 1, 0) != 1) {
		CHECK(patience(&until));
		side_turn(&side, NULL, 1);
	}
	side_close(&side);
}

static size_t equal[N];

/* Sends, lets go what goes at once, and stops in the way that @how says. */
static void other(const char *transports, const char *how)
{
	uint64_t tickets[N];
	if (strcmp(how, "exchange") == 0) {
		exchange(transports);
		return;
	}
	meet(transports, equal, tickets);
	if (strcmp(how, "at once") == 0)
		(void)raise(SIGKILL);
	send_all(tickets, equal);
	for (unsigned i = 0; i < 10; i++)
		side_turn(&side, NULL, 10);
	if (strcmp(how, "close") == 0) {
		side.forgot = true;
		side_close(&side);
		return;
	}
	(void)raise(strcmp(how, "hang") == 0 ? SIGSTOP : SIGKILL);
}

static void start(const char *transports, const char *how)
{
	int pair[2];
	char number[16];
	OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	(void)snprintf(number, sizeof number, "%d", pair[1]);
	check_at("%s, %s", transports, how);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)close(pair[0]);
		(void)execl("/proc/self/exe", "fabric_peers", number, transports, how,
			    (char *)NULL);
		_exit(99);
	}
	(void)close(pair[1]);
	socket_fd = pair[0];
}

static int finish(void)
{
	int status = child_status(child);
	child = 0;
	(void)close(socket_fd);
	return status;
}

/* --- the cases --- */

static void transfers(void)
{
	static const char *const all[] = {"tcp", "posix,cma", "sysv", ""};
	for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
		start(all[i], "exchange");
		exchange(all[i]);
		CHECK(finish() == 0);
	}
}

/* Waits for UCX to notice. */
static void wait_broken(void)
{
	uint64_t end = patience_now() + UINT64_C(1000000000) * PATIENCE_SECONDS;
	while (side.n_broken == 0) {
		CHECK(patience_now() < end);
		side_turn(&side, NULL, 100);
	}
	CHECK(side.n_broken == 1);
}

/* The peer dies before it has received anything. */
static void dead_receiver(void)
{
	uint64_t tickets[N];
	start("tcp", "at once");
	meet("tcp", equal, tickets);
	CHECK(finish() == 128 + SIGKILL);
	send_all(tickets, equal);
	wait_broken();
	end_flights();
	CHECK(side.n_sent_badly == N && side.n_arrived == 0);
	CHECK(side_send_ticket(&side, tickets[0], 0, 0, 10) == -ECONNRESET);
	hoist__fabric_disconnect(side.peer);
	side_close(&side);
}

/* The peer dies after its messages have come, and before their bytes. */
static void dead_sender(void)
{
	uint64_t tickets[N];
	start("tcp", "die");
	meet("tcp", equal, tickets);
	send_all(tickets, equal);
	CHECK(finish() == 128 + SIGKILL);
	wait_broken();
	end_flights();
	CHECK(side.n_arrived_badly == side.n_arrived);
	CHECK(side.n_sent_badly == N);
	hoist__fabric_disconnect(side.peer);
	side_close(&side);
}

/* The caller knows of the death sooner than UCX. */
static void dead_early(void)
{
	for (unsigned round = 0; round < 5; round++) {
		uint64_t tickets[N];
		start("tcp", "die");
		meet("tcp", equal, tickets);
		send_all(tickets, equal);
		for (unsigned i = 0; i < round; i++)
			side_turn(&side, NULL, 10);
		CHECK(finish() == 128 + SIGKILL);
		side.forgot = true;
		hoist__fabric_disconnect(side.peer);
		end_flights();
		side_close(&side);
	}
}

/* The peer hangs: only the caller can end this.  Then the memory is free. */
static void hanging(void)
{
	for (unsigned round = 0; round < 5; round++) {
		uint64_t tickets[N];
		start("tcp", "hang");
		meet("tcp", equal, tickets);
		send_all(tickets, equal);
		for (unsigned i = 0; i < round * 5; i++)
			side_turn(&side, NULL, 10);
		side.forgot = true;
		hoist__fabric_disconnect(side.peer);
		end_flights();
		memset(side.arena, 0x77, 2 * SIDE_HALF);
		kill_child();
		CHECK(finish() == 128 + SIGKILL);
		for (unsigned i = 0; i < 10; i++)
			side_turn(&side, NULL, 1);
		for (size_t i = 0; i < 2 * SIDE_HALF; i++)
			if (side.arena[i] != 0x77)
				CHECK(i == SIZE_MAX);
		side_close(&side);
	}
}

/* The peer closes its fabric amid transfers. */
static void closing(void)
{
	for (unsigned round = 0; round < 5; round++) {
		uint64_t tickets[N];
		start("tcp", "close");
		meet("tcp", equal, tickets);
		send_all(tickets, equal);
		for (unsigned i = 0; i < round; i++)
			side_turn(&side, NULL, 5);
		wait_broken();
		end_flights();
		CHECK(finish() == 0);
		hoist__fabric_disconnect(side.peer);
		side_close(&side);
	}
}

int main(int argc, char **argv)
{
	for (unsigned i = 0; i < N; i++)
		equal[i] = BYTES;
	/* UCX does not take shared memory for connections whose failure it reports, unless told. */
	OK(setenv("UCX_POSIX_ERROR_HANDLING", "y", 1));
	OK(setenv("UCX_SYSV_ERROR_HANDLING", "y", 1));
	if (argc == 4) {
		socket_fd = atoi(argv[1]);
		check_at("the other process, %s, %s", argv[2], argv[3]);
		other(argv[2], argv[3]);
		return 0;
	}
	(void)need_ucx();
	check_cleanup(kill_child);
	CASE(transfers);
	CASE(dead_receiver);
	CASE(dead_sender);
	CASE(dead_early);
	CASE(hanging);
	CASE(closing);
	return 0;
}
