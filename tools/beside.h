/* SPDX-License-Identifier: MIT */
/* tools/beside.h - the files beside a folder's weights that a copy to another folder takes along:
 * configuration, tokenizer, chat templates.
 *
 *     beside_find(&beside, from, to, options)   what there is; copied under no name yet
 *     beside_publish(&beside)                   once the weights are there: the names
 *     beside_close(&beside)                     always; what has no name by then is gone
 *
 * A file is taken by its name (beside.c lists the names), if it is regular and has 64 MiB at most.
 * A link must lead to a file in the folder, or from a snapshot of Hugging Face's cache to a blob of
 * that model, unless the caller trusts all links.  A file of the name that is in the other folder
 * already is never replaced: the same content is left, and other content is an error before any
 * file gets a name.  Where weights are converted, config.json gets their dtype (config-dtype.h).
 * Each function prints what failed, and returns a STATUS_*.
 */
#ifndef HOIST_TOOLS_BESIDE_H
#define HOIST_TOOLS_BESIDE_H

#include <stdbool.h>
#include <stddef.h>

struct beside_file {
	char *name;
	enum {
		BESIDE_TAKEN,
		BESIDE_THERE, /* the other folder has it, with the same content */
		BESIDE_LEFT   /* too large, or no regular file */
	} state;
	bool changed; /* it has another dtype than its source */
	int fd;	      /* TAKEN: the copy; -1: it has its name, or there is none */
	char *hidden; /* TAKEN: the copy's name until then; NULL: it has none */
};

struct beside {
	char *to;
	int from_fd; /* the folders; -1: none */
	int to_fd;
	struct beside_file *files; /* by name */
	size_t n_files;
	bool sync;
};

#define BESIDE_FOLLOW_LINKS 1u
#define BESIDE_NO_SYNC 2u

/* @dtype: of the weights that are converted, as "bfloat16"; NULL: none are. */
int beside_find(struct beside *beside, const char *from, const char *to, const char *dtype,
		unsigned flags);
int beside_publish(struct beside *beside);
void beside_close(struct beside *beside);

#endif
