/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/lazy-kernel.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

/* Linux 6.1 and 6.8; older headers lack them. */
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#define _UFFDIO_MOVE 0x05
#define UFFDIO_MOVE_MODE_DONTWAKE ((uint64_t)1 << 0)
struct uffdio_move {
	uint64_t dst;
	uint64_t src;
	uint64_t len;
	uint64_t mode;
	int64_t move; /* out */
};
#define UFFDIO_MOVE _IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)
#endif

#define DEVICE "/dev/userfaultfd"
#define MAX_RETRIES 1000 /* of what the kernel calls temporary */

/* --- the descriptor --- */

/* Who may open the device needs no privilege. */
static int open_device(void)
{
	int device = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (device < 0)
		return -errno;
	int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	int err = fd < 0 ? -errno : fd;
	close(device);
	return err;
}

static int refused(int by_device, int by_call)
{
	if (by_call == -ENOSYS)
		return hoist__fail(by_call, "userfaultfd refused: ENOSYS (this kernel or sandbox "
					    "has none)");
	return hoist__fail(by_call,
			   "userfaultfd refused: %s: %s, userfaultfd(2): %s; let the user open "
			   "%s, or set the sysctl vm.unprivileged_userfaultfd to 1",
			   DEVICE, strerrorname_np(-by_device), strerrorname_np(-by_call), DEVICE);
}

/* A refused handshake leaves the descriptor as it was. */
static int shake_hands(int fd, bool *moves)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MOVE};
	*moves = ioctl(fd, UFFDIO_API, &api) == 0;
	if (*moves)
		return 0;
	api = (struct uffdio_api){.api = UFFD_API};
	return ioctl(fd, UFFDIO_API, &api) < 0 ? -errno : 0;
}

int hoist__uffd_open(int *ret, bool *moves)
{
	int by_device = open_device();
	int fd = by_device;
	if (fd < 0) {
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			return refused(by_device, -errno);
	}
	int err = shake_hands(fd, moves);
	if (err < 0) {
		close(fd);
		return hoist__fail_errno(err, "userfaultfd refused: UFFDIO_API");
	}
	*ret = fd;
	return 0;
}

/* --- the range --- */

int hoist__uffd_register(int fd, void *address, size_t bytes, bool *moves)
{
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)address, .len = bytes},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	if (ioctl(fd, UFFDIO_REGISTER, &range) < 0)
		return hoist__fail_errno(-errno, "userfaultfd: registering %zu bytes", bytes);
	if ((range.ioctls & (uint64_t)1 << _UFFDIO_MOVE) == 0)
		*moves = false;
	return 0;
}

void hoist__uffd_unregister(int fd, void *address, size_t bytes)
{
	struct uffdio_range range = {.start = (uintptr_t)address, .len = bytes};
	/* Closing the descriptor does the same. */
	(void)ioctl(fd, UFFDIO_UNREGISTER, &range);
}

bool hoist__uffd_next(int fd, uintptr_t *ret)
{
	struct uffd_msg message;
	ssize_t n;
	do
		n = read(fd, &message, sizeof message);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof message || message.event != UFFD_EVENT_PAGEFAULT)
		return false;
	*ret = (uintptr_t)message.arg.pagefault.address;
	return true;
}

int hoist__uffd_move(int fd, void *to, void *from, size_t bytes, size_t *moved)
{
	*moved = 0;
	for (int i = 0; i < MAX_RETRIES; i++) {
		struct uffdio_move move = {
			.dst = (uintptr_t)to + *moved,
			.src = (uintptr_t)from + *moved,
			.len = bytes - *moved,
			.mode = UFFDIO_MOVE_MODE_DONTWAKE,
		};
		int err = ioctl(fd, UFFDIO_MOVE, &move) < 0 ? -errno : 0;
		if (move.move > 0)
			*moved += (size_t)move.move;
		if (*moved == bytes)
			return 0;
		if (err < 0 && err != -EAGAIN)
			return err;
		sched_yield();
	}
	return -EBUSY;
}

int hoist__uffd_copy(int fd, void *to, const void *from, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t done = 0;
	for (int retries = 0; done < bytes && retries < MAX_RETRIES;) {
		struct uffdio_copy copy = {
			.dst = (uintptr_t)to + done,
			.src = (uintptr_t)from + done,
			.len = bytes - done,
			.mode = UFFDIO_COPY_MODE_DONTWAKE,
		};
		int err = ioctl(fd, UFFDIO_COPY, &copy) < 0 ? -errno : 0;
		if (copy.copy > 0)
			done += (size_t)copy.copy;
		else if (err == -EEXIST)
			done += page;
		else if (err == -EAGAIN)
			retries++;
		else if (err < 0)
			return err;
	}
	return done == bytes ? 0 : -EAGAIN;
}

void hoist__uffd_wake(int fd, void *address, size_t bytes)
{
	struct uffdio_range range = {.start = (uintptr_t)address, .len = bytes};
	(void)ioctl(fd, UFFDIO_WAKE, &range);
}
