/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint-gguf.c - opens a GGUF model in several files.
 * The contract is in lib/checkpoint/checkpoint.h.
 *
 * The files are called NAME-00001-of-00005.gguf and so on.  The metadata of the first one says how
 * many there are; the metadata of each says which part the file is. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/checkpoint/checkpoint.h"

/* "-00001-of-00005.gguf" */
#define TAIL_BYTES 20
#define SUFFIX ".gguf"

static bool digits(const char *text, int n)
{
	for (int i = 0; i < n; i++)
		if (text[i] < '0' || text[i] > '9')
			return false;
	return true;
}

unsigned hoist__gguf_name(const char *name, unsigned *count)
{
	size_t n = strlen(name);
	const char *tail = n > TAIL_BYTES ? name + n - TAIL_BYTES : "";
	if (n <= TAIL_BYTES || tail[0] != '-' || !digits(tail + 1, 5) ||
	    memcmp(tail + 6, "-of-", 4) != 0 || !digits(tail + 10, 5) ||
	    strcmp(tail + 15, SUFFIX) != 0)
		return 0;
	*count = (unsigned)strtoul(tail + 10, NULL, 10);
	return (unsigned)strtoul(tail + 1, NULL, 10);
}

/* Returns the number that a file's metadata gives for @key, or @without if there is none. */
static uint64_t number(const struct hoist__manifest *manifest, const char *key, uint64_t without)
{
	for (size_t i = 0; i < manifest->n_metadata; i++)
		if (strcmp(manifest->metadata[i].key, key) == 0)
			return strtoull(manifest->metadata[i].value, NULL, 10);
	return without;
}

bool hoist__gguf_is_first(const struct hoist__checkpoint_file *shard)
{
	return shard->format == HOIST__GGUF && number(shard->manifest, "split.count", 1) > 1 &&
	       number(shard->manifest, "split.no", 0) == 0;
}

/* Compares the metadata of all files, once they are open. */
static int check_parts(const hoist_checkpoint *checkpoint, uint64_t count)
{
	uint64_t n_tensors = 0;
	for (size_t f = 0; f < checkpoint->n_files; f++) {
		const struct hoist__checkpoint_file *shard = &checkpoint->files[f];
		uint64_t no = number(shard->manifest, "split.no", 0);
		uint64_t of = number(shard->manifest, "split.count", 0);
		if (no != f || of != count)
			return hoist__fail(-EBADMSG,
					   "%s: by its name this is part %zu of %llu, but its "
					   "split.no is %llu and its split.count %llu; the files "
					   "do not belong together",
					   shard->file->path, f + 1, (unsigned long long)count,
					   (unsigned long long)no, (unsigned long long)of);
		n_tensors += shard->manifest->n_tensors;
	}
	const struct hoist__checkpoint_file *first = &checkpoint->files[0];
	uint64_t expected = number(first->manifest, "split.tensors.count", n_tensors);
	if (expected != n_tensors)
		return hoist__fail(-EBADMSG,
				   "%s: split.tensors.count is %llu, but its %zu files hold %llu "
				   "tensors",
				   first->file->path, (unsigned long long)expected,
				   checkpoint->n_files, (unsigned long long)n_tensors);
	return 0;
}

/* The names of the other files are made from the first file's name, and the number of files comes
 * from its metadata.  The two must agree before another file is opened. */
int hoist__gguf_add_parts(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
			  const char *name)
{
	const struct hoist__checkpoint_file *first = &checkpoint->files[0];
	uint64_t count = number(first->manifest, "split.count", 1);
	unsigned of = 0;
	if (hoist__gguf_name(name, &of) != 1 || of != count)
		return hoist__fail(-EINVAL,
				   "%s: this is the first of %llu files; so that the others are "
				   "found, it must be called NAME-00001-of-%05llu.gguf",
				   first->file->path, (unsigned long long)count,
				   (unsigned long long)count);
	int err = 0;
	for (unsigned no = 2; err == 0 && no <= of; no++) {
		char *part;
		if (asprintf(&part, "%.*s-%05u-of-%05u" SUFFIX, (int)(strlen(name) - TAIL_BYTES),
			     name, no, of) < 0)
			return hoist__fail_nomem("a file name", strlen(name));
		err = hoist__checkpoint_add(checkpoint, dir_fd, folder, (const char *const[]){part},
					    1);
		free(part);
	}
	return err == 0 ? check_parts(checkpoint, count) : err;
}
