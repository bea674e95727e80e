/* SPDX-License-Identifier: MIT */
/* A model on a disk that fails, under the kernel's NVMe driver: tests/vm/disk.sh.  On the host:
 *
 *   vm_disk make PATH SEED                     writes the model
 *   vm_disk reserve PATH MIB                   a file, no two pages of which are alike
 *   vm_disk place PATH TENSOR BYTE             where a byte of a page that is the tensor's alone is
 *   vm_disk sectors IMAGE PATH FROM BYTES STEP sectors of a disk that hold these bytes of a file
 *
 * in the machine, GOOD being a whole file on the same disk:
 *
 *   vm_disk read PATH SEED TENSOR PLACE GOOD   byte PLACE cannot be read: loads, saves, all ways
 *   vm_disk header PATH                        nor can the file's first
 *   vm_disk once PATH SEED                     a read fails once
 *   vm_disk write FOLDER RESERVE WELL          what lay in RESERVE cannot be written to; to the
 *                                              folder WELL, all can
 *   vm_disk flush FOLDER                       the disk cannot flush
 *   vm_disk slow PATH SEED SECONDS             reading all of it takes so long at least
 *   vm_disk stall PATH SEED MS FROM BYTES STEP the pages of these bytes come so much later
 *   vm_disk whole PATH SEED                    says nothing if it is
 *
 * What it counted it says in lines "counted: WHAT NUMBER". */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/load-media.h"

static unsigned n_named; /* failures that named file, byte and tensor */
static unsigned n_ended; /* others that ended as they must */
static unsigned n_whole; /* loads of what is not bad, compared */

/* --- on the host --- */

static const unsigned char *map(const char *path, size_t *ret)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0);
	void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(data != MAP_FAILED);
	close(fd);
	*ret = (size_t)st.st_size;
	return data;
}

/* The page of the image that holds what page @at of the file does, whatever the file system. */
static size_t find_page(const unsigned char *image, size_t image_bytes, const unsigned char *page,
			size_t guess)
{
	for (size_t i = 0; i < image_bytes / MEDIA_PAGE; i++) {
		size_t at = (guess + i * MEDIA_PAGE) % (image_bytes / MEDIA_PAGE * MEDIA_PAGE);
		if (memcmp(image + at, page, MEDIA_PAGE) == 0)
			return at;
	}
	fprintf(stderr, "no page of the image is this one\n");
	exit(1);
}

static void sectors(const char *image_path, const char *path, size_t from, size_t bytes,
		    size_t step)
{
	size_t image_bytes, file_bytes;
	size_t place = 0;
	const unsigned char *image = map(image_path, &image_bytes);
	const unsigned char *file = map(path, &file_bytes);
	for (size_t at = from; at < from + bytes; at += step) {
		size_t page = at / MEDIA_PAGE * MEDIA_PAGE;
		CHECK(page + MEDIA_PAGE <= file_bytes);
		place = find_page(image, image_bytes, file + page, place);
		printf("%zu\n", (place + at % MEDIA_PAGE) / 512);
	}
}

static void reserve(const char *path, size_t mib)
{
	FILE *file = fopen(path, "we");
	unsigned char block[65536];
	CHECK(file != NULL);
	for (size_t at = 0; at < mib << 20; at += sizeof block) {
		media_fill(block, sizeof block, 99, 0, at);
		CHECK(fwrite(block, 1, sizeof block, file) == sizeof block);
	}
	OK(fclose(file));
}

static void print_place(const char *path, const char *tensor, uint64_t at)
{
	uint64_t place = media_place(path, tensor, at) + MEDIA_PAGE - 1;
	printf("%llu\n", (unsigned long long)(place - place % MEDIA_PAGE + 700));
}

/* --- reads that fail --- */

/* All but @bad. */
static size_t others(const char *bad, const char **ret)
{
	size_t n = 0;
	for (size_t t = 0; t < MEDIA_TENSORS; t++)
		if (strcmp(media_tensors[t].name, bad) != 0)
			ret[n++] = media_tensors[t].name;
	return n;
}

