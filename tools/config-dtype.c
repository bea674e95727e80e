/* SPDX-License-Identifier: MIT */
/* tools/config-dtype.c - the dtype that a model's config.json names.
 * The contract is in tools/config-dtype.h.
 *
 * The text is not parsed and written anew, which would change its numbers' digits and its layout:
 * the strings are found, and those behind the keys are replaced. */
#include "config.h"

#include "tools/config-dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/fail.h"
#include "tools/fd.h"

struct token {
	const char *at; /* behind the quote */
	size_t n;
};

static bool is(const struct token *token, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(words[i]) == token->n && memcmp(token->at, words[i], token->n) == 0)
			return true;
	return false;
}

/* Finds the next string from @at on.  Returns: the byte behind its closing quote; NULL: none. */
static const char *next_string(const char *at, const char *end, struct token *ret)
{
	while (at < end && *at != '"')
		at++;
	if (at == end)
		return NULL;
	ret->at = ++at;
	for (; at < end && *at != '"'; at++)
		if (*at == '\\' && at + 1 < end)
			at++;
	ret->n = (size_t)(at - ret->at);
	return at < end ? at + 1 : NULL;
}

static const char *skip_space(const char *at, const char *end)
{
	while (at < end && strchr(" \t\r\n", *at) != NULL && *at != '\0')
		at++;
	return at;
}

/* Finds the next value to replace from @at on.  Returns: false: there is none. */
static bool next_value(const char *at, const char *end, const char *dtype, struct token *ret)
{
	static const char *const keys[] = {"dtype", "torch_dtype"};
	static const char *const values[] = {"float32", "float16", "bfloat16"};
	struct token key;
	while ((at = next_string(at, end, &key)) != NULL) {
		const char *behind = skip_space(at, end);
		if (behind == end || *behind != ':' || !is(&key, keys, 2))
			continue;
		behind = skip_space(behind + 1, end);
		if (behind < end && *behind == '"' && next_string(behind, end, ret) != NULL &&
		    is(ret, values, 3) && !is(ret, &dtype, 1))
			return true;
	}
	return false;
}

static int read_text(int fd, const char *name, char **ret, size_t *n)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return fail("reading %s: %s", name, strerror(errno));
	*ret = malloc((size_t)st.st_size + 1);
	if (*ret == NULL)
		return fail_memory();
	ssize_t got = fd_read(fd, *ret, (size_t)st.st_size);
	if (got < 0)
		return fail("reading %s: %s", name, strerror(errno));
	*n = (size_t)got;
	return STATUS_OK;
}

/* Writes the text with @dtype in each place.  Returns: 0; -1, with errno. */
static int write_text(int fd, const char *text, size_t n, const char *dtype)
{
	struct token value;
	const char *end = text + n;
	for (; next_value(text, end, dtype, &value); text = value.at + value.n)
		if (fd_write(fd, text, (size_t)(value.at - text)) < 0 ||
		    fd_write(fd, dtype, strlen(dtype)) < 0)
			return -1;
	return fd_write(fd, text, (size_t)(end - text));
}

static int make(const char *text, size_t n, const char *dtype, const char *name, int *ret)
{
	int fd = memfd_create("hoist-config", MFD_CLOEXEC);
	if (fd >= 0 && write_text(fd, text, n, dtype) == 0) {
		*ret = fd;
		return STATUS_OK;
	}
	int status = fail("changing %s: %s", name, strerror(errno));
	if (fd >= 0)
		(void)close(fd);
	return status;
}

int config_dtype_set(int *fd, const char *dtype, const char *name, bool *changed)
{
	char *text = NULL;
	size_t n = 0;
	struct token value;
	int made = -1;
	int status = read_text(*fd, name, &text, &n);
	*changed = status == STATUS_OK && next_value(text, text + n, dtype, &value);
	if (*changed)
		status = make(text, n, dtype, name, &made);
	free(text);
	if (made >= 0) {
		(void)close(*fd);
		*fd = made;
	}
	(void)lseek(*fd, 0, SEEK_SET);
	return status;
}
