/* SPDX-License-Identifier: MIT */
/* Every answer that the kernel may give, at every call: faults-calls.c spoils the Nth call of the
 * library, for N = 1, 2, 3 ... until there is no Nth. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>

#include "base/checked.h"
#include "base/error.h"
#include "tests/io/faults-calls.h"
#include "tests/support/count.h"
#include "tests/support/io-helpers.h"

/* --- one load, with room for its answers --- */

#define N 8u
#define BLOCK ((size_t)16 << 10)

enum way { CACHED, HOT, DIRECT, N_WAYS };

struct load {
	struct hoist__file *file;
	unsigned char *memory;
	enum way way;
	bool write;
	struct hoist__request requests[N];
};

static struct hoist__request *set_up(struct load *load, unsigned i)
{
	load->requests[i] = (struct hoist__request){
		.file = load->file,
		.offset = i * BLOCK,
		.address = load->memory + i * BLOCK,
		.bytes = BLOCK,
		.need = BLOCK,
		.direct = load->way == DIRECT,
		.hot = load->way == HOT,
		.write = load->write,
		.buffer = -1,
	};
	return &load->requests[i];
}

/* Reads or writes N blocks, three at a time.  Every request comes back. */
static void move_blocks(struct load *load, struct hoist__engine *engine, uint64_t timeout_ns)
{
	unsigned next = 0, n_back = 0;
	if (load->write)
		fill(load->memory, 0, N * BLOCK);
	else
		memset(load->memory, 0xEE, N * BLOCK);
	while (n_back < N) {
		for (; next < N && next - n_back < 3; next++) {
			struct hoist__request *request = set_up(load, next);
			int err = hoist__engine_submit(engine, &request, 1);
			/* A ring that is known to be broken takes nothing. */
			CHECK(err == 0 || (fault.family == ENTERS && err == fault.answer));
			if (err != 0) {
				request->result = err;
				n_back++;
			}
		}
		struct hoist__request *ready[N];
		if (n_back == N)
			break;
		int got = hoist__engine_reap(engine, ready, N, timeout_ns);
		CHECK(got >= 0);
		n_back += (unsigned)got;
	}
	CHECK(hoist__engine_room(engine) == 3);
}

/* Are the bytes there that the request says are done? */
static bool is_right(struct load *load, const struct hoist__request *request)
{
	if (load->write)
		return first_wrong(load->file->fd, request->address, request->offset,
				   request->done) == request->done;
	for (size_t k = 0; k < request->done; k++)
		if (request->address[k] != byte_at(request->offset + k))
			return false;
	return true;
}

/* At least one request ended in @expected; all others are whole, and right. */
static void check_blocks(struct load *load, int expected, bool fell_back)
{
	unsigned n_bad = 0, n_back = 0;
	for (unsigned i = 0; i < N; i++) {
		const struct hoist__request *request = &load->requests[i];
		n_back += request->fell_back;
		if (request->result != 0) {
			CHECK(request->result == expected);
			n_bad++;
		} else {
			CHECK(request->done == BLOCK);
		}
		CHECK(is_right(load, request));
	}
	CHECK((expected != 0) == (n_bad > 0));
	CHECK(fell_back == (n_back > 0));
}

/* --- sweeps --- */

struct answer {
	int answer;
	bool lasts;
	int cached; /* result of a request that meets it through the cache */
	int direct; /* or directly */
	bool direct_fell_back;
};

static const struct answer read_answers[] = {
	{100, false, 0, 0, true}, /* short, at no place for a direct read */
	{100, true, 0, 0, true},
	{4096, false, 0, 0, false},
	{4096, true, 0, 0, false},
	{-EINTR, false, 0, 0, false},
	{-EAGAIN, false, 0, 0, false},
	{-ECANCELED, false, 0, 0, false}, /* not by us: the submitting thread has ended */
	{-EAGAIN, true, -EAGAIN, -EAGAIN, true},
	{-EINTR, true, -EIO, -EIO, true},
	{-ECANCELED, true, -EIO, -EIO, true}, /* nor by us: nobody is to think so */
	{-EINVAL, false, -EINVAL, 0, true},
	{-EOPNOTSUPP, false, -EOPNOTSUPP, 0, true},
	{-EIO, false, 0, 0, true}, /* rescued: once is no bad place */
	{-EIO, true, -EIO, -EIO, true},
	{-ENODATA, false, 0, 0, true}, /* NVMe's medium error, not the end of the file */
	{-ENODATA, true, -EIO, -EIO, true},
	{0, false, -ENODATA, -ENODATA, false}, /* the end of the file */
};

