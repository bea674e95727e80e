/* SPDX-License-Identifier: MIT */
/* A cache of the test's own: its folder, its checkpoints, its holder, and the wait for its end. */
#include "config.h"

#include "tests/support/lib-cache.h"
#include "tests/support/patience.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cache/cache.h"

static char folder[PATH_MAX];
static pid_t owner;

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

/* At the test's end, and where a check failed. */
static void end(void)
{
	if (getpid() != owner)
		return;
	(void)hoist_cache_drop(NULL, NULL);
	(void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *cache_test_begin(int argc, char **argv)
{
	static char program[PATH_MAX];
	if (argc == 3 && strcmp(argv[1], "cache") == 0 && strcmp(argv[2], "hold") == 0) {
		int err = hoist_cache_hold();
		if (err < 0)
			fprintf(stderr, "%s\n", hoist_error());
		exit(err < 0);
	}
	const char *temporary = getenv("TMPDIR");
	(void)snprintf(folder, sizeof folder, "%s/hoist-cache.XXXXXX",
		       temporary != NULL ? temporary : "/tmp");
	CHECK(mkdtemp(folder) != NULL);
	CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
	OK(setenv("XDG_RUNTIME_DIR", folder, 1));
	OK(setenv("HOIST_CACHE_HOLDER", program, 1));
	owner = getpid();
	check_cleanup(end);
	OK(atexit(end));
	return folder;
}

const char *cache_path(const char *name)
{
	static char paths[64][PATH_MAX + 64];
	static unsigned n;
	char *path = paths[n++ % 64];
	(void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
	return path;
}

/* --- checkpoints --- */

unsigned char cache_byte(size_t tensor, size_t i, unsigned seed)
{
	return (unsigned char)(tensor * 31 + i * 7 + (i >> 8) + seed);
}

void cache_write(const char *path, size_t n, size_t bytes, unsigned seed)
{
	size_t room = n * 96 + 256;
	char *header = malloc(room);
	unsigned char *data = malloc(bytes + 1);
	CHECK(header != NULL && data != NULL);
	size_t used = (size_t)snprintf(
		header, room, "{\"__metadata__\":{\"seed\":\"%u\",\"who\":\"test\"}", seed);
	for (size_t t = 0; t < n; t++)
		used += (size_t)snprintf(header + used, room - used,
					 ",\"t%06zu\":{\"dtype\":\"U8\",\"shape\":[%zu],"
					 "\"data_offsets\":[%zu,%zu]}",
					 t, bytes, t * bytes, (t + 1) * bytes);
	used += (size_t)snprintf(header + used, room - used, "}");
	FILE *file = fopen(path, "w");
	CHECK(file != NULL);
	uint64_t prefix = used;
	CHECK(fwrite(&prefix, 8, 1, file) == 1 && fwrite(header, used, 1, file) == 1);
	for (size_t t = 0; t < n; t++) {
		for (size_t i = 0; i < bytes; i++)
			data[i] = cache_byte(t, i, seed);
		CHECK(bytes == 0 || fwrite(data, bytes, 1, file) == 1);
	}
	OK(fclose(file));
	free(header);
	free(data);
}

void cache_check(hoist_image *image, size_t n, size_t bytes, unsigned seed)
{
	CHECK(hoist_image_n_tensors(image) == n);
	for (size_t t = 0; t < n; t++) {
		char name[32];
		size_t index = SIZE_MAX;
		hoist_buffer *buffer = NULL;
		(void)snprintf(name, sizeof name, "t%06zu", t);
		OK(hoist_image_find(image, name, &index));
		OK(hoist_image_buffer(image, index, &buffer));
		CHECK(hoist_buffer_bytes(buffer) == bytes &&
		      hoist_buffer_dtype(buffer) == HOIST_U8);
		const unsigned char *data = hoist_buffer_data(buffer);
		for (size_t i = 0; i < bytes; i++)
			CHECK(data[i] == cache_byte(t, i, seed));
		hoist_buffer_unref(buffer);
	}
}

/* --- the holder --- */

int cache_holder(void)
{
	struct sockaddr_un address;
	struct ucred peer = {0};
	socklen_t bytes = sizeof peer;
	int in = open(cache_path("hoist"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (in < 0)
		return 0;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	hoist__cache_address(in, &address);
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
		OK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes));
	close(fd);
	close(in);
	return peer.pid;
}

void cache_wait_for_end(void)
{
	for (uint64_t until = 0; cache_holder() != 0;)
		CHECK(patience(&until));
}

void cache_wait_for_no_folder(void)
{
	for (uint64_t until = 0; access(cache_path("hoist"), F_OK) == 0;)
		CHECK(patience(&until));
}
