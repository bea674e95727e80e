/* SPDX-License-Identifier: MIT */
/* Direct reads and writes by io_uring of as much memory as the file.  The contract is in raw.h. */
#include "config.h"

#include "bench/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/pages.h"
#include "cli/fail.h"

#define ALIGN ((uint64_t)4096) /* of direct requests: the last read may end behind the file */

struct request {
	const char *path;
	struct fio_shape shape;
	uint64_t bytes;
	bool write;
};

struct transfer {
	struct io_uring ring;
	const struct request *request;
	int fd;
	char *memory;
	uint64_t next; /* the offset of the next block */
	uint64_t done;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Queues bytes [@offset, @end), rounded up. */
static void queue(struct transfer *transfer, uint64_t offset, uint64_t end)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&transfer->ring);
	char *memory = transfer->memory + offset;
	unsigned bytes = (unsigned)((end + ALIGN - 1) / ALIGN * ALIGN - offset);
	if (sqe == NULL)
		bench_fail("io_uring has no entry for a request");
	if (transfer->request->write)
		io_uring_prep_write(sqe, transfer->fd, memory, bytes, offset);
	else
		io_uring_prep_read(sqe, transfer->fd, memory, bytes, offset);
	io_uring_sqe_set_data64(sqe, offset);
}

/* Queues the next block, if there is one. */
static void queue_next(struct transfer *transfer)
{
	uint64_t offset = transfer->next;
	if (offset >= transfer->request->bytes)
		return;
	transfer->next =
		least(offset + transfer->request->shape.block_bytes, transfer->request->bytes);
	queue(transfer, offset, transfer->next);
}

/* A block that was moved in part goes on where the bytes end. */
static void take(struct transfer *transfer, uint64_t offset, int n)
{
	uint64_t block = transfer->request->shape.block_bytes;
	uint64_t end = least((offset / block + 1) * block, transfer->request->bytes);
	if (n <= 0)
		bench_fail("%s: %s", transfer->request->path,
			   n < 0 ? strerror(-n) : "the file ends early");
	uint64_t at = least(offset + (uint64_t)n, end);
	transfer->done += at - offset;
	if (at == end)
		queue_next(transfer);
	else if (at % ALIGN == 0)
		queue(transfer, at, end);
	else
		bench_fail("%s: a request ended at byte %" PRIu64, transfer->request->path, at);
}

static void move_all(struct transfer *transfer)
{
	for (unsigned i = 0; i < transfer->request->shape.depth; i++)
		queue_next(transfer);
	while (transfer->done < transfer->request->bytes) {
		struct io_uring_cqe *cqe;
		int err = io_uring_submit_and_wait(&transfer->ring, 1);
		if (err < 0 && err != -EINTR)
			bench_fail("io_uring_submit_and_wait: %s", strerror(-err));
		while (io_uring_peek_cqe(&transfer->ring, &cqe) == 0) {
			uint64_t offset = io_uring_cqe_get_data64(cqe);
			int n = cqe->res;
			io_uring_cqe_seen(&transfer->ring, cqe);
			take(transfer, offset, n);
		}
	}
}

static void open_file(struct transfer *transfer)
{
	const struct request *request = transfer->request;
	int flags = request->write ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY;
	transfer->fd = open(request->path, flags | O_DIRECT | O_CLOEXEC, 0600);
	if (transfer->fd < 0 ||
	    (request->write && fallocate(transfer->fd, 0, 0, (off_t)request->bytes) < 0))
		bench_fail("%s: %s", request->path, strerror(errno));
}

static void in_child(const void *argument, void *ret)
{
	const struct request *request = argument;
	double *seconds = ret;
	void *memory;
	struct transfer transfer = {.request = request};
	if (pages_touch((size_t)(request->bytes + ALIGN), &memory) != STATUS_OK)
		bench_fail("no memory");
	transfer.memory = memory;
	int err = io_uring_queue_init(request->shape.depth, &transfer.ring, 0);
	if (err < 0)
		bench_fail("io_uring: %s", strerror(-err));
	double begin = clock_seconds();
	open_file(&transfer);
	move_all(&transfer);
	if (request->write && fsync(transfer.fd) < 0)
		bench_fail("%s: fsync: %s", request->path, strerror(errno));
	*seconds = clock_seconds() - begin;
	io_uring_queue_exit(&transfer.ring);
}

static double run(const struct request *request)
{
	double seconds = 0;
	bench_touch_memory((size_t)request->bytes);
	(void)bench_in_child(in_child, request, &seconds, sizeof seconds);
	bench_keep_memory((size_t)request->bytes);
	return (double)request->bytes / seconds;
}

double raw_read(const char *path, const struct fio_shape *shape)
{
	bench_make_cold(path);
	return run(&(struct request){path, *shape, bench_file_bytes(path), false});
}

double raw_write(const char *path, uint64_t bytes, const struct fio_shape *shape)
{
	sync(); /* as before a save */
	double rate = run(&(struct request){path, *shape, bytes / ALIGN * ALIGN, true});
	if (unlink(path) < 0)
		bench_fail("%s: %s", path, strerror(errno));
	return rate;
}

static double rate_of_read(const char *path, uint64_t bytes, const struct fio_shape *shape)
{
	(void)bytes;
	return raw_read(path, shape);
}

struct fio_shape raw_best_read(const char *path)
{
	return fio_best(rate_of_read, path, 0, 32);
}

struct fio_shape raw_best_write(const char *path, uint64_t bytes)
{
	return fio_best(raw_write, path, bytes, 16);
}

const char *raw_label(const struct fio_shape *shape, char *ret, unsigned bytes)
{
	(void)snprintf(ret, bytes, "raw, %" PRIu64 " MiB x %u", shape->block_bytes >> 20,
		       shape->depth);
	return ret;
}
