/* SPDX-License-Identifier: MIT */
/* Checkpoints of other formats, of tensor "a" or of all: hoist writes those that it can, in a
 * process of their own, as the sweep's parent opens nothing of hoist's. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/format-archive.h"

static void save(const char *name, size_t n_tensors, unsigned flags)
{
	const hoist_save_options o = {.size = sizeof o, .flags = flags};
	hoist_checkpoint *checkpoint = NULL;
	hoist_save *it = NULL;
	int err = hoist_checkpoint_open(sweep_path("m.safetensors"), 0, &checkpoint);
	STEP(err, hoist_save_create(sweep_path(name), &o, &it));
	for (size_t i = 0; err == 0 && i < n_tensors; i++)
		err = hoist_save_add_tensor(it, NULL, checkpoint, i);
	STEP(err, hoist_save_start(it));
	STEP(err, hoist_save_wait(it));
	if (err != 0)
		sweep_die("%s cannot be written", name);
	hoist_save_destroy(it);
	hoist_checkpoint_close(checkpoint);
}

static void write_archive(const char *name, struct archive *archive)
{
	archive_end(archive, "");
	FILE *file = fopen(sweep_path(name), "we");
	if (file == NULL || fwrite(archive->file.p, archive->file.n, 1, file) != 1 ||
	    fclose(file) != 0)
		sweep_die("%s cannot be written", name);
	archive_free(archive);
}

static void make_npz(void)
{
	struct archive archive = {.align = 64};
	struct bytes npy = {.n = 0};
	if (!bytes_load(&npy, sweep_path("o.npy")))
		sweep_die("o.npy cannot be read");
	archive_add(&archive, "a.npy", npy.p, npy.n);
	write_archive("o.npz", &archive);
	bytes_free(&npy);
}

/* {"a": 100 x 1000 bytes, column by column}, as torch.save() has it. */
static void make_pytorch(void)
{
	static const char pickle[] = "\x80\2}"
				     "X\1\0\0\0"
				     "a"
				     "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"
				     "ctorch\nByteStorage\nX\1\0\0\0"
				     "0X\3\0\0\0cpu"
				     "J\xa0\x86\1\0tQK\0K\x64M\xe8\3\x86K\1K\x64\x86\x89"
				     "ccollections\nOrderedDict\n)RtRs.";
	static unsigned char bytes[SWEEP_MOST_BYTES];
	struct archive archive = {.align = 64, .flags = 0x800};
	sweep_fill(0, 0, bytes);
	archive_add(&archive, "m/data.pkl", pickle, sizeof pickle - 1);
	archive_add(&archive, "m/data/0", bytes, sweep_bytes(0));
	write_archive("o.pt", &archive);
}

/* A file large enough to be mapped where it is cached, as it is once it was written. */
static void make_hot(void)
{
	unsigned char *bytes = malloc(SWEEP_HOT_BYTES);
	FILE *file = fopen(sweep_path("hot.safetensors"), "we");
	char header[256];
	int n = snprintf(header + 8, sizeof header - 8,
			 "{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]},"
			 "\"b\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}}",
			 SWEEP_HOT_BYTES / 2, SWEEP_HOT_BYTES / 2, SWEEP_HOT_BYTES / 2,
			 SWEEP_HOT_BYTES / 2, SWEEP_HOT_BYTES);
	const uint64_t length = (uint64_t)n;
	memcpy(header, &length, 8);
	for (size_t i = 0; bytes != NULL && i < SWEEP_HOT_BYTES; i++)
		bytes[i] = sweep_hot_byte(i);
	if (bytes == NULL || file == NULL || fwrite(header, 8 + length, 1, file) != 1 ||
	    fwrite(bytes, SWEEP_HOT_BYTES, 1, file) != 1 || fclose(file) != 0)
		sweep_die("hot.safetensors cannot be written");
	free(bytes);
}

void sweep_make_others(void)
{
	int status = 0;
	(void)fflush(NULL);
	pid_t child = fork();
	if (child < 0)
		sweep_die("fork");
	if (child == 0) {
		save("o.npy", 1, 0);
		save("o.max", SWEEP_N_TENSORS, 0);
		save("o.safetensors", SWEEP_N_TENSORS, HOIST_SAVE_DIGEST);
		make_npz();
		make_hot();
		make_pytorch();
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || status != 0)
		sweep_die("the files of other formats: status 0x%x", (unsigned)status);
}
