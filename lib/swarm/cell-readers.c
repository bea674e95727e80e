/* SPDX-License-Identifier: MIT */
/* The members of a group that read a load's cells from storage.
 * The contract is in lib/swarm/cell-readers.h. */
#include "config.h"

#include "lib/swarm/cell-readers.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"

#define MOST_NAMED 6u

int hoist__cell_readers_make(struct hoist__cell_readers *readers, const struct hoist__cells *cells)
{
	if (cells->load->digests == NULL)
		return 0;
	readers->of = calloc(cells->n + 1, sizeof *readers->of);
	return readers->of == NULL
		       ? hoist__fail_nomem("the readers of cells", cells->n * sizeof *readers->of)
		       : 0;
}

void hoist__cell_readers_fini(struct hoist__cell_readers *readers)
{
	free(readers->of);
	readers->of = NULL;
}

void hoist__cell_readers_name(struct hoist__cell_readers *readers, unsigned number, uint64_t id,
			      const char *what, const char *at)
{
	readers->names[number].id = id;
	(void)snprintf(readers->names[number].text, HOIST__READER_TEXT, "%s %s", what, at);
}

void hoist__cell_readers_note(struct hoist__cell_readers *readers, const struct hoist__cells *cells,
			      size_t cell, uint64_t id)
{
	if (readers->of != NULL && cells->touches[cell] > 0)
		readers->of[cell] = id;
}

/* --- the text --- */

/* The bytes of one reader, from the first to the last. */
struct part {
	uint64_t id;
	uint64_t begin, end;
	uint64_t bytes;
};

struct parts {
	struct part part[MOST_NAMED];
	unsigned n;
	bool others; /* more readers than there is room for */
};

static void add(struct parts *parts, uint64_t id, uint64_t begin, uint64_t end)
{
	unsigned p = 0;
	while (p < parts->n && parts->part[p].id != id)
		p++;
	if (p == MOST_NAMED) {
		parts->others = true;
		return;
	}
	if (p == parts->n)
		parts->part[parts->n++] = (struct part){.id = id, .begin = begin};
	parts->part[p].end = end;
	parts->part[p].bytes += end - begin;
}

static const char *text_of(const struct hoist__cell_readers *readers, uint64_t id,
			   char scratch[static HOIST__READER_TEXT])
{
	for (unsigned m = 0; m < HOIST__SWARM_MEMBERS; m++)
		if (id != 0 && readers->names[m].id == id)
			return readers->names[m].text;
	(void)snprintf(scratch, HOIST__READER_TEXT, "member %016llx, which this one has not met",
		       (unsigned long long)id);
	return scratch;
}

int hoist__cell_readers_say(const struct hoist__cell_readers *readers,
			    const struct hoist__cells *cells, const char *group,
			    const struct hoist__checkpoint_tensor *tensor, int err)
{
	struct parts parts = {.n = 0};
	uint64_t end = tensor->tensor->offset + tensor->tensor->bytes;
	uint64_t next;
	for (uint64_t at = tensor->tensor->offset; at < end; at = next) {
		size_t cell = hoist__cells_at(cells, tensor->file, at);
		next = hoist__round_down(at, HOIST__CELL_BYTES) + HOIST__CELL_BYTES;
		next = hoist__min_u64(next, end);
		add(&parts, readers->of[cell], at, next);
	}
	(void)hoist__fail(err, "%s; in the group \"%s\" its bytes in the file were read by ",
			  hoist_error(), group);
	for (unsigned p = 0; p < parts.n; p++) {
		const struct part *part = &parts.part[p];
		bool last = p + 1 == parts.n && !parts.others;
		char scratch[HOIST__READER_TEXT];
		(void)hoist__fail(err, "%s%s%s (%s%llu to %llu)", hoist_error(),
				  p == 0 ? ""
				  : last ? " and "
					 : ", ",
				  text_of(readers, part->id, scratch),
				  part->bytes < part->end - part->begin ? "some of " : "",
				  (unsigned long long)part->begin, (unsigned long long)part->end);
	}
	return parts.others ? hoist__fail(err, "%s and others", hoist_error()) : err;
}
