/* SPDX-License-Identifier: MIT */
/* The state in the end: does a process that lives long hold more and more?  Are there files
 * that nobody named? */
#include "config.h"

#include "tests/soak/parent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#define MANY_RESTS 40

/* The figures of each rest, and how much more there may be in the second half than there
 * was in the first: nothing, but for malloc's queues and threads' own data, some 1 KiB each; and
 * what pools keep: descriptions of as many slabs of each size as there ever were at once, which
 * comes to its end ever more slowly.  @enough: what is no growth yet, of a process that rested less
 * than MANY_RESTS times. */
static const struct kind {
	const char *name;
	size_t at;
	uint64_t enough;
	uint64_t slack;
	bool of_memory; /* not judged under a sanitizer, which keeps much for itself */
} kinds[] = {
#define X(name, enough, slack, of_memory)                                                          \
	{                                                                                          \
#name, offsetof(struct soak_rest, name), enough, slack, of_memory                  \
	}
	X(fds, 0, 0, false),
	X(threads, 8, 0, false),
	X(handles, 0, 0, false),
	X(blocks, 0, 0, false),
	X(device_bytes, 0, 0, false),
	X(maps, 160, 4, true),
	X(in_use, 576 << 10, 48 << 10, true),
	X(kept, 4 << 20, 256 << 10, true),
	X(private_kib, 65536, 8192, true),
#undef X
};

static uint64_t value_of(const struct soak_rest *rest, const struct kind *kind)
{
	uint64_t value = 0;
	memcpy(&value, (const char *)rest + kind->at, sizeof value);
	return value;
}

static uint64_t most_of(const struct soak_slot *slot, unsigned from, unsigned to,
			const struct kind *kind)
{
	uint64_t most = 0;
	for (unsigned i = from; i < to; i++)
		if (value_of(&slot->rests[i], kind) > most)
			most = value_of(&slot->rests[i], kind);
	return most;
}

unsigned soak_fewest_rests(void)
{
	unsigned fewest = SOAK_RESTS;
	for (int s = 0; s < SOAK_OLD; s++) {
		unsigned n = atomic_load(&board->slots[s].n_rests);
		fewest = n < fewest ? n : fewest;
	}
	return fewest;
}

static bool judge_growth(int number)
{
	const struct soak_slot *slot = &board->slots[number];
	unsigned n = atomic_load(&slot->n_rests);
	bool well = true;
	for (size_t k = 0; well && k < sizeof kinds / sizeof kinds[0]; k++) {
		uint64_t first = most_of(slot, 1, n / 2 + 1, &kinds[k]);
		uint64_t second = most_of(slot, n / 2 + 1, n, &kinds[k]);
		printf("slot %d, %u rests: %s at most %" PRIu64 ", then %" PRIu64 ":", number, n,
		       kinds[k].name, first, second);
		for (unsigned i = 0; i < n; i += 1 + n / 12)
			printf(" %" PRIu64, value_of(&slot->rests[i], &kinds[k]));
		printf("\n");
		if (kinds[k].of_memory && soak_is_watched())
			continue;
		if (second > first + kinds[k].slack &&
		    (n >= MANY_RESTS || second > kinds[k].enough)) {
			printf("  it grew\n");
			well = false;
		}
	}
	return well;
}

/* From the middle to the end: the most that one of them gained, or the least it lost. */
static int64_t most_gained(size_t at)
{
	int64_t most = INT64_MIN;
	const struct kind kind = {.at = at};
	for (int s = 0; s < SOAK_OLD; s++) {
		const struct soak_slot *slot = &board->slots[s];
		unsigned n = atomic_load(&slot->n_rests);
		int64_t gained = (int64_t)(value_of(&slot->rests[n - 1], &kind) -
					   value_of(&slot->rests[n / 2], &kind));
		most = gained > most ? gained : most;
	}
	return most;
}

static void tell_growth(void)
{
	printf("figure: soak.growth %" PRId64 " descriptors, %" PRId64 " threads, %" PRId64
	       " blocks, %" PRId64 " driver handles",
	       most_gained(offsetof(struct soak_rest, fds)),
	       most_gained(offsetof(struct soak_rest, threads)),
	       most_gained(offsetof(struct soak_rest, blocks)),
	       most_gained(offsetof(struct soak_rest, handles)));
	if (!soak_is_watched())
		printf("; %" PRId64 " KiB of malloc and %" PRId64
		       " KiB of it that pools keep, %" PRId64 " KiB resident",
		       most_gained(offsetof(struct soak_rest, in_use)) / 1024,
		       most_gained(offsetof(struct soak_rest, kept)) / 1024,
		       most_gained(offsetof(struct soak_rest, private_kib)));
	printf(" in the second half, of that of %d processes which gained most\n", SOAK_OLD);
}

/* --- files --- */

