/* SPDX-License-Identifier: MIT */
/* lib/copy/copy.c - copies into buffers there are. */
#include "config.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/error.h"
#include "hoist/copy.h"
#include "lib/copy/copy.h"
#include "lib/device/device-private.h"
#include "lib/memory/memory.h"

#define ALL_FLAGS                                                                                  \
	(HOIST_COPY_CONTIGUOUS | HOIST_COPY_BYTES | HOIST_COPY_WAIT | HOIST_COPY_WAIT_HOST)

/* --- what is allowed --- */

struct shape_text {
	char text[96];
};

/* "[2, 3]" */
static struct shape_text shape_of(const hoist_buffer *buffer)
{
	struct shape_text ret = {"["};
	size_t at = 1;
	for (int i = 0; i < buffer->rank && at < sizeof ret.text - 32; i++) {
		int n = snprintf(ret.text + at, sizeof ret.text - at, "%s%" PRId64,
				 i > 0 ? ", " : "", buffer->dims[i]);
		at += (size_t)n;
	}
	(void)snprintf(ret.text + at, sizeof ret.text - at, "]");
	return ret;
}

static int check_contiguous(const hoist_buffer *buffer, const char *what)
{
	if (buffer->contiguous)
		return 0;
	return hoist__fail(-EINVAL, "%s, of shape %s, is not contiguous; copy it first", what,
			   shape_of(buffer).text);
}

/* Bytes of whatever they are. */
static int check_bytes(const hoist_buffer *dst, const hoist_buffer *src)
{
	int err = check_contiguous(dst, "the destination");
	if (err == 0)
		err = check_contiguous(src, "the source");
	if (err < 0)
		return err;
	if (dst->bytes != src->bytes)
		return hoist__fail(-EINVAL,
				   "copying %zu bytes into a buffer of %zu; both must agree",
				   src->bytes, dst->bytes);
	if (dst->dtype == src->dtype && dst->elements == src->elements)
		return 0;
	if (dst->bytes > 0 && (!hoist__buffer_is_run(dst) || !hoist__buffer_is_run(src)))
		return hoist__fail(-ENOTSUP,
				   "%llu elements of %s and %llu of %s are not whole bytes",
				   (unsigned long long)src->elements, hoist_dtype_name(src->dtype),
				   (unsigned long long)dst->elements, hoist_dtype_name(dst->dtype));
	return 0;
}

static bool same_shape(const hoist_buffer *a, const hoist_buffer *b)
{
	if (a->rank != b->rank)
		return false;
	for (int i = 0; i < a->rank; i++)
		if (a->dims[i] != b->dims[i])
			return false;
	return true;
}

static int check_elements(const hoist_buffer *dst, const hoist_buffer *src)
{
	if (dst->dtype != src->dtype || dst->elements != src->elements)
		return hoist__fail(-EINVAL,
				   "copying %llu elements of %s into a buffer of %llu of %s; both "
				   "must agree",
				   (unsigned long long)src->elements, hoist_dtype_name(src->dtype),
				   (unsigned long long)dst->elements, hoist_dtype_name(dst->dtype));
	if (same_shape(dst, src) || (dst->contiguous && src->contiguous))
		return 0;
	return hoist__fail(
		-EINVAL,
		"copying %s into %s: where shapes differ both must be contiguous, and the "
		"%s is not",
		shape_of(src).text, shape_of(dst).text, dst->contiguous ? "source" : "destination");
}

static int check_access(const hoist_buffer *buffer)
{
	if (hoist__storage_has_access(buffer->storage))
		return 0;
	return hoist__fail(
		-ENOTSUP,
		"neither the CPU nor a device may touch the memory of a buffer on %s, as "
		"its resource says",
		hoist_device_spec(buffer->device));
}

static int check_stream(const hoist_buffer *dst, const hoist_buffer *src, hoist_stream *stream)
{
	const struct hoist__span to = hoist__buffer_span(dst, 0);
	const struct hoist__span from = hoist__buffer_span(src, 0);
	hoist_device *device = hoist_stream_device(stream);
	bool host = hoist__span_on_host(&to) && hoist__span_on_host(&from);
	if (host || to.device == device || from.device == device)
		return 0;
	return hoist__fail(-EINVAL,
			   "a stream of %s cannot copy from %s to %s; it must be of one of the two",
			   hoist_device_spec(device), hoist_device_spec(from.device),
			   hoist_device_spec(to.device));
}

