/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/hub.c - finds a model's snapshot in Hugging Face's cache.
 * The contract is in hoist/hub.h.
 *
 * Names come from the caller, or from a file in refs, and become parts of paths: each is checked
 * before. */
#include "config.h"

#include "hoist/hub.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/again.h"
#include "lib/checkpoint/checkpoint.h"

#define SCHEME "hf://"
#define MODEL "models--"
#define MAIN "main"
#define NAME_BYTES 256

__attribute__((format(printf, 3, 4))) static int put(char *to, size_t bytes, const char *format,
						     ...)
{
	va_list values;
	va_start(values, format);
	int n = vsnprintf(to, bytes, format, values);
	va_end(values);
	if (n < 0 || (size_t)n >= bytes)
		return hoist__fail(-ENAMETOOLONG,
				   "finding a model: a path has more than the %zu bytes that there "
				   "is room for",
				   bytes);
	return 0;
}

/* --- names --- */

/* True if the first @n bytes of @name can be one component of a path in the cache. */
static bool is_part(const char *name, size_t n)
{
	if (n == 0 || n >= NAME_BYTES || name[0] == '.' || name[0] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && memchr("-._", name[i], 3) == NULL)
			return false;
	return true;
}

/* The same of parts between slashes. */
static bool is_revision(const char *name)
{
	for (size_t n;; name += n + 1) {
		n = strcspn(name, "/");
		if (!is_part(name, n))
			return false;
		if (name[n] == '\0')
			return true;
	}
}

/* --- snapshots --- */

struct names {
	char text[512]; /* of those that are there, for the message */
	char only[NAME_BYTES];
	size_t n;
};

static int note_name(void *context, const char *name)
{
	struct names *names = context;
	size_t length = strlen(names->text);
	if (!is_part(name, strlen(name)))
		return 0;
	(void)snprintf(names->text + length, sizeof names->text - length, "%s%s",
		       names->n > 0 ? ", " : "", name);
	if (names->n++ == 0)
		(void)snprintf(names->only, sizeof names->only, "%s", name);
	return 0;
}

