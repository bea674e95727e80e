/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-holder.c - the process that keeps the images' descriptors.
 * The contract is in lib/cache/cache.h.
 *
 * Why a process, and not a file on a tmpfs that is published by rename:
 *   - An image is sealed: no process can write to bytes that others have mapped.  A file on a tmpfs
 *     has no seals: every process of the user may change it, or truncate it under its readers.
 *   - The memory is given back when the last image is dropped, when the user logs out, and when the
 *     holder is killed.  A file on a tmpfs stays, and takes memory, until it is removed.
 *   - A memfd is in huge pages as far as its process asks for them (MFD_HUGETLB, MADV_HUGEPAGE).
 * The pages of a tmpfs depend on its mount, and a container's /dev/shm has 64 MiB.
 *
 * There is one thread and one poll(2).  A peer gets an answer to each request at once, or is cut
 * off: no peer can make the holder wait.  A peer that sends anything wrong is cut off, too.
 *
 *   begins   without images; ends if none comes within GRACE_NS
 *   ends     with its last image: first the socket's name goes, then the socket, then the lock, and
 *            the folder if nothing else is in it.  A peer that connected meanwhile sees the end and
 *            starts another holder.  The holder also ends when its socket was removed (a user's
 *            /run folder goes at logout), as no peer can reach it then */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "lib/cache/cache.h"

#define MOST_PEERS HOIST__CACHE_MOST_PEERS
#define LEAST_PEERS 4
#define OTHER_FDS 10		       /* descriptors besides those of images and peers */
#define GRACE_NS (5 * HOIST__NS_PER_S) /* the time without an image, at the beginning */
#define IDLE_NS (30 * HOIST__NS_PER_S) /* until a peer that asks nothing is cut off */
#define LOOK_NS (10 * HOIST__NS_PER_S) /* how often the holder looks for its socket */

struct held {
	int fd;
	struct hoist__cache_message about;
};

struct peer {
	int fd;
	uint64_t until;
};

struct holder {
	int folder;
	int listener;
	size_t n_images;
	size_t most_images; /* limited, so that there are descriptors for peers */
	size_t most_peers;
	size_t room;
	struct held *images; /* in the order of their ids */
	uint64_t last_id;
	size_t n_peers;
	struct peer peers[MOST_PEERS];
	uint64_t until; /* the end of the time without images; 0: none */
	uint64_t look_at;
	ino_t socket; /* the inode of the socket in the folder */
};

/* --- images --- */

static struct held *find(struct holder *holder, const char *path)
{
	for (size_t i = 0; i < holder->n_images; i++)
		if (strcmp(holder->images[i].about.path, path) == 0)
			return &holder->images[i];
	return NULL;
}

static void drop(struct holder *holder, struct held *image)
{
	(void)close(image->fd);
	size_t behind = holder->n_images - (size_t)(image - holder->images) - 1;
	memmove(image, image + 1, behind * sizeof *image);
	holder->n_images--;
}

static int make_room(struct holder *holder, const struct held *before)
{
	if (before == NULL && holder->n_images >= holder->most_images)
		return -EMFILE;
	if (holder->n_images < holder->room)
		return 0;
	size_t room = holder->room + 16;
	struct held *images = realloc(holder->images, room * sizeof *images);
	if (images == NULL)
		return -ENOMEM;
	holder->images = images;
	holder->room = room;
	return 0;
}

/* Takes over @fd. */
static int put(struct holder *holder, const struct hoist__cache_message *m, int fd)
{
	size_t bytes;
	bool hugetlb;
	int err = fd < 0 || m->path[0] != '/' ? -EINVAL
					      : hoist__memory_file_judge(fd, &bytes, &hugetlb);
	if (err == 0)
		err = make_room(holder, find(holder, m->path));
	if (err < 0) {
		if (fd >= 0)
			(void)close(fd);
		return err;
	}
	struct held *before = find(holder, m->path);
	if (before != NULL)
		drop(holder, before);
	struct held *image = &holder->images[holder->n_images++];
	image->fd = fd;
	image->about = *m;
	image->about.id = ++holder->last_id;
	image->about.bytes = bytes;
	image->about.n_attached = 0;
	return 0;
}