/* A write that failed is not tried through the cache, where it would seem to succeed. */
static const struct answer write_answers[] = {
	{100, false, 0, 0, true},
	{100, true, 0, 0, true},
	{4096, false, 0, 0, false},
	{4096, true, 0, 0, false},
	{-EINTR, false, 0, 0, false},
	{-EAGAIN, false, 0, 0, false},
	{-ECANCELED, false, 0, 0, false},
	{-EAGAIN, true, -EAGAIN, -EAGAIN, false},
	{-EINTR, true, -EIO, -EIO, false},
	{-ECANCELED, true, -EIO, -EIO, false},
	{-EINVAL, false, -EINVAL, 0, true},
	{-EOPNOTSUPP, false, -EOPNOTSUPP, 0, true},
	{-EFAULT, false, -EFAULT, 0, true}, /* memory that no disk can read */
	{-EIO, false, -EIO, -EIO, false},
	{-ENOSPC, false, -ENOSPC, -ENOSPC, false},
	{-EDQUOT, true, -EDQUOT, -EDQUOT, false},
	{-ENODATA, false, -EIO, -EIO, false},
	{0, false, -EIO, -EIO, false},
};

static void sweep_answers(struct load *load, enum hoist__engine_kind kind,
			  const struct answer *answers, size_t n_answers)
{
	for (size_t i = 0; i < n_answers; i++) {
		const struct answer *a = &answers[i];
		unsigned at = 0;
		for (bool none = false; !none;) {
			struct hoist__engine *engine = new_engine(kind, 3, false);
			set_fault(READS, a->answer, a->lasts, ++at);
			move_blocks(load, engine, at % 2 == 0 ? UINT64_MAX : 1000000000);
			hoist__engine_destroy(engine);
			none = unreached();
			bool direct = load->way == DIRECT;
			int expected = direct ? a->direct : a->cached;
			check_blocks(load, none ? 0 : expected,
				     !none && direct && a->direct_fell_back);
		}
		CHECK(at > N); /* each of the calls was spoiled once */
	}
}

static void sweep_moves(struct load *load, enum hoist__engine_kind kind)
{
	load->write = false;
	sweep_answers(load, kind, read_answers, HOIST__ARRAY_SIZE(read_answers));
	load->write = true;
	sweep_answers(load, kind, write_answers, HOIST__ARRAY_SIZE(write_answers));
	load->write = false;
}

/* Passing failures of io_uring_enter are nobody's business. */
static void sweep_enters(struct load *load)
{
	static const int passing[] = {-EINTR, -EAGAIN, -EBUSY};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(passing); i++) {
		unsigned at = 0;
		for (bool none = false; !none;) {
			struct hoist__engine *engine = new_engine(HOIST__ENGINE_URING, 3, false);
			set_fault(ENTERS, passing[i], false, ++at);
			move_blocks(load, engine, at % 2 == 0 ? UINT64_MAX : 1000000000);
			hoist__engine_destroy(engine);
			none = unreached();
			check_blocks(load, 0, false);
		}
	}
	if (load->way == HOT)
		return; /* no ring is needed for these */
	/* The second one: reads are in flight when the ring breaks. */
	for (unsigned at = 1; at <= 2; at++) {
		struct hoist__engine *engine = new_engine(HOIST__ENGINE_URING, 3, false);
		set_fault(ENTERS, -EPERM, true, at);
		move_blocks(load, engine, UINT64_MAX);
		hoist__engine_destroy(engine);
		CHECK(!unreached());
		check_blocks(load, -EPERM, false);
	}
}

/* The kernel may start no thread, and cancels each request that it would give to one: the engine
 * does the work, and says so. */
static void without_workers(struct load *load)
{
	for (int write = 0; write <= 1; write++) {
		struct hoist__engine *engine = new_engine(HOIST__ENGINE_URING, 3, false);
		load->write = write != 0;
		set_fault(RINGS, -ECANCELED, true, 1);
		move_blocks(load, engine, UINT64_MAX);
		check_blocks(load, 0, false);
		const char *said = strstr(hoist__engine_reason(engine), "ulimit -u");
		CHECK(said != NULL || load->way == HOT);
		/* A load's report has room for this text, and for the one about an old kernel. */
		CHECK(said == NULL ||
		      strlen(strstr(hoist__engine_reason(engine), ", no threads")) < 90);
		hoist__engine_destroy(engine);
		set_fault(NONE, 0, false, 0);
	}
	load->write = false;
}

/* A server that says "again" is no kernel without threads: its requests stay with the ring, and
 * no thread that reaps makes the call, and waits for it.  60 such answers among three requests,
 * then such answers for ever. */
