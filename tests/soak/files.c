/* SPDX-License-Identifier: MIT */
/* The checkpoints of the soak: those that all save to, and those that nobody changes. */
#include "config.h"

#include "tests/soak/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "tests/support/load-random.h"
#include "tests/support/load-support.h"

const char *soak_file(unsigned file)
{
	return file < 4 ? soak_path("f%u.safetensors", file) : soak_path("g%u.gguf", file);
}

int soak_open_as_model(const char *path, hoist_checkpoint **ret, struct soak_model *model)
{
	hoist_checkpoint *checkpoint = NULL;
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	if (err != 0)
		return err;
	CHECK(soak_model_read(hoist_checkpoint_metadata_find(checkpoint, SOAK_SEED_KEY), model));
	soak_check_list(checkpoint, model);
	*ret = checkpoint;
	return 0;
}

/* A file is replaced by rename: it is there, and whole, always. */
int soak_open(unsigned file, hoist_checkpoint **ret, struct soak_model *model)
{
	int err = soak_open_as_model(soak_file(file), ret, model);
	if (err == -ENOENT && file >= 4) {
		soak_count(SOAK_N_not_there, 1);
		return -EAGAIN;
	}
	CHECK(err == 0);
	return 0;
}

int soak_lock_shards(bool alone)
{
	int fd = open(soak_path("shards.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	while (flock(fd, (alone ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
		CHECK(errno == EWOULDBLOCK || errno == EINTR);
		(void)usleep(2000);
		soak_beat();
		if (atomic_load(&board->stop)) {
			close(fd);
			return -EAGAIN;
		}
	}
	return fd;
}

/* --- of all formats --- */

/* They are made in one folder, under the same names: each is moved to a folder of its own. */
static void move_made(const char *made, unsigned which)
{
	char to[600];
	const char *folder = soak_path("static%u", which);
	OK(mkdir(folder, 0700));
	DIR *dir = opendir(support_folder());
	CHECK(dir != NULL);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(to, sizeof to, "%s/%s", folder, entry->d_name);
		OK(renameat(dirfd(dir), entry->d_name, AT_FDCWD, to));
	}
	(void)closedir(dir);
	(void)snprintf(to, sizeof to, "%s/name", folder);
	OK(symlink(strrchr(made, '/') + 1, to));
}

void soak_make_statics(uint64_t seed)
{
	random_seed(seed | 1);
	for (unsigned i = 0; i < SOAK_STATICS; i++)
		move_made(random_checkpoint_of(i % RANDOM_N_FORMATS), i);
	support_cleanup();
}

const char *soak_static(unsigned which)
{
	char name[64];
	ssize_t n = readlink(soak_path("static%u/name", which), name, sizeof name - 1);
	CHECK(n > 0);
	name[n] = '\0';
	return soak_path("static%u/%s", which, name);
}

/* The tensor's bytes as the file has them, put together in C order. */
static unsigned char *gather(hoist_checkpoint *checkpoint, const hoist_tensor_info *info,
			     size_t item, size_t n)
{
	hoist_file_info file = {.size = sizeof file};
	unsigned char *bytes = malloc(info->bytes + 1);
	unsigned char *out = malloc(n + 1);
	OK(hoist_checkpoint_file(checkpoint, info->file, &file));
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && bytes != NULL && out != NULL);
	CHECK(pread(fd, bytes, info->bytes, (off_t)info->offset) == (ssize_t)info->bytes);
	close(fd);
	if (info->strides == NULL) {
		CHECK(n == info->bytes);
		free(out);
		return bytes;
	}
	int64_t index[RANDOM_MOST_RANK] = {0};
	for (size_t i = 0; i < n / item; i++) {
		int64_t flat = 0;
		for (int a = 0; a < info->rank; a++)
			flat += index[a] * info->strides[a];
		memcpy(out + i * item, bytes + (size_t)flat * item, item);
		for (int a = info->rank; a-- > 0; index[a] = 0)
			if (++index[a] < info->shape[a])
				break;
	}
	free(bytes);
	return out;
}

void soak_check_static(hoist_checkpoint *checkpoint, size_t t, hoist_buffer *buffer)
{
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, t, &info));
	size_t n = hoist_buffer_bytes(buffer);
	unsigned char *was = gather(checkpoint, &info, hoist_dtype_bits(info.dtype) / 8, n);
	unsigned char *is = malloc(n + 1);
	CHECK(is != NULL && hoist_buffer_dtype(buffer) == info.dtype);
	OK(hoist_buffer_copy_out(buffer, is, n));
	CHECK(XXH128_isEqual(XXH3_128bits(is, n), XXH3_128bits(was, n)));
	free(was);
	free(is);
	soak_count(SOAK_N_digests, 1);
	soak_count(SOAK_N_bytes, n);
}
