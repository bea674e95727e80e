/* SPDX-License-Identifier: MIT */
/* Ranks of one machine find each other.
 * The contract is in lib/group/group-shm.h. */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lib/group/group-shm.h"

/* Connections whose rank is not known yet, at most.  A user has few others to fear. */
#define MOST_GUESTS 64u

/* Rank r looks for rank 0 each millisecond for QUICK_POLLS times, as most ranks begin together;
 * then each POLL_MS. */
#define QUICK_POLLS 100
#define POLL_MS 10

/* --- another rank's memory and bell --- */

/* A bell is written to.  A pipe could end the process, and another file would be changed. */
static int check_bell(int fd, unsigned rank)
{
	struct stat now;
	int flags = fcntl(fd, F_GETFL);
	if (flags >= 0 && (flags & O_NONBLOCK) != 0 && fstat(fd, &now) == 0 &&
	    (now.st_mode & S_IFMT) == 0)
		return 0;
	return hoist__fail(-EBADMSG, "rank %u sent a bell that is no eventfd", rank);
}

/* Returns: the slots in a rank's memory; 0: the memory has another size than a rank's. */
static unsigned count_slots(const struct hoist__transport *t, size_t bytes)
{
	size_t at = hoist__shm_slots_at(t);
	size_t n = bytes > at ? (bytes - at) / HOIST__CELL_BYTES : 0;
	bool valid = bytes == at + n * HOIST__CELL_BYTES && n >= HOIST__CELL_LEAST_SLOTS &&
		     n <= HOIST__GROUP_MOST_SLOTS;
	return valid ? (unsigned)n : 0;
}

/* Takes both descriptors, also if it fails. */
static int take_peer(struct hoist__transport *t, unsigned rank, int memory, int bell)
{
	struct hoist__shm_peer *peer = &t->peers[rank];
	struct hoist__shared *shared = NULL;
	int err = check_bell(bell, rank);
	if (err == 0)
		err = hoist__shared_open(memory, true, &shared);
	unsigned n_slots = err == 0 ? count_slots(t, hoist__shared_bytes(shared)) : 0;
	if (err == 0 && n_slots == 0)
		err = hoist__fail(
			-EBADMSG,
			"rank %u shares %zu bytes; a rank of this group shares %zu and %u "
			"to %u slots of 2 MiB",
			rank, hoist__shared_bytes(shared), hoist__shm_slots_at(t),
			HOIST__CELL_LEAST_SLOTS, HOIST__GROUP_MOST_SLOTS);
	(void)close(memory);
	if (err < 0) {
		hoist__shared_close(shared);
		(void)close(bell);
		return hoist__fail_in(err, "rank %u of the group \"%s\"", rank, t->name);
	}
	peer->shared = shared;
	peer->n_slots = n_slots;
	peer->header = (struct hoist__shm_header *)hoist__shared_address(shared);
	peer->bell = bell;
	return 0;
}

static int missed(const struct hoist__transport *t, unsigned rank)
{
	return hoist__fail(-ETIMEDOUT, "rank %u of the group \"%s\" did not come within %g s%s%s",
			   rank, t->name, (double)t->options.timeout_ns / 1e9,
			   t->note[0] != '\0' ? "; one that came was refused: " : "", t->note);
}

/* Waits a little.  Returns: 0; -ECANCELED. */
static int wait_for(struct hoist__transport *t, struct pollfd *fds, unsigned n, int ms)
{
	if (poll(fds, n, ms) < 0 && errno != EINTR)
		return hoist__fail_errno(-errno, "waiting for ranks");
	if (atomic_load(&t->stopping))
		return hoist__fail(-ECANCELED, "the load was cancelled");
	return 0;
}

/* --- rank 0 --- */

struct hub {
	struct hoist__transport *t;
	int listening;
	int guests[MOST_GUESTS];
	unsigned n_guests;
	unsigned n_joined;
};

static int start_to_listen(struct hub *hub)
{
	struct sockaddr_un address;
	const char *name = hub->t->name;
	socklen_t bytes = hoist__shm_address(name, &address);
	hub->listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (hub->listening < 0)
		return hoist__fail_errno(-errno, "a socket for the group \"%s\"", name);
	if (bind(hub->listening, (const struct sockaddr *)&address, bytes) < 0) {
		if (errno == EADDRINUSE)
			return hoist__fail(
				-EEXIST,
				"another process is rank 0 of the group \"%s\" now; give "
				"each group a name of its own",
				name);
		return hoist__fail_errno(-errno, "the address of the group \"%s\"", name);
	}
	if (listen(hub->listening, (int)HOIST__GROUP_RANKS) < 0)
		return hoist__fail_errno(-errno, "listening for the group \"%s\"", name);
	return 0;
}