static uint64_t drop_path(struct holder *holder, const char *path)
{
	uint64_t n = 0;
	for (size_t i = holder->n_images; i-- > 0;)
		if (path[0] == '\0' || strcmp(holder->images[i].about.path, path) == 0) {
			drop(holder, &holder->images[i]);
			n++;
		}
	return n;
}

/* --- requests --- */

static void fill_reply(const struct held *image, struct hoist__cache_message *reply)
{
	uint32_t op = reply->op;
	*reply = image->about;
	reply->op = op;
	reply->status = 0;
}

static const struct held *next_of(const struct holder *holder, uint64_t id)
{
	for (size_t i = 0; i < holder->n_images; i++)
		if (holder->images[i].about.id > id)
			return &holder->images[i];
	return NULL;
}

/* Turns the request into its reply.  *fd is the descriptor to send with it, which stays the
 * holder's. */
static void answer(struct holder *holder, struct hoist__cache_message *m, int *fd)
{
	const struct held *image = NULL;
	int came = *fd;
	*fd = -1;
	m->status = 0;
	switch ((enum hoist__cache_op)m->op) {
	case HOIST__CACHE_PUT:
		m->status = put(holder, m, came);
		came = -1;
		break;
	case HOIST__CACHE_GET:
	case HOIST__CACHE_PEEK: {
		struct held *found = find(holder, m->path);
		if (found != NULL && m->op == HOIST__CACHE_GET)
			found->about.n_attached++;
		if (found != NULL)
			*fd = found->fd;
		image = found;
		m->status = found != NULL ? 0 : -ENOENT;
		break;
	}
	case HOIST__CACHE_LIST:
		image = next_of(holder, m->id);
		m->status = image != NULL ? 0 : -ENOENT;
		break;
	case HOIST__CACHE_DROP:
		m->id = drop_path(holder, m->path);
		if (m->path[0] == '\0')
			holder->until = 0; /* the holder no longer waits for a first image either */
		m->status = m->id > 0 ? 0 : -ENOENT;
		break;
	case HOIST__CACHE_N_OPS:
		break;
	}
	if (came >= 0)
		(void)close(came);
	if (image != NULL)
		fill_reply(image, m);
}

/* Returns: false if the peer is to be cut off. */
static bool serve_peer(struct holder *holder, struct peer *peer)
{
	struct hoist__cache_message m;
	int fd = -1;
	int err = hoist__cache_receive(peer->fd, &m, &fd);
	if (err == -EAGAIN)
		return true;
	if (err == -EMFILE) { /* a descriptor came for which this process has no room */
		m.status = err;
		return hoist__cache_send(peer->fd, &m, -1) == 0;
	}
	if (err < 0)
		return false;
	answer(holder, &m, &fd);
	peer->until = hoist__now_ns() + IDLE_NS;
	return hoist__cache_send(peer->fd, &m, fd) == 0;
}

static void end_peer(struct holder *holder, size_t index)
{
	(void)close(holder->peers[index].fd);
	holder->peers[index] = holder->peers[--holder->n_peers];
}

static void accept_peer(struct holder *holder)
{
	int fd = accept4(holder->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		/* The whole system has no descriptor or no memory left: the peer stays in line. */
		if (errno != EAGAIN && errno != ECONNABORTED)
			(void)usleep(10000);
		return;
	}
	if (hoist__cache_check_peer(fd) < 0) {
		(void)close(fd);
		return;
	}
	holder->peers[holder->n_peers++] = (struct peer){fd, hoist__now_ns() + IDLE_NS};
}

/* --- the process --- */

