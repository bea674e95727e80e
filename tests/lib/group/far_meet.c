/* SPDX-License-Identifier: MIT */
/* How ranks of several machines meet: who looks at a group, a rank that dies before the group
 * begins, a host of two addresses, a process that answers and cannot be met, a group that is full.
 * Plain C. Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/far/far.h"
#include "net/secret.h"
#include "net/ucx.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

static const char *path;

/* The last load's, from its report. */
static unsigned n_members;
static char note[1024];

static void keep_report(hoist_checkpoint *checkpoint, hoist_load *load)
{
	hoist_group_report report = {.size = sizeof report};
	(void)checkpoint;
	OK(hoist_group_get_report(load, &report));
	n_members = report.n_members;
	(void)snprintf(note, sizeof note, "%s", report.note);
}

static void load_in(const hoist_group *group)
{
	hoist_load_options o = {.size = sizeof o};
	ranks_load(group, path, &o, keep_report);
	check_at("rank %u: %s, note: %s", group->rank, said->text[group->rank], note);
	CHECK(said->err[group->rank] == 0);
}

/* --- looking at a group --- */

static void waiting_rank(unsigned rank)
{
	const hoist_group group = ranks_group(rank, 2);
	load_in(&group);
}

struct seen {
	unsigned n;
	unsigned n_begun;
	uint64_t bytes;
};

static int see(void *context, const hoist_group_member *member)
{
	struct seen *seen = context;
	seen->n++;
	seen->n_begun += member->begun != 0;
	seen->bytes = member->bytes;
	CHECK(member->size == sizeof *member && member->id != 0 && member->has_files);
	CHECK(strncmp(member->address, "127.0.0.1:", 10) == 0 ||
	      strncmp(member->address, "two.test:", 9) == 0);
	CHECK(member->done_bytes <= member->bytes);
	return 0;
}

static struct seen wait_for_members(const hoist_group *group, unsigned n)
{
	struct seen seen = {.n = 0};
	for (uint64_t until = 0; seen.n != n && patience(&until);) {
		seen = (struct seen){.n = 0};
		(void)hoist_group_look(group, see, &seen);
	}
	CHECK(seen.n == n && seen.n_begun == 0);
	return seen;
}

/* Begins a new group of two with rank 0, and waits until the rank is there. */
static pid_t begin_with(void (*rank_main)(unsigned rank))
{
	ranks_next_group();
	const hoist_group group = ranks_group(0, 2);
	pid_t first = ranks_start(0, rank_main);
	(void)wait_for_members(&group, 1);
	return first;
}

static int stop_at_once(void *context, const hoist_group_member *member)
{
	(void)context;
	(void)member;
	return -ECANCELED;
}

static void a_group_that_waits_is_seen(void)
{
	ranks_next_group();
	const hoist_group group = ranks_group(0, 2);
	struct seen seen = {.n = 0};
	CHECK(hoist_group_look(&group, see, &seen) == -ECONNREFUSED);
	pid_t first = ranks_start(0, waiting_rank);
	seen = wait_for_members(&group, 1);
	CHECK(seen.bytes >= BIG_BYTES);
	CHECK(hoist_group_look(&group, stop_at_once, NULL) == -ECANCELED);
	hoist_group other = group;
	char name[64];
	(void)snprintf(name, sizeof name, "%sx", group.name);
	other.name = name;
	CHECK(hoist_group_look(&other, see, &seen) == -EINVAL);
	support_said("at 127.0.0.1:");
	other.name = group.name;
	other.secret = "another secret of a group";
	CHECK(hoist_group_look(&other, see, &seen) == -EACCES);
	other.name = "shm:x";
	CHECK(hoist_group_look(&other, see, &seen) == -ENOTSUP);
	CHECK(hoist_group_look(&group, NULL, NULL) == -EINVAL);
	pid_t second = ranks_start(1, waiting_rank);
	ranks_end(first, 0);
	ranks_end(second, 0);
}

/* --- a rank that dies while the group gathers --- */

static const char *folder_group; /* NULL: a door */

static hoist_group group_of_three(unsigned rank)
{
	hoist_group group = ranks_group(rank, 3);
	group.name = folder_group != NULL ? folder_group : group.name;
	return group;
}

