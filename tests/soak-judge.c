/* SPDX-License-Identifier: MIT */
/* What is there in the end: does a process that lives long hold more and more?  Are there files
 * that nobody named? */
#include "config.h"

#include "tests/soak-parent.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>

#define MANY_RESTS 40

/* What is written down at each rest, and how much more there may be in the second half than there
 * was in the first: nothing, but for memory, of which pools keep descriptions of as many slabs as
 * there ever were, and an event for each stand-in device, which may stay.  @enough: what is no
 * growth yet, of a process that rested less than MANY_RESTS times. */
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
	X(handles, 0, 3, false),
	X(blocks, 0, 0, false),
	X(maps, 160, 4, true),
	X(in_use, 4 << 20, 256 << 10, true),
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

static bool judge_growth(int number)
{
	const struct soak_slot *slot = &board->slots[number];
	unsigned n = atomic_load(&slot->n_rests);
	bool well = n >= 4;
	if (!well)
		printf("slot %d rested %u times: too few to say whether it grows\n", number, n);
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

/* From the middle to the end, of all that are judged. */
static void tell_growth(void)
{
	int64_t counted = 0;
	int64_t in_use = 0;
	int64_t kib = 0;
	for (int s = 0; s < SOAK_OLD; s++) {
		const struct soak_slot *slot = &board->slots[s];
		unsigned n = atomic_load(&slot->n_rests);
		const struct soak_rest *from = &slot->rests[n / 2];
		const struct soak_rest *to = &slot->rests[n - 1];
		counted += (int64_t)(to->fds + to->threads + to->blocks + to->handles) -
			   (int64_t)(from->fds + from->threads + from->blocks + from->handles);
		in_use += (int64_t)(to->in_use - from->in_use);
		kib += (int64_t)(to->private_kib - from->private_kib);
	}
	printf("figure: soak.growth %" PRId64 " descriptors, threads, blocks, driver handles",
	       counted);
	if (!soak_is_watched())
		printf("; %" PRId64 " KiB of malloc, %" PRId64 " KiB resident", in_use / 1024, kib);
	printf(" in the second half, of %d processes that lived through it\n", SOAK_OLD);
}

/* Temporary files have names that begin with a dot. */
static bool judge_files(unsigned kills_in_saves)
{
	unsigned hidden = 0;
	unsigned strange = 0;
	DIR *dir = opendir(soak_folder);
	CHECK(dir != NULL);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		if (name[0] == '.' && strstr(name, ".hoist-") != NULL) {
			hidden++;
		} else if (strchr("fgcos", name[0]) == NULL && strcmp(name, "board") != 0 &&
			   strcmp(name, "run") != 0) {
			printf("nobody made %s\n", name);
			strange++;
		}
	}
	(void)closedir(dir);
	printf("figure: soak.leftovers %u temporary files after %u kills within saves\n", hidden,
	       kills_in_saves);
	return hidden <= kills_in_saves && strange == 0;
}

/* After all that, the shards can be saved and are whole; so is what each thread saved last. */
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

/* Who did nothing has proved nothing.  (Under a sanitizer, few are killed in a short time.) */
static bool judge_deeds(unsigned kills)
{
	uint64_t n = atomic_load(&board->counts[SOAK_N_digests]);
	uint64_t loads = atomic_load(&board->actions[SOAK_load]);
	uint64_t saves = atomic_load(&board->actions[SOAK_save]);
	if (n > 0 && loads > 0 && saves > 0 && (kills > 0 || soak_is_watched()))
		return true;
	printf("too little was done: %" PRIu64 " loads, %" PRIu64 " saves, %" PRIu64
	       " digests, %u kills\n",
	       loads, saves, n, kills);
	return false;
}

bool soak_judge(unsigned kills, unsigned kills_in_saves)
{
	bool well = judge_deeds(kills);
	for (int slot = 0; slot < SOAK_OLD; slot++)
		well &= judge_growth(slot);
	if (well)
		tell_growth();
	well &= judge_files(kills_in_saves);
	well &= judge_cache();
	return well;
}
