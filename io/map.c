/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/map.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"

/* Within the file as it was opened, and as it is. */
static int check_range(const struct hoist__file *file, uint64_t offset, size_t bytes)
{
	uint64_t end;
	if (bytes == 0 || hoist__add_overflow(offset, bytes, &end))
		return hoist__fail(-EINVAL, "mapping %zu bytes at %llu of %s", bytes,
				   (unsigned long long)offset, file->path);
	uint64_t size = file->bytes;
	struct stat st;
	if (fstat(file->fd, &st) == 0 && S_ISREG(st.st_mode))
		size = hoist__min_u64(size, (uint64_t)st.st_size);
	if (end > size)
		return hoist__fail(-ENODATA, "mapping %zu bytes at %llu of %s: it ends at %llu",
				   bytes, (unsigned long long)offset, file->path,
				   (unsigned long long)size);
	return 0;
}

int hoist__map_open(const struct hoist__file *file, enum hoist__map_mode mode, uint64_t offset,
		    size_t bytes, struct hoist__map *ret)
{
	int err = check_range(file, offset, bytes);
	if (err != 0)
		return err;
	/* Shared where it cannot be written: the page cache itself, which a driver can
	 * pin without copying it.  NORESERVE: a private map of a file larger than
	 * memory is refused otherwise, though hardly any page of it gets copied. */
	int prot = PROT_READ, flags = MAP_SHARED;
	if (mode == HOIST__MAP_COPY_ON_WRITE) {
		prot = PROT_READ | PROT_WRITE;
		flags = MAP_PRIVATE | MAP_NORESERVE;
	} else if (mode != HOIST__MAP_READ_ONLY) {
		return hoist__fail(-EINVAL, "%d is no way to map a file", (int)mode);
	}
	uint64_t start = hoist__round_down(offset, (uint64_t)sysconf(_SC_PAGESIZE));
	size_t lead = (size_t)(offset - start);
	void *base = mmap(NULL, bytes + lead, prot, flags, file->fd, (off_t)start);
	if (base == MAP_FAILED)
		return hoist__fail_errno(-errno, "mapping %zu bytes at %llu of %s", bytes,
					 (unsigned long long)offset, file->path);
	ret->base = base;
	ret->mapped_bytes = bytes + lead;
	ret->data = (unsigned char *)base + lead;
	ret->bytes = bytes;
	return 0;
}

void hoist__map_close(struct hoist__map *map)
{
	if (map->base == NULL)
		return;
	munmap(map->base, map->mapped_bytes);
	*map = (struct hoist__map){0};
}
