/* SPDX-License-Identifier: MIT */
/* An image's table, as a hostile holder of the cache, or the writer of its memfd, can make it.
 * A table that passes the check is used in every way that an attached image is. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/layout.h"
#include "hoist/buffer.h"
#include "hoist/cache.h"
#include "lib/cache/cache.h"
#include "tests/fuzz/fuzz-support.h"

#define PAGE ((size_t)4096)
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

/* Most inputs get past the first few comparisons: the last byte says which of these fields are
 * left as they came. */
static void mend(uint8_t *file, size_t bytes, uint8_t keep)
{
	struct hoist__image_header *header = (void *)file;
	if ((keep & 1) == 0)
		memcpy(header->magic, "hoistimg", sizeof header->magic);
	if ((keep & 2) == 0)
		header->version = HOIST__IMAGE_VERSION;
	if ((keep & 4) == 0)
		header->file_bytes = bytes;
	if ((keep & 8) == 0)
		header->data_offset = header->data_offset / PAGE * PAGE;
	if ((keep & 16) == 0)
		header->data_offset %= bytes + PAGE;
	if ((keep & 32) == 0)
		header->note[sizeof header->note - 1] = '\0';
}

static uint64_t touch(const struct hoist__image_table *table)
{
	const struct hoist__image_header *header = table->header;
	const uint8_t *base = (const void *)header;
	uint64_t sum = strlen(table->strings + header->path) + strlen(header->note) +
		       strlen(table->strings + header->format);
	for (uint64_t t = 0; t < header->n_tensors; t++) {
		const struct hoist__image_tensor *tensor = &table->tensors[t];
		const int64_t *shape = table->dims + tensor->dims;
		uint64_t elements;
		int64_t low, high;
		sum += strlen(table->strings + tensor->name);
		HOLDS(table->by_name[t] < header->n_tensors && tensor->shard < header->n_files);
		HOLDS(hoist__layout_elements((int)tensor->rank, shape, &elements) == 0);
		if (elements == 0)
			continue;
		HOLDS(hoist__layout_bounds((hoist_dtype)tensor->dtype, (int)tensor->rank, shape,
					   shape + tensor->rank, &low, &high) == 0);
		sum += base[(int64_t)tensor->offset + low];
		sum += high > low ? base[(int64_t)tensor->offset + high - 1] : 0;
	}
	for (uint64_t f = 0; f < header->n_files; f++)
		sum += strlen(table->strings + table->files[f].path);
	for (uint64_t m = 0; m < header->n_metadata; m++)
		sum += strlen(table->strings + table->metadata[m].key) +
		       strlen(table->strings + table->metadata[m].value);
	return sum;
}

/* As a user does; by a memfd, as it comes from the holder. */
static void use(const uint8_t *file, size_t bytes)
{
	hoist_image *image = NULL;
	hoist_image_info info = {.size = sizeof info};
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	HOLDS(fd >= 0 && write(fd, file, bytes) == (ssize_t)bytes);
	HOLDS(fcntl(fd, F_ADD_SEALS, SEALS) == 0);
	HOLDS(hoist__image_open(fd, bytes / PAGE % 2 ? HOIST_IMAGE_READ_ONLY : 0, &image) == 0);
	HOLDS(close(fd) == 0 && hoist_image_get_info(image, &info) == 0);
	for (size_t t = 0; t < hoist_image_n_tensors(image); t++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		hoist_buffer *buffer = NULL;
		size_t found;
		HOLDS(hoist_image_tensor(image, t, &tensor) == 0);
		HOLDS(hoist_image_find(image, tensor.name, &found) == 0 && found == t);
		HOLDS(hoist_image_buffer(image, t, &buffer) == 0);
		HOLDS(hoist_buffer_rank(buffer) == tensor.rank);
		hoist_buffer_unref(buffer);
	}
	hoist_image_close(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static unsigned uses;
	struct hoist__image_table table;
	size_t room = (n + PAGE - 1) / PAGE * PAGE;
	if (n < sizeof(struct hoist__image_header) + 1)
		return -1;
	uint8_t *file = aligned_alloc(PAGE, room);
	HOLDS(file != NULL);
	memcpy(file, bytes, n);
	memset(file + n, 0, room - n);
	mend(file, room, bytes[n - 1]);
	int err = hoist__image_table_check(file, room, &table);
	HOLDS(err == 0 || err == -EBADMSG);
	if (err == 0 && touch(&table) > 0 && uses++ % 4 == 0)
		use(file, room);
	free(file);
	return 0;
}
