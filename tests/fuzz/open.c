/* SPDX-License-Identifier: MIT */
/* A folder of a checkpoint, as a download leaves it: up to three files under names that mean
 * something, and what an index, or the first of several files, says of the others.  It is opened,
 * and what it lists is loaded to the host, read or mapped: each byte of it is the file's. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "hoist/buffer.h"
#include "hoist/checkpoint.h"
#include "hoist/device.h"
#include "hoist/load.h"
#include "tests/fuzz/fuzz-support.h"

#define MOST_LOADED ((uint64_t)1 << 20)
#define MOST_FILES 3

static const char *const names[] = {"model.safetensors",
				    "model.safetensors.index.json",
				    "model-00001-of-00003.safetensors",
				    "model-00002-of-00003.safetensors",
				    "m-00001-of-00002.gguf",
				    "m-00002-of-00002.gguf",
				    "m.gguf",
				    "a.npy",
				    "b.npy",
				    "x.bin",
				    "pytorch_model.bin.index.json",
				    "m.npz",
				    "m.max",
				    "model-00001-of-00001.safetensors"};

static char folder[256];
static int in = -1;

static void make_folder(void)
{
	const char *where = getenv("TMPDIR");
	if (in >= 0)
		return;
	(void)snprintf(folder, sizeof folder, "%s/fuzz-open-%d", where != NULL ? where : "/tmp",
		       (int)getpid());
	HOLDS(mkdir(folder, 0700) == 0 || errno == EEXIST);
	in = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	HOLDS(in >= 0);
}

static void write_file(const char *name, const uint8_t *bytes, size_t n)
{
	int fd = openat(in, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	HOLDS(fd >= 0 && (n == 0 || write(fd, bytes, n) == (ssize_t)n) && close(fd) == 0);
}

/* The input's last byte says how many files it is cut into, and each before it where, and what that
 * one is called. */
static void write_files(const uint8_t *bytes, size_t n)
{
	size_t files = n > 0 ? bytes[n - 1] % (2 * MOST_FILES) : 0;
	if (n < 3 * MOST_FILES + 1 || files == 0 || files > MOST_FILES) {
		write_file(names[n > 8 && bytes[8] == '{' ? 0 : n % HOIST__ARRAY_SIZE(names)],
			   bytes, n);
		return;
	}
	const uint8_t *say = bytes + n - 1 - 3 * files;
	n -= 1 + 3 * files;
	for (size_t i = 0; i < files; i++, say += 3) {
		size_t cut = i + 1 == files ? n : (say[0] | (size_t)say[1] << 8) % (n + 1);
		write_file(names[say[2] % HOIST__ARRAY_SIZE(names)], bytes, cut);
		bytes += cut;
		n -= cut;
	}
}

static void empty_folder(void)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(names); i++)
		(void)unlinkat(in, names[i], 0);
}

/* --- what was opened --- */

static void compare(const char *path, const hoist_tensor_info *tensor, hoist_buffer *buffer)
{
	size_t n = hoist_buffer_bytes(buffer);
	uint8_t *expected = malloc(n + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	HOLDS(expected != NULL && fd >= 0 && n == tensor->bytes);
	HOLDS(pread(fd, expected, n, (off_t)tensor->offset) == (ssize_t)n && close(fd) == 0);
	HOLDS(n == 0 || memcmp(expected, hoist_buffer_data(buffer), n) == 0);
	free(expected);
}

static void load(hoist_checkpoint *checkpoint, enum hoist_io io)
{
	static hoist_device *cpu;
	hoist_load *load = NULL;
	if (cpu == NULL)
		HOLDS(hoist_device_open("cpu", &cpu) == 0);
	const hoist_load_options options = {.size = sizeof options, .device = cpu, .io = io};
	HOLDS(hoist_load_start(checkpoint, &options, &load) == 0 && hoist_load_wait(load) == 0);
	HOLDS(hoist_load_n_tensors(load) == hoist_checkpoint_n_tensors(checkpoint));
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		hoist_file_info file = {.size = sizeof file};
		hoist_buffer *buffer = NULL;
		size_t index;
		HOLDS(hoist_load_tensor(load, i, &index, &buffer) == 0);
		HOLDS(hoist_checkpoint_tensor(checkpoint, index, &tensor) == 0);
		HOLDS(hoist_checkpoint_file(checkpoint, tensor.file, &file) == 0);
		if (hoist_buffer_is_contiguous(buffer))
			compare(file.path, &tensor, buffer);
		hoist_buffer_unref(buffer);
	}
	hoist_load_destroy(load);
}

static void use(hoist_checkpoint *checkpoint)
{
	for (size_t i = 0; i < hoist_checkpoint_n_tensors(checkpoint); i++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		unsigned char digest[16];
		size_t found;
		HOLDS(hoist_checkpoint_tensor(checkpoint, i, &tensor) == 0);
		fuzz_check_text(tensor.name);
		HOLDS(hoist_checkpoint_find(checkpoint, tensor.name, &found) == 0 && found == i);
		HOLDS(tensor.file < hoist_checkpoint_n_files(checkpoint));
		int err = hoist_checkpoint_digest(checkpoint, i, digest);
		HOLDS(err == 0 || err == -ENODATA);
	}
	for (size_t i = 0; i < hoist_checkpoint_n_metadata(checkpoint); i++) {
		const char *key;
		const char *value;
		HOLDS(hoist_checkpoint_metadata(checkpoint, i, &key, &value) == 0);
		fuzz_check_text(key);
		fuzz_check_text(value);
	}
	if (hoist_checkpoint_bytes(checkpoint) <= MOST_LOADED) {
		load(checkpoint, HOIST_IO_CACHED);
		load(checkpoint, HOIST_IO_MAP);
	}
	hoist_checkpoint_close(checkpoint);
}

static void open_one(const char *path, size_t n)
{
	hoist_checkpoint *checkpoint = NULL;
	size_t n_fds = fuzz_n_fds();
	fuzz_memory_begin();
	int err = hoist_checkpoint_open(path, 0, &checkpoint);
	HOLDS(fuzz_memory_end() <= FUZZ_MEMORY_TIMES_TORCH * n + FUZZ_MEMORY_BYTES_TORCH);
	HOLDS((err == 0) == (checkpoint != NULL));
	if (err < 0)
		fuzz_check_text(hoist_error());
	else
		use(checkpoint);
	HOLDS(fuzz_n_fds() == n_fds);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static const char *const indexes[] = {"model.safetensors.index.json",
					      "pytorch_model.bin.index.json"};
	char path[300];
	make_folder();
	write_files(bytes, n);
	open_one(folder, n);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(indexes); i++) {
		(void)snprintf(path, sizeof path, "%s/%s", folder, indexes[i]);
		if (faccessat(in, indexes[i], F_OK, 0) == 0)
			open_one(path, n);
	}
	fuzz_check_mappings(folder);
	empty_folder();
	return 0;
}
