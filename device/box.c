/* SPDX-License-Identifier: MIT */
/* device/box.c - turns a copy of rows into as few calls of the backend as possible.
 * The contract is in device/device.h.
 *
 * A driver counts the distance between planes in rows.  So it takes planes only where that
 * distance is a multiple of the distance between rows.  Nothing in a box overlaps, so the order
 * within it does not matter: rows may become planes, and planes rows. */
#include "config.h"

#include "base/checked.h"
#include "base/error.h"
#include "device/device-ops.h"

/* *ret is the end of the last of @n parts of @bytes, @distance apart.  False if the parts overlap,
 * or if no memory is that large. */
static bool reach(size_t n, size_t distance, uint64_t bytes, uint64_t *ret)
{
	uint64_t before = 0;
	if (n > 1 && (distance < bytes || hoist__mul_overflow(n - 1, distance, &before)))
		return false;
	return !hoist__add_overflow(before, bytes, ret);
}

static int check_side(const struct hoist__box *box, const char *side, uintptr_t address,
		      size_t pitch, size_t plane)
{
	uint64_t bytes = 0;
	uint64_t end = 0;
	if (address == 0)
		return hoist__fail(-EINVAL, "a copy of %zu rows %s address 0", box->rows, side);
	if (!reach(box->rows, pitch, box->width, &bytes) ||
	    !reach(box->planes, plane, bytes, &bytes) || hoist__add_overflow(address, bytes, &end))
		return hoist__fail(-EINVAL,
				   "a copy %s %#zx: %zu planes of %zu rows of %zu bytes do not fit "
				   "at %zu bytes from row to row and %zu from plane to plane",
				   side, (size_t)address, box->planes, box->rows, box->width, pitch,
				   plane);
	return 0;
}

/* Rows that follow each other on both sides are one. */
static bool rows_touch(const struct hoist__box *box)
{
	return box->dst_pitch == box->width && box->src_pitch == box->width;
}

static bool planes_touch(const struct hoist__box *box)
{
	return box->dst_plane == box->rows * box->dst_pitch &&
	       box->src_plane == box->rows * box->src_pitch;
}

static void planes_become_rows(struct hoist__box *box)
{
	box->rows = box->planes;
	box->dst_pitch = box->dst_plane;
	box->src_pitch = box->src_plane;
	box->planes = 1;
}

/* Describes the same bytes anew.  Afterwards rows is 1 only where planes is 1, and rows or planes
 * nowhere touch on both sides. */
static void simplify(struct hoist__box *box)
{
	if (box->rows == 1)
		planes_become_rows(box);
	if (box->rows > 1 && rows_touch(box)) {
		box->width *= box->rows;
		planes_become_rows(box);
	}
	if (box->rows > 1 && rows_touch(box)) {
		box->width *= box->rows;
		box->rows = 1;
	}
	if (box->planes > 1 && planes_touch(box)) {
		box->rows *= box->planes;
		box->planes = 1;
	}
}

static bool pitch_fits(const struct hoist__dev *dev, const struct hoist__box *box)
{
	return box->dst_pitch <= dev->max_pitch && box->src_pitch <= dev->max_pitch;
}

static bool planes_fit(const struct hoist__dev *dev, const struct hoist__box *box)
{
	return dev->max_pitch == SIZE_MAX || box->planes == 1 ||
	       (box->dst_plane <= dev->max_plane && box->src_plane <= dev->max_plane &&
		box->dst_plane % box->dst_pitch == 0 && box->src_plane % box->src_pitch == 0);
}

static int copy_rows(struct hoist__dev_stream *stream, enum hoist__copy kind,
		     const struct hoist__box *box)
{
	int err = 0;
	for (size_t i = 0; i < box->rows && err == 0; i++)
		err = stream->dev->ops->copy_async(stream, kind, box->dst + i * box->dst_pitch,
						   box->src + i * box->src_pitch, box->width);
	return err;
}

/* @box has one plane. */
static int copy_plane(struct hoist__dev_stream *stream, enum hoist__copy kind,
		      const struct hoist__box *box)
{
	if (box->rows == 1 || !pitch_fits(stream->dev, box))
		return copy_rows(stream, kind, box);
	return stream->dev->ops->copy_box(stream, kind, box);
}

/* Copies plane by plane, or with rows and planes swapped if that takes fewer calls. */
static int copy_planes(struct hoist__dev_stream *stream, enum hoist__copy kind,
		       const struct hoist__box *box)
{
	struct hoist__box part = *box;
	struct hoist__box swapped = *box;
	int err = 0;
	planes_become_rows(&swapped);
	bool swap = box->rows < box->planes && pitch_fits(stream->dev, &swapped);
	if (swap)
		part = swapped;
	part.planes = 1;
	for (size_t i = 0; i < (swap ? box->rows : box->planes) && err == 0; i++) {
		part.dst = box->dst + i * (swap ? box->dst_pitch : box->dst_plane);
		part.src = box->src + i * (swap ? box->src_pitch : box->src_plane);
		err = copy_plane(stream, kind, &part);
	}
	return err;
}

int hoist__copy_box_async(struct hoist__dev_stream *stream, enum hoist__copy kind,
			  const struct hoist__box *given)
{
	struct hoist__box box = *given;
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0 || box.width == 0 || box.rows == 0 || box.planes == 0)
		return err;
	err = check_side(&box, "to", box.dst, box.dst_pitch, box.dst_plane);
	if (err == 0)
		err = check_side(&box, "from", box.src, box.src_pitch, box.src_plane);
	if (err < 0)
		return err;
	simplify(&box);
	if (box.planes == 1)
		return copy_plane(stream, kind, &box);
	if (!pitch_fits(stream->dev, &box) || !planes_fit(stream->dev, &box))
		return copy_planes(stream, kind, &box);
	return stream->dev->ops->copy_box(stream, kind, &box);
}