static bool is_over(const struct holder *holder)
{
	return holder->n_images == 0 && holder->n_peers == 0 && hoist__now_ns() >= holder->until;
}

static ino_t look_for_socket(int folder)
{
	struct stat status;
	return fstatat(folder, HOIST__CACHE_SOCKET, &status, AT_SYMLINK_NOFOLLOW) == 0
		       ? status.st_ino
		       : 0;
}

static bool is_unreachable(struct holder *holder)
{
	uint64_t now = hoist__now_ns();
	if (now < holder->look_at)
		return false;
	holder->look_at = now + LOOK_NS;
	return look_for_socket(holder->folder) != holder->socket;
}

static int timeout_of(const struct holder *holder)
{
	uint64_t now = hoist__now_ns();
	uint64_t first = holder->look_at;
	if (holder->n_images == 0 && holder->until < first)
		first = holder->until;
	for (size_t i = 0; i < holder->n_peers; i++)
		if (holder->peers[i].until < first)
			first = holder->peers[i].until;
	return first <= now ? 0 : (int)((first - now) / 1000000 + 1);
}

static void run(struct holder *holder)
{
	struct pollfd polled[MOST_PEERS + 1];
	while (!is_over(holder) && !is_unreachable(holder)) {
		size_t n = holder->n_peers;
		for (size_t i = 0; i < n; i++)
			polled[i] = (struct pollfd){holder->peers[i].fd, POLLIN, 0};
		/* While the table is full, new peers wait in the socket's backlog. */
		polled[n] =
			(struct pollfd){n < holder->most_peers ? holder->listener : -1, POLLIN, 0};
		int ready = poll(polled, n + 1, timeout_of(holder));
		/* If the system is out of memory, the images are kept all the same. */
		if (ready < 0 && errno != EINTR)
			(void)usleep(10000);
		uint64_t now = hoist__now_ns();
		/* Backwards: end_peer() fills the gap with the last peer, which has been served
		 * already. */
		for (size_t i = n; i-- > 0;) {
			struct peer *peer = &holder->peers[i];
			bool asks = ready > 0 && polled[i].revents != 0;
			if (asks ? !serve_peer(holder, peer) : peer->until <= now)
				end_peer(holder, i);
		}
		if (ready > 0 && polled[n].revents != 0)
			accept_peer(holder);
		if (holder->n_images > 0)
			holder->until = 0; /* from now on the holder ends with its last image */
	}
}

/* Raises the limit on descriptors as far as allowed, as each image takes one.  Returns: the
 * limit. */
static size_t count_fds(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1024;
	const struct rlimit all = {limit.rlim_max, limit.rlim_max};
	if (setrlimit(RLIMIT_NOFILE, &all) == 0)
		limit = all;
	return (size_t)limit.rlim_cur;
}

/* If there are few descriptors, a third of them is for peers. */
static void share_fds(struct holder *holder, size_t n_fds)
{
	size_t n = n_fds > OTHER_FDS ? n_fds - OTHER_FDS : 0;
	holder->most_peers = (size_t)hoist__min_u64(hoist__max_u64(n / 3, LEAST_PEERS), MOST_PEERS);
	n = n > holder->most_peers ? n - holder->most_peers : 0;
	holder->most_images = (size_t)hoist__min_u64(n, HOIST__CACHE_MOST_IMAGES);
}

void hoist__cache_serve(struct hoist__cache_lock *lock, int listener)
{
	static struct holder holder;
	share_fds(&holder, count_fds());
	holder.folder = lock->folder;
	holder.listener = listener;
	holder.until = hoist__now_ns() + GRACE_NS;
	holder.look_at = hoist__now_ns() + LOOK_NS;
	holder.socket = look_for_socket(holder.folder);
	run(&holder);
	if (look_for_socket(holder.folder) == holder.socket)
		(void)unlinkat(holder.folder, HOIST__CACHE_SOCKET, 0);
	(void)close(listener);
	hoist__cache_unlock(lock);
	_exit(0);
}