/* A save that is killed then leaves no file without a name; but while it gives it one. */
static bool has_nameless_files(void)
{
	int fd = open(soak_folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

#define FIVE "[0-9][0-9][0-9][0-9][0-9]"
#define SHARD ("s-" FIVE "-of-" FIVE ".safetensors")

static bool somebody_made(const char *name)
{
	static const char *const patterns[] = {"f[0-9].safetensors",
					       "g[0-9].gguf",
					       "c[0-9].safetensors",
					       "own[0-9]-[0-9].safetensors",
					       "s.safetensors",
					       "s.safetensors.index.json",
					       SHARD,
					       "shards.lock",
					       "static[0-9]",
					       "static[0-9][0-9]",
					       "libhoist-emulated-*.so",
					       "soak_mixed",
					       "board",
					       "run"};
	for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
		if (fnmatch(patterns[i], name, 0) == 0)
			return true;
	return false;
}

/* Temporary files have names that begin with a dot. */
static bool judge_files(unsigned kills_in_saves)
{
	unsigned hidden = 0;
	unsigned strange = 0;
	unsigned may_be = has_nameless_files() ? 2 + kills_in_saves / 20 : kills_in_saves;
	DIR *dir = opendir(soak_folder);
	CHECK(dir != NULL);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		if (name[0] == '.' && strstr(name, ".hoist-") != NULL) {
			hidden++;
		} else if (!somebody_made(name)) {
			printf("nobody made %s\n", name);
			strange++;
		}
	}
	(void)closedir(dir);
	printf("figure: soak.leftovers %u temporary files after %u kills within saves\n", hidden,
	       kills_in_saves);
	if (hidden > may_be)
		printf("%u temporary files are more than the %u that kills may leave here\n",
		       hidden, may_be);
	return hidden <= may_be && strange == 0;
}

/* Returns: there is no such file, or it is one whole model; *seed is which. */
static bool is_whole(const char *path, uint64_t *seed)
{
	hoist_checkpoint *checkpoint = NULL;
	struct soak_model model = {.seed = 0};
	int err = soak_open_as_model(path, &checkpoint, &model);
	if (err == 0)
		soak_load_plainly(checkpoint, &model);
	else if (err != -ENOENT)
		printf("%s in the end: %s\n", path, hoist_error());
	hoist_checkpoint_close(checkpoint);
	*seed = model.seed;
	return err == 0 || err == -ENOENT;
}

/* The file that each thread saved last is there, as soak_load_private() has it. */
static bool judge_own(int slot, int thread)
{
	const struct soak_own *own = &board->slots[slot].own[thread];
	uint64_t was = atomic_load(&own->seed);
	uint64_t next = atomic_load(&own->next);
	uint64_t is = 0;
	const char *path = soak_path("own%d-%d.safetensors", slot, thread);
	if (!is_whole(path, &is))
		return false;
	if (is == was || (next != 0 && is == next))
		return true;
	printf("%s holds %#" PRIx64 "; %#" PRIx64 " was saved last, and %#" PRIx64 " begun\n", path,
	       is, was, next);
	return false;
}

/* After all that, each file is what one save wrote; so are the shards, unless a save of them was
 * killed or cancelled. */
static bool judge_contents(void)
{
	bool well = true;
	uint64_t seed = 0;
	for (int slot = 0; slot < SOAK_SLOTS; slot++)
		for (int thread = 0; thread < SOAK_THREADS; thread++)
			well &= judge_own(slot, thread);
	for (unsigned i = 0; i < SOAK_FILES; i++)
		well &= is_whole(soak_file(i), &seed) && (i >= 4 || seed != 0);
	for (unsigned i = 0; i < SOAK_CACHED; i++)
		well &= is_whole(soak_path("c%u.safetensors", i), &seed) && seed != 0;
	if (atomic_load(&board->shards_whole))
		well &= is_whole(soak_path(SOAK_INDEX), &seed) && seed != 0;
	return well;
}

/* After all that, the cache is of use. */
static bool judge_cache(void)
{
	hoist_image *image = NULL;
	const char *path = soak_path("c0.safetensors");
	int err = hoist_cache_add(path, NULL, &image);
	if (err != 0)
		printf("the cache in the end: %s\n", hoist_error());
	hoist_image_close(image);
	return err == 0;
}

/* --- deeds --- */

static uint64_t times(enum soak_action action)
{
	return atomic_load(&board->actions[action]);
}

static uint64_t counted(enum soak_count count)
{
	return atomic_load(&board->counts[count]);
}

/* A run that lacks one of these proves nothing of it.  Each is a count of work, so that a slow
 * machine runs longer and proves the same. */
const char *soak_lacks(const struct soak_harm *harm)
{
	const struct {
		uint64_t n;
		uint64_t wanted;
		const char *what;
	} rules[] = {
		{counted(SOAK_N_digests), 1000, "comparisons by digest"},
		{times(SOAK_load), 50, "loads"},
		{times(SOAK_save), 50, "saves"},
		{times(SOAK_fork), soak_is_watched() ? 0 : 10, "forks"},
		{counted(SOAK_N_attached), 10, "images attached"},
		{counted(SOAK_N_added), 10, "images added"},
		{counted(SOAK_N_taken), 20, "buffers taken of a sibling"},
		{harm->kills, 3, "workers killed"},
		{soak_fewest_rests(), 5, "rests of a process that lives long"},
	};
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
		if (rules[i].n < rules[i].wanted)
			return rules[i].what;
	return NULL;
}

/* Actions that may fail because others are killed or stopped fail no more often. */
static bool judge_adding(const struct soak_harm *harm)
{
	uint64_t lost = counted(SOAK_N_holder_lost);
	bool well = lost <= harm->holder_kills + harm->stops;
	if (!well)
		printf("adding gave up %" PRIu64 " times; %u holders were killed, and %u processes "
		       "stopped\n",
		       lost, harm->holder_kills, harm->stops);
	return well;
}

bool soak_judge(const struct soak_harm *harm)
{
	bool well = judge_adding(harm);
	for (int slot = 0; slot < SOAK_OLD; slot++)
		well &= judge_growth(slot);
	if (well)
		tell_growth();
	well &= judge_files(harm->kills_in_saves);
	well &= judge_contents();
	well &= judge_cache();
	return well;
}