static void interrupted(struct load *load)
{
	static const int answers[] = {-EINTR, -EAGAIN};
	for (size_t i = 0; i < 2 * HOIST__ARRAY_SIZE(answers); i++) {
		struct hoist__engine *engine = new_engine(HOIST__ENGINE_URING, 3, false);
		int answer = answers[i / 2];
		int end = answer == -EINTR ? -EIO : answer;
		set_fault(RINGS, answer, true, 1);
		fault.n = i % 2 == 0 ? 60 : UINT_MAX;
		atomic_store(&n_preads, 0);
		move_blocks(load, engine, UINT64_MAX);
		CHECK(atomic_load(&n_preads) == 0);
		CHECK(strstr(hoist__engine_reason(engine), "ulimit -u") == NULL);
		check_blocks(load, fault.n == UINT_MAX ? end : 0,
			     load->way == DIRECT && fault.n == UINT_MAX);
		hoist__engine_destroy(engine);
		CHECK(!unreached());
	}
}

/* A ring that breaks leaves the crew what it has. */
static void hot_reads_in_a_broken_ring(struct load *load)
{
	struct hoist__engine *engine = new_engine(HOIST__ENGINE_URING, 3, false);
	load->way = HOT;
	struct hoist__request *batch[] = {set_up(load, 0), set_up(load, 1)};
	load->way = CACHED;
	struct hoist__request *lost = set_up(load, 2);
	set_fault(ENTERS, -EPERM, true, 1);
	OK(hoist__engine_submit(engine, batch, 2)); /* these enter no ring */
	OK(hoist__engine_submit(engine, &lost, 1));
	reap_all(engine, 3);
	CHECK(batch[0]->result == 0 && batch[1]->result == 0 && lost->result == -EPERM);
	hoist__engine_wake(engine);
	CHECK(!hoist__engine_abandoned(engine));
	hoist__engine_destroy(engine);
	CHECK(!unreached());
}

/* Opens, makes an engine, reads; all, or a clean failure with a text. */
static int open_and_read(const char *path, enum hoist__engine_kind kind, struct load *load)
{
	struct hoist__file *file = NULL;
	struct hoist__engine *engine = NULL;
	int err = hoist__file_open(AT_FDCWD, path, NULL, 0, &file);
	if (err != 0)
		return err;
	if (load->way == DIRECT && file->direct_fd < 0)
		load->way = CACHED;
	struct hoist__engine_buffer buffer = {load->memory, N * BLOCK};
	struct hoist__engine_options options = {
		.kind = kind,
		.depth = 3,
		.buffers = &buffer,
		.n_buffers = 1,
		.files = (const struct hoist__file *const *)&file,
		.n_files = 1,
	};
	err = hoist__engine_create(&options, &engine);
	if (err == 0) {
		load->file = file;
		move_blocks(load, engine, UINT64_MAX);
		check_blocks(load, 0, false);
	}
	hoist__engine_destroy(engine);
	hoist__file_close(file);
	return err;
}

static void sweep_resources(struct load *load, const char *path, enum hoist__engine_kind kind,
			    enum way way)
{
	struct hoist__file *before = load->file;
	unsigned n_open = count_entries("/proc/self/fd"), n_failed = 0;
	for (unsigned at = 1;; at++) {
		set_fault(RESOURCES, 0, false, at);
		(void)hoist__fail(0, "%s", "");
		load->way = way;
		int err = open_and_read(path, kind, load);
		bool none = unreached();
		CHECK(count_entries("/proc/self/fd") == n_open);
		CHECK(err <= 0 && (err == 0 || hoist__error_text()[0] != '\0'));
		n_failed += err != 0;
		if (none) {
			CHECK(err == 0 && n_failed >= 3);
			break;
		}
	}
	load->file = before;
}

int main(void)
{
	char path[256];
	struct load load = {.file = writable_file(scratch(path, sizeof path, "faults"), N * BLOCK),
			    .memory = new_memory(N * BLOCK)};
	static const enum hoist__engine_kind kinds[] = {HOIST__ENGINE_THREADS, HOIST__ENGINE_URING};
	unsigned n_kinds = hoist__uring_probe(NULL, 0) == 0 ? 2 : 1;
	enum way n_ways = load.file->direct_fd >= 0 ? N_WAYS : DIRECT;
	for (unsigned i = 0; i < n_kinds; i++)
		for (enum way way = CACHED; way < n_ways; way++) {
			load.way = way;
			sweep_moves(&load, kinds[i]);
			sweep_resources(&load, path, kinds[i], way);
		}
	if (n_kinds == 2) {
		for (load.way = CACHED; load.way < n_ways; load.way++)
			sweep_enters(&load);
		for (load.way = CACHED; load.way < n_ways; load.way++)
			without_workers(&load);
		for (load.way = CACHED; load.way < n_ways; load.way++)
			if (load.way != HOT) /* these are the crew's */
				interrupted(&load);
		hot_reads_in_a_broken_ring(&load);
	}
	sweep_resources(&load, path, HOIST__ENGINE_AUTO, HOT);
	printf("%u engines, %d ways to read\n", n_kinds, (int)n_ways);
	hoist__file_close(load.file);
	free(load.memory);
	unlink(path);
	return 0;
}
