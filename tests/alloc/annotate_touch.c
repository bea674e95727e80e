/* SPDX-License-Identifier: MIT */
/* alloc/annotate_touch CASE - uses memory of a pool as it may be used ("well"), or as it may not;
 * for alloc/annotate.sh, which runs it under what should notice. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "alloc/pool.h"
#include "base/checked.h"
#include "base/error.h"

static volatile unsigned char sink;

static uintptr_t take(struct hoist__pool *pool, size_t bytes, unsigned flags)
{
	uintptr_t address = 0;
	if (hoist__pool_alloc(pool, bytes, 0, flags, &address) != 0)
		fprintf(stderr, "allocating: %s\n", hoist__error_text());
	return address;
}

static int give(struct hoist__pool *pool, uintptr_t address)
{
	int err = hoist__pool_free(pool, address);
	if (err != 0)
		fprintf(stderr, "freeing: %s\n", hoist__error_text());
	return err;
}

/* All of every block, again after others had it, and another pool where the first one was. */
static int use_well(void)
{
	int err = 0;
	for (unsigned i = 0; err == 0 && i < 6; i++) {
		const struct hoist__pool_options options = {
			.kind = HOIST__MEMORY_HOST, .debug = i % 3, .region_bytes = HOIST__MIB};
		struct hoist__pool *pool = NULL;
		const size_t sizes[] = {1, 13, 100, 5000, 70001, 3 * HOIST__MIB};
		err = hoist__pool_create(&options, &pool);
		for (size_t j = 0; err == 0 && j < 3 * HOIST__ARRAY_SIZE(sizes); j++) {
			size_t bytes = sizes[j % HOIST__ARRAY_SIZE(sizes)];
			uintptr_t address =
				take(pool, bytes, j % 5 == 4 ? HOIST__ALLOC_UNPOPULATED : 0);
			if (address == 0)
				return 3;
			memset((void *)address, 1, bytes);
			sink = ((unsigned char *)address)[bytes - 1];
			err = give(pool, address);
		}
		hoist__pool_unref(pool);
	}
	return err == 0 ? 0 : 3;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const struct hoist__pool_options options = {.kind = HOIST__MEMORY_HOST,
						    .region_bytes = HOIST__MIB};
	struct hoist__pool *pool = NULL;
	if (strcmp(what, "well") == 0)
		return use_well();
	if (hoist__pool_create(&options, &pool) != 0)
		return 3;
	unsigned char *block = (unsigned char *)take(pool, 100, 0);
	unsigned char *other = (unsigned char *)take(pool, 200000, 0);
	if (block == NULL || other == NULL)
		return 3;
	memset(block, 1, 100);
	fprintf(stderr, "so far so good\n");
	if (strcmp(what, "behind") == 0)
		block[100] = 1;
	uintptr_t large = take(pool, 3 * HOIST__MIB, 0);
	if (large == 0 || hoist__pool_discard(pool, large + 65536, 65536) != 0)
		return 3;
	sink = *(unsigned char *)(large + 65535);
	if (strcmp(what, "discarded") == 0)
		sink = *(unsigned char *)(large + 65536);
	if (give(pool, large) != 0)
		return 3;
	if (strcmp(what, "undefined") == 0 && other[5] == 17)
		sink = 1;
	if (give(pool, (uintptr_t)block) != 0 || give(pool, (uintptr_t)other) != 0)
		return 3;
	if (strcmp(what, "freed") == 0)
		block[3] = 1;
	if (strcmp(what, "large") == 0)
		sink = other[150000];
	hoist__pool_unref(pool);
	return 0;
}
