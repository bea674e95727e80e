/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-memory.c - files in memory: made, placed, sealed; and their mappings. */
#include "config.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "alloc/map.h"
#include "alloc/pool.h"
#include "alloc/populate.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/limit.h"
#include "lib/cache/cache.h"
#include "numa/place.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

/* Pages that a read was going into are let go a little after it has ended. */
#define SEAL_TRIES 500

#define N_SAMPLES 64
#define N_THREADS 4

/* Populated between two looks at whether it is cancelled. */
#define PIECE_BYTES ((size_t)256 << 20)

/* Bytes per second of a thread: huge pages that come slower are given up.  They are made once, and
 * used by many: they may cost more than elsewhere. */
#define THP_FLOOR (HOIST__THP_FLOOR / 5)

/* --- mapping --- */

/* @bytes at a 2 MiB boundary, so that huge pages are mapped as such. */
static int map_aligned(int fd, size_t bytes, int protection, int flags, char **ret)
{
	const size_t align = HOIST__HUGE_PAGE_BYTES;
	if (bytes > SIZE_MAX / 2)
		return hoist__fail(-ENOMEM, "mapping an image of %zu bytes", bytes);
	char *room = mmap(NULL, bytes + align, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return hoist__fail_errno(-ENOMEM, "address space for an image of %s",
					 hoist__figure(bytes).text);
	char *base = (char *)hoist__round_up((uintptr_t)room, align);
	size_t before = (size_t)(base - room);
	/* hugetlb maps end where their pages do. */
	size_t after = align - before;
	if (mmap(base, bytes, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int err = -errno;
		(void)munmap(room, bytes + align);
		return hoist__fail_errno(err == -EAGAIN ? -ENOMEM : err, "mapping an image of %s",
					 hoist__figure(bytes).text);
	}
	/* What is left over costs nothing if the process has too many mappings to lose it. */
	if (before > 0)
		(void)munmap(room, before);
	size_t end = hoist__round_up(bytes, hoist__page_bytes());
	if (after > end - bytes)
		(void)munmap(base + end, after - (end - bytes));
	*ret = base;
	return 0;
}

/* A page that is copied on write must be there: of hugetlb pages the kernel sets aside as many as
 * may be copied, so that none is missing at a touch, which kills; of others it reckons with less.
 */
int hoist__memory_file_map(int fd, size_t bytes, bool hugetlb, bool read_only, char **ret)
{
	int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = MAP_PRIVATE | (hugetlb && !read_only ? 0 : MAP_NORESERVE);
	int err = map_aligned(fd, bytes, protection, flags, ret);
	if (err == -ENOMEM && hugetlb && !read_only)
		return hoist__fail(
			err,
			"mapping an image of %s in hugetlb pages, of which as many must be "
			"free, as each may be copied; attach it read-only",
			hoist__figure(bytes).text);
	return err;
}

/* --- pages --- */

/* What the kernel makes of shared memory, in brackets in the list of what it could. */
static bool read_choice(const char *path, char *ret, size_t room)
{
	char text[128];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof text - 1);
	(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	const char *from = strchr(text, '[');
	const char *to = from != NULL ? strchr(from, ']') : NULL;
	if (to == NULL)
		return false;
	(void)snprintf(ret, room, "%.*s", (int)(to - from - 1), from + 1);
	return true;
}

/* Transparent huge pages, where the kernel gives them to shared memory that asks for them. */
static int ask_for_huge(struct hoist__memory_file *file)
{
	static const char each[] =
		"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled";
	static const char all[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	char choice[32] = "unknown";
	if (!read_choice(each, choice, sizeof choice) || strcmp(choice, "inherit") == 0)
		(void)read_choice(all, choice, sizeof choice);
	bool never = strcmp(choice, "never") == 0 || strcmp(choice, "deny") == 0 ||
		     strcmp(choice, "unknown") == 0;
	bool asked = !never && madvise(file->base, file->bytes, MADV_HUGEPAGE) == 0;
	return asked ? HOIST_PAGES_DEFAULT : HOIST_PAGES_SMALL;
}

static int open_memfd(unsigned flags, size_t bytes, int *ret)
{
	flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create("hoist-image", flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* older than the flag */
		fd = memfd_create("hoist-image", flags);
	if (fd < 0)
		return hoist__fail_memfd(errno, "making an image");
	int err = hoist__check_file_bytes(bytes, "an image");
	if (err == 0 && ftruncate(fd, (off_t)bytes) < 0) {
		err = errno == EFBIG || errno == EINVAL ? -ENOMEM : -errno;
		(void)hoist__fail_errno(err, "an image of %s", hoist__figure(bytes).text);
	}
	if (err < 0) {
		(void)close(fd);
		return err;
	}
	*ret = fd;
	return 0;
}

/* Mapping hugetlb pages to be shared sets them aside: there are enough, or it fails. */
static int open_hugetlb(size_t bytes, struct hoist__memory_file *file)
{
	size_t whole = (size_t)hoist__round_up(bytes, HOIST__HUGE_PAGE_BYTES);
	int fd = -1;
	int err = open_memfd(MFD_HUGETLB | MFD_HUGE_2MB, whole, &fd);
	if (err == 0)
		err = map_aligned(fd, whole, PROT_READ | PROT_WRITE, MAP_SHARED, &file->base);
	if (err < 0) {
		(void)snprintf(file->note, sizeof file->note, "no hugetlb pages: %.120s",
			       hoist__error_text());
		if (fd >= 0)
			(void)close(fd);
		return err;
	}
	file->fd = fd;
	file->bytes = whole;
	file->pages = HOIST_PAGES_HUGETLB;
	return 0;
}

static int open_plain(size_t bytes, bool huge, struct hoist__memory_file *file)
{
	size_t whole = (size_t)hoist__round_up(bytes, hoist__page_bytes());
	int err = open_memfd(0, whole, &file->fd);
	if (err == 0)
		err = map_aligned(file->fd, whole, PROT_READ | PROT_WRITE, MAP_SHARED, &file->base);
	if (err < 0)
		return err;
	file->bytes = whole;
	file->pages = huge ? ask_for_huge(file) : HOIST_PAGES_SMALL;
	if (!huge) /* which some systems do not give by themselves */
		(void)madvise(file->base, file->bytes, MADV_NOHUGEPAGE);
	return 0;
}

/* --- places --- */

static void placement_of(const hoist_cache_options *options, struct hoist__placement *ret)
{
	static const enum hoist__policy policies[] = {
		[HOIST_PLACE_DEFAULT] = HOIST__POLICY_LOCAL,
		[HOIST_PLACE_LOCAL] = HOIST__POLICY_LOCAL,
		[HOIST_PLACE_PREFER] = HOIST__POLICY_PREFER,
		[HOIST_PLACE_BIND] = HOIST__POLICY_BIND,
		[HOIST_PLACE_INTERLEAVE] = HOIST__POLICY_INTERLEAVE,
	};
	memset(ret, 0, sizeof *ret);
	ret->policy = policies[options->placement];
	for (size_t i = 0; i < options->n_nodes; i++)
		hoist__nodeset_add(&ret->nodes, options->nodes[i]);
}

/* Where the kernel gives shared memory small pages, which is its default, huge ones are made of
 * them, unless these were asked for. */
static void note_pages(struct hoist__memory_file *file, size_t collapsed, int err)
{
	size_t whole = (size_t)hoist__round_down(file->bytes, HOIST__HUGE_PAGE_BYTES);
	if (whole > 0 && collapsed == whole)
		file->pages = HOIST_PAGES_DEFAULT;
	else if (file->note[0] != '\0')
		return;
	else if (whole == 0)
		(void)snprintf(file->note, sizeof file->note, "small pages: less than 2 MiB");
	else
		(void)snprintf(file->note, sizeof file->note,
			       "small pages: the kernel made huge ones of %s of %s only (%s)",
			       hoist__figure(collapsed).text, hoist__figure(whole).text,
			       err == -ETIME ? "slow" : strerrorname_np(-err));
}

/* A piece at a time, so that it can be cancelled. */
static int populate(struct hoist__memory_file *file, const hoist_cache_options *options,
		    struct hoist__populate_job *job)
{
	size_t collapsed = 0;
	int collapse_err = 0;
	int err = 0;
	for (size_t at = 0; err == 0 && at < file->bytes; at += PIECE_BYTES) {
		struct hoist__populate_report report = {0};
		job->base = file->base + at;
		job->bytes = (size_t)hoist__min_u64(PIECE_BYTES, file->bytes - at);
		if (options->progress != NULL &&
		    options->progress(options->progress_context, 0, file->bytes) != 0)
			return hoist__fail(-ECANCELED, "cancelled with %s of %s of an image there",
					   hoist__figure(at).text, hoist__figure(file->bytes).text);
		err = hoist__populate_parallel(job, &report);
		collapsed += report.collapsed;
		if (report.slow)
			report.collapse_err = -ETIME;
		if (report.collapse_err != 0)
			collapse_err = report.collapse_err;
		job->collapse = job->collapse && (collapse_err == 0 || collapse_err == -EAGAIN);
	}
	if (err == 0 && file->pages == HOIST_PAGES_SMALL && options->pages != HOIST_PAGES_SMALL)
		note_pages(file, collapsed, collapse_err);
	return err;
}

/* How the kernel took it.  Bound memory only prefers its nodes for now: see numa/place.h. */
static int place(const struct hoist__memory_file *file, const struct hoist__placement *placement,
		 const struct hoist__topology *topology, enum hoist__placed *ret)
{
	int err = hoist__place(file->base, file->bytes, placement, ret);
	if (placement->policy != HOIST__POLICY_BIND || file->pages == HOIST_PAGES_HUGETLB)
		return err;
	if (err == 0)
		err = hoist__place_has_room(topology, placement, file->bytes);
	if (err == 0 && *ret == HOIST__PLACED_KERNEL)
		hoist__place_softly(file->base, file->bytes, placement);
	return err;
}

static int place_and_populate(struct hoist__memory_file *file, const hoist_cache_options *options)
{
	struct hoist__placement placement;
	struct hoist__topology *topology = NULL;
	enum hoist__placed placed = HOIST__PLACED_DEFAULT;
	placement_of(options, &placement);
	int err = placement.policy != HOIST__POLICY_LOCAL ? hoist__topology_load("/sys", &topology)
							  : 0;
	if (err == 0)
		err = place(file, &placement, topology, &placed);
	bool collapse = file->pages == HOIST_PAGES_SMALL && options->pages != HOIST_PAGES_SMALL;
	struct hoist__populate_job job = {
		.n_threads = N_THREADS,
		.topology = topology,
		.nodes = placed == HOIST__PLACED_FIRST_TOUCH ? &placement.nodes : NULL,
		.collapse = collapse,
		.thp_floor = collapse ? THP_FLOOR : 0,
	};
	bool late = placement.policy == HOIST__POLICY_BIND && placed == HOIST__PLACED_KERNEL &&
		    file->pages != HOIST_PAGES_HUGETLB;
	unsigned n = 0;
	while (err == 0) {
		err = populate(file, options, &job);
		if (err < 0 || !late)
			break;
		err = hoist__place_strictly(file->base, file->bytes, &placement, n++);
		if (err <= 0)
			break;
		err = 0;
	}
	hoist__topology_destroy(topology);
	if (placed == HOIST__PLACED_FIRST_TOUCH && file->note[0] == '\0')
		(void)snprintf(file->note, sizeof file->note,
			       "the kernel refuses mbind here: who touched first decided");
	return err;
}

/* The one node that the samples are on, or -1. */
static int find_node(const struct hoist__memory_file *file)
{
	struct hoist__whereabouts where;
	int found = -1;
	if (hoist__whereabouts(file->base, file->bytes, N_SAMPLES, &where) < 0)
		return -1;
	for (int node = 0; node < HOIST__MAX_NODES; node++) {
		if (where.per_node[node] == 0)
			continue;
		if (found >= 0)
			return -1;
		found = node;
	}
	return found;
}

/* --- making and ending --- */

/* The pool may have enough, and the nodes asked for, or the cgroup, too few: mapping does not tell.
 * Returns: 0; -ENOMEM, with the note, where there are too few; others end it. */
static int create_hugetlb(size_t bytes, const hoist_cache_options *options,
			  struct hoist__memory_file *file)
{
	if (open_hugetlb(bytes, file) < 0)
		return -ENOMEM;
	int err = place_and_populate(file, options);
	if (err != -ENOMEM)
		return err;
	hoist__memory_file_close(file);
	(void)snprintf(file->note, sizeof file->note, "no hugetlb pages: %.120s",
		       hoist__error_text());
	file->pages = HOIST_PAGES_DEFAULT;
	return err;
}

int hoist__memory_file_create(size_t bytes, const hoist_cache_options *options,
			      struct hoist__memory_file *ret)
{
	struct hoist__memory_file file = {.fd = -1, .node = -1};
	int err = -ENOMEM;
	if (bytes > (size_t)INT64_MAX - HOIST__HUGE_PAGE_BYTES)
		return hoist__fail(err, "an image of %zu bytes exceeds every file", bytes);
	if (options->pages == HOIST_PAGES_HUGETLB)
		err = create_hugetlb(bytes, options, &file);
	if (err == -ENOMEM) {
		err = hoist__pools_make_room(bytes, "an image");
		if (err == 0)
			err = open_plain(bytes, options->pages != HOIST_PAGES_SMALL, &file);
		if (err == 0)
			err = place_and_populate(&file, options);
	}
	if (err < 0) {
		hoist__memory_file_close(&file);
		return err;
	}
	file.node = find_node(&file);
	*ret = file;
	return 0;
}

int hoist__memory_file_seal(struct hoist__memory_file *file)
{
	(void)munmap(file->base, file->bytes);
	file->base = NULL;
	for (int tries = 0; fcntl(file->fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0; tries++) {
		if (errno != EBUSY || tries == SEAL_TRIES)
			return hoist__fail_errno(-errno, "sealing an image of %s",
						 hoist__figure(file->bytes).text);
		(void)usleep(10000);
	}
	return 0;
}

void hoist__memory_file_close(struct hoist__memory_file *file)
{
	if (file->base != NULL)
		(void)munmap(file->base, file->bytes);
	if (file->fd >= 0)
		(void)close(file->fd);
	file->base = NULL;
	file->fd = -1;
}

int hoist__memory_file_judge(int fd, size_t *bytes, bool *hugetlb)
{
	struct stat status;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);
	/* Of a file without seals, whose system may be a process that does not answer, nothing else
	 * is asked. */
	if (seals < 0 || fstatfs(fd, &system) < 0 ||
	    (system.f_type != TMPFS_MAGIC && system.f_type != HUGETLBFS_MAGIC))
		return hoist__fail(-EBADMSG, "what came as an image is no memfd");
	if ((seals & SEALS) != SEALS)
		return hoist__fail(-EBADMSG,
				   "what came as an image is not sealed against writing, shrinking "
				   "and growing (seals %#x)",
				   (unsigned)seals);
	if (fstat(fd, &status) < 0 || status.st_size <= 0)
		return hoist__fail(-EBADMSG, "what came as an image has no bytes");
	*bytes = (size_t)status.st_size;
	*hugetlb = system.f_type == HUGETLBFS_MAGIC;
	/* A page that is not there is taken at a touch, which kills when none is free. */
	if (*hugetlb && status.st_blocks < status.st_size / 512)
		return hoist__fail(-EBADMSG,
				   "what came as an image has %lld of its %lld bytes of huge pages",
				   (long long)status.st_blocks * 512, (long long)status.st_size);
	return 0;
}