static void saves(const char *path, unsigned seed, const char *bad, uint64_t place,
		  const char *const *names, size_t n)
{
	char to[300];
	snprintf(to, sizeof to, "%.280s.copy", path);
	for (int engine = HOIST_ENGINE_URING; engine <= HOIST_ENGINE_THREADS; engine++)
		for (int io = HOIST_IO_DIRECT; io <= HOIST_IO_CACHED; io++) {
			media_save_from(path, to, (enum hoist_engine)engine, (enum hoist_io)io,
					NULL, 0, bad, place);
			n_named++;
			CHECK(access(to, F_OK) < 0 && errno == ENOENT);
		}
	media_save_from(path, to, HOIST_ENGINE_AUTO, HOIST_IO_AUTO, names, n, NULL, 0);
	media_load(to, seed, &media_ways[0], NULL, NULL, 0);
	n_whole++;
	OK(unlink(to));
}

/* Columns with and without the bad place, if it is in the matrix. */
static void slices(const char *path, unsigned seed, const struct media_way *way, const char *bad,
		   uint64_t place)
{
	static const char *const rows = "rows";
	hoist_load_slice slice = {.tensor = rows, .axis = 1, .begin = 20000, .end = 31000};
	const struct media_choice choice = {&rows, 1, &slice};
	if (strcmp(bad, rows) != 0)
		return;
	int64_t column = (int64_t)((place - media_place(path, rows, 0)) % MEDIA_ROW_BYTES);
	CHECK(column > slice.begin + MEDIA_PAGE && column < slice.end - MEDIA_PAGE);
	media_load(path, seed, way, &choice, bad, place);
	n_named++;
	slice.begin = column + MEDIA_PAGE;
	slice.end = slice.begin + 9000;
	media_load(path, seed, way, &choice, NULL, 0);
	n_whole++;
}

/* The short form has a few, with each engine, each way of reading and a device. */
static bool is_left_out(size_t way)
{
	static const unsigned few = 1u << 0 | 1u << 3 | 1u << 6 | 1u << 7 | 1u << 8;
	const char *form = getenv("HOIST_TEST_FORM");
	return form != NULL && strcmp(form, "short") == 0 && (few >> way & 1u) == 0;
}

/* After this a process keeps what it keeps: contexts, pinned memory. */
static struct media_left settle(const char *good, const char *folder)
{
	for (size_t w = 0; w < media_n_ways; w++) {
		if (is_left_out(w))
			continue;
		media_load(good, 0, &media_ways[w], NULL, NULL, 0);
		n_whole++;
	}
	return media_look(folder);
}

static void read_bad(const char *path, unsigned seed, const char *bad, uint64_t place,
		     const char *good)
{
	const char *names[MEDIA_TENSORS];
	const struct media_choice healthy = {names, others(bad, names), NULL};
	char folder[300];
	snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
	struct media_left before = settle(good, folder);
	for (size_t w = 0; w < media_n_ways; w++) {
		if (is_left_out(w))
			continue;
		media_load(path, seed, &media_ways[w], NULL, bad, place);
		media_load(path, seed, &media_ways[w], &healthy, NULL, 0);
		n_named++;
		n_whole++;
		slices(path, seed, &media_ways[w], bad, place);
		struct media_left now = media_look(folder);
		CHECK(now.n_fds == before.n_fds && now.n_maps == before.n_maps);
	}
	saves(path, seed, bad, place, names, healthy.n);
	struct media_left after = settle(good, folder);
	media_same(&before, &after);
}

static void read_header(const char *path)
{
	hoist_checkpoint *checkpoint = NULL;
	CHECK(hoist_checkpoint_open(path, 0, &checkpoint) == -EIO && checkpoint == NULL);
	media_said(path);
	media_said(" at byte 0");
	n_ended++;
}

/* A direct read that fails is finished through the page cache. */
static void read_once(const char *path, unsigned seed)
{
	media_load(path, seed, &media_ways[0], NULL, NULL, 0);
	n_whole++;
}

/* --- writes that fail --- */

