/* SPDX-License-Identifier: MIT */
/* Faults of the file system, applied to an answer before the server gives it: errors, delays, short
 * answers and changes of a file. */
#include "config.h"

#include "tests/faults/fuse-answers.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

/* How soon it is seen that the kernel wants a call back. */
#define LOOK_US 100u

static int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int fail_in_turn(enum ffs_op op)
{
	uint64_t n = atomic_fetch_add(&faultfs->n_calls[op], 1) + 1;
	const struct ffs_fault *fault = &faultfs->ops[op];
	if (fault->err == 0 || n < fault->from || n - fault->from >= fault->n)
		return 0;
	atomic_fetch_add(&faultfs->n_faults, 1);
	return fault->err;
}

/* As long as the test wants, or until the kernel wants the call back. */
static int take_time(fuse_req_t req, enum ffs_op op)
{
	for (int64_t end = now_us() + faultfs->delay_us[op]; now_us() < end;) {
		usleep(LOOK_US);
		if (!fuse_req_interrupted(req))
			continue;
		atomic_fetch_add(&faultfs->n_interrupted[op], 1);
		return EINTR;
	}
	return 0;
}

/* Waits as long as the test wants. */
static void stall(fuse_ino_t ino)
{
	if (!atomic_load(&faultfs->stalled) || ino - FFS_FIRST != faultfs->stalled_node)
		return;
	atomic_fetch_add(&faultfs->n_faults, 1);
	atomic_fetch_add(&faultfs->n_stalled, 1);
	while (atomic_load(&faultfs->stalled))
		usleep(1000);
	atomic_fetch_sub(&faultfs->n_stalled, 1);
}

int ffs_spoil(fuse_req_t req, enum ffs_op op, fuse_ino_t ino)
{
	int err = fail_in_turn(op);
	if (err == 0 && faultfs->delay_us[op] > 0)
		err = take_time(req, op);
	if (err == 0 && (op == FFS_READ || (op == FFS_GETATTR && faultfs->stalls_all)))
		stall(ino);
	return err;
}

size_t ffs_less(size_t bytes, size_t most)
{
	if (most == 0 || bytes <= 1)
		return bytes;
	uint64_t *x = &faultfs->random;
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	size_t n = (size_t)(*x % most) + 1;
	if (n >= bytes)
		return bytes;
	atomic_fetch_add(&faultfs->n_short, 1);
	return n;
}

void ffs_change_if_due(unsigned index)
{
	if (faultfs->change == FFS_NO_CHANGE ||
	    atomic_load(&faultfs->n_calls[FFS_READ]) < faultfs->change_at)
		return;
	ffs_node_change(index, faultfs->change);
	faultfs->change = FFS_NO_CHANGE;
	faultfs->changed_node = index;
	atomic_fetch_add(&faultfs->n_faults, 1);
}
