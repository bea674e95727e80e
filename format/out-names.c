/* SPDX-License-Identifier: MIT */
/* format/out-names.c - checks the names of the tensors to write.
 * The contract is in format/write.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/order.h"
#include "base/utf8.h"
#include "format/quote.h"
#include "format/write.h"

static int check_unique(const struct hoist__out_file *file)
{
	char name[HOIST__QUOTED_BYTES];
	char where[HOIST__QUOTED_BYTES];
	const char **names = calloc(file->n_tensors, sizeof *names);
	if (names == NULL)
		return hoist__fail_nomem("a list of names", file->n_tensors * sizeof *names);
	for (size_t i = 0; i < file->n_tensors; i++)
		names[i] = file->tensors[i].name;
	qsort(names, file->n_tensors, sizeof *names, hoist__compare_texts);
	int err = 0;
	for (size_t i = 1; err == 0 && i < file->n_tensors; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			err = hoist__fail(-EINVAL, "%s: two tensors are called %s; rename one",
					  hoist__file_quoted(file->name, where),
					  hoist__quoted(names[i], strlen(names[i]), name));
	free(names);
	return err;
}

int hoist__out_check_names(const struct hoist__out_file *file)
{
	char quoted[HOIST__QUOTED_BYTES];
	char where[HOIST__QUOTED_BYTES];
	bool sorted = true;
	for (size_t i = 0; i < file->n_tensors; i++) {
		const char *name = file->tensors[i].name;
		size_t n = strlen(name);
		if (n == 0)
			return hoist__fail(-EINVAL, "%s: the name of tensor %zu is empty",
					   hoist__file_quoted(file->name, where), i);
		if (hoist__utf8_text(name, n) < n)
			return hoist__fail(-EINVAL, "%s: the name of tensor %zu, %s, is not UTF-8",
					   hoist__file_quoted(file->name, where), i,
					   hoist__quoted(name, n, quoted));
		sorted = sorted && (i == 0 || strcmp(file->tensors[i - 1].name, name) < 0);
	}
	return sorted ? 0 : check_unique(file);
}
