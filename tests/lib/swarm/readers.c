/* SPDX-License-Identifier: MIT */
/* The readers of a tensor's cells, in the text of its failure. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "lib/swarm/cell-readers.h"
#include "tests/support/check.h"

enum { N_CELLS = 20, CELL = 512 * 4096 };

static size_t first[] = {0, 8, N_CELLS}; /* of two files */
static uint32_t touches[N_CELLS];
static struct hoist_load load;
static struct hoist__cells cells = {
	.load = &load, .n = N_CELLS, .first = first, .touches = touches};
static struct hoist__cell_readers readers;

/* The text behind a failure, for the bytes [begin, end) of the second file. */
static void says(uint64_t begin, uint64_t end, const char *should)
{
	static const char before[] =
		"damaged; in the group \"g\" its bytes in the file were read by ";
	const struct hoist__tensor tensor = {.offset = begin, .bytes = end - begin};
	const struct hoist__checkpoint_tensor entry = {.tensor = &tensor, .file = 1};
	int err = hoist__fail(-EBADMSG, "damaged");
	CHECK(hoist__cell_readers_say(&readers, &cells, "g", &entry, err) == -EBADMSG);
	check_at("%s", should);
	CHECK(strncmp(hoist_error(), before, strlen(before)) == 0);
	CHECK(strcmp(hoist_error() + strlen(before), should) == 0);
}

static void note(size_t cell, uint64_t id)
{
	hoist__cell_readers_note(&readers, &cells, first[1] + cell, id);
}

static void each_reader_is_named_once(void)
{
	note(0, 11);
	note(1, 12);
	says(5, 100, "this member (5 to 100)");
	says(5, CELL, "this member (5 to 2097152)");
	says(5, CELL + 1, "this member (5 to 2097152) and the member at b:1 (2097152 to 2097153)");
	note(2, 11);
	says(5, 3 * CELL,
	     "this member (some of 5 to 6291456) and the member at b:1 (2097152 to 4194304)");
	note(3, 0xabc);
	says(2 * CELL, 4 * CELL,
	     "this member (4194304 to 6291456) and member 0000000000000abc, which this one has not "
	     "met (6291456 to 8388608)");
}

static void of_many_six_are_named(void)
{
	for (unsigned c = 0; c < 8; c++) {
		hoist__cell_readers_name(&readers, 2 + c, 20 + c, "rank", "7");
		note(c, 20 + c);
	}
	says(0, 6 * CELL,
	     "rank 7 (0 to 2097152), rank 7 (2097152 to 4194304), rank 7 (4194304 to 6291456), "
	     "rank 7 (6291456 to 8388608), rank 7 (8388608 to 10485760) and rank 7 (10485760 to "
	     "12582912)");
	says(0, 8 * CELL,
	     "rank 7 (0 to 2097152), rank 7 (2097152 to 4194304), rank 7 (4194304 to 6291456), "
	     "rank 7 (6291456 to 8388608), rank 7 (8388608 to 10485760), rank 7 (10485760 to "
	     "12582912) and others");
}

/* Once a cell is used, it may be read once more, for others. */
static void a_used_cell_keeps_its_reader(void)
{
	note(0, 11);
	touches[first[1]] = 0;
	note(0, 12);
	says(0, 1, "this member (0 to 1)");
}

static void without_digests_nothing_is_noted(void)
{
	hoist__cell_readers_fini(&readers);
	load.digests = NULL;
	OK(hoist__cell_readers_make(&readers, &cells));
	CHECK(readers.of == NULL);
	note(0, 11);
}

int main(void)
{
	load.digests = (struct hoist__digests *)&load; /* is not looked into */
	for (size_t c = 0; c < N_CELLS; c++)
		touches[c] = 1;
	OK(hoist__cell_readers_make(&readers, &cells));
	hoist__cell_readers_name(&readers, 0, 11, "this", "member");
	hoist__cell_readers_name(&readers, 1, 12, "the member at", "b:1");
	CASE(each_reader_is_named_once);
	CASE(of_many_six_are_named);
	CASE(a_used_cell_keeps_its_reader);
	CASE(without_digests_nothing_is_noted);
	return 0;
}