static int save_to(const char *folder, enum hoist_engine engine, enum hoist_io io, char *path,
		   size_t bytes)
{
	hoist_save_options options = {.size = sizeof options, .engine = engine, .io = io};
	OK(hoist_budget_create(2 << 20, &options.budget));
	snprintf(path, bytes, "%s/old.safetensors", folder);
	int err = media_save(path, 2, &options);
	CHECK(hoist_budget_used(options.budget) == 0);
	hoist_budget_unref(options.budget);
	return err;
}

/* A failed save leaves nothing in this process that is in the way of the next. */
static void save_well(const char *folder, enum hoist_engine engine, enum hoist_io io)
{
	char path[300];
	OK(save_to(folder, engine, io, path, sizeof path));
	media_load(path, 2, &media_ways[0], NULL, NULL, 0);
	OK(unlink(path));
	n_whole++;
}

static void write_bad(const char *folder, const char *reserved, const char *well)
{
	char path[300];
	snprintf(path, sizeof path, "%s/old.safetensors", folder);
	media_load(path, 1, &media_ways[0], NULL, NULL, 0);
	OK(unlink(reserved));
	sync();
	struct media_left before = {0};
	for (int i = 0; i < 5; i++) {
		enum hoist_engine engine = i % 2 == 0 ? HOIST_ENGINE_URING : HOIST_ENGINE_THREADS;
		enum hoist_io io = i / 2 == 0 ? HOIST_IO_DIRECT : HOIST_IO_CACHED;
		CHECK(save_to(folder, engine, io, path, sizeof path) == -EIO);
		media_said(path);
		if (io == HOIST_IO_DIRECT) {
			media_said(" at bytes ");
			media_said("tensor");
			n_named++;
		} else {
			/* The page cache took it; what is missing the kernel does not say. */
			media_said("fsync");
			n_ended++;
		}
		save_well(well, engine, io);
		if (i == 0)
			before = media_look(folder);
		struct media_left now = media_look(folder);
		media_same(&before, &now);
		media_load(path, 1, &media_ways[i], NULL, NULL, 0); /* the old one */
		n_whole++;
	}
}

static void flush_bad(const char *folder)
{
	char path[300];
	CHECK(save_to(folder, HOIST_ENGINE_AUTO, HOIST_IO_AUTO, path, sizeof path) == -EIO);
	media_said(path);
	media_said("fsync");
	n_ended++;
	media_load(path, 1, &media_ways[0], NULL, NULL, 0);
	n_whole++;
}

/* --- slow ones --- */

/* While its reads are under way: it does not end by itself, as nobody drives it meanwhile. */
static void cancel_after(const char *path, const struct media_way *way, uint64_t ns)
{
	hoist_load_options o = {.size = sizeof o,
				.engine = way->engine,
				.io = HOIST_IO_DIRECT,
				.flags = HOIST_LOAD_CALLER_DRIVEN};
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	OK(hoist_device_open(way->device, &o.device));
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_step(load, 0));
	usleep((useconds_t)(ns / 1000));
	hoist_load_cancel(load);
	CHECK(hoist_load_wait(load) == -ECANCELED);
	media_said("the load was cancelled");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(o.device);
	n_ended++;
}

static void slow(const char *path, unsigned seed, double seconds)
{
	uint64_t start = hoist__now_ns();
	media_load(path, seed, &media_ways[0], NULL, NULL, 0);
	uint64_t took = hoist__now_ns() - start;
	CHECK((double)took >= seconds * 1e9); /* it was slow */
	n_whole++;
	for (size_t w = 0; w < media_n_ways; w++)
		if (media_ways[w].io == HOIST_IO_DIRECT)
			cancel_after(path, &media_ways[w], 200000000);
}

/* The disk is not asked for pages that the page cache has. */
static void forget(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	close(fd);
}

static void stall_save(const char *path, unsigned seed)
{
	char to[300];
	snprintf(to, sizeof to, "%.280s.copy", path);
	forget(path);
	media_save_from(path, to, HOIST_ENGINE_AUTO, HOIST_IO_AUTO, NULL, 0, NULL, 0);
	media_load(to, seed, &media_ways[0], NULL, NULL, 0);
	OK(unlink(to));
	n_whole++;
}

