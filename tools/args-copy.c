/* SPDX-License-Identifier: MIT */
/* tools/args-copy.c - the options of `hoist cp` alone.
 * The contract is in tools/args-copy.h. */
#include "config.h"

#include "tools/args-copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/args.h"

bool args_copy_make(struct copy_args *copy, size_t words)
{
	*copy = (struct copy_args){0};
	copy->metadata = calloc(words, sizeof *copy->metadata);
	copy->renames = calloc(words, sizeof *copy->renames);
	if (copy->metadata != NULL && copy->renames != NULL)
		return true;
	args_copy_free(copy);
	return false;
}

void args_copy_free(struct copy_args *copy)
{
	while (copy->n_renames > 0)
		rename_free(&copy->renames[--copy->n_renames]);
	free(copy->renames);
	free(copy->metadata);
	*copy = (struct copy_args){0};
}

static const char *take_shard_bytes(struct copy_args *copy, const char *value)
{
	size_t bytes = 0;
	int err = args_bytes(value, &bytes);
	if (err == -EOVERFLOW)
		return "fewer bytes than 2^63";
	if (err != 0 || bytes == 0)
		return "a number of bytes above 0, as 500M or 5G";
	copy->shard_bytes = bytes;
	return NULL;
}

static const char *take_format(struct copy_args *copy, const char *value)
{
	static const char *const words[] = {"safetensors", "gguf", "npy", "max"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strcmp(words[i], value) == 0) {
			copy->format = words[i];
			return NULL;
		}
	return "safetensors, gguf, npy or max";
}

/* A value may contain further equals signs, and may be empty. */
static const char *take_metadata(struct copy_args *copy, char *value)
{
	char *equals = strchr(value, '=');
	if (equals == NULL || equals == value)
		return "KEY=VALUE";
	*equals = '\0';
	copy->metadata[copy->n_metadata++] = (struct copy_metadata){value, equals + 1};
	return NULL;
}

static const char *take_rename(struct copy_args *copy, const char *value)
{
	const char *expected = rename_parse(&copy->renames[copy->n_renames], value);
	copy->n_renames += expected == NULL;
	return expected;
}

const char *args_copy_take(struct copy_args *copy, const char *name, char *value)
{
	const struct {
		const char *name;
		bool *flag;
	} switches[] = {
		{"digest", &copy->digest},
		{"no-sync", &copy->no_sync},
		{"no-replace", &copy->no_replace},
		{"only-weights", &copy->only_weights},
	};
	for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
		if (strcmp(name, switches[i].name) == 0) {
			*switches[i].flag = true;
			return NULL;
		}
	if (strcmp(name, "shard-bytes") == 0)
		return take_shard_bytes(copy, value);
	if (strcmp(name, "format") == 0)
		return take_format(copy, value);
	if (strcmp(name, "metadata") == 0)
		return take_metadata(copy, value);
	/* Only --rename is left. */
	return take_rename(copy, value);
}