static void rank_of_three(unsigned rank)
{
	hoist_group group = group_of_three(rank);
	group.timeout_ns = UINT64_C(600000000000); /* more than the test has */
	load_in(&group);
	CHECK(strstr(note, "members came") == NULL);
	CHECK(rank != 0 || strstr(note, "was left out") != NULL);
}

/* @again: the rank comes again, before the last one has come. */
static void lose_a_rank(bool again)
{
	ranks_next_group();
	const hoist_group group = group_of_three(0);
	pid_t children[3];
	children[0] = ranks_start(0, rank_of_three);
	(void)wait_for_members(&group, 1);
	children[1] = ranks_start(1, rank_of_three);
	(void)wait_for_members(&group, 2);
	CHECK(kill(children[1], SIGKILL) == 0);
	ranks_end(children[1], 1);
	(void)wait_for_members(&group, 1);
	if (again) {
		children[1] = ranks_start(1, rank_of_three);
		(void)wait_for_members(&group, 2);
	}
	children[2] = ranks_start(2, rank_of_three);
	ranks_end(children[0], 0);
	ranks_end(children[2], 0);
	if (again)
		ranks_end(children[1], 0);
}

static void a_rank_that_died_is_not_waited_for(void)
{
	char folder[512];
	char name[600];
	lose_a_rank(false);
	lose_a_rank(true);
	/* The last rank finds the file of the one that died. */
	(void)snprintf(folder, sizeof folder, "%s", support_path("door"));
	(void)snprintf(name, sizeof name, "dir:%s/test", folder);
	OK(mkdir(folder, 0700));
	folder_group = name;
	lose_a_rank(false);
	folder_group = NULL;
	support_remove(folder);
}

/* --- a host of two addresses --- */

static bool knows_ipv6; /* this process */

/* HOST has one address of each family.  A member knows both, or that of IPv4 alone. */
WRAP(int, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret))
{
	struct addrinfo *v6;
	if (strcmp(host, "two.test") != 0)
		return __real_getaddrinfo(host, port, hints, ret);
	int code = __real_getaddrinfo("127.0.0.1", port, hints, ret);
	if (code != 0 || !knows_ipv6 || __real_getaddrinfo("::1", port, hints, &v6) != 0)
		return code;
	v6->ai_next = *ret;
	*ret = v6;
	return 0;
}

static void rank_at_two_doors(unsigned rank)
{
	hoist_group group = ranks_group(rank, 2);
	char name[64];
	(void)snprintf(name, sizeof name, "tcp://two.test%s", strrchr(group.name, ':'));
	group.name = name;
	knows_ipv6 = rank == 0;
	load_in(&group);
	CHECK(n_members == 2);
}

/* The door is one that knows both. */
static void members_meet_at_either_address(void)
{
	pid_t first = begin_with(rank_at_two_doors);
	ranks_end(ranks_start(1, rank_at_two_doors), 0);
	ranks_end(first, 0);
}

/* --- who answers, and cannot be met --- */

static const char *says; /* a piece of each rank's note */

static void rank_that_stays_alone(unsigned rank)
{
	hoist_group group = ranks_group(rank, 2);
	group.timeout_ns = UINT64_C(3000000000);
	load_in(&group);
	CHECK(n_members == 1 && strstr(note, "1 of 2 members came") != NULL);
	CHECK(strstr(note, says) != NULL);
}

static void (*real_version)(unsigned *major, unsigned *minor, unsigned *patch);

static void next_version(unsigned *major, unsigned *minor, unsigned *patch)
{
	real_version(major, minor, patch);
	(*minor)++;
}

static void rank_with_another_ucx(unsigned rank)
{
	OK(hoist__ucx_open(NULL));
	real_version = hoist__ucx.ucp_get_version;
	if (rank == 1)
		hoist__ucx.ucp_get_version = next_version;
	rank_that_stays_alone(rank);
}

static void another_ucx_is_named(void)
{
	says = "install the same version on all machines";
	ranks_next_group();
	ranks_run(2, rank_with_another_ucx, 0);
}

