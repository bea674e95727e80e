/* SPDX-License-Identifier: MIT */
/* refdigest PATH - the lines that `hoist digest PATH` must print, found without hoist:
 * JSON by jansson, bytes by pread, one XXH3-128 per tensor.
 *
 * PATH is a .safetensors file, an index (.json), or a folder that holds
 * model.safetensors.index.json or model.safetensors.  Files come in the order
 * of their names, tensors in the order of their bytes in the file (empty ones
 * before a tensor that begins at the same byte, ties in the order of the
 * header).  For a shard, the lines list the tensors that the index gives to
 * the shard. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <xxhash.h>

#define BUFFER_BYTES ((size_t)4 << 20)

struct tensor {
	const char *name;
	uint64_t begin;
	uint64_t end;
	size_t order;
};

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("refdigest: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static void *allocate(size_t bytes)
{
	void *memory = malloc(bytes > 0 ? bytes : 1);
	if (memory == NULL)
		fail("no memory for %zu bytes", bytes);
	return memory;
}

static char *join(const char *folder, size_t folder_bytes, const char *name)
{
	char *path;
	if (asprintf(&path, "%.*s%s", (int)folder_bytes, folder, name) < 0)
		fail("no memory");
	return path;
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail("opening %s: %s", path, strerror(errno));
	return fd;
}

static void read_exactly(int fd, const char *path, void *data, size_t bytes, uint64_t offset)
{
	char *at = data;
	while (bytes > 0) {
		ssize_t n = pread(fd, at, bytes, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("reading %s: %s", path, n < 0 ? strerror(errno) : "it is cut off");
		at += n;
		bytes -= (size_t)n;
		offset += (uint64_t)n;
	}
}

static int by_range(const void *left, const void *right)
{
	const struct tensor *a = left;
	const struct tensor *b = right;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

static void digest(int fd, const char *path, const struct tensor *tensor, uint64_t data_offset,
		   XXH3_state_t *state, void *buffer)
{
	XXH3_128bits_reset(state);
	for (uint64_t at = tensor->begin; at < tensor->end;) {
		uint64_t left = tensor->end - at;
		size_t bytes = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
		read_exactly(fd, path, buffer, bytes, data_offset + at);
		XXH3_128bits_update(state, buffer, bytes);
		at += bytes;
	}
	XXH128_hash_t hash = XXH3_128bits_digest(state);
	printf("%016llx%016llx  %s\n", (unsigned long long)hash.high64,
	       (unsigned long long)hash.low64, tensor->name);
}

static json_t *read_header(int fd, const char *path, uint64_t *data_offset)
{
	unsigned char prefix[8];
	uint64_t n = 0;
	read_exactly(fd, path, prefix, sizeof prefix, 0);
	for (int i = 8; i-- > 0;)
		n = n << 8 | prefix[i];
	if (n > 100000000)
		fail("%s: a header of %llu bytes", path, (unsigned long long)n);
	char *text = allocate((size_t)n);
	read_exactly(fd, path, text, (size_t)n, 8);
	json_error_t error;
	json_t *header = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
	if (!json_is_object(header))
		fail("%s: %s", path, header != NULL ? "the header is not an object" : error.text);
	free(text);
	*data_offset = 8 + n;
	return header;
}

/* The digests of one file; with @map, only of the tensors that it puts in @shard. */
static void digest_file(const char *path, const json_t *map, const char *shard)
{
	int fd = open_file(path);
	uint64_t data_offset;
	json_t *header = read_header(fd, path, &data_offset);
	struct tensor *tensors = allocate(json_object_size(header) * sizeof *tensors);
	size_t n = 0;
	const char *name;
	json_t *value;
	json_object_foreach(header, name, value)
	{
		const json_t *range = json_object_get(value, "data_offsets");
		const char *home = json_string_value(json_object_get(map, name));
		if (strcmp(name, "__metadata__") == 0)
			continue;
		if (map != NULL && (home == NULL || strcmp(home, shard) != 0))
			continue;
		tensors[n] = (struct tensor){
			.name = name,
			.begin = (uint64_t)json_integer_value(json_array_get(range, 0)),
			.end = (uint64_t)json_integer_value(json_array_get(range, 1)),
			.order = n,
		};
		n++;
	}
	if (n > 0)
		qsort(tensors, n, sizeof *tensors, by_range);
	XXH3_state_t *state = XXH3_createState();
	if (state == NULL)
		fail("no memory");
	void *buffer = allocate(BUFFER_BYTES);
	for (size_t i = 0; i < n; i++)
		digest(fd, path, &tensors[i], data_offset, state, buffer);
	free(buffer);
	(void)XXH3_freeState(state);
	free(tensors);
	json_decref(header);
	close(fd);
}

static int by_name(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static void digest_index(const char *path)
{
	json_error_t error;
	json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	if (index == NULL)
		fail("%s: %s", path, error.text);
	const json_t *map = json_object_get(index, "weight_map");
	if (!json_is_object(map))
		fail("%s: no weight_map", path);
	const char **shards = allocate(json_object_size(map) * sizeof *shards);
	size_t n = 0;
	void *iterator = json_object_iter((json_t *)(uintptr_t)map);
	for (; iterator != NULL;
	     iterator = json_object_iter_next((json_t *)(uintptr_t)map, iterator))
		shards[n++] = json_string_value(json_object_iter_value(iterator));
	if (n > 0)
		qsort(shards, n, sizeof *shards, by_name);
	const char *slash = strrchr(path, '/');
	size_t folder_bytes = slash != NULL ? (size_t)(slash - path) + 1 : 0;
	for (size_t i = 0; i < n; i++) {
		if (i > 0 && strcmp(shards[i - 1], shards[i]) == 0)
			continue;
		char *file = join(path, folder_bytes, shards[i]);
		digest_file(file, map, shards[i]);
		free(file);
	}
	free(shards);
	json_decref(index);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text);
	size_t m = strlen(end);
	return n >= m && strcmp(text + n - m, end) == 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fputs("usage: refdigest PATH\n", stderr);
		return 2;
	}
	struct stat status;
	char *path = join(argv[1], strlen(argv[1]), "");
	if (stat(path, &status) < 0)
		fail("%s: %s", path, strerror(errno));
	if (S_ISDIR(status.st_mode)) {
		free(path);
		path = join(argv[1], strlen(argv[1]), "/model.safetensors.index.json");
		if (access(path, F_OK) < 0) {
			free(path);
			path = join(argv[1], strlen(argv[1]), "/model.safetensors");
		}
	}
	if (ends_with(path, ".json"))
		digest_index(path);
	else
		digest_file(path, NULL, NULL);
	free(path);
	return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : 1;
}
