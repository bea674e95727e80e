/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc-check.c - checks descriptors, which may be any bytes at all.
 * The contract is in lib/exchange/ipc.h. */
#include "config.h"

#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/layout.h"
#include "format/quote.h"
#include "hoist/ipc.h"
#include "lib/exchange/ipc.h"

/* The struct has one size on both sides, and no holes: it is sent as it lies in memory. */
_Static_assert(sizeof(hoist_ipc_descriptor) == 1224, "a new layout is a new version");

#define BAD(...) hoist__fail(-EBADMSG, "a buffer's descriptor: " __VA_ARGS__)

/* --- where elements lie --- */

/* Checks that the last axis consists of whole blocks, and that the other strides are whole
 * blocks. */
static int check_blocks(const hoist_ipc_descriptor *d, int64_t block)
{
	bool sound = d->rank > 0 && d->shape[d->rank - 1] % block == 0 &&
		     (d->strides[d->rank - 1] == 1 || d->shape[d->rank - 1] == 1);
	for (int i = 0; i + 1 < d->rank; i++)
		sound = sound && (d->shape[i] == 1 || d->strides[i] % block == 0);
	return sound ? 0
		     : hoist__fail(-EINVAL, "elements of %s are not laid out in whole blocks",
				   hoist_dtype_name((hoist_dtype)d->dtype));
}

/* Gives @n elements of @bits bits each, in bits. */
static int scale(int64_t n, int64_t bits, int64_t *ret)
{
	int64_t product;
	if (__builtin_mul_overflow(n, bits, &product))
		return hoist__fail(-EOVERFLOW, "element %lld lies beyond 64 bits", (long long)n);
	*ret = product;
	return 0;
}

int hoist__ipc_extent(const hoist_ipc_descriptor *d, int64_t *low, int64_t *high)
{
	const struct hoist__dtype_info *info = hoist__dtype_info((hoist_dtype)d->dtype);
	int64_t least, most;
	int64_t first = 0, last = 0;
	int64_t per = info->bits != 0 ? info->bits : 8 * (int64_t)info->block_bytes;
	int err = info->bits != 0 ? 0 : check_blocks(d, info->block_elements);
	if (err == 0)
		err = hoist__layout_furthest(d->rank, d->shape, d->strides, &least, &most);
	if (err < 0)
		return err;
	if (info->bits == 0) { /* count in blocks; @most is within the last block */
		least /= info->block_elements;
		most /= info->block_elements;
	}
	err = scale(least, per, &first);
	if (err == 0)
		err = scale(most, per, &last);
	int64_t more = per + d->bit + 7;
	if (err == 0 && last > INT64_MAX - more)
		err = hoist__fail(-EOVERFLOW, "element %lld lies beyond 64 bits", (long long)most);
	if (err < 0)
		return err;
	/* Right shifts round towards minus infinity. */
	*low = (first + (int64_t)d->bit) >> 3;
	*high = (last + more) >> 3;
	return 0;
}

/* --- checks --- */

int hoist__ipc_check_head(const hoist_ipc_descriptor *head)
{
	if (memcmp(head->magic, "hoistipc", sizeof head->magic) != 0)
		return BAD("the bytes do not begin as one does");
	if (head->version != HOIST_IPC_VERSION || head->size != sizeof *head)
		return BAD("version %u of %u bytes; this library knows version %u of %zu",
			   head->version, head->size, HOIST_IPC_VERSION, sizeof *head);
	return 0;
}

static bool is_text(const char *field, size_t bytes)
{
	return memchr(field, '\0', bytes) != NULL;
}

