/* SPDX-License-Identifier: MIT */
/* The answers of a ring to the reads and writes of a save, each in turn: the file is the new one,
 * whole, if the save says so; else the old one, and nothing else is in the folder.
 *
 * Answers are spoiled where they lie, in the completion queue; user_data 0 and 1 are the engine's
 * own. */
#include "config.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/save-support.h"
#include "tests/support/wrap-uring.h"
#include "tests/support/wrap.h"

static struct {
	int answer;  /* a negative errno, or the bytes at most */
	bool lasts;  /* the Nth and all that follow */
	unsigned at; /* 0: none */
} fault;
static atomic_uint n_answers; /* since the fault was set */
static unsigned looked_at;    /* completions of the present ring */

static void set_fault(int answer, bool lasts, unsigned at)
{
	fault.answer = answer;
	fault.lasts = lasts;
	fault.at = at;
	atomic_store(&n_answers, 0);
}

static void spoil(struct io_uring *ring)
{
	unsigned tail = io_uring_smp_load_acquire(ring->cq.ktail);
	for (; looked_at != tail; looked_at++) {
		struct io_uring_cqe *cqe = &ring->cq.cqes[looked_at & *ring->cq.kring_mask];
		if (cqe->user_data <= 1 || fault.at == 0)
			continue;
		unsigned n = atomic_fetch_add(&n_answers, 1) + 1;
		bool struck = n == fault.at || (fault.lasts && n > fault.at);
		if (struck && (fault.answer < 0 || cqe->res > fault.answer))
			cqe->res = fault.answer;
	}
}

#define ENTER(name, parameters, arguments)                                                         \
	WRAP(int, name, parameters)                                                                \
	{                                                                                          \
		int err = __real_##name arguments;                                                 \
		spoil(ring);                                                                       \
		return err;                                                                        \
	}

URING_ENTERS(ENTER)

WRAP(int, io_uring_queue_init_params,
     (unsigned n, struct io_uring *ring, struct io_uring_params *p))
{
	looked_at = 0;
	return __real_io_uring_queue_init_params(n, ring, p);
}

/* --- saves --- */

static hoist_budget *budget;

/* A save of the second tensor and then the first of "s.safetensors", directly or not. */
static int save(enum hoist_io io, bool *ret_ring)
{
	const hoist_save_options options = {.size = sizeof options,
					    .io = io,
					    .budget = budget,
					    .flags = HOIST_SAVE_DIGEST | HOIST_SAVE_NO_SYNC};
	hoist_checkpoint *checkpoint;
	hoist_save *saving;
	OK(hoist_checkpoint_open(support_path("s.safetensors"), 0, &checkpoint));
	OK(hoist_save_create(support_path("m.safetensors"), &options, &saving));
	for (size_t i = 0; i < 2; i++)
		OK(hoist_save_add_tensor(saving, NULL, checkpoint, 1 - i));
	hoist_checkpoint_close(checkpoint);
	OK(hoist_save_start(saving));
	int err = hoist_save_wait(saving);
	CHECK(err == 0 || hoist_error()[0] != '\0');
	hoist_save_report report = {.size = sizeof report};
	OK(hoist_save_get_report(saving, &report));
	*ret_ring = strcmp(report.engine, "io_uring") == 0;
	hoist_save_destroy(saving);
	return err;
}

static void put_old(void)
{
	FILE *file = fopen(support_path("m.safetensors"), "wb");
	CHECK(file != NULL && fputs("old", file) >= 0 && fclose(file) == 0);
}

static bool is_old(void)
{
	char text[8] = "";
	FILE *file = fopen(support_path("m.safetensors"), "rb");
	CHECK(file != NULL);
	size_t n = fread(text, 1, sizeof text, file);
	OK(fclose(file));
	return n == 3 && memcmp(text, "old", 3) == 0;
}

/* The file that is saved when nothing goes wrong. */
static struct saved want;

static bool is_new(void)
{
	struct saved saved;
	OK(saved_read(support_path("m.safetensors"), &saved));
	bool same = saved.n == want.n && memcmp(saved.bytes, want.bytes, want.n) == 0;
	saved_free(&saved);
	return same;
}

static const struct {
	int answer;
	bool lasts;
	bool refused[2]; /* directly, through the page cache: somewhere the save fails */
} faults[] = {
	{-EIO, true, {true, true}},	 {-EIO, false, {true, true}},
	{-ENOSPC, false, {true, true}},	 {-EDQUOT, true, {true, true}},
	{-EINTR, false, {false, false}}, {-EAGAIN, false, {false, false}},
	{-EINVAL, false, {false, true}}, {-EOPNOTSUPP, true, {true, true}},
	{-EFAULT, false, {false, true}}, {4096, false, {false, false}},
	{4096, true, {false, false}},	 {0, false, {true, true}},
};

static void sweep(size_t f, enum hoist_io io)
{
	unsigned n_failed = 0;
	for (unsigned n = 1;; n++) {
		bool ring;
		put_old();
		set_fault(faults[f].answer, faults[f].lasts, n);
		int err = save(io, &ring);
		bool struck = atomic_load(&n_answers) >= n;
		set_fault(0, false, 0);
		if (err == 0 ? !is_new() : !is_old() || !struck) {
			fprintf(stderr, "answer %d, number %u: %d\n", faults[f].answer, n, err);
			exit(1);
		}
		CHECK(saved_n_names() == 2);
		CHECK(hoist_budget_used(budget) == 0);
		n_failed += err < 0;
		if (!struck)
			break;
		CHECK(n < 500);
	}
	if ((n_failed > 0) != faults[f].refused[io == HOIST_IO_CACHED])
		fprintf(stderr, "answer %d: %u saves failed\n", faults[f].answer, n_failed);
	CHECK((n_failed > 0) == faults[f].refused[io == HOIST_IO_CACHED]);
}

int main(void)
{
	const size_t sizes[] = {300001, 140000};
	bool ring;
	support_write("s.safetensors", 0, 2, sizes, 100);
	OK(hoist_budget_create(256 << 10, &budget));
	OK(save(HOIST_IO_DIRECT, &ring));
	if (!ring) {
		printf("skipped: no io_uring here\n");
		support_cleanup();
		return 77;
	}
	OK(saved_read(support_path("m.safetensors"), &want));
	for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
		sweep(f, HOIST_IO_DIRECT);
		sweep(f, HOIST_IO_CACHED);
	}
	saved_free(&want);
	hoist_budget_unref(budget);
	support_cleanup();
	return 0;
}
