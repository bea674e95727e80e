/* SPDX-License-Identifier: MIT */
/* lib/copy/buffer-fork.c - the views of one storage, over another one. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/buffer/buffer-private.h"
#include "lib/copy/copy.h"

static int check(size_t n, hoist_buffer *const *buffers, hoist_buffer **rets)
{
	if (buffers == NULL || rets == NULL)
		return hoist__fail(-EINVAL, "a list of %zu buffers to fork is NULL", n);
	for (size_t i = 0; i < n; i++) {
		int err = hoist__buffer_check(buffers[i], "the buffer");
		if (err < 0)
			return hoist__fail_in(err, "buffer %zu to fork", i);
		if (buffers[i]->storage != buffers[0]->storage)
			return hoist__fail(
				-EINVAL,
				"buffer %zu to fork is over storage %llu, buffer 0 over "
				"%llu; all must share one",
				i, (unsigned long long)hoist__storage_id(buffers[i]->storage),
				(unsigned long long)hoist__storage_id(buffers[0]->storage));
	}
	return 0;
}

/* As many bytes of the same resource; of memory from elsewhere, of the device's own. */
static int make_storage(struct hoist__storage *from, struct hoist__storage **ret)
{
	hoist_memory *memory = hoist__storage_memory(from);
	size_t bytes = hoist__storage_bytes(from);
	bool lazy = bytes > 0 && hoist__storage_address(from) == 0;
	int err = 0;
	if (memory == NULL)
		err = hoist__device_buffers(hoist__storage_device(from),
					    hoist__storage_kind(from) == HOIST__MEMORY_PINNED,
					    &memory);
	return err < 0 ? err
		       : hoist__storage_create(memory, NULL, bytes, 0,
					       lazy ? HOIST__STORAGE_LAZY : 0, ret);
}

/* What no view shows, too: others that are made of the fork's may. */
static int copy_all(struct hoist__storage *to, struct hoist__storage *from)
{
	const int64_t shape[] = {(int64_t)hoist__storage_bytes(from)};
	struct hoist__pair pair = {NULL, NULL, 0, NULL};
	int err = hoist__buffer_over(from, 0, HOIST_U8, 1, shape, &pair.src);
	if (err == 0)
		err = hoist__buffer_over(to, 0, HOIST_U8, 1, shape, &pair.dst);
	if (err == 0)
		err = hoist__pair_run(&pair, NULL);
	hoist_buffer_unref(pair.src);
	hoist_buffer_unref(pair.dst);
	return err;
}

static int copy_contents_of(size_t n, hoist_buffer *const *buffers, struct hoist__storage *to)
{
	int err = 0;
	for (size_t i = 0; err == 0 && i < n; i++)
		err = hoist__buffer_settle(buffers[i]);
	return err < 0 ? err : copy_all(to, buffers[0]->storage);
}

static int make_view(const hoist_buffer *of, struct hoist__storage *storage, hoist_buffer **ret)
{
	const struct hoist__view view = {
		.dtype = of->dtype,
		.rank = of->rank,
		.bit = of->bit,
		.offset = of->offset,
		.stream = of->stream,
		.shape = of->dims,
		.strides = hoist__buffer_given_strides(of),
	};
	int err = of->stream != NULL ? hoist__storage_use(storage, of->stream) : 0;
	return err < 0 ? err : hoist__buffer_make(storage, &view, ret);
}

static int make_views(size_t n, hoist_buffer *const *buffers, struct hoist__storage *storage,
		      hoist_buffer **rets)
{
	int err = 0;
	hoist_buffer **made = calloc(n, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a list of buffers", n * sizeof *made);
	for (size_t i = 0; err == 0 && i < n; i++)
		err = make_view(buffers[i], storage, &made[i]);
	if (err == 0)
		memcpy(rets, made, n * sizeof *made);
	for (size_t i = 0; err < 0 && i < n; i++)
		hoist_buffer_unref(made[i]);
	free(made);
	return err;
}

int hoist_buffer_fork(size_t n, hoist_buffer *const *buffers, int copy_contents,
		      hoist_buffer **rets)
{
	struct hoist__storage *storage;
	if (n == 0)
		return 0;
	int err = check(n, buffers, rets);
	if (err == 0)
		err = make_storage(buffers[0]->storage, &storage);
	if (err < 0)
		return err;
	if (copy_contents)
		err = copy_contents_of(n, buffers, storage);
	if (err == 0)
		err = make_views(n, buffers, storage, rets);
	hoist__storage_unref(storage);
	return err;
}