int hoist__pair_check(const struct hoist__pair *pair, hoist_stream *stream)
{
	hoist_buffer *dst = pair->dst;
	hoist_buffer *src = pair->src;
	int err = hoist__buffer_check(dst, "the destination");
	if (err == 0)
		err = hoist__buffer_check(src, "the source");
	if (err < 0 || dst == src)
		return err < 0 ? err : 1;
	err = hoist__buffer_check_writable(dst, "the destination");
	if (err == 0 && pair->flags & HOIST_COPY_CONTIGUOUS)
		err = check_contiguous(dst, "the destination");
	if (err == 0 && pair->flags & HOIST_COPY_CONTIGUOUS)
		err = check_contiguous(src, "the source");
	if (err == 0)
		err = pair->flags & HOIST_COPY_BYTES ? check_bytes(dst, src)
						     : check_elements(dst, src);
	if (err < 0 || src->bytes == 0)
		return err < 0 ? err : 1;
	if (hoist__buffer_overlaps_itself(dst))
		return hoist__fail(-EINVAL,
				   "elements of the destination, of shape %s, overlap, by its "
				   "strides, or may; copy into a contiguous buffer",
				   shape_of(dst).text);
	err = check_access(dst);
	if (err == 0)
		err = check_access(src);
	return err == 0 && stream != NULL ? check_stream(dst, src, stream) : err;
}

/* --- other streams --- */

static bool is_elsewhere(const hoist_buffer *buffer, const hoist_stream *stream)
{
	enum hoist__memory_kind kind = hoist__storage_kind(buffer->storage);
	hoist_device *device = hoist_stream_device(stream);
	return (kind == HOIST__MEMORY_DEVICE || kind == HOIST__MEMORY_MANAGED) &&
	       buffer->device != device && !hoist__device_is_cpu(device);
}

/* Work on @stream is about to use the buffer's memory.  If that is of another device than the
 * stream, a stream of its own has to follow: *follows is set then, and follow() to be called when
 * the work was queued. */
static int use(hoist_buffer *buffer, hoist_stream *stream, bool *follows)
{
	*follows = is_elsewhere(buffer, stream);
	if (!*follows)
		return hoist__storage_use(buffer->storage, stream);
	hoist_stream *own;
	int err = hoist__stream_check_capture(stream);
	if (err == 0)
		err = hoist_device_default_stream(buffer->device, &own);
	if (err < 0)
		return err;
	err = hoist__storage_use(buffer->storage, own);
	hoist_stream_unref(own);
	return err;
}

static int follow(hoist_buffer *buffer, hoist_stream *stream)
{
	hoist_stream *own;
	int err = hoist_device_default_stream(buffer->device, &own);
	if (err < 0)
		return err;
	err = hoist__stream_order(own, stream);
	hoist_stream_unref(own);
	/* Nobody else can keep the memory until then. */
	return err < 0 ? hoist_stream_synchronize(stream) : 0;
}

/* --- copying --- */

int hoist__pair_prepare(const struct hoist__pair *pair, hoist_stream *stream)
{
	if (stream == NULL) {
		int err = hoist__buffer_settle(pair->src);
		if (err < 0)
			return err;
		/* One wait for the stream of both. */
		return hoist__buffer_known_stream(pair->dst) ==
				       hoist__buffer_known_stream(pair->src)
			       ? hoist__storage_allocate(pair->dst->storage)
			       : hoist__buffer_settle(pair->dst);
	}
	int err = hoist__storage_allocate(pair->src->storage);
	return err < 0 ? err : hoist__storage_allocate(pair->dst->storage);
}

/* Of what could not be queued as a whole, a part may be: the streams that are to follow do so too.
 * Returns: the first failure, @err before all. */
static int let_follow(const struct hoist__pair *pair, const bool follows[2], hoist_stream *stream,
		      int err)
{
	struct hoist__failure failure;
	int first = err;
	if (first < 0)
		hoist__failure_keep(&failure);
	for (int i = 0; i < 2; i++) {
		int late = follows[i] ? follow(i == 0 ? pair->dst : pair->src, stream) : 0;
		err = err < 0 ? err : late;
	}
	return first < 0 ? hoist__fail_again(first, &failure) : err;
}

static int queue(const struct hoist__pair *pair, const struct hoist__move *move,
		 hoist_stream *stream)
{
	bool follows[2] = {false, false};
	int err = use(pair->dst, stream, &follows[0]);
	if (err == 0)
		err = use(pair->src, stream, &follows[1]);
	if (err < 0)
		return err;
	err = hoist__move_queue(move, stream);
	return let_follow(pair, follows, stream, err);
}

