/* SPDX-License-Identifier: MIT */
/* Ranks whose machines have some of the files: each file is read where it is, all ranks get all
 * tensors, and a file that differs from the group's is refused. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/group/ranks.h"
#include "tests/support/load-support.h"

#define N_FILES 4u
#define N_TENSORS 3u /* of a file */
#define INDEX "model.safetensors.index.json"

static const size_t sizes[N_TENSORS] = {9000001, 4096, 7000000};
#define FILE_BYTES (9000001 + 4096 + 7000000)

static const char *const names[N_FILES] = {"m0.safetensors", "m1.safetensors", "m2.safetensors",
					   "m3.safetensors"};

static void write_all(void)
{
	size_t first[N_FILES + 1];
	for (size_t f = 0; f < N_FILES; f++) {
		first[f] = f * N_TENSORS;
		support_write(names[f], first[f], N_TENSORS, sizes, -1);
	}
	first[N_FILES] = N_FILES * N_TENSORS;
	support_write_index(names, first, N_FILES);
}

/* The folder of a rank: "r1". */
static const char *folder_of(unsigned rank)
{
	char name[8];
	(void)snprintf(name, sizeof name, "r%u", rank);
	return support_path(name);
}

static const char *file_of(unsigned rank, const char *name)
{
	char path[64];
	(void)snprintf(path, sizeof path, "r%u/%s", rank, name);
	return support_path(path);
}

/* A folder with the files whose bits are in @has, as links of the same disk, and the index. */
static void make_folder(unsigned rank, unsigned has, bool index)
{
	OK(mkdir(folder_of(rank), 0700));
	for (unsigned f = 0; f < N_FILES; f++)
		if ((has >> f & 1) != 0)
			OK(link(support_path(names[f]), file_of(rank, names[f])));
	if (index)
		OK(link(support_path(INDEX), file_of(rank, INDEX)));
}

/* The files of a rank, and the path that the rank opens. */
struct row {
	unsigned has;
	bool index;
	bool opens_index; /* not the folder */
};

#define ALL ((1u << N_FILES) - 1)
static const struct row rows[MOST_RANKS] = {
	{ALL, true, false},
	{1u << 1 | 1u << 3, true, false},
	{1u << 2, true, true},
	{0, false, false},
};
static unsigned n_ranks;

static hoist_checkpoint *open_rank(unsigned rank)
{
	const hoist_group group = ranks_group(rank, n_ranks);
	hoist_checkpoint *checkpoint = NULL;
	OK(hoist_group_open(&group, rows[rank].opens_index ? file_of(rank, INDEX) : folder_of(rank),
			    0, &checkpoint));
	return checkpoint;
}

static void compare_with_all(hoist_load *load)
{
	hoist_checkpoint *all = support_open(INDEX);
	support_compare(all, load);
	hoist_checkpoint_close(all);
}

