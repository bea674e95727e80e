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

/* The size of a rank's memory, for the checkpoint of one cell: header and wants take one, too. */
static size_t rank_bytes(void)
{
	return (1 + HOIST__CELL_LEAST_SLOTS) * (size_t)HOIST__CELL_BYTES;
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

/* --- guests of rank 0 --- */

/* The message of a real rank 1: a listener that is no rank 0 hears it. */
static struct hoist__shm_message true_hello(void)
{
	struct hoist__shm_message message;
	int fds[HOIST__SHM_MOST_FDS];
	unsigned n_fds = 0;
	int got = -EAGAIN;
	int fd = listening();
	hoist_load *load = start(1, UINT64_C(60000000000));
	int rank = accept(fd, NULL, NULL);
	CHECK(rank >= 0);
	for (uint64_t until = 0; got == -EAGAIN && patience(&until);)
		got = hoist__shm_receive(rank, &message, fds, &n_fds);
	CHECK(got == 0 && n_fds == 2);
	(void)close(fds[0]);
	(void)close(fds[1]);
	hoist_load_destroy(load);
	(void)close(rank);
	(void)close(fd);
	return message;
}

enum field {
	F_NOTHING,
	F_MAGIC,
	F_VERSION,
	F_KIND,
	F_RANK,
	F_N_RANKS,
	F_N_CELLS,
	F_IDENTITY_0,
	F_IDENTITY_1,
	F_ERR,
	F_RESERVED,
	F_TEXT
};

static void set(struct hoist__shm_message *message, enum field field, int64_t value)
{
	switch (field) {
	case F_NOTHING:
		break;
	case F_MAGIC:
		message->magic[3] = (char)value;
		break;
	case F_VERSION:
		message->version = (uint32_t)value;
		break;
	case F_KIND:
		message->kind = (uint32_t)value;
		break;
	case F_RANK:
		message->rank = (uint32_t)value;
		break;
	case F_N_RANKS:
		message->n_ranks = (uint32_t)value;
		break;
	case F_N_CELLS:
		message->n_cells = (uint64_t)value;
		break;
	case F_IDENTITY_0:
		message->identity[0] += (uint64_t)value;
		break;
	case F_IDENTITY_1:
		message->identity[1] += (uint64_t)value;
		break;
	case F_ERR:
		message->err = (int32_t)value;
		break;
	case F_RESERVED:
		message->reserved = (uint32_t)value;
		break;
	case F_TEXT:
		memset(message->text, (int)value, sizeof message->text);
		break;
	}
}

/* A guest that says hello as rank 1 would, but for one thing.  `ends`: the group can never be
 * complete then. */
static const struct {
	enum field field;
	int64_t value;
	unsigned n_fds;
	enum memory memory;
	bool pipe_end;
	bool ends;
	int err;
} hellos[] = {
	{F_MAGIC, 'x', 2, GOOD, false, false, -EBADMSG},
	{F_VERSION, 0, 2, GOOD, false, false, -EPROTO},
	{F_VERSION, HOIST__SHM_VERSION + 1, 2, GOOD, false, false, -EPROTO},
	{F_KIND, 0, 2, GOOD, false, false, -EBADMSG},
	{F_KIND, HOIST__SHM_WELCOME, 2, GOOD, false, false, -EBADMSG},
	{F_KIND, HOIST__SHM_REFUSED, 2, GOOD, false, false, -EBADMSG},
	{F_KIND, HOIST__SHM_ROSTER, 2, GOOD, false, false, -EBADMSG},
	{F_KIND, HOIST__SHM_KINDS, 2, GOOD, false, false, -EBADMSG},
	{F_KIND, UINT32_MAX, 2, GOOD, false, false, -EBADMSG},
	{F_RANK, 0, 2, GOOD, false, false, -EINVAL},
	{F_RANK, 2, 2, GOOD, false, false, -EINVAL},
	{F_RANK, UINT32_MAX, 2, GOOD, false, false, -EINVAL},
	{F_N_RANKS, 0, 2, GOOD, false, true, -EINVAL},
	{F_N_RANKS, UINT32_MAX, 2, GOOD, false, true, -EINVAL},
	{F_N_CELLS, 0, 2, GOOD, false, true, -EINVAL},
	{F_N_CELLS, INT64_MAX, 2, GOOD, false, true, -EINVAL},
	{F_IDENTITY_0, 1, 2, GOOD, false, true, -EINVAL},
	{F_IDENTITY_1, 1, 2, GOOD, false, true, -EINVAL},
	{F_ERR, 7, 2, GOOD, false, false, -EBADMSG},
	{F_ERR, INT32_MIN, 2, GOOD, false, false, -EBADMSG},
	{F_RESERVED, 1, 2, GOOD, false, false, -EBADMSG},
	{F_TEXT, 0x1b, 0, GOOD, false, false, -EBADMSG},
	{F_NOTHING, 0, 0, GOOD, false, false, -EBADMSG},
	{F_NOTHING, 0, 1, GOOD, false, false, -EBADMSG},
	{F_NOTHING, 0, 3, GOOD, false, false, -EBADMSG},
	{F_NOTHING, 0, HOIST__SHM_MOST_FDS, GOOD, false, false, -EBADMSG},
	{F_NOTHING, 0, 2, SMALL, false, false, -EBADMSG},
	{F_NOTHING, 0, 2, UNSEALED, false, false, -EBADMSG},
	{F_NOTHING, 0, 2, NO_MEMFD, false, false, -EBADMSG},
	{F_NOTHING, 0, 2, GOOD, true, false, -EBADMSG},
};

/* Rank 1 comes, and all is well; or rank 0 has failed. */
static void group_goes_on(hoist_load *load, bool ends, int err)
{
	if (ends) {
		CHECK(hoist_load_wait(load) == err);
		support_said("rank 1");
	} else {
		hoist_load *other = start(1, UINT64_C(60000000000));
		OK(hoist_load_wait(other));
		OK(hoist_load_wait(load));
		support_compare(checkpoint, load);
		support_compare(checkpoint, other);
		hoist_load_destroy(other);
	}
	hoist_load_destroy(load);
}

static void hellos_that_are_wrong(void)
{
	const struct hoist__shm_message right = true_hello();
	for (size_t i = 0; i < sizeof hellos / sizeof hellos[0]; i++) {
		struct hoist__shm_message message = right;
		int fds[HOIST__SHM_MOST_FDS];
		for (unsigned f = 0; f < HOIST__SHM_MOST_FDS; f += 2) {
			fds[f] = memory_of(hellos[i].memory);
			fds[f + 1] = bell_of(hellos[i].pipe_end);
		}
		check_at("hello %zu", i);
		(void)snprintf(name, sizeof name, "hostile-%d-h%zu", (int)getpid(), i);
		hoist_load *load = start(0, UINT64_C(60000000000));
		int fd = guest();
		set(&message, hellos[i].field, hellos[i].value);
		OK(hoist__shm_send(fd, &message, fds, hellos[i].n_fds));
		is_sent_away(fd, hellos[i].err);
		group_goes_on(load, hellos[i].ends, hellos[i].err);
		for (unsigned f = 0; f < HOIST__SHM_MOST_FDS; f++)
			(void)close(fds[f]);
	}
}

/* Messages of every length but the right one. */
static void hellos_of_other_sizes(void)
{
	struct {
		struct hoist__shm_message message;
		char more[64];
	} sent = {.message = true_hello()};
	static const size_t sizes[] = {
		1, 7, 8, 11, 12, 15, sizeof sent.message - 1, sizeof sent.message + 1, sizeof sent};
	(void)snprintf(name, sizeof name, "hostile-%d", (int)getpid());
	hoist_load *load = start(0, UINT64_C(60000000000));
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		check_at("%zu bytes", sizes[i]);
		int fd = guest();
		CHECK(send(fd, &sent, sizes[i], MSG_NOSIGNAL) == (ssize_t)sizes[i]);
		is_sent_away(fd, -EBADMSG);
	}
	(void)close(guest()); /* says nothing */
	uint64_t done = 0;
	uint64_t total = 0;
	hoist_load_progress(load, &done, &total);
	CHECK(done == 0);
	group_goes_on(load, false, 0);
}

