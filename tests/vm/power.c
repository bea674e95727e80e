/* SPDX-License-Identifier: MIT */
/* Saves on a disk that loses its power: tests/vm/power.sh.  In the machine:
 *
 *   vm_power run FOLDER DEVICE       saves, again and again; the last block of DEVICE, behind the
 *                                    file system, tells how far: mark M, the M-th save has ended
 *
 * on the host, LOG being what qemu's blklogwrites wrote:
 *
 *   vm_power points LOG              after which writes and flushes, counted from 1, it is worth
 *                                    a look
 *   vm_power ends LOG BASE           the same just before each mark, when a save has ended and
 *                                    has not said so
 *   vm_power image LOG BASE OUT POINT HOW
 *                                    what is on the disk if power goes after the first POINT of
 *                                    them; says the last mark.  HOW 0 keeps all writes since the
 *                                    last flush, 1 none, others a random part of the pages
 *
 * and wherever such a disk is mounted, or was copied from:
 *
 *   vm_power check FOLDER MARK       what is there is what may be there; says "old" or "new"
 *
 * The saves: 1, 2: the model of seed 2, 3 over one of seed 1.  3: shards of seed 4.  4: shards of
 * seed 5 over these.  5, 6: the model of seed 7, 6 again.  7 and more: the shards of seed 4, 5, 4
 * ..., while somebody else has the folder synced without end: so that not all that a save does to
 * it gets there at once. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>
#include <sys/ioctl.h>

#include "tests/support/load-media.h"
#include "tests/support/random.h"

#define MARK "hoist: the power is on; mark "
#define MARK_BYTES 4096u
#define SHARDS 3

/* --- the saves --- */

static bool is_sharded(int save)
{
	return save == 3 || save == 4 || save >= 7;
}

static unsigned seed_of(int save)
{
	return save <= 4   ? (unsigned)save + 1
	       : save <= 6 ? 6 + (unsigned)save % 2
			   : 5 - (unsigned)save % 2;
}

/* The last one of the model, or of shards, up to @save; 0: there is none. */
static int last_of(bool sharded, int save)
{
	while (save > 0 && is_sharded(save) != sharded)
		save--;
	return save > 0 ? save : 0;
}

/* --- in the machine --- */

static void write_mark(int fd, uint64_t device_bytes, unsigned mark)
{
	void *block;
	OK(posix_memalign(&block, MARK_BYTES, MARK_BYTES));
	memset(block, 0, MARK_BYTES);
	snprintf(block, MARK_BYTES, MARK "%u", mark);
	CHECK(pwrite(fd, block, MARK_BYTES, (off_t)(device_bytes - MARK_BYTES)) == MARK_BYTES);
	free(block);
}

static void save(const char *folder, int n)
{
	bool shards = is_sharded(n);
	hoist_save_options options = {
		.engine = n % 2 == 1 ? HOIST_ENGINE_URING : HOIST_ENGINE_THREADS,
		.io = n % 4 == 2 ? HOIST_IO_CACHED : HOIST_IO_AUTO,
		.shard_bytes = shards ? 1 << 20 : 0,
	};
	char path[300];
	snprintf(path, sizeof path, "%s/%s.safetensors", folder, shards ? "shards" : "one");
	OK(media_save(path, seed_of(n), &options));
}

struct syncer {
	int folder;
	atomic_bool ends;
	pthread_t thread;
};

static void *sync_main(void *arg)
{
	struct syncer *syncer = arg;
	while (!atomic_load(&syncer->ends))
		OK(fsync(syncer->folder));
	return NULL;
}

