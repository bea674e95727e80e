/* SPDX-License-Identifier: MIT */
/* Guests that are no ranks: rank 0 sends them away and waits on, and a rank that finds another
 * user's rank 0 refuses it. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hoist/group.h>

#include "lib/group/group-shm.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

static uid_t told; /* of every peer; 0: the truth */

WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *bytes))
{
	int result = __real_getsockopt(fd, level, name, value, bytes);
	if (result == 0 && level == SOL_SOCKET && name == SO_PEERCRED && told != 0)
		((struct ucred *)value)->uid = told;
	return result;
}

static hoist_checkpoint *checkpoint;
static char name[32];

static hoist_load *start(unsigned rank, uint64_t timeout_ns)
{
	char full[64];
	hoist_load *load = NULL;
	(void)snprintf(full, sizeof full, "shm:%s", name);
	const hoist_group group = {.size = sizeof group,
				   .name = full,
				   .rank = rank,
				   .n_ranks = 2,
				   .timeout_ns = timeout_ns};
	OK(hoist_group_load(&group, checkpoint, NULL, &load));
	return load;
}

static int guest(void)
{
	struct sockaddr_un address;
	socklen_t bytes = hoist__shm_address(name, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	for (uint64_t until = 0;
	     connect(fd, (const struct sockaddr *)&address, bytes) < 0 && patience(&until);)
		CHECK(errno == ECONNREFUSED);
	return fd;
}

enum memory { GOOD, SMALL, UNSEALED, NO_MEMFD, N_MEMORIES };

/* The size of a rank's memory, for the checkpoint of one cell. */
static size_t rank_bytes(void)
{
	return HOIST__SHM_HEADER_BYTES + HOIST__BLOCK_BYTES +
	       HOIST__GROUP_SLOTS * (size_t)HOIST__CELL_BYTES;
}

static int memory_of(enum memory kind)
{
	if (kind == NO_MEMFD)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	int fd = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && ftruncate(fd, kind == SMALL ? 8192 : (off_t)rank_bytes()) == 0);
	if (kind != UNSEALED)
		CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	return fd;
}

/* A bell that is a pipe without a reader would end the process with SIGPIPE. */
static int bell_of(bool pipe_end)
{
	int ends[2];
	if (!pipe_end)
		return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
	(void)close(ends[0]);
	return ends[1];
}

static struct hoist__shm_message hello(void)
{
	struct hoist__shm_message message = {.version = HOIST__SHM_VERSION,
					     .kind = HOIST__SHM_HELLO,
					     .rank = 1,
					     .n_ranks = 2,
					     .n_cells = 1};
	memcpy(message.magic, "hoistgrp", 8);
	return message;
}

/* The guest is refused, or its connection ends. */
static void is_sent_away(int fd, int err)
{
	struct hoist__shm_message answer;
	int fds[HOIST__SHM_MOST_FDS];
	unsigned n_fds = 0;
	int got = -EAGAIN;
	for (uint64_t until = 0; got == -EAGAIN && patience(&until);)
		got = hoist__shm_receive(fd, &answer, fds, &n_fds);
	CHECK(n_fds == 0);
	CHECK(got == -ECONNRESET ||
	      (got == 0 && answer.kind == HOIST__SHM_REFUSED && answer.err == err));
	(void)close(fd);
}

/* The guest's identity is wrong if it is not copied from the group's. */
static void guests_of_rank_0(void)
{
	struct hoist__shm_message wrong[] = {hello(), hello(), hello(), hello(), hello()};
	const int errors[] = {-EBADMSG, -EPROTO, -EBADMSG, -EINVAL, -EBADMSG};
	(void)snprintf(name, sizeof name, "hostile-%d", (int)getpid());
	hoist_load *load = start(0, UINT64_C(60000000000));
	wrong[0].magic[3]++;
	wrong[1].version++;
	wrong[2].kind = HOIST__SHM_ROSTER;
	wrong[3].rank = 2;
	wrong[4].err = 7;
	for (size_t i = 0; i < 5; i++) {
		int fds[2] = {memory_of(GOOD), bell_of(false)};
		int fd = guest();
		check_at("guest %zu", i);
		/* A rank out of range is noticed behind the checkpoint, which has to be right. */
		if (i == 3) {
			(void)close(fd);
		} else {
			OK(hoist__shm_send(fd, &wrong[i], fds, 2));
			is_sent_away(fd, errors[i]);
		}
		(void)close(fds[0]);
		(void)close(fds[1]);
	}
	int fd = guest();
	CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == 1);
	is_sent_away(fd, -EBADMSG);
	(void)close(guest()); /* says nothing */
	uint64_t done = 0;
	uint64_t total = 0;
	hoist_load_progress(load, &done, &total);
	CHECK(done == 0);
	/* Rank 1 comes, and all is well. */
	hoist_load *other = start(1, UINT64_C(60000000000));
	OK(hoist_load_wait(other));
	OK(hoist_load_wait(load));
	support_compare(checkpoint, load);
	support_compare(checkpoint, other);
	hoist_load_destroy(other);
	hoist_load_destroy(load);
}

