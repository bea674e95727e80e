/* SPDX-License-Identifier: MIT */
/* lib/buffer/mmap.c - makes buffers over files.
 * The contract is in hoist/mmap.h. */
#include "config.h"

#include "hoist/mmap.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/layout.h"
#include "io/ahead.h"
#include "lib/buffer/buffer-private.h"
#include "lib/device/device.h"

static int parse_mode(const char *mode, enum hoist__file_map_mode *ret)
{
	static const struct {
		const char *name;
		enum hoist__file_map_mode mode;
	} modes[] = {
		{"c", HOIST__MAP_COPY_ON_WRITE}, {"copyonwrite", HOIST__MAP_COPY_ON_WRITE},
		{"r", HOIST__MAP_READ_ONLY},	 {"readonly", HOIST__MAP_READ_ONLY},
		{"r+", HOIST__MAP_READ_WRITE},	 {"readwrite", HOIST__MAP_READ_WRITE},
		{"w+", HOIST__MAP_WRITE},	 {"write", HOIST__MAP_WRITE},
	};
	if (mode == NULL)
		mode = "copyonwrite";
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(modes); i++)
		if (strcmp(modes[i].name, mode) == 0) {
			*ret = modes[i].mode;
			return 0;
		}
	return hoist__fail(-EINVAL,
			   "\"%.32s\" is no mode; they are c (copyonwrite), r (readonly), r+ "
			   "(readwrite) and w+ (write)",
			   mode);
}

/* Takes over *map. */
static int over_map(hoist_device *cpu, struct hoist__file_map *map, const struct hoist__view *view,
		    bool read_only, hoist_buffer **ret)
{
	struct hoist__storage *storage;
	int err = map->bytes > 0 ? hoist__storage_map(cpu, map, read_only, &storage)
				 : hoist__storage_none(cpu, &storage);
	if (err < 0)
		return err;
	return hoist__buffer_make_last(storage, view, ret);
}

/* Reads the file instead of copying from a map: a disk error is then an error code, not a
 * signal. */
static int copy_file(hoist_device *cpu, const char *path, int fd, uint64_t offset,
		     const struct hoist__view *view, hoist_buffer **ret)
{
	const struct hoist__file file = {
		.path = (char *)(uintptr_t)path, .fd = fd, .direct_fd = -1};
	hoist_buffer *made;
	int err = hoist_buffer_create(cpu, view->dtype, view->rank, view->shape, 0, &made);
	if (err < 0)
		return err;
	if (hoist_buffer_bytes(made) > 0)
		err = hoist__file_read(&file, offset, hoist_buffer_data(made),
				       hoist_buffer_bytes(made));
	if (err < 0)
		hoist_buffer_unref(made);
	else
		*ret = made;
	return err;
}

/* Reads the whole part into the page cache and the map, by several threads. */
static int populate(const char *path, int fd, uint64_t offset, const struct hoist__file_map *map)
{
	const struct hoist__ahead_part part = {.fd = fd,
					       .path = path,
					       .offset = offset,
					       .bytes = map->bytes,
					       .address = map->data};
	struct hoist__ahead *ahead;
	int err = hoist__ahead_start(&part, 1, 0, &ahead);
	if (err < 0)
		return err;
	err = hoist__ahead_wait(ahead, UINT64_MAX);
	hoist__ahead_stop(ahead);
	return err;
}

/* hoist__file_map_path() opens the file and checks its size, also if the bytes will be copied from
 * the file. */
static int map_buffer(const char *path, enum hoist__file_map_mode mode, uint64_t offset,
		      unsigned flags, const struct hoist__view *view, hoist_buffer **ret)
{
	bool read_only = mode == HOIST__MAP_READ_ONLY;
	uint64_t elements;
	size_t bytes;
	hoist_device *cpu;
	int err = hoist__buffer_measure(view->dtype, view->rank, view->shape, &elements, &bytes);
	if (err == 0)
		err = hoist__device_cpu(&cpu);
	if (err < 0)
		return err;
	struct hoist__file_map map = {0};
	int fd;
	err = hoist__file_map_path(path, mode, offset, bytes, &map, &fd);
	if (err < 0)
		return err;
	bool copy = read_only && (flags & HOIST_MMAP_NO_COPY) == 0;
	if (!copy && (flags & HOIST_MMAP_POPULATE) != 0 && map.bytes > 0)
		err = populate(path, fd, offset, &map);
	if (err == 0)
		err = copy ? copy_file(cpu, path, fd, offset, view, ret)
			   : over_map(cpu, &map, view, read_only, ret);
	close(fd);
	hoist__file_map_close(&map);
	return err;
}

int hoist_buffer_mmap(const char *path, hoist_dtype dtype, int rank, const int64_t *shape,
		      const char *mode_name, int64_t offset, unsigned flags, hoist_buffer **ret)
{
	enum hoist__file_map_mode mode = HOIST__MAP_COPY_ON_WRITE;
	if (path == NULL)
		return hoist__fail(-EINVAL, "the path of the file to map is NULL");
	int err = parse_mode(mode_name, &mode);
	if (err < 0)
		return err;
	if ((flags & ~(HOIST_MMAP_NO_COPY | HOIST_MMAP_POPULATE)) != 0)
		return hoist__fail(-EINVAL, "mapping %s: unknown flags 0x%x", path, flags);
	if (offset < 0)
		return hoist__fail(-EOVERFLOW, "mapping %s: the offset %lld is negative", path,
				   (long long)offset);
	const struct hoist__view view = {.dtype = dtype, .rank = rank, .shape = shape};
	err = map_buffer(path, mode, (uint64_t)offset, flags, &view, ret);
	return err < 0 ? hoist__fail_in(err, "a buffer over a file") : 0;
}

int hoist_buffer_flush(hoist_buffer *buffer)
{
	void *bytes;
	size_t n;
	int err = hoist_buffer_host_bytes(buffer, 0, &bytes, &n);
	if (err < 0 || n == 0)
		return err;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = hoist__round_down((uintptr_t)bytes, page);
	if (msync((void *)begin, (uintptr_t)bytes + n - begin, MS_SYNC) < 0)
		return hoist__fail_errno(-errno, "writing %zu bytes of a buffer to its file", n);
	return 0;
}