/* --- a rank 0 that is none --- */

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

/* Rank 0 answers hello with something else than a welcome. */
static const struct {
	enum field field;
	int64_t value;
	int err;
	const char *piece;
} answers[] = {
	{F_KIND, HOIST__SHM_HELLO, -EBADMSG, "of kind 1"},
	{F_KIND, 0, -EBADMSG, "no message"},
	{F_KIND, HOIST__SHM_KINDS, -EBADMSG, "no message"},
	{F_MAGIC, 'x', -EBADMSG, "no message of hoist's"},
	{F_VERSION, 77, -EPROTO, "version 77"},
	{F_ERR, 1, -EBADMSG, "no message"},
	{F_ERR, -4096, -EBADMSG, "no message"},
	{F_RESERVED, 9, -EBADMSG, "no message"},
};

static void answers_that_are_wrong(void)
{
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
		struct hoist__shm_message message = hello();
		int fd = listening();
		check_at("answer %zu", i);
		hoist_load *load = start(1, UINT64_C(60000000000));
		int rank = accept(fd, NULL, NULL);
		CHECK(rank >= 0);
		message.kind = HOIST__SHM_WELCOME;
		set(&message, answers[i].field, answers[i].value);
		OK(hoist__shm_send(rank, &message, NULL, 0));
		CHECK(hoist_load_wait(load) == answers[i].err);
		support_said(answers[i].piece);
		hoist_load_destroy(load);
		(void)close(rank);
		(void)close(fd);
	}
}

/* Refusals: the error is rank 0's, and its text is shown without control characters. */
static void refusals(void)
{
	static const struct {
		int sent;
		int err;
	} cases[] = {{-EINVAL, -EINVAL}, {-ENOMEM, -ENOMEM}, {0, -EBADMSG}, {-EAGAIN, -EBADMSG}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct hoist__shm_message message = hello();
		int fd = listening();
		check_at("refusal %zu", i);
		hoist_load *load = start(1, UINT64_C(60000000000));
		int rank = accept(fd, NULL, NULL);
		CHECK(rank >= 0);
		message.kind = HOIST__SHM_REFUSED;
		message.err = cases[i].sent;
		memset(message.text, '\n', sizeof message.text); /* and no end */
		OK(hoist__shm_send(rank, &message, NULL, 0));
		CHECK(hoist_load_wait(load) == cases[i].err);
		CHECK(strchr(hoist_error(), '\n') == NULL);
		hoist_load_destroy(load);
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
	CASE(hellos_that_are_wrong);
	CASE(hellos_of_other_sizes);
	CASE(another_users_rank_0);
	CASE(rosters_that_are_wrong);
	CASE(answers_that_are_wrong);
	CASE(refusals);
	CASE(a_header_of_noise);
	printf("figure: group.hostile %zu hellos, %zu rosters and %zu answers that are wrong\n",
	       sizeof hellos / sizeof hellos[0], sizeof rosters / sizeof rosters[0],
	       sizeof answers / sizeof answers[0]);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();
	return 0;
}