/* Sends the present failure. */
static void refuse(struct hoist__transport *t, int socket, int err)
{
	struct hoist__failure failure;
	struct hoist__shm_message message;
	hoist__failure_keep(&failure);
	hoist__shm_message_init(t, HOIST__SHM_REFUSED, &message);
	message.err = err;
	(void)snprintf(message.text, sizeof message.text, "%.*s", (int)sizeof message.text - 1,
		       failure.text);
	(void)hoist__shm_send(socket, &message, NULL, 0);
	(void)hoist__fail_again(err, &failure);
}

/* Judges a guest.  *ret_all: the failure is the whole group's, which can never be complete. */
static int judge(const struct hoist__transport *t, const struct hoist__shm_message *hello,
		 unsigned n_fds, bool *ret_all)
{
	const struct hoist__transport_options *o = &t->options;
	unsigned rank = hello->rank;
	*ret_all = false;
	if (hello->kind != HOIST__SHM_HELLO || n_fds != 2)
		return hoist__fail(-EBADMSG, "a guest of the group \"%s\" did not say hello",
				   t->name);
	*ret_all = true;
	if (hello->n_ranks != o->n_ranks)
		return hoist__fail(-EINVAL,
				   "rank %u of the group \"%s\" expects %u ranks, and rank 0 %u",
				   rank, t->name, hello->n_ranks, o->n_ranks);
	if (hello->n_cells != o->n_cells || hello->identity[0] != o->identity[0] ||
	    hello->identity[1] != o->identity[1])
		return hoist__fail(-EINVAL,
				   "rank %u of the group \"%s\" loads another checkpoint than rank "
				   "0: files of other sizes, times or inodes",
				   rank, t->name);
	*ret_all = false;
	if (rank == 0 || rank >= o->n_ranks)
		return hoist__fail(-EINVAL, "rank %u is not one of the ranks 1 to %u", rank,
				   o->n_ranks - 1);
	if (t->peers[rank].socket >= 0)
		return hoist__fail(-EEXIST, "rank %u of the group \"%s\" is there already", rank,
				   t->name);
	return 0;
}

/* Returns: 0, the guest stays one, joined, or was sent away; the group's failure. */
static int hear(struct hub *hub, int *guest)
{
	struct hoist__transport *t = hub->t;
	struct hoist__shm_message hello;
	int fds[HOIST__SHM_MOST_FDS];
	unsigned n_fds = 0;
	bool all = false;
	int err = hoist__shm_receive(*guest, &hello, fds, &n_fds);
	if (err == -EAGAIN)
		return 0;
	if (err == 0)
		err = judge(t, &hello, n_fds, &all);
	if (err == 0) {
		err = take_peer(t, hello.rank, fds[0], fds[1]);
		n_fds = 0;
	}
	for (unsigned i = 0; i < n_fds; i++)
		(void)close(fds[i]);
	if (err == 0) {
		struct hoist__shm_message welcome;
		t->peers[hello.rank].socket = *guest;
		t->peers[hello.rank].process = hoist__shm_process(*guest);
		hub->n_joined++;
		*guest = -1;
		hoist__shm_message_init(t, HOIST__SHM_WELCOME, &welcome);
		err = hoist__shm_send(t->peers[hello.rank].socket, &welcome, NULL, 0);
		return err < 0 ? hoist__fail_in(-ECONNRESET, "rank %u of the group \"%s\"",
						hello.rank, t->name)
			       : 0;
	}
	refuse(t, *guest, err);
	(void)snprintf(t->note, sizeof t->note, "%.*s", (int)sizeof t->note - 1,
		       hoist__error_text());
	(void)close(*guest);
	*guest = -1;
	return all ? err : 0;
}

