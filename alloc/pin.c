/* SPDX-License-Identifier: MIT */
/* alloc/pin.c - registers a region in pieces as large as the driver takes.
 * The contract is in alloc/pin.h. */
#include "config.h"

#include "alloc/pin.h"

#include <errno.h>

#include "alloc/recipe.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

bool hoist__pinned_by_driver(const struct hoist__dev *dev)
{
	return dev != NULL && hoist__dev_api(dev) != HOIST__API_CPU;
}

/* Without a driver the CPU's functions are used: mlock(2). */
static int pinner(struct hoist__dev *dev, struct hoist__dev **ret)
{
	if (dev == NULL)
		return hoist__dev_get(HOIST__API_CPU, 0, ret);
	*ret = dev;
	return 0;
}

/* Pins the piece at @at. */
static int pin_one(const struct hoist__pin *pin, size_t at)
{
	size_t bytes = (size_t)hoist__min_u64(pin->piece_bytes, pin->bytes - at);
	uint64_t start = hoist__now_ns();
	int err = hoist__dev_host_register(pin->dev, pin->base + at, bytes);
	hoist__called(pin->calls, HOIST__CALL_REGISTER, start);
	return err;
}

static void unpin_one(const struct hoist__pin *pin, size_t at)
{
	size_t bytes = (size_t)hoist__min_u64(pin->piece_bytes, pin->bytes - at);
	uint64_t start = hoist__now_ns();
	if (hoist__dev_host_unregister(pin->dev, pin->base + at, bytes) < 0)
		hoist__log(alloc, "unpinning %zu bytes: %s", bytes, hoist__error_text());
	hoist__called(pin->calls, HOIST__CALL_REGISTER, start);
}

/* Returns: the next size to try; 0 if there is none. */
static size_t smaller(size_t piece_bytes)
{
	if (piece_bytes <= HOIST__PIECE_LEAST)
		return 0;
	return (size_t)hoist__max_u64(hoist__round_down(piece_bytes / 2, HOIST__HUGE_PAGE_BYTES),
				      HOIST__PIECE_LEAST);
}

/* True for the errors that a driver reports for a size that it, or the kernel below, cannot do:
 * memory is exhausted, or the value is invalid, which is mapped to -EREMOTEIO.  Other errors do not
 * depend on the size: the memlock limit is of all pieces together, and no size helps a child of
 * fork. */
static bool may_be_too_large(int err)
{
	return err == -ENOMEM || err == -EREMOTEIO;
}

/* The piece at @at was refused.
 * Returns: the largest smaller size that is accepted there, with the pieces before it still
 * registered; 0 if there is none: then the size is not the cause, and another round with smaller
 * pieces would only take long. */
static size_t find_smaller(const struct hoist__pin *pin, size_t at)
{
	struct hoist__pin trial = *pin;
	while ((trial.piece_bytes = smaller(trial.piece_bytes)) != 0) {
		int err = pin_one(&trial, at);
		if (err == 0) {
			unpin_one(&trial, at);
			break;
		}
		if (!may_be_too_large(err))
			return 0;
	}
	return trial.piece_bytes;
}

/* Pins all pieces of this size, or none.  *next: on failure, the size to try next; 0: none. */
static int pin_all(const struct hoist__pin *pin, bool whole, size_t *next)
{
	size_t at = 0;
	int err = 0;
	while (at < pin->bytes && (err = pin_one(pin, at)) == 0)
		at += pin->piece_bytes;
	if (err == 0)
		return 0;
	struct hoist__failure cause;
	hoist__failure_keep(&cause);
	HOIST__ASSERT(at % pin->piece_bytes == 0);
	*next = !whole && may_be_too_large(err) ? find_smaller(pin, at) : 0;
	while (at > 0) {
		at -= pin->piece_bytes;
		unpin_one(pin, at);
	}
	return hoist__fail_again(err, &cause);
}

static size_t first_size(const struct hoist__pin *pin, bool whole)
{
	size_t bytes = pin->piece_bytes != 0 ? pin->piece_bytes : HOIST__PIECE_BYTES;
	if (whole || bytes >= pin->bytes)
		return pin->bytes;
	return (size_t)hoist__min_u64(hoist__round_up(bytes, HOIST__REGION_ALIGN), pin->bytes);
}

int hoist__pin(struct hoist__pin *pin, char *why, size_t why_bytes)
{
	struct hoist__pin made = *pin;
	int err = pinner(pin->dev, &made.dev);
	if (err < 0)
		return err;
	bool whole = pin->piece_bytes == SIZE_MAX || !hoist__pinned_by_driver(made.dev);
	made.piece_bytes = first_size(pin, whole);
	size_t next = 0;
	while ((err = pin_all(&made, whole, &next)) != 0 && next != 0) {
		hoist__error_copy(why, why_bytes);
		made.piece_bytes = next;
	}
	HOIST__ASSERT(made.piece_bytes == pin->bytes ||
		      made.piece_bytes % HOIST__REGION_ALIGN == 0);
	if (err == 0)
		pin->piece_bytes = made.piece_bytes;
	return err;
}

void hoist__unpin(const struct hoist__pin *pin)
{
	struct hoist__pin made = *pin;
	if (pinner(pin->dev, &made.dev) < 0) {
		hoist__log(alloc, "unpinning %zu bytes: %s", pin->bytes, hoist__error_text());
		return;
	}
	HOIST__ASSERT(made.piece_bytes != 0 && made.piece_bytes <= made.bytes);
	for (size_t at = 0; at < made.bytes; at += made.piece_bytes)
		unpin_one(&made, at);
}