struct stalls {
	uint64_t ms;
	size_t from, bytes, step;
};

static uint64_t time_page(int fd, size_t at)
{
	_Alignas(MEDIA_PAGE) static unsigned char page[MEDIA_PAGE];
	uint64_t start = hoist__now_ns();
	CHECK(pread(fd, page, sizeof page, (off_t)(at / MEDIA_PAGE * MEDIA_PAGE)) == MEDIA_PAGE);
	return (hoist__now_ns() - start) / 1000000;
}

/* By half of it at least: the kernel counts from the last tick that it has handled, which where
 * others keep the machine busy is a while ago. */
static bool is_late(const struct stalls *stalls, uint64_t ms)
{
	return ms >= stalls->ms / 2;
}

/* Those are late, the ones behind them are not: as often as it takes to see that of one of them,
 * as others may keep the machine busy. */
static void check_stalls(const char *path, const struct stalls *stalls)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	CHECK(fd >= 0);
	for (size_t at = stalls->from; at < stalls->from + stalls->bytes; at += stalls->step)
		CHECK(is_late(stalls, time_page(fd, at)));
	while (is_late(stalls, time_page(fd, stalls->from + MEDIA_PAGE)))
		continue;
	close(fd);
}

/* Other reads go on meanwhile, and all is right in the end. */
static void stall(const char *path, unsigned seed, const struct stalls *stalls)
{
	uint64_t longest = 0;
	check_stalls(path, stalls);
	for (size_t w = 0; w < media_n_ways; w++) {
		if (is_left_out(w))
			continue;
		forget(path);
		uint64_t start = hoist__now_ns();
		media_load(path, seed, &media_ways[w], NULL, NULL, 0);
		uint64_t took = (hoist__now_ns() - start) / 1000000;
		CHECK(is_late(stalls, took));
		longest = took > longest ? took : longest;
		n_whole++;
	}
	stall_save(path, seed);
	printf("stalls: %u %llu\n", n_whole, (unsigned long long)longest);
}

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const char *path = argc > 2 ? argv[2] : "";
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(what, "make") == 0 && argc == 4) {
		media_make(path, number(argv[3]));
	} else if (strcmp(what, "reserve") == 0 && argc == 4) {
		reserve(path, number(argv[3]));
	} else if (strcmp(what, "place") == 0 && argc == 5) {
		print_place(path, argv[3], number(argv[4]));
	} else if (strcmp(what, "sectors") == 0 && argc == 7) {
		sectors(path, argv[3], number(argv[4]), number(argv[5]), number(argv[6]));
	} else if (strcmp(what, "read") == 0 && argc == 7) {
		support_emulate("cuda:1,hip:1");
		read_bad(path, number(argv[3]), argv[4], number(argv[5]), argv[6]);
	} else if (strcmp(what, "header") == 0 && argc == 3) {
		read_header(path);
	} else if (strcmp(what, "once") == 0 && argc == 4) {
		read_once(path, number(argv[3]));
	} else if (strcmp(what, "write") == 0 && argc == 5) {
		write_bad(path, argv[3], argv[4]);
	} else if (strcmp(what, "flush") == 0 && argc == 3) {
		flush_bad(path);
	} else if (strcmp(what, "slow") == 0 && argc == 5) {
		support_emulate("cuda:1,hip:1");
		slow(path, number(argv[3]), strtod(argv[4], NULL));
	} else if (strcmp(what, "stall") == 0 && argc == 8) {
		const struct stalls stalls = {number(argv[4]), number(argv[5]), number(argv[6]),
					      number(argv[7])};
		support_emulate("cuda:1,hip:1");
		stall(path, number(argv[3]), &stalls);
	} else if (strcmp(what, "whole") == 0 && argc == 4) {
		media_load(path, number(argv[3]), &media_ways[0], NULL, NULL, 0);
	} else {
		fprintf(stderr, "vm_disk: how it is used is said at its head\n");
		return 2;
	}
	if (n_named + n_ended + n_whole > 0)
		printf("counted: %s %u named, %u ended, %u whole\n", what, n_named, n_ended,
		       n_whole);
	return 0;
}