/* At the door is a server of another protocol. */
static void serve_another_protocol(unsigned rank)
{
	static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	const struct hoist__address door = ranks_door();
	int listening, socket;
	OK(hoist__address_listen(&door, &listening, NULL));
	__atomic_store_n(&said->marks[rank], 1, __ATOMIC_SEQ_CST);
	for (;;) {
		struct pollfd ready = {.fd = listening, .events = POLLIN};
		if (poll(&ready, 1, -1) < 0 || hoist__address_accept(listening, &socket) < 0)
			continue;
		CHECK(send(socket, answer, sizeof answer - 1, MSG_NOSIGNAL) != 0);
		(void)close(socket);
	}
}

static void another_protocol_is_named(void)
{
	says = "does not speak hoist's protocol";
	ranks_next_group();
	pid_t server = ranks_start(0, serve_another_protocol);
	ranks_wait_for_mark(0, 1);
	ranks_end(ranks_start(1, rank_that_stays_alone), 0);
	CHECK(kill(server, SIGKILL) == 0);
	ranks_end(server, 1);
}

/* --- more members than a group can have --- */

/* Greets as one member more.  Returns: the first answer. */
static enum hoist__wire_kind greet(struct hoist__wire_message *hello, uint64_t id)
{
	const struct hoist__address door = ranks_door();
	struct hoist__secret secret;
	struct hoist__channel *channel = NULL;
	OK(hoist__secret_find(NULL, &secret));
	OK(hoist__channel_connect(&door, &secret, &channel));
	for (uint64_t until = 0; !hoist__channel_proved(channel);) {
		CHECK(patience(&until));
		OK(hoist__channel_work(channel));
	}
	hello->id = id;
	ranks_say(channel, hello);
	while (hoist__channel_queued(channel) > 0)
		OK(hoist__channel_work(channel));
	const struct hoist__wire_message answer = ranks_hear(channel);
	check_at("member %llu: message %d, %s", (unsigned long long)id, (int)answer.kind,
		 answer.text);
	CHECK(answer.kind == HOIST__WIRE_HELLO ||
	      (answer.err == -ENOSPC && strstr(answer.text, "128 members") != NULL));
	return answer.kind; /* the channel stays */
}

static void crowd(unsigned rank)
{
	static struct side side;
	struct seen seen = {.n = 0};
	const hoist_group group = ranks_group(rank, 0);
	hoist_checkpoint *checkpoint = support_open(path);
	struct hoist__wire_message m = {.kind = HOIST__WIRE_HELLO, .port = 1, .text = "test"};
	const void *address;
	OK(hoist_group_look(&group, see, &seen));
	OK(hoist__checkpoint_identify(checkpoint, m.identity));
	side_open(&side, "tcp");
	hoist__fabric_address(side.fabric, &address, &m.n_bytes);
	m.bytes = address;
	m.n_cells = seen.bytes / HOIST__CELL_BYTES;
	for (unsigned i = 1; i < HOIST__SWARM_MEMBERS; i++)
		CHECK(greet(&m, i) == HOIST__WIRE_HELLO);
	for (unsigned i = 0; i < 3; i++)
		CHECK(greet(&m, 1000 + i) == HOIST__WIRE_BYE);
}

static void rank_too_many(unsigned rank)
{
	const hoist_group group = ranks_group(rank, 2);
	hoist_load_options o = {.size = sizeof o};
	ranks_load(&group, path, &o, NULL);
	check_at("%d, %s", said->err[rank], said->text[rank]);
	CHECK(said->err[rank] == -ENOSPC && strstr(said->text[rank], "128 members") != NULL);
}

static void a_group_that_is_full_says_so(void)
{
	pid_t first = begin_with(waiting_rank);
	ranks_end(ranks_start(1, crowd), 0);
	ranks_end(ranks_start(1, rank_too_many), 0);
	CHECK(kill(first, SIGKILL) == 0);
	ranks_end(first, 1);
}

int main(void)
{
	ranks_begin_far();
	path = ranks_big();
	CASE(a_group_that_waits_is_seen);
	CASE(a_rank_that_died_is_not_waited_for);
	CASE(members_meet_at_either_address);
	CASE(another_ucx_is_named);
	CASE(another_protocol_is_named);
	CASE(a_group_that_is_full_says_so);
	support_cleanup();
	return 0;
}