static void rank_main(unsigned rank)
{
	hoist_group_report report = {.size = sizeof report};
	hoist_load *load = NULL;
	hoist_checkpoint *checkpoint = open_rank(rank);
	hoist_file_info file = {.size = sizeof file};
	char lacks[64];
	if (rank != 0) {
		unsigned n = N_FILES - (unsigned)__builtin_popcount(rows[rank].has);
		(void)snprintf(lacks, sizeof lacks, "lacks %u of %u files", n, N_FILES);
		CHECK(hoist_load_start(checkpoint, NULL, &load) == -ENODATA);
		support_said(lacks);
	}
	OK(hoist_checkpoint_file(checkpoint, 1, &file));
	check_at("rank %u: %s", rank, file.path);
	CHECK(strcmp(file.path, file_of(rank, names[1])) == 0);
	const hoist_group group = ranks_group(rank, n_ranks);
	OK(hoist_group_load(&group, checkpoint, NULL, &load));
	OK(hoist_load_wait(load));
	compare_with_all(load);
	OK(hoist_group_get_report(load, &report));
	said->read_bytes[rank] = report.storage_bytes;
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void each_file_is_read_where_it_is(void)
{
	uint64_t sum = 0;
	n_ranks = MOST_RANKS;
	for (unsigned r = 0; r < MOST_RANKS; r++)
		make_folder(r, rows[r].has, rows[r].index);
	ranks_run(MOST_RANKS, rank_main, 0);
	for (unsigned r = 0; r < MOST_RANKS; r++) {
		uint64_t n = (uint64_t)__builtin_popcount(rows[r].has);
		check_at("rank %u read %llu bytes", r, (unsigned long long)said->read_bytes[r]);
		CHECK(said->read_bytes[r] <= n * (FILE_BYTES + 8192));
		CHECK(r == 3 || said->read_bytes[r] > 0);
		sum += said->read_bytes[r];
	}
	check_at("%llu bytes in all", (unsigned long long)sum);
	CHECK(sum >= N_FILES * FILE_BYTES && sum <= N_FILES * (FILE_BYTES + 8192));
}

/* --- the rank with all files has gone --- */

static void rank_that_goes(unsigned rank)
{
	hoist_group group = ranks_group(rank, n_ranks);
	hoist_load *load = NULL;
	hoist_checkpoint *checkpoint = open_rank(rank);
	if (rank == 0) { /* shows the files, and leaves before the group begins */
		OK(hoist_group_load(&group, checkpoint, NULL, &load));
		while (said->marks[1] == 0)
			(void)usleep(1000);
		hoist_load_destroy(load);
	} else {
		said->marks[1] = 1;
		group.timeout_ns = 500000000; /* rank 0 may have gone before they meet */
		OK(hoist_group_load(&group, checkpoint, NULL, &load));
		CHECK(hoist_load_wait(load) == -ECONNRESET);
		support_said("no member of the group");
		support_said(file_of(rank, "m"));
		hoist_load_destroy(load);
	}
	hoist_checkpoint_close(checkpoint);
}

static void a_file_that_no_rank_has_is_named(void)
{
	n_ranks = 2;
	said->marks[1] = 0;
	ranks_next_group();
	ranks_run(2, rank_that_goes, 0);
}

/* --- files that differ from the group's --- */

static void rank_that_shows(unsigned rank)
{
	const hoist_group group = ranks_group(rank, 2);
	hoist_load *load = NULL;
	hoist_checkpoint *checkpoint = open_rank(rank);
	OK(hoist_group_load(&group, checkpoint, NULL, &load));
	while (said->marks[0] == 0)
		(void)usleep(1000);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void refused(const char *piece)
{
	const hoist_group group = ranks_group(1, 2);
	hoist_checkpoint *checkpoint = NULL;
	int err = hoist_group_open(&group, folder_of(1), 0, &checkpoint);
	check_at("%d: %s", err, hoist_error());
	CHECK(err == -EINVAL && checkpoint == NULL);
	support_said(file_of(1, names[1]));
	support_said(piece);
}

/* The rank's file with the same header, and one of 512 bytes of the tensors changed. */
static void put_other_bytes(void)
{
	static char bytes[FILE_BYTES + 4096];
	FILE *from = fopen(support_path(names[1]), "rb");
	CHECK(from != NULL);
	size_t n = fread(bytes, 1, sizeof bytes, from);
	CHECK(n > FILE_BYTES && n < sizeof bytes && fclose(from) == 0);
	for (size_t at = n - FILE_BYTES; at < n; at += 512)
		bytes[at] ^= 1;
	support_put("r1/m1.safetensors", bytes, n);
}

static void another_file_is_refused(void)
{
	const char *path = file_of(1, names[1]);
	ranks_next_group();
	said->marks[0] = 0;
	pid_t shows = ranks_start(0, rank_that_shows);
	OK(unlink(path));
	support_put(path, "short", 5);
	refused("has 5 bytes");
	OK(unlink(path));
	const size_t others[N_TENSORS] = {sizes[0] - 1, sizes[1] + 1, sizes[2]};
	support_write("r1/m1.safetensors", N_TENSORS, N_TENSORS, others, -1);
	refused("bytes 0 to ");
	OK(unlink(path));
	put_other_bytes();
	refused("tensors' bytes");
	said->marks[0] = 1;
	ranks_end(shows, 0);
}

int main(void)
{
	ranks_begin_far();
	write_all();
	CASE(each_file_is_read_where_it_is);
	CASE(a_file_that_no_rank_has_is_named);
	CASE(another_file_is_refused);
	for (unsigned r = 0; r < MOST_RANKS; r++)
		support_remove(folder_of(r));
	support_cleanup();
	return 0;
}