static void accept_guests(struct hub *hub)
{
	int fd;
	while (hub->n_guests < MOST_GUESTS &&
	       (fd = accept4(hub->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		if (hoist__shm_check_peer(fd, hub->t->name) < 0) {
			hoist__log(load, "%s", hoist__error_text());
			(void)close(fd);
		} else {
			hub->guests[hub->n_guests++] = fd;
		}
	}
}

static unsigned first_missing(const struct hoist__transport *t)
{
	unsigned rank = 1;
	while (rank < t->options.n_ranks && t->peers[rank].socket >= 0)
		rank++;
	return rank;
}

/* A rank that joined has nothing to say, so that its socket becomes readable at its end alone. */
static int look_at_joined(struct hoist__transport *t)
{
	for (unsigned r = 1; r < t->options.n_ranks; r++) {
		struct pollfd both[2] = {{.fd = t->peers[r].socket, .events = POLLIN},
					 {.fd = t->peers[r].process, .events = POLLIN}};
		if (both[0].fd >= 0 && poll(both, 2, 0) > 0)
			return hoist__fail(-ECONNRESET,
					   "rank %u of the group \"%s\" ended before rank %u came",
					   r, t->name, first_missing(t));
	}
	return 0;
}

static int gather(struct hub *hub)
{
	struct hoist__transport *t = hub->t;
	uint64_t end = hoist__now_ns() + t->options.timeout_ns;
	int err = 0;
	while (err == 0 && hub->n_joined + 1 < t->options.n_ranks) {
		struct pollfd fds[MOST_GUESTS + 1];
		unsigned n = 0;
		fds[n++] = (struct pollfd){.fd = hub->listening, .events = POLLIN};
		for (unsigned g = 0; g < hub->n_guests; g++)
			fds[n++] = (struct pollfd){.fd = hub->guests[g], .events = POLLIN};
		err = wait_for(t, fds, n, POLL_MS);
		for (unsigned g = 0; err == 0 && g < hub->n_guests; g++)
			err = hear(hub, &hub->guests[g]);
		unsigned left = 0;
		for (unsigned g = 0; g < hub->n_guests; g++)
			if (hub->guests[g] >= 0)
				hub->guests[left++] = hub->guests[g];
		hub->n_guests = left;
		accept_guests(hub);
		if (err == 0)
			err = look_at_joined(t);
		if (err == 0 && hub->n_joined + 1 < t->options.n_ranks && hoist__now_ns() > end)
			err = missed(t, first_missing(t));
	}
	return err;
}

static int send_roster(struct hoist__transport *t)
{
	int fds[HOIST__SHM_MOST_FDS];
	struct hoist__shm_message roster;
	unsigned n = 0;
	int err = 0;
	hoist__shm_message_init(t, HOIST__SHM_ROSTER, &roster);
	while (err == 0 && n < t->options.n_ranks) {
		err = hoist__shared_export(t->peers[n].shared, false, &fds[2 * n]);
		fds[2 * n + 1] = t->peers[n].bell;
		n += err == 0 ? 1 : 0;
	}
	for (unsigned r = 1; err == 0 && r < n; r++)
		if (hoist__shm_send(t->peers[r].socket, &roster, fds, 2 * n) < 0)
			err = hoist__fail_in(-ECONNRESET, "rank %u of the group \"%s\"", r,
					     t->name);
	while (n-- > 0)
		(void)close(fds[2 * n]);
	return err;
}

static int be_hub(struct hoist__transport *t)
{
	struct hub hub = {.t = t, .listening = -1};
	int err = start_to_listen(&hub);
	if (err == 0)
		err = gather(&hub);
	/* A rank that has just come learns why the group failed. */
	if (err < 0 && hub.listening >= 0)
		accept_guests(&hub);
	if (hub.listening >= 0)
		(void)close(hub.listening);
	for (unsigned g = 0; g < hub.n_guests; g++) {
		if (err < 0)
			refuse(t, hub.guests[g], err);
		(void)close(hub.guests[g]);
	}
	return err < 0 ? err : send_roster(t);
}

void hoist__shm_dismiss(struct hoist__transport *t, int err)
{
	for (unsigned r = 1; t->options.rank == 0 && r < t->options.n_ranks; r++)
		if (t->peers[r].socket >= 0)
			refuse(t, t->peers[r].socket, err);
}

/* --- the other ranks --- */

/* Returns: 0; -EAGAIN, nobody listens now; what failed. */
static int find_hub(struct hoist__transport *t)
{
	struct sockaddr_un address;
	socklen_t bytes = hoist__shm_address(t->name, &address);
	struct hoist__shm_message hello;
	int fds[2] = {-1, t->peers[t->options.rank].bell};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return hoist__fail_errno(-errno, "a socket for the group \"%s\"", t->name);
	int err = 0;
	if (connect(fd, (const struct sockaddr *)&address, bytes) < 0)
		err = errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
	if (err < 0 && err != -EAGAIN)
		err = hoist__fail_errno(err, "connecting to the group \"%s\"", t->name);
	if (err == 0)
		err = hoist__shm_check_peer(fd, t->name);
	if (err == 0)
		err = hoist__shared_export(t->peers[t->options.rank].shared, false, &fds[0]);
	hoist__shm_message_init(t, HOIST__SHM_HELLO, &hello);
	if (err == 0 && hoist__shm_send(fd, &hello, fds, 2) < 0)
		err = -EAGAIN; /* the listener has just stopped to listen */
	if (fds[0] >= 0)
		(void)close(fds[0]);
	if (err < 0)
		(void)close(fd);
	if (err < 0)
		return err;
	t->peers[0].socket = fd;
	t->peers[0].process = hoist__shm_process(fd);
	return 0;
}

static int take_roster(struct hoist__transport *t, const int *fds, unsigned n_fds)
{
	unsigned n_ranks = t->options.n_ranks;
	int err = n_fds == 2 * n_ranks ? 0
				       : hoist__fail(-EBADMSG, "rank 0 sent %u descriptors", n_fds);
	for (unsigned i = 0; i < n_fds / 2; i++) {
		if (err == 0 && i != t->options.rank) {
			err = take_peer(t, i, fds[2 * i], fds[2 * i + 1]);
		} else {
			(void)close(fds[2 * i]);
			(void)close(fds[2 * i + 1]);
		}
	}
	if (n_fds % 2 != 0)
		(void)close(fds[n_fds - 1]);
	return err;
}

/* Returns: 1, the roster has come; 0; -EAGAIN, rank 0 ended before it said anything; what failed.
 */
static int hear_hub(struct hoist__transport *t, bool *welcome)
{
	struct hoist__shm_message message;
	int fds[HOIST__SHM_MOST_FDS];
	unsigned n_fds = 0;
	int err = hoist__shm_receive(t->peers[0].socket, &message, fds, &n_fds);
	if (err == -EAGAIN)
		return 0;
	if (err == -ECONNRESET)
		return *welcome ? hoist__fail(err, "rank 0 of the group \"%s\" ended", t->name)
				: -EAGAIN;
	if (err < 0)
		return err;
	if (message.kind == HOIST__SHM_ROSTER && *welcome) {
		err = take_roster(t, fds, n_fds);
		return err < 0 ? err : 1;
	}
	for (unsigned i = 0; i < n_fds; i++)
		(void)close(fds[i]);
	if (message.kind == HOIST__SHM_REFUSED && message.err < 0 && message.err != -EAGAIN)
		return hoist__fail(message.err, "%s", message.text);
	if (message.kind != HOIST__SHM_WELCOME || *welcome)
		return hoist__fail(-EBADMSG, "rank 0 of the group \"%s\" sent a message of kind %u",
				   t->name, message.kind);
	*welcome = true;
	return 0;
}

/* The time begins anew once rank 0 has let this rank in: rank 0 then says which rank is missing. */
static int join(struct hoist__transport *t)
{
	uint64_t end = hoist__now_ns() + t->options.timeout_ns;
	bool welcome = false;
	int heard = 0;
	for (unsigned n = 0; heard == 0; n++) {
		struct pollfd one = {.fd = t->peers[0].socket, .events = POLLIN};
		bool was = welcome;
		heard = one.fd < 0 ? find_hub(t) : hear_hub(t, &welcome);
		if (heard == -EAGAIN && one.fd >= 0)
			hoist__shm_hang_up(&t->peers[0]);
		heard = heard == -EAGAIN ? 0 : heard;
		if (welcome && !was)
			end = hoist__now_ns() + t->options.timeout_ns + t->options.timeout_ns / 4;
		else if (heard == 0 && hoist__now_ns() > end)
			heard = missed(t, 0);
		one.fd = t->peers[0].socket;
		int err = heard == 0 ? wait_for(t, &one, 1, n < QUICK_POLLS ? 1 : POLL_MS) : 0;
		heard = err < 0 ? err : heard;
	}
	return heard < 0 ? heard : 0;
}

int hoist__shm_meet(struct hoist__transport *t)
{
	return t->options.rank == 0 ? be_hub(t) : join(t);
}
