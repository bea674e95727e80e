/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint-max.c - reads the one buffer of a .max file.
 * The contract is in hoist/mmap.h. */
#include "config.h"

#include <fcntl.h>

#include "base/error.h"
#include "hoist/mmap.h"
#include "lib/checkpoint/checkpoint.h"
#include "lib/device/device.h"

/* MAX reads a bf16 entry as bytes, with the last axis twice as long, and views the bytes as bf16.
 * So an entry of rank 0, two bytes, becomes one element of rank 1. */
static int max_rank(const struct hoist__tensor *tensor)
{
	return tensor->rank == 0 && tensor->dtype == HOIST_BF16 ? 1 : tensor->rank;
}

static int read_one(const struct hoist__checkpoint_file *shard, hoist_buffer **ret)
{
	const struct hoist__manifest *manifest = shard->manifest;
	if (manifest->n_tensors != 1)
		return hoist__fail(-EINVAL,
				   "%s holds %zu buffers, not one; open the file as a checkpoint",
				   shard->file->path, manifest->n_tensors);
	const struct hoist__tensor *tensor = &manifest->tensors[0];
	static const int64_t one[] = {1};
	int rank = max_rank(tensor);
	hoist_device *cpu;
	hoist_buffer *made = NULL;
	int err = hoist__device_cpu(&cpu);
	if (err < 0)
		return err;
	err = hoist_buffer_create(cpu, tensor->dtype, rank,
				  rank > tensor->rank ? one : tensor->shape, 0, &made);
	if (err == 0 && tensor->bytes > 0)
		err = hoist__file_read(shard->file, tensor->offset, hoist_buffer_data(made),
				       (size_t)tensor->bytes);
	if (err < 0) {
		hoist_buffer_unref(made);
		return err;
	}
	*ret = made;
	return 0;
}

int hoist_buffer_load_max(const char *path, hoist_buffer **ret)
{
	struct hoist__checkpoint_file shard;
	if (path == NULL)
		return hoist__fail(-EINVAL, "the path of the .max file is NULL");
	int err = hoist__checkpoint_file_open(AT_FDCWD, path, NULL, HOIST__FILE_NO_DIRECT,
					      HOIST__MAX, false, &shard);
	if (err < 0)
		return err;
	err = read_one(&shard, ret);
	hoist__checkpoint_file_close(&shard);
	return err;
}