static int check_kind(const hoist_ipc_descriptor *d)
{
	char api[HOIST__QUOTED_BYTES];
	bool cpu;
	if (!is_text(d->api, sizeof d->api) || !is_text(d->pci, sizeof d->pci))
		return BAD("its device's name has no end");
	cpu = strcmp(d->api, "cpu") == 0;
	if (!cpu && strcmp(d->api, "cuda") != 0 && strcmp(d->api, "hip") != 0)
		return BAD("there are no devices %s", hoist__quoted(d->api, strlen(d->api), api));
	if (d->kind < HOIST_IPC_HOST || d->kind > HOIST_IPC_EMPTY)
		return BAD("%u is no kind of memory", d->kind);
	if (d->kind != HOIST_IPC_EMPTY && cpu != (d->kind == HOIST_IPC_HOST))
		return BAD("memory of kind %u of \"%s\"", d->kind, d->api);
	if ((d->flags & ~HOIST_IPC_READ_ONLY) != 0)
		return BAD("0x%x are no flags", d->flags);
	return 0;
}

static int check_elements(const hoist_ipc_descriptor *d, uint64_t *elements)
{
	const struct hoist__dtype_info *info = hoist__dtype_info((hoist_dtype)d->dtype);
	size_t bytes;
	if (info == NULL)
		return BAD("%u is no dtype", d->dtype);
	if (d->bit > 7 || (d->bit != 0 && (info->bits == 0 || info->bits % 8 == 0)))
		return BAD("an element of %s at bit %u", info->name, d->bit);
	int err = hoist__layout_elements(d->rank, d->shape, elements);
	if (err == 0 && *elements > INT64_MAX)
		err = -EOVERFLOW;
	/* The elements must have a size in bytes when packed. */
	if (err == 0 && info->bits == 0)
		err = hoist_dtype_bytes(info->dtype, *elements, &bytes);
	else if (err == 0 && *elements > (uint64_t)INT64_MAX / info->bits)
		err = -EOVERFLOW;
	return err < 0 ? BAD("its shape, of rank %d, has no size", d->rank) : 0;
}

/* The descriptor comes from another process.  No sum may overflow here, and no element may lie
 * outside the bytes.  With negative strides, elements also lie before the first one. */
static int check_place(const hoist_ipc_descriptor *d, uint64_t elements)
{
	int64_t low, high;
	if ((d->kind == HOIST_IPC_EMPTY) != (elements == 0))
		return BAD("%llu elements in memory of kind %u", (unsigned long long)elements,
			   d->kind);
	if (elements == 0)
		return 0;
	int err = hoist__ipc_extent(d, &low, &high);
	if (err < 0)
		return hoist__fail_in(-EBADMSG, "a buffer's descriptor");
	if (d->bytes > INT64_MAX || d->offset > INT64_MAX - d->bytes || d->first > d->bytes)
		return BAD("%llu bytes from %llu on, the first element at %llu",
			   (unsigned long long)d->bytes, (unsigned long long)d->offset,
			   (unsigned long long)d->first);
	if (low < -(int64_t)d->first || high > (int64_t)(d->bytes - d->first))
		return BAD("its elements, bytes %lld to %lld from the first, leave its %llu bytes, "
			   "of which %llu come before that",
			   (long long)low, (long long)high, (unsigned long long)d->bytes,
			   (unsigned long long)d->first);
	return 0;
}

int hoist__ipc_check(const void *given, size_t bytes, hoist_ipc_descriptor *ret)
{
	uint64_t elements;
	if (given == NULL || bytes < sizeof *ret)
		return hoist__fail(-EINVAL, "a buffer's descriptor has %zu bytes; these are %zu",
				   sizeof *ret, given == NULL ? (size_t)0 : bytes);
	memcpy(ret, given, sizeof *ret);
	int err = hoist__ipc_check_head(ret);
	if (err == 0 && bytes != sizeof *ret)
		err = hoist__fail(-EINVAL, "a buffer's descriptor has %zu bytes; these are %zu",
				  sizeof *ret, bytes);
	if (err == 0)
		err = check_kind(ret);
	if (err == 0)
		err = check_elements(ret, &elements);
	return err < 0 ? err : check_place(ret, elements);
}
