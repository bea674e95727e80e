/* SPDX-License-Identifier: MIT */
/* The cache's holder among clients that send anything: requests of any content and length, with
 * descriptors of any kind and number.  It answers what can be answered with well-formed replies,
 * closes what it does not keep, and its list stays in order. */
#include "config.h"

#include "lib/cache/cache-holder.c" /* NOLINT(bugprone-suspicious-include): what is tested is static */

#include <fcntl.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "tests/fuzz/fuzz-support.h"
#include "tests/support/pass-fd.h"

#define MOST_IMAGES 6
#define MOST_FDS 9
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

static struct holder holder = {.folder = -1, .listener = -1, .most_images = MOST_IMAGES};

static int descriptor(unsigned kind)
{
	if (kind == 0)
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	HOLDS(fd >= 0 && (kind == 1 || ftruncate(fd, 4096) == 0));
	HOLDS(kind == 2 || fcntl(fd, F_ADD_SEALS, SEALS) == 0);
	return fd;
}

/* Mostly what a client would send, with some of it changed. */
static void make_message(struct fuzz_bytes *from, struct hoist__cache_message *m)
{
	static const char *const paths[] = {"",	  "/a", "/b", "/c", "/d",
					    "/e", "/f", "/g", "/h", "x"};
	uint64_t which = fuzz_below(from, HOIST__ARRAY_SIZE(paths));
	HOLDS(hoist__cache_message_init(HOIST__CACHE_PUT, paths[which], m) == 0);
	m->op = (uint32_t)(1 + fuzz_below(from, 5));
	m->id = fuzz_below(from, 8);
	for (uint64_t n = fuzz_below(from, 4); n > 0; n--) {
		uint64_t at =
			fuzz_below(from, 4) ? fuzz_below(from, 80) : fuzz_below(from, sizeof *m);
		((uint8_t *)m)[at] = (uint8_t)fuzz_take(from, 1);
	}
	if (fuzz_below(from, 16) == 0)
		memset(m->path, 'a', sizeof m->path - fuzz_below(from, 2));
	if (fuzz_below(from, 32) == 0)
		memset(m->note, 'a', sizeof m->note);
}

static void check_holder(void)
{
	HOLDS(holder.n_images <= MOST_IMAGES && holder.n_images <= holder.room);
	for (size_t i = 0; i < holder.n_images; i++) {
		const struct held *image = &holder.images[i];
		HOLDS(fcntl(image->fd, F_GETFD) >= 0);
		HOLDS(find(&holder, image->about.path) == image && image->about.path[0] == '/');
		HOLDS(i == 0 || holder.images[i - 1].about.id < image->about.id);
	}
}

/* False: it was cut off. */
static bool ask(int client, struct peer *peer, struct fuzz_bytes *from)
{
	static struct hoist__cache_message m[2];
	struct hoist__cache_message reply;
	int fds[MOST_FDS];
	int came = -1;
	size_t bytes = sizeof m[0];
	memset(m, 0, sizeof m);
	make_message(from, &m[0]);
	uint32_t op = m[0].op;
	if (fuzz_below(from, 16) == 0)
		bytes = fuzz_below(from, sizeof m);
	size_t n_fds = fuzz_below(from, 4) == 0 ? fuzz_below(from, MOST_FDS + 1) : 1;
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = descriptor(fuzz_below(from, 8) == 0 ? (unsigned)fuzz_below(from, 3) : 3);
	HOLDS(pass_fds(client, m, bytes, fds, n_fds));
	for (size_t i = 0; i < n_fds; i++)
		(void)close(fds[i]);
	bool served = serve_peer(&holder, peer);
	check_holder();
	if (!served)
		return false;
	HOLDS(hoist__cache_receive(client, &reply, &came) == 0 && reply.op == op);
	HOLDS(came < 0 ||
	      (reply.status == 0 && (op == HOIST__CACHE_GET || op == HOIST__CACHE_PEEK)));
	if (came >= 0)
		(void)close(came);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct fuzz_bytes from = {bytes, n};
	int ends[2];
	size_t n_fds = fuzz_n_fds();
	while (from.n > 0) {
		HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) ==
		      0);
		struct peer peer = {ends[1], 0};
		while (from.n > 0 && ask(ends[0], &peer, &from))
			;
		(void)close(ends[0]);
		HOLDS(!serve_peer(&holder, &peer));
		(void)close(ends[1]);
	}
	(void)drop_path(&holder, "");
	HOLDS(holder.n_images == 0);
	HOLDS(fuzz_n_fds() == n_fds);
	fuzz_check_mappings("/memfd:");
	return 0;
}
