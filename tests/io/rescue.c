/* SPDX-License-Identifier: MIT */
/* Reads beside a bad place.  The linker (--wrap) sends the library's reads through here: one
 * through the page cache fails as on a file system with large folios, one past it as a disk does,
 * on which every failure takes long, so that they are counted. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "io/rescue.h"
#include "tests/support/io-helpers.h"
#include "tests/support/wrap.h"

#define FILE_BYTES ((size_t)5000001)
#define SECTOR 512u
#define PAGE 4096u
/* A read of 1 MiB in halves, down to a sector, and a few more. */
#define MAX_FAILURES 16u

static uint64_t bad;   /* the sector of this byte; 0: none is */
static uint64_t folio; /* what the cache's failures have in common */
static uint64_t large; /* the cache's folios */
static unsigned n_failures;

/* Where the bad block of @size begins, and how many of @bytes can be had. */
static ssize_t answer(uint64_t offset, size_t bytes, uint64_t size, uint64_t *ret)
{
	*ret = bad - bad % size;
	if (bad == 0 || offset >= *ret + size || offset + bytes <= *ret)
		return (ssize_t)bytes;
	return *ret > offset ? (ssize_t)(*ret - offset) : 0;
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	bool direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
	uint64_t begin;
	uint64_t size = direct ? SECTOR : folio;
	ssize_t n = answer((uint64_t)offset, bytes, size, &begin);
	if (n < (ssize_t)bytes && (direct || n == 0)) {
		n_failures++;
		errno = direct ? ENODATA : EIO; /* as the kernel says of an NVMe disk */
		return -1;
	}
	return __real_pread(fd, to, (size_t)n, offset);
}

static bool no_threads;
static unsigned n_threads;

WRAP(int, pthread_create,
     (pthread_t * id, const pthread_attr_t *how, void *(*run)(void *), void *arg))
{
	n_threads += !no_threads;
	return no_threads ? EAGAIN : __real_pthread_create(id, how, run, arg);
}

static void set_bad(uint64_t at, uint64_t folio_bytes)
{
	bad = at;
	folio = folio_bytes;
	n_failures = 0;
}

/* A rescue gives what is before the bad block of @size, all of it, and no more. */
static void ends_there(const struct hoist__file *file, uint64_t offset, size_t bytes, uint64_t size)
{
	static unsigned char got[3 << 20];
	uint64_t begin;
	int64_t want = answer(offset, bytes, size, &begin);
	int64_t n = hoist__file_rescue(file, offset, got, bytes);
	CHECK(n == want || (want == 0 && hoist__rescuable((int)-n)));
	CHECK(n_failures <= MAX_FAILURES);
	check_bytes(got, offset, n < 0 ? 0 : (size_t)n);
}

static void rescues(const struct hoist__file *file, uint64_t size)
{
	static const uint64_t places[] = {1, 700, 4096, 70000, 1048575, 1048576, 2097151, 2500000};
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		for (unsigned shift = 0; shift < 4; shift++) {
			uint64_t offset = 1500000 + shift * 37; /* of no alignment */
			set_bad(offset + places[i], large);
			ends_there(file, offset, 2200000, size);
			set_bad(offset, large);
			ends_there(file, offset, 100, size);
		}
}

static void ends_with_the_file(const struct hoist__file *file)
{
	unsigned char got[8192];
	set_bad(1, PAGE);
	CHECK(hoist__file_rescue(file, FILE_BYTES - 5000, got, sizeof got) == 5000);
	check_bytes(got, FILE_BYTES - 5000, 5000);
	OK(hoist__file_rescue(file, FILE_BYTES, got, sizeof got));
}