static bool is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Reads the commit that @model/refs/@revision names.  Returns: 0; -ENOENT, without a text. */
static int read_ref(const char *model, const char *revision, char commit[static NAME_BYTES])
{
	char path[PATH_MAX];
	int err = put(path, sizeof path, "%s/refs/%s", model, revision);
	if (err < 0)
		return err;
	int fd = HOIST__UNINTERRUPTED(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return -ENOENT;
	ssize_t n = fd < 0 ? -1 : HOIST__UNINTERRUPTED(read(fd, commit, NAME_BYTES - 1));
	err = n < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	if (err == -EISDIR)
		return -ENOENT;
	if (err < 0)
		return hoist__fail_errno(err, "reading %s", path);
	size_t length = n > 0 ? (size_t)n : 0;
	while (length > 0 && isspace((unsigned char)commit[length - 1]))
		length--;
	commit[length] = '\0';
	if (!is_part(commit, length))
		return hoist__fail(-EBADMSG, "%s names no commit; download the model again", path);
	return 0;
}

static int fail_revision(const char *model, const char *revision)
{
	struct names names = {.n = 0};
	char path[PATH_MAX];
	int err = put(path, sizeof path, "%s/snapshots", model);
	if (err == 0)
		err = hoist__folder_list(AT_FDCWD, path, path, note_name, &names);
	if (err < 0)
		return err;
	if (names.n == 0)
		return hoist__fail(-ENOENT, "%s has no snapshot; download the model", path);
	return hoist__fail(-ENOENT, "%s has no revision %s; it has %s: name one, or download it",
			   model, revision, names.text);
}

/* @revision NULL: none was named. */
static int find_snapshot(const char *model, const char *revision, char *ret, size_t bytes)
{
	char commit[NAME_BYTES];
	char path[PATH_MAX];
	struct names names = {.n = 0};
	const char *name = revision != NULL ? revision : MAIN;
	int err = read_ref(model, name, commit);
	if (err == 0)
		err = put(path, sizeof path, "%s/snapshots/%s", model, commit);
	else if (err == -ENOENT)
		err = put(path, sizeof path, "%s/snapshots/%s", model, name);
	if (err < 0)
		return err;
	if (is_folder(path))
		return put(ret, bytes, "%s", path);
	if (revision == NULL) {
		err = put(path, sizeof path, "%s/snapshots", model);
		if (err == 0 && is_folder(path))
			err = hoist__folder_list(AT_FDCWD, path, path, note_name, &names);
		if (err == 0 && names.n == 1)
			return put(ret, bytes, "%s/snapshots/%s", model, names.only);
	}
	return err < 0 ? err : fail_revision(model, name);
}

/* --- the cache's folder --- */

/* Returns: 0; -ENOENT: no variable says where the cache is. */
static int find_cache(char *path, size_t bytes)
{
	const struct {
		const char *value;
		const char *below;
	} places[] = {
		{secure_getenv("HF_HUB_CACHE"), ""},
		{secure_getenv("HUGGINGFACE_HUB_CACHE"), ""},
		{secure_getenv("HF_HOME"), "/hub"},
		{secure_getenv("XDG_CACHE_HOME"), "/huggingface/hub"},
		{secure_getenv("HOME"), "/.cache/huggingface/hub"},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(places); i++)
		if (places[i].value != NULL && places[i].value[0] != '\0')
			return put(path, bytes, "%s%s", places[i].value, places[i].below);
	return hoist__fail(-ENOENT, "no variable says where Hugging Face's cache is; set HF_HOME");
}

/* @name: [ORG/]NAME[@REVISION]. */
static int find_model(const char *name, char *path, size_t bytes)
{
	char cache[PATH_MAX];
	char model[PATH_MAX];
	size_t n = strcspn(name, "@");
	size_t org = strcspn(name, "/@");
	bool has_org = name[org] == '/';
	size_t from = has_org ? org + 1 : 0;
	const char *revision = name[n] == '@' ? name + n + 1 : NULL;
	if ((has_org && !is_part(name, org)) || !is_part(name + from, n - from) ||
	    (revision != NULL && !is_revision(revision)))
		return hoist__fail(-EINVAL,
				   "%s%s names no model; write hf://ORG/NAME or "
				   "hf://ORG/NAME@REVISION",
				   SCHEME, name);
	int err = find_cache(cache, sizeof cache);
	if (err == 0)
		err = put(model, sizeof model, "%s/" MODEL "%.*s%s%.*s", cache,
			  has_org ? (int)org : 0, name, has_org ? "--" : "", (int)(n - from),
			  name + from);
	if (err < 0)
		return err;
	if (!is_folder(model))
		return hoist__fail(-ENOENT,
				   "%s%s is not in Hugging Face's cache: there is no folder %s; "
				   "download it, or set HF_HUB_CACHE to the cache that has it",
				   SCHEME, name, model);
	return find_snapshot(model, revision, path, bytes);
}

/* --- the entry --- */

/* True if the last component of @path names a model of the cache.  *n: the bytes of @path without
 * slashes at its end. */
static bool is_model(const char *path, size_t *n)
{
	*n = strlen(path);
	while (*n > 1 && path[*n - 1] == '/')
		--*n;
	size_t begin = *n;
	while (begin > 0 && path[begin - 1] != '/')
		begin--;
	return *n - begin > strlen(MODEL) && strncmp(path + begin, MODEL, strlen(MODEL)) == 0;
}

int hoist_hub_find(const char *where, char *path, size_t bytes)
{
	char model[PATH_MAX];
	char snapshots[PATH_MAX];
	size_t n;
	if (where == NULL || path == NULL)
		return hoist__fail(-EINVAL, "finding a model: the name or the result is NULL");
	if (strncmp(where, SCHEME, strlen(SCHEME)) == 0)
		return find_model(where + strlen(SCHEME), path, bytes);
	if (!is_model(where, &n))
		return put(path, bytes, "%s", where);
	int err = put(model, sizeof model, "%.*s", (int)n, where);
	if (err == 0)
		err = put(snapshots, sizeof snapshots, "%s/snapshots", model);
	if (err < 0)
		return err;
	return is_folder(snapshots) ? find_snapshot(model, NULL, path, bytes)
				    : put(path, bytes, "%s", where);
}