/* --- a rank 0 that is none --- */

static int listening(void)
{
	struct sockaddr_un address;
	static unsigned number;
	(void)snprintf(name, sizeof name, "hostile-%d-%u", (int)getpid(), number++);
	socklen_t bytes = hoist__shm_address(name, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&address, bytes) == 0 &&
	      listen(fd, 3) == 0);
	return fd;
}

static void another_users_rank_0(void)
{
	int fd = listening();
	told = geteuid() + 4711;
	hoist_load *load = start(1, UINT64_C(60000000000));
	CHECK(hoist_load_wait(load) == -EPERM);
	support_said("user");
	hoist_load_destroy(load);
	told = 0;
	(void)close(fd);
}

static const struct {
	enum memory memory;
	bool pipe_end;
	unsigned n_fds;
	bool welcome;
	const char *piece;
} rosters[] = {
	{GOOD, true, 4, true, "bell"},		 {SMALL, false, 4, true, "shares 8192"},
	{UNSEALED, false, 4, true, "rank 0"},	 {NO_MEMFD, false, 4, true, "rank 0"},
	{GOOD, false, 3, true, "3 descriptors"}, {GOOD, false, 4, false, "of kind 4"},
};

static void rosters_that_are_wrong(void)
{
	for (size_t i = 0; i < sizeof rosters / sizeof rosters[0]; i++) {
		int fds[4] = {memory_of(rosters[i].memory), bell_of(rosters[i].pipe_end),
			      memory_of(GOOD), bell_of(false)};
		struct hoist__shm_message message = hello();
		int fd = listening();
		check_at("roster %zu", i);
		hoist_load *load = start(1, UINT64_C(60000000000));
		int rank = accept(fd, NULL, NULL);
		CHECK(rank >= 0);
		message.kind = HOIST__SHM_WELCOME;
		if (rosters[i].welcome)
			OK(hoist__shm_send(rank, &message, NULL, 0));
		message.kind = HOIST__SHM_ROSTER;
		OK(hoist__shm_send(rank, &message, fds, rosters[i].n_fds));
		CHECK(hoist_load_wait(load) == -EBADMSG);
		support_said(rosters[i].piece);
		hoist_load_destroy(load);
		for (size_t f = 0; f < 4; f++)
			(void)close(fds[f]);
		(void)close(rank);
		(void)close(fd);
	}
}

/* A rank 0 that has come, and whose words are noise: the load fails or ends, and nothing breaks. */
static void a_header_of_noise(void)
{
	int fds[4] = {memory_of(GOOD), bell_of(false), memory_of(GOOD), bell_of(false)};
	struct hoist__shm_message message = hello();
	int fd = listening();
	unsigned char *bytes =
		mmap(NULL, rank_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	CHECK(bytes != MAP_FAILED);
	memset(bytes, 0xff, HOIST__SHM_HEADER_BYTES + HOIST__BLOCK_BYTES);
	hoist_load *load = start(1, UINT64_C(60000000000));
	int rank = accept(fd, NULL, NULL);
	CHECK(rank >= 0);
	message.kind = HOIST__SHM_WELCOME;
	OK(hoist__shm_send(rank, &message, NULL, 0));
	message.kind = HOIST__SHM_ROSTER;
	OK(hoist__shm_send(rank, &message, fds, 4));
	CHECK(hoist_load_wait(load) == -ECONNRESET);
	support_said("rank 0");
	hoist_load_destroy(load);
	CHECK(munmap(bytes, rank_bytes()) == 0);
	for (size_t f = 0; f < 4; f++)
		(void)close(fds[f]);
	(void)close(rank);
	(void)close(fd);
}

int main(void)
{
	static const size_t sizes[] = {300000, 50};
	support_write("model.safetensors", 0, 2, sizes, -1);
	checkpoint = support_open("model.safetensors");
	CASE(guests_of_rank_0);
	CASE(another_users_rank_0);
	CASE(rosters_that_are_wrong);
	CASE(a_header_of_noise);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
	return 0;
}