static void save_among_syncs(const char *folder, int n)
{
	struct syncer syncer = {.folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	CHECK(syncer.folder >= 0);
	OK(pthread_create(&syncer.thread, NULL, sync_main, &syncer));
	save(folder, n);
	atomic_store(&syncer.ends, true);
	OK(pthread_join(syncer.thread, NULL));
	close(syncer.folder);
}

static void run(const char *folder, const char *device)
{
	uint64_t bytes = 0;
	int fd = open(device, O_WRONLY | O_DIRECT | O_CLOEXEC);
	CHECK(fd >= 0 && ioctl(fd, BLKGETSIZE64, &bytes) == 0);
	write_mark(fd, bytes, 0);
	for (int n = 1; n < 1000; n++) {
		if (n < 7)
			save(folder, n);
		else
			save_among_syncs(folder, n);
		write_mark(fd, bytes, (unsigned)n);
		printf("power: %d saves\n", n);
	}
	close(fd);
}

/* --- the log --- */

/* As Linux's dm-log-writes has it: these, little-endian, each in a sector of its own. */
#define LOG_MAGIC UINT64_C(0x6a736677736872)
#define LOG_FLUSH 1u
#define LOG_FUA 2u
#define LOG_DISCARD 4u
#define SECTOR 512u
#define MAX_SMALL 64u /* sectors */

struct log_super {
	uint64_t magic;
	uint64_t version;
	uint64_t n_entries;
	uint32_t sector_bytes;
};

struct log_entry {
	uint64_t sector;
	uint64_t n_sectors;
	uint64_t flags;
	uint64_t data_bytes;
};

struct log {
	const unsigned char *data;
	size_t bytes;
};

static struct log open_log(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= (off_t)SECTOR);
	struct log log = {NULL, (size_t)st.st_size};
	void *data = mmap(NULL, log.bytes, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(data != MAP_FAILED);
	close(fd);
	log.data = data;
	struct log_super super;
	memcpy(&super, log.data, sizeof super);
	CHECK(super.magic == LOG_MAGIC && super.version == 1 && super.sector_bytes == SECTOR);
	return log;
}

/* The entry at *at, and its data; *at is then the next one.  False: the log ends, perhaps in the
 * middle of one, where qemu was killed. */
static bool next_entry(const struct log *log, size_t *at, struct log_entry *ret,
		       const unsigned char **data)
{
	if (*at + SECTOR > log->bytes)
		return false;
	memcpy(ret, log->data + *at, sizeof *ret);
	if (ret->n_sectors == 0 && ret->flags == 0)
		return false;
	size_t bytes = (ret->flags & LOG_DISCARD) != 0 ? 0 : (size_t)ret->n_sectors * SECTOR;
	if (*at + SECTOR + bytes > log->bytes)
		return false;
	*data = log->data + *at + SECTOR;
	*at += SECTOR + bytes;
	return true;
}

/* Moments after which something else may be found: what is large is a file's bytes, which nobody
 * sees before what comes after it. */
static void print_points(const struct log *log)
{
	struct log_entry entry;
	const unsigned char *data;
	size_t n = 0;
	for (size_t at = SECTOR; next_entry(log, &at, &entry, &data);) {
		n++;
		if (entry.n_sectors <= MAX_SMALL || n % 8 == 0)
			printf("%zu\n", n);
	}
}

/* --- what is on the disk --- */

struct disk {
	unsigned char *bytes;
	size_t n;
};

static struct disk open_disk(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	struct disk disk = {NULL, (size_t)st.st_size};
	disk.bytes = mmap(NULL, disk.n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(disk.bytes != MAP_FAILED);
	close(fd);
	return disk;
}

/* A write that nothing made durable: all of it, nothing, or some of its pages. */
static bool survives(unsigned how, uint64_t *state)
{
	return how == 0 || (how > 1 && (random_next(state) & 1) != 0);
}

static void put(struct disk *disk, const struct log_entry *entry, const unsigned char *data,
		unsigned how, uint64_t *state)
{
	/* Whole writes are more often lost than torn. */
	bool torn = how > 1 && random_below(state, 4) == 0;
	bool kept = survives(how, state);
	for (uint64_t s = 0; s < entry->n_sectors; s++) {
		uint64_t to = (entry->sector + s) * SECTOR;
		CHECK(to + SECTOR <= disk->n);
		/* Disks write a page at once, and ext4 does not survive half a superblock. */
		if (torn && to % MEDIA_PAGE == 0)
			kept = survives(how, state);
		if (!kept)
			continue;
		if ((entry->flags & LOG_DISCARD) != 0)
			memset(disk->bytes + to, 0, SECTOR);
		else
			memcpy(disk->bytes + to, data + s * SECTOR, SECTOR);
	}
}

/* Entries [@first, @point) in order; before @flushed, all are durable. */
static void replay(const struct log *log, struct disk *disk, size_t flushed, size_t point,
		   unsigned how)
{
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15) * (how + 1) + point;
	struct log_entry entry;
	const unsigned char *data;
	size_t at = SECTOR;
	for (size_t i = 0; i < point && next_entry(log, &at, &entry, &data); i++) {
		bool durable = i < flushed || (entry.flags & LOG_FUA) != 0;
		put(disk, &entry, data, durable ? 0 : how, &state);
	}
}

static bool is_mark(const struct disk *disk, const struct log_entry *entry)
{
	return entry->sector * SECTOR == disk->n - MARK_BYTES &&
	       (entry->flags & LOG_DISCARD) == 0 && entry->n_sectors > 0;
}

static void print_ends(const struct log *log, const char *base)
{
	const struct disk disk = open_disk(base);
	struct log_entry entry;
	const unsigned char *data;
	size_t n = 0;
	for (size_t at = SECTOR; next_entry(log, &at, &entry, &data); n++)
		if (n > 0 && is_mark(&disk, &entry))
			printf("%zu\n", n);
}

/* How many of the first @point entries the last flush made durable; *mark is the last one that
 * was written, -1 before the first. */
static size_t last_flush(const struct log *log, const struct disk *disk, size_t point, int *mark)
{
	struct log_entry entry;
	const unsigned char *data;
	size_t flushed = 0;
	size_t at = SECTOR;
	*mark = -1;
	for (size_t i = 0; i < point && next_entry(log, &at, &entry, &data); i++) {
		if ((entry.flags & LOG_FLUSH) != 0)
			flushed = i + 1;
		if (is_mark(disk, &entry))
			CHECK(sscanf((const char *)data, MARK "%d", mark) == 1);
	}
	return flushed;
}

/* Sparse, as most of it is zeros. */
static void write_out(const struct disk *disk, const char *path)
{
	static const unsigned char zeros[65536];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	CHECK(fd >= 0 && ftruncate(fd, (off_t)disk->n) == 0);
	for (size_t at = 0; at < disk->n; at += sizeof zeros) {
		size_t n = disk->n - at < sizeof zeros ? disk->n - at : sizeof zeros;
		if (memcmp(disk->bytes + at, zeros, n) != 0)
			CHECK(pwrite(fd, disk->bytes + at, n, (off_t)at) == (ssize_t)n);
	}
	close(fd);
}

static void image(const struct log *log, const char *base, const char *out, size_t point,
		  unsigned how)
{
	struct disk disk = open_disk(base);
	int mark;
	size_t flushed = last_flush(log, &disk, point, &mark);
	replay(log, &disk, flushed, point, how);
	write_out(&disk, out);
	printf("%d\n", mark);
}

/* --- what may be there --- */

static void check_names(const char *folder)
{
	DIR *dir = opendir(folder);
	CHECK(dir != NULL);
	const struct dirent *entry;
	while ((entry = readdir(dir)) != NULL) {
		const char *name = entry->d_name;
		/* A save that is killed may leave its file, hidden. */
		bool known = name[0] == '.' || strcmp(name, "lost+found") == 0 ||
			     strcmp(name, "one.safetensors") == 0 ||
			     strncmp(name, "shards-0000", 11) == 0 ||
			     strcmp(name, "shards.safetensors.index.json") == 0;
		if (!known)
			fprintf(stderr, "%s/%s is nobody's\n", folder, name);
		CHECK(known);
	}
	closedir(dir);
}

/* One of two: the last that had ended, or the one that was under way.  Returns: it is the new one.
 */
static bool check_model(const char *folder, int mark)
{
	char path[300];
	snprintf(path, sizeof path, "%s/one.safetensors", folder);
	int last = last_of(false, mark);
	unsigned old = last > 0 ? seed_of(last) : 1;
	unsigned new = is_sharded(mark + 1) ? old : seed_of(mark + 1);
	unsigned seed = media_seed(path);
	if (seed != old && seed != new)
		fprintf(stderr, "mark %d: the model is of seed %u, not %u or %u\n", mark, seed, old,
			new);
	CHECK(seed == old || seed == new);
	return seed != old;
}

/* Each shard is whole, and the index comes last: where it is, all that it names are.  Returns: the
 * shards of the save that was under way, if there were others before. */
static unsigned check_shards(const char *folder, int mark)
{
	char path[300];
	unsigned n_new = 0;
	unsigned n_there = 0;
	int last = last_of(true, mark);
	unsigned old = last > 0 ? seed_of(last) : 0;
	unsigned new = is_sharded(mark + 1) ? seed_of(mark + 1) : old;
	for (unsigned i = 1; i <= SHARDS; i++) {
		snprintf(path, sizeof path, "%s/shards-%05u-of-%05u.safetensors", folder, i,
			 SHARDS);
		unsigned seed = media_seed(path);
		if (seed != old && seed != new)
			fprintf(stderr, "mark %d: shard %u is of seed %u, not %u or %u\n", mark, i,
				seed, old, new);
		CHECK(seed == old || seed == new);
		n_there += seed != 0;
		n_new += old != 0 && seed != old;
	}
	snprintf(path, sizeof path, "%s/shards.safetensors.index.json", folder);
	bool indexed = access(path, F_OK) == 0;
	CHECK(indexed || old == 0);
	CHECK(!indexed || n_there == SHARDS);
	hoist_checkpoint *checkpoint;
	if (indexed) {
		OK(hoist_checkpoint_open(path, 0, &checkpoint));
		CHECK(hoist_checkpoint_n_tensors(checkpoint) == MEDIA_TENSORS);
		hoist_checkpoint_close(checkpoint);
	}
	return n_new;
}

static void check(const char *folder, int mark)
{
	check_names(folder);
	CHECK(mark >= -1);
	bool new = check_model(folder, mark);
	unsigned n_shards = check_shards(folder, mark);
	printf("%s %u\n", new ? "new" : "old", n_shards);
}

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(what, "run") == 0 && argc == 4) {
		run(argv[2], argv[3]);
	} else if (strcmp(what, "points") == 0 && argc == 3) {
		struct log log = open_log(argv[2]);
		print_points(&log);
	} else if (strcmp(what, "ends") == 0 && argc == 4) {
		struct log log = open_log(argv[2]);
		print_ends(&log, argv[3]);
	} else if (strcmp(what, "image") == 0 && argc == 7) {
		struct log log = open_log(argv[2]);
		image(&log, argv[3], argv[4], number(argv[5]), number(argv[6]));
	} else if (strcmp(what, "check") == 0 && argc == 4) {
		check(argv[2], (int)strtol(argv[3], NULL, 10));
	} else {
		fprintf(stderr, "vm_power: how it is used is said at its head\n");
		return 2;
	}
	return 0;
}
