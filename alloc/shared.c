/* SPDX-License-Identifier: MIT */
/* alloc/shared.c - makes, opens and closes memory that other processes can map.
 * The contract is in alloc/shared.h. */
#include "config.h"

#include "alloc/shared.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "alloc/map.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/limit.h"
#include "base/list.h"
#include "base/lock-fork.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

struct hoist__shared {
	struct hoist__list node;
	unsigned refs;
	int fd;
	dev_t device; /* device and inode identify the file */
	ino_t inode;
	char *address; /* 2 MiB-aligned */
	size_t bytes;
	bool read_only;
	bool foreign;
};

/* Held for short searches and, where a piece is opened, for a system call or two. */
static struct hoist__lock lock;
static struct hoist__list pieces = {&pieces, &pieces};

/* A child of fork goes on with its host memory, and so with the list: no fork happens while the
 * lock is held. */
HOIST__WATCH_FORKS(lock, alloc, "shared memory")

static struct hoist__shared *piece_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__shared, node);
}

/* --- making --- */

static int open_memfd(int *ret)
{
	int fd = memfd_create("hoist", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* the kernel is older than the flag */
		fd = memfd_create("hoist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return hoist__fail_memfd(errno, "making memory to be shared");
	*ret = fd;
	return 0;
}

static int size_and_seal(int fd, size_t bytes)
{
	int err = hoist__check_file_bytes(bytes, "memory to be shared");
	if (err < 0)
		return err;
	if (ftruncate(fd, (off_t)bytes) < 0)
		return hoist__fail_errno(errno == EFBIG || errno == EINVAL ? -ENOMEM : -errno,
					 "%zu bytes of memory to be shared", bytes);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return hoist__fail_errno(-errno, "sealing the size of memory to be shared");
	return 0;
}

/* Maps @shared->fd.  Pre: all other fields but the address, the references and the node are set. */
static int map(struct hoist__shared *shared)
{
	int protection = shared->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	HOIST__ASSERT(shared->fd >= 0 && shared->bytes != 0 && shared->address == NULL);
	int err = hoist__map_file(shared->fd, shared->bytes, protection, MAP_SHARED,
				  "memory to be shared", &shared->address);
	if (err < 0)
		return err;
	shared->refs = 1;
	return 0;
}

static void destroy(struct hoist__shared *shared)
{
	if (shared->address != NULL)
		(void)munmap(shared->address, shared->bytes);
	if (shared->fd >= 0)
		(void)close(shared->fd);
	free(shared);
}

static int fill_new(struct hoist__shared *shared, size_t bytes)
{
	struct stat status;
	int err = open_memfd(&shared->fd);
	if (err == 0)
		err = size_and_seal(shared->fd, bytes);
	if (err == 0 && fstat(shared->fd, &status) < 0)
		err = hoist__fail_errno(-errno, "asking for the size of shared memory");
	if (err < 0)
		return err;
	shared->device = status.st_dev;
	shared->inode = status.st_ino;
	shared->bytes = bytes;
	return map(shared);
}

static int make(struct hoist__shared **ret)
{
	watch_forks();
	struct hoist__shared *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a piece of shared memory", sizeof *made);
	made->fd = -1;
	*ret = made;
	return 0;
}

int hoist__shared_create(size_t bytes, struct hoist__shared **ret)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct hoist__shared *made = NULL;
	if (bytes > (size_t)INT64_MAX - page)
		return hoist__fail(-ENOMEM, "%zu bytes of memory to be shared exceed every file",
				   bytes);
	int err = make(&made);
	if (err < 0)
		return err;
	err = fill_new(made, (size_t)hoist__round_up(bytes, page));
	if (err < 0) {
		destroy(made);
		return err;
	}
	/* Last: an open of the same file finds the piece in the list from here on. */
	hoist__lock(&lock);
	HOIST__ASSERT(made->refs == 1 && made->bytes % page == 0);
	hoist__list_push_back(&pieces, &made->node);
	hoist__unlock(&lock);
	*ret = made;
	return 0;
}

/* --- opening --- */

/* A descriptor that another process sends as shared memory may be any file.  A touch of a file that
 * can shrink may be SIGBUS, and so may a touch of a file of huge pages when those run out.  The
 * seals are checked first.  The size counts only once it cannot become less.  A file that has no
 * seals is asked nothing else: its file system may be a process that does not answer. */
static int judge(int fd, struct stat *status, bool *read_only)
{
	struct statfs system;
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return hoist__fail_errno(-errno, "descriptor %d, received as shared memory", fd);
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || fstatfs(fd, &system) < 0 || system.f_type != TMPFS_MAGIC)
		return hoist__fail(-EBADMSG, "the descriptor received as shared memory is no memfd "
					     "of small pages");
	if ((seals & F_SEAL_SHRINK) == 0)
		return hoist__fail(-EBADMSG,
				   "the memfd received is not sealed against shrinking (seals "
				   "%#x): its owner could take away bytes that are in use",
				   (unsigned)seals);
	if (fstat(fd, status) < 0)
		return hoist__fail_errno(-errno, "asking for the size of the memfd received");
	if (status->st_size <= 0)
		return hoist__fail(-EBADMSG, "the memfd received has no bytes");
	if ((flags & O_ACCMODE) == O_RDONLY || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
		*read_only = true;
	return 0;
}

/* Pre: the lock is held. */
static struct hoist__shared *find_file(const struct stat *status, bool read_only)
{
	HOIST__ASSERT(hoist__lock_held(&lock));
	for (struct hoist__list *at = pieces.next; at != &pieces; at = at->next) {
		struct hoist__shared *piece = piece_of(at);
		if (piece->device == status->st_dev && piece->inode == status->st_ino &&
		    (read_only || !piece->read_only))
			return piece;
	}
	return NULL;
}

static int open_piece(int fd, const struct stat *status, bool read_only, struct hoist__shared **ret)
{
	struct hoist__shared *made = NULL;
	int err = make(&made);
	if (err < 0)
		return err;
	made->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	made->device = status->st_dev;
	made->inode = status->st_ino;
	made->bytes = (size_t)status->st_size;
	made->read_only = read_only;
	made->foreign = true;
	err = made->fd >= 0 ? map(made)
			    : hoist__fail_errno(-errno, "keeping a descriptor of shared memory");
	if (err < 0) {
		destroy(made);
		return err;
	}
	HOIST__ASSERT(hoist__lock_held(&lock) && made->refs == 1);
	hoist__list_push_back(&pieces, &made->node);
	*ret = made;
	return 0;
}

int hoist__shared_open(int fd, bool read_only, struct hoist__shared **ret)
{
	struct stat status;
	int err = judge(fd, &status, &read_only);
	if (err < 0)
		return err;
	hoist__lock(&lock);
	struct hoist__shared *found = find_file(&status, read_only);
	if (found != NULL)
		found->refs++;
	else
		err = open_piece(fd, &status, read_only, &found);
	hoist__unlock(&lock);
	if (err == 0)
		*ret = found;
	return err;
}

/* --- having --- */

void hoist__shared_close(void *closed)
{
	struct hoist__shared *shared = closed;
	if (shared == NULL)
		return;
	hoist__lock(&lock);
	HOIST__ASSERT(shared->refs != 0 && !hoist__list_empty(&shared->node));
	bool last = --shared->refs == 0;
	if (last)
		hoist__list_remove(&shared->node);
	hoist__unlock(&lock);
	if (last)
		destroy(shared);
}

struct hoist__shared *hoist__shared_find(uintptr_t address)
{
	struct hoist__shared *found = NULL;
	hoist__lock(&lock);
	for (struct hoist__list *at = pieces.next; at != &pieces && found == NULL; at = at->next)
		if (address - (uintptr_t)piece_of(at)->address < piece_of(at)->bytes)
			found = piece_of(at);
	if (found != NULL)
		found->refs++;
	hoist__unlock(&lock);
	return found;
}

uintptr_t hoist__shared_address(const struct hoist__shared *shared)
{
	return (uintptr_t)shared->address;
}

size_t hoist__shared_bytes(const struct hoist__shared *shared)
{
	return shared->bytes;
}

bool hoist__shared_is_read_only(const struct hoist__shared *shared)
{
	return shared->read_only;
}

bool hoist__shared_is_foreign(const struct hoist__shared *shared)
{
	return shared->foreign;
}

int hoist__shared_export(struct hoist__shared *shared, bool read_only, int *ret)
{
	int seals = read_only ? fcntl(shared->fd, F_GET_SEALS) : 0;
	if (seals < 0)
		return hoist__fail_errno(-errno, "asking how shared memory is sealed");
	bool sealed = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
	if (read_only && !sealed && fcntl(shared->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0)
		return hoist__fail_errno(errno == EINVAL ? -ENOTSUP : -errno,
					 "sealing shared memory against writing");
	int fd = fcntl(shared->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return hoist__fail_errno(-errno, "another descriptor of shared memory");
	*ret = fd;
	return 0;
}
