/* SPDX-License-Identifier: MIT */
/* Runs saves, and reads the files with a strict reader of its own. */
#include "config.h"

#include "tests/support/save-support.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "tests/support/count.h"

int saved_run(hoist_save *save)
{
	int err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	CHECK(err == 0 || hoist_error()[0] != '\0');
	hoist_save_destroy(save);
	return err;
}

static int read_whole(const char *path, struct saved *ret)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	OK(fstat(fd, &st));
	ret->n = (size_t)st.st_size;
	ret->bytes = malloc(ret->n + 1);
	CHECK(ret->bytes != NULL);
	size_t at = 0;
	for (ssize_t n; at < ret->n && (n = read(fd, ret->bytes + at, ret->n - at)) > 0;)
		at += (size_t)n;
	close(fd);
	return at == ret->n ? 0 : -1;
}

/* strstr(), which under AddressSanitizer reads all of a long text each time. */
static const char *find_text(const char *at, const char *text)
{
	size_t n = strlen(text);
	for (; *at != '\0'; at++)
		if (at[0] == text[0] && at[1] == text[1] && strncmp(at, text, n) == 0)
			return at;
	return NULL;
}

/* Every "data_offsets" follows the one before it, and the last ends with the file. */
static int check_ranges(const struct saved *saved)
{
	static const char key[] = "\"data_offsets\":[";
	unsigned long long end = 0;
	for (const char *at = saved->header; (at = find_text(at, key)) != NULL;) {
		char *next;
		at += sizeof key - 1;
		if (strtoull(at, &next, 10) != end || *next != ',')
			return -1;
		end = strtoull(next + 1, &next, 10);
	}
	return saved->data + end == saved->n ? 0 : -1;
}

int saved_read(const char *path, struct saved *ret)
{
	*ret = (struct saved){0};
	uint64_t n = 0;
	int err = read_whole(path, ret);
	if (err == 0 && ret->n >= 8)
		memcpy(&n, ret->bytes, 8);
	if (err == 0 && (ret->n < 8 || n > ret->n - 8 || (8 + n) % 8 != 0))
		err = -1;
	if (err == 0) {
		ret->data = 8 + (size_t)n;
		ret->header = strndup((const char *)ret->bytes + 8, (size_t)n);
		CHECK(ret->header != NULL);
		err = ret->header[0] == '{' ? check_ranges(ret) : -1;
	}
	if (err != 0) {
		fprintf(stderr, "%s: not a whole safetensors file of %zu bytes\n", path, ret->n);
		saved_free(ret);
	}
	return err;
}

void saved_free(struct saved *saved)
{
	free(saved->bytes);
	free(saved->header);
	*saved = (struct saved){0};
}

/* Where in the header the tensor's description begins. */
static const char *find(const struct saved *saved, const char *name)
{
	char key[300];
	snprintf(key, sizeof key, "\"%s\":{\"dtype\":\"", name);
	const char *at = find_text(saved->header, key);
	if (at == NULL)
		fprintf(stderr, "there is no tensor \"%s\"\n", name);
	CHECK(at != NULL);
	return at + strlen(key);
}

const unsigned char *saved_tensor(const struct saved *saved, const char *name, const char *dtype,
				  const char *shape, size_t bytes)
{
	char text[400];
	const char *at = find(saved, name);
	snprintf(text, sizeof text, "%s\",\"shape\":[%s],\"data_offsets\":[", dtype, shape);
	if (strncmp(at, text, strlen(text)) != 0)
		fprintf(stderr, "\"%s\" is not %s, but %.80s\n", name, text, at);
	CHECK(strncmp(at, text, strlen(text)) == 0);
	char *next;
	size_t begin = strtoull(at + strlen(text), &next, 10);
	size_t end = strtoull(next + 1, NULL, 10);
	CHECK(end - begin == bytes);
	return saved->bytes + saved->data + begin;
}

void saved_check_digests(const struct saved *saved, const char *const *names, size_t n)
{
	static const char key[] = "\"hoist.xxh3_128\":\"";
	const char *digits = strstr(saved->header, key);
	CHECK(digits != NULL);
	digits += sizeof key - 1;
	CHECK(strspn(digits, "0123456789abcdef") == 32 * n);
	for (size_t i = 0; i < n; i++) {
		char hex[33];
		XXH128_canonical_t canonical;
		const char *at = find_text(find(saved, names[i]), "\"data_offsets\":[");
		char *next;
		size_t begin = strtoull(at + 16, &next, 10);
		size_t end = strtoull(next + 1, NULL, 10);
		XXH128_canonicalFromHash(
			&canonical, XXH3_128bits(saved->bytes + saved->data + begin, end - begin));
		for (size_t k = 0; k < 16; k++)
			snprintf(hex + 2 * k, 3, "%02x", canonical.digest[k]);
		CHECK(strncmp(digits + 32 * i, hex, 32) == 0);
	}
}

unsigned saved_n_names(void)
{
	return count_entries(support_folder());
}