static bool waits(const struct hoist__pair *pair, const struct hoist__move *move)
{
	return pair->flags & HOIST_COPY_WAIT ||
	       (pair->flags & HOIST_COPY_WAIT_HOST &&
		(hoist__span_on_host(&move->dst) || hoist__span_on_host(&move->src)));
}

static int copy(const struct hoist__pair *pair, hoist_stream *stream)
{
	struct hoist__move move;
	if (stream == NULL && hoist__buffer_is_run(pair->dst) && hoist__buffer_is_run(pair->src)) {
		const struct hoist__span to = hoist__buffer_span(pair->dst, 0);
		const struct hoist__span from = hoist__buffer_span(pair->src, 0);
		return hoist__transfer_through(&to, &from, pair->dst->bytes, pair->through);
	}
	bool bits = !hoist__move_plan(pair->dst, pair->src, &move);
	int err = 0;
	move.through = pair->through;
	if (stream != NULL && !bits && hoist__move_is_queued(&move, stream)) {
		bool wait = waits(pair, &move);
		if (wait)
			err = hoist__stream_check_capture(stream);
		if (err == 0)
			err = queue(pair, &move, stream);
		return err == 0 && wait ? hoist_stream_synchronize(stream) : err;
	}
	if (stream != NULL)
		err = hoist__stream_reach(stream);
	if (err < 0)
		return err;
	return bits ? hoist__copy_bits(pair->dst, pair->src, pair->through)
		    : hoist__move_run(&move);
}

int hoist__pair_check_capture(const struct hoist__pair *pair, hoist_stream *stream)
{
	struct hoist__move move;
	bool alone = hoist__move_plan(pair->dst, pair->src, &move) &&
		     hoist__move_is_queued(&move, stream) && !is_elsewhere(pair->dst, stream) &&
		     !is_elsewhere(pair->src, stream);
	return alone ? 0 : hoist__stream_check_capture(stream);
}

int hoist__pair_copy(const struct hoist__pair *pair, hoist_stream *stream)
{
	int err = copy(pair, stream);
	if (err < 0)
		return hoist__fail_in(err, "copying %zu bytes from %s to %s", pair->src->bytes,
				      hoist_device_spec(pair->src->device),
				      hoist_device_spec(pair->dst->device));
	return 0;
}

/* Slots are the source's side's, or that of the only device. */
static int check_through(const hoist_buffer *dst, const hoist_buffer *src,
			 const hoist_memory *through)
{
	const struct hoist__span to = hoist__buffer_span(dst, 0);
	const struct hoist__span from = hoist__buffer_span(src, 0);
	const struct hoist__span *on = hoist__span_on_host(&from) ? &to : &from;
	bool known =
		hoist__span_on_host(on) || (through->info.is_device_accessible &&
					    hoist__dev_api(through->dev) == hoist__span_api(on));
	if (through->info.is_host_accessible && known)
		return 0;
	return hoist__fail(
		-EINVAL,
		"a copy from %s to %s cannot go through \"%s\": it takes memory that the "
		"CPU can touch%s%s",
		hoist_device_spec(src->device), hoist_device_spec(dst->device), through->name,
		hoist__span_on_host(on) ? "" : " and that is pinned for ",
		hoist__span_on_host(on) ? "" : hoist_device_spec(on->device));
}

int hoist__pair_run(const struct hoist__pair *pair, hoist_stream *stream)
{
	int err = hoist__pair_check(pair, stream);
	if (err == 0 && pair->through != NULL)
		err = check_through(pair->dst, pair->src, pair->through);
	if (err != 0)
		return err < 0 ? err : 0;
	err = hoist__pair_prepare(pair, stream);
	return err < 0 ? err : hoist__pair_copy(pair, stream);
}

int hoist_buffer_copy_into(hoist_buffer *dst, hoist_buffer *src)
{
	const struct hoist__pair pair = {dst, src, 0, NULL};
	return hoist__pair_run(&pair, NULL);
}

int hoist_buffer_copy_on(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream)
{
	const struct hoist__pair pair = {dst, src, 0, NULL};
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to copy on is NULL");
	return hoist__pair_run(&pair, stream);
}

int hoist_buffer_copy_with(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream,
			   unsigned flags)
{
	return hoist_buffer_copy_through(dst, src, stream, flags, NULL);
}

int hoist_buffer_copy_through(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream,
			      unsigned flags, hoist_memory *through)
{
	const struct hoist__pair pair = {dst, src, flags, through};
	unsigned unknown = flags & ~ALL_FLAGS;
	if (unknown != 0)
		return hoist__fail(-EINVAL, "0x%x are no flags of a copy", unknown);
	return hoist__pair_run(&pair, stream);
}
