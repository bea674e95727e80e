/* SPDX-License-Identifier: MIT */
/* The identity of a checkpoint, by which members of a group of several machines know that they have
 * the same files. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/far/far.h"
#include "tests/support/load-support.h"

enum { ROWS = 4096, COLUMNS = 1024, BYTES = ROWS * COLUMNS, NOWHERE = -1 };

/* A safetensors file of one tensor. */
static const struct row {
	const char *what;
	const char *shape;
	const char *metadata; /* of the header */
	const char *name;
	int changed; /* the byte that is another than the first file's */
	bool same;   /* as the first file */
} rows[] = {
	{"the first", "4096,1024", "", "a", NOWHERE, true},
	{"a copy", "4096,1024", "", "a", NOWHERE, true},
	{"another first byte", "4096,1024", "", "a", 0, false},
	{"another last byte", "4096,1024", "", "a", BYTES - 1, false},
	{"another shape", "1024,4096", "", "a", NOWHERE, false},
	{"another name", "4096,1024", "", "b", NOWHERE, false},
	{"metadata", "4096,1024", "\"__metadata__\":{\"k\":\"v\"},", "a", NOWHERE, false},
	{"a digest", "4096,1024",
	 "\"__metadata__\":{\"hoist.xxh3_128\":\"00000000000000000000000000000001\"},", "a",
	 NOWHERE, false},
	{"another digest", "4096,1024",
	 "\"__metadata__\":{\"hoist.xxh3_128\":\"00000000000000000000000000000002\"},", "a",
	 NOWHERE, false},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void identify(const struct row *row, size_t number, uint64_t ret[HOIST__CHECKPOINT_IDENTITY])
{
	static unsigned char bytes[BYTES];
	char name[64];
	char header[512];
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 31 >> 3);
	if (row->changed != NOWHERE)
		bytes[row->changed] ^= 1;
	(void)snprintf(name, sizeof name, "%zu.safetensors", number);
	(void)snprintf(header, sizeof header,
		       "{%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,%d]}}",
		       row->metadata, row->name, row->shape, BYTES);
	support_put_safetensors(name, header, bytes, BYTES);
	hoist_checkpoint *checkpoint = support_open(name);
	OK(hoist__checkpoint_identify(checkpoint, ret));
	hoist_checkpoint_close(checkpoint);
}

static void what_tells_files_apart(void)
{
	uint64_t found[N_ROWS][HOIST__CHECKPOINT_IDENTITY];
	for (size_t i = 0; i < N_ROWS; i++)
		identify(&rows[i], i, found[i]);
	for (size_t i = 0; i < N_ROWS; i++)
		for (size_t j = 0; j < i; j++) {
			bool same = memcmp(found[i], found[j], sizeof found[i]) == 0;
			check_at("%s, %s", rows[i].what, rows[j].what);
			CHECK(same == (rows[i].same && rows[j].same));
		}
}

int main(void)
{
	CASE(what_tells_files_apart);
	support_cleanup();
	return 0;
}