/* A read of a folio's healthy bytes gets them; a read of the bad one says which it is. */
static void reads(const struct hoist__file *file, uint64_t size)
{
	static unsigned char got[FILE_BYTES];
	char place[64];
	uint64_t at = 3000000;
	set_bad(at, large);
	OK(hoist__file_read(file, 1000, got, at - PAGE - 1000));
	check_bytes(got, 1000, at - PAGE - 1000);
	OK(hoist__file_read(file, at + PAGE, got, FILE_BYTES - at - PAGE));
	check_bytes(got, at + PAGE, FILE_BYTES - at - PAGE);
	set_bad(at, large);
	CHECK(hoist__file_read(file, 1000, got, sizeof got - 1000) == -EIO);
	(void)snprintf(place, sizeof place, " at byte %llu", (unsigned long long)(at - at % size));
	check_said(place);
}

/* A request of an engine: `done` is where the bad block begins. */
static void requests(const struct hoist__file *file, enum hoist__engine_kind kind, bool direct,
		     uint64_t size)
{
	struct hoist__engine_options options = {.kind = kind, .depth = 4};
	struct hoist__engine *engine;
	void *to;
	uint64_t at = 2500000;
	struct hoist__request request = {.file = file, .offset = 1 << 20, .direct = direct};
	struct hoist__request *one = &request;
	OK(posix_memalign(&to, HOIST__FILE_MAX_ALIGN, 3 << 20));
	OK(hoist__engine_create(&options, &engine));
	for (unsigned healthy = 0; healthy < 2; healthy++) {
		set_bad(at, large);
		request.buffer = -1;
		request.address = to;
		request.bytes = request.need = healthy ? 1 << 20 : 3 << 20;
		OK(hoist__engine_submit(engine, &one, 1));
		CHECK(hoist__engine_reap(engine, &one, 1, UINT64_MAX) == 1 && one == &request);
		CHECK(request.result == (healthy ? 0 : -EIO));
		uint64_t want = healthy ? request.need : at - at % size - request.offset;
		CHECK(request.done == want);
		check_bytes(to, request.offset, request.done);
	}
	hoist__engine_destroy(engine);
	free(to);
}

/* The linker does not see the reads of a ring; where a process has no memory, the answer is EIO.  A
 * thread rescues the read, or, if there can be none, the caller that reaps. */
static void by_ring(const struct hoist__file *file, bool threads)
{
	struct hoist__engine_options options = {.kind = HOIST__ENGINE_URING, .depth = 4};
	struct hoist__engine *engine;
	struct hoist__file broken = *file;
	static unsigned char to[3 << 20];
	struct hoist__request request = read_of(&broken, to, 1 << 20, sizeof to);
	struct hoist__request *one = &request;
	set_bad(0, PAGE);
	broken.fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	CHECK(broken.fd >= 0);
	no_threads = !threads;
	n_threads = 0;
	if (hoist__engine_create(&options, &engine) == 0) {
		OK(hoist__engine_submit(engine, &one, 1));
		CHECK(hoist__engine_reap(engine, &one, 1, UINT64_MAX) == 1 && one == &request);
		CHECK(request.result == 0 && request.done == sizeof to);
		check_bytes(to, request.offset, sizeof to);
		CHECK((n_threads > 0) == threads);
		hoist__engine_destroy(engine);
	} else {
		printf("%s\n", hoist__error_text());
	}
	no_threads = false;
	close(broken.fd);
}

/* Through a cache of folios of @folio_bytes, and past it to sectors where @direct. */
static void all(const struct hoist__file *file, bool direct, uint64_t folio_bytes)
{
	uint64_t size = direct ? SECTOR : folio_bytes;
	large = folio_bytes;
	rescues(file, size);
	ends_with_the_file(file);
	reads(file, size);
	for (int d = 0; d <= direct; d++)
		requests(file, HOIST__ENGINE_THREADS, d != 0, size);
}

int main(void)
{
	struct hoist__file *file = new_file(FILE_BYTES);
	struct hoist__file cached = *file;
	if (file->direct_fd >= 0 && file->offset_align == SECTOR) {
		all(file, true, HOIST__RESCUE_BYTES);
		by_ring(file, true);
		by_ring(file, false);
	} else {
		printf("no direct reads of sectors here: %s\n", file->direct_note);
	}
	cached.direct_fd = -1;
	all(&cached, false, PAGE); /* nothing helps where folios are large */
	hoist__file_close(file);
	return 0;
}
