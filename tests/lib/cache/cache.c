/* SPDX-License-Identifier: MIT */
/* The cache as its users see it: adding, attaching, checkpoints that change, lists, drops; in
 * processes of their own.  Exit: 0, 1. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/lib/cache/kinds.h"
#include "tests/support/child.h"
#include "tests/support/lib-cache.h"
#include "tests/support/load-support.h"
#include "tests/support/wrap.h"

#define N 5
#define BYTES 70000u

static char model[4096];

/* How often a file system was asked anew. */
static unsigned n_asked_anew;

WRAP(int, statx, (int fd, const char *name, int flags, unsigned mask, struct statx *stx))
{
	n_asked_anew += (flags & AT_STATX_SYNC_TYPE) == AT_STATX_FORCE_SYNC;
	return __real_statx(fd, name, flags, mask, stx);
}

/* The reading of the checkpoint's folder that fails, from 1; 0: none.  Folders of the kernel's,
 * which describe the machine, are read beside it. */
static unsigned bad_readdir;
static struct stat bad_folder;

WRAP(struct dirent *, readdir, (DIR * dir))
{
	struct stat st;
	bool counts = bad_readdir != 0 && fstat(dirfd(dir), &st) == 0 &&
		      st.st_dev == bad_folder.st_dev && st.st_ino == bad_folder.st_ino;
	if (!counts || --bad_readdir > 0)
		return __real_readdir(dir);
	errno = EIO;
	return NULL;
}

static void write_model(unsigned seed)
{
	(void)snprintf(model, sizeof model, "%s", cache_path("model.safetensors"));
	cache_write(model, N, BYTES, seed);
}

/* In a process of its own: there it must be as well. */
static void in_child(void (*what)(void))
{
	(void)fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		what();
		exit(0);
	}
	OK(child_status(child));
}

static void attach_and_write(void)
{
	hoist_image *image = NULL;
	hoist_buffer *buffer = NULL;
	OK(hoist_cache_attach(model, 0, &image));
	cache_check(image, N, BYTES, 1);
	OK(hoist_image_buffer(image, 2, &buffer));
	hoist_image_close(image);
	/* Copied on write, and there as long as the buffer. */
	memset(hoist_buffer_data(buffer), 0xee, BYTES);
	CHECK(*(unsigned char *)hoist_buffer_data(buffer) == 0xee);
	hoist_buffer_unref(buffer);
}

static void check_image(hoist_image *image)
{
	hoist_image_info info = {.size = sizeof info};
	hoist_tensor_info tensor = {.size = sizeof tensor};
	const char *key = NULL;
	const char *value = NULL;
	size_t index = 77;
	OK(hoist_image_get_info(image, &info));
	CHECK(strcmp(info.path, model) == 0 && strcmp(info.format, "safetensors") == 0);
	CHECK(info.n_tensors == N && info.tensor_bytes == N * BYTES);
	CHECK(info.bytes >= N * BYTES && info.bytes % 4096 == 0);
	CHECK(info.age_ns < 600 * UINT64_C(1000000000));
	CHECK(hoist_image_n_metadata(image) == 2);
	OK(hoist_image_metadata(image, 1, &key, &value));
	CHECK(strcmp(key, "who") == 0 && strcmp(value, "test") == 0);
	CHECK(hoist_image_metadata(image, 2, &key, &value) == -EINVAL);
	OK(hoist_image_tensor(image, 3, &tensor));
	CHECK(strcmp(tensor.name, "t000003") == 0 && tensor.dtype == HOIST_U8);
	CHECK(tensor.rank == 1 && tensor.shape[0] == BYTES && tensor.bytes == BYTES);
	CHECK(tensor.file == 0 && tensor.offset > 3 * BYTES);
	REFUSED(hoist_image_tensor(image, N, &tensor), -EINVAL, "the image has 5");
	REFUSED(hoist_image_find(image, "absent", &index), -ENOENT, "absent");
	REFUSED(hoist_image_find(image, NULL, &index), -ENOENT, "null");
	CHECK(index == 77);
	hoist_buffer *buffer = NULL;
	REFUSED(hoist_image_buffer(image, N, &buffer), -EINVAL, "tensor 5");
	CHECK(buffer == NULL);
	cache_check(image, N, BYTES, 1);
}

static void run_simple(void)
{
	hoist_image *image = NULL;
	hoist_image *again = NULL;
	write_model(1);
	REFUSED(hoist_cache_attach(model, 0, &image), -ENOENT, "not in the cache");
	OK(cache_holder());
	OK(hoist_cache_add(model, NULL, NULL));
	int holder = cache_holder();
	CHECK(holder > 0 && holder != getpid());
	in_child(attach_and_write);
	in_child(attach_and_write);
	OK(hoist_cache_attach(model, 0, &image));
	check_image(image);
	/* There is one already; other spellings of its path are the same. */
	OK(hoist_cache_add(cache_path("./model.safetensors"), NULL, &again));
	cache_check(again, N, BYTES, 1);
	hoist_image_close(again);
	hoist_image_close(image);
	hoist_image_close(NULL);
	CHECK(cache_holder() == holder);
}

static void run_read_only(void)
{
	hoist_image *image = NULL;
	hoist_buffer *buffer = NULL;
	unsigned char byte = 1;
	OK(hoist_cache_attach(model, HOIST_IMAGE_READ_ONLY, &image));
	OK(hoist_image_buffer(image, 0, &buffer));
	CHECK(hoist_buffer_write(buffer, 0, &byte, 1) == -EROFS);
	hoist_buffer_unref(buffer);
	hoist_image_close(image);
	OK(hoist_cache_attach(model, 0, &image));
	OK(hoist_image_buffer(image, 0, &buffer));
	OK(hoist_buffer_write(buffer, 0, &byte, 1));
	hoist_buffer_unref(buffer);
	hoist_image_close(image);
}

static void check_list(uint64_t n_attached)
{
	hoist_cache_list *list = NULL;
	hoist_image_info info = {.size = sizeof info};
	OK(hoist_cache_list_create(&list));
	CHECK(hoist_cache_list_n_images(list) == 1);
	OK(hoist_cache_list_image(list, 0, &info));
	CHECK(strcmp(info.path, model) == 0 && info.n_tensors == N);
	CHECK(info.tensor_bytes == N * BYTES && info.n_attached == n_attached);
	CHECK(info.age_ns < 600 * UINT64_C(1000000000));
	CHECK(hoist_cache_list_image(list, 1, &info) == -EINVAL);
	hoist_cache_list_destroy(list);
	hoist_cache_list_destroy(NULL);
}

/* --- a checkpoint that changes --- */

static void touch(const char *path, long seconds)
{
	const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
	OK(utimensat(AT_FDCWD, path, times, 0));
}

/* Added as bytes, it is another image than of its tensors. */
static void run_raw(void)
{
	const hoist_cache_options raw = {.size = sizeof raw, .open_flags = HOIST_OPEN_RAW};
	hoist_image *image = NULL;
	size_t index;
	OK(hoist_cache_add(model, &raw, &image));
	CHECK(hoist_image_n_tensors(image) == 1);
	OK(hoist_image_find(image, "data", &index));
	hoist_image_close(image);
	OK(hoist_cache_add(model, NULL, &image));
	cache_check(image, N, BYTES, 1);
	hoist_image_close(image);
}

/* This machine may remember a state of a network's file that another machine has changed since. */
static void run_asked_anew(void)
{
	hoist_image *image = NULL;
	unsigned before = n_asked_anew;
	OK(hoist_cache_attach(model, 0, &image));
	CHECK(n_asked_anew == before + 1);
	hoist_image_close(image);
}

/* Written to in place, at the same size, and the time of the last write set back. */
static void run_set_back(void)
{
	hoist_image *image = NULL;
	struct stat was, now;
	OK(stat(model, &was));
	do {
		write_model(2);
		const struct timespec times[2] = {was.st_atim, was.st_mtim};
		OK(utimensat(AT_FDCWD, model, times, 0));
		OK(stat(model, &now));
	} while (now.st_ctim.tv_sec == was.st_ctim.tv_sec &&
		 now.st_ctim.tv_nsec == was.st_ctim.tv_nsec);
	CHECK(now.st_ino == was.st_ino && now.st_mtim.tv_nsec == was.st_mtim.tv_nsec);
	REFUSED(hoist_cache_attach(model, 0, &image), -ESTALE, "was written to, renamed or");
	OK(hoist_cache_add(model, NULL, &image));
	cache_check(image, N, BYTES, 2);
	hoist_image_close(image);
	write_model(1);
	OK(hoist_cache_add(model, NULL, NULL));
}

static void run_stale(void)
{
	hoist_image *image = NULL;
	hoist_image *old = NULL;
	OK(hoist_cache_attach(model, 0, &old));
	touch(model, 1000000000);
	REFUSED(hoist_cache_attach(model, 0, &image), -ESTALE, "was written to");
	write_model(2);
	REFUSED(hoist_cache_attach(model, 0, &image), -ESTALE, "was written to");
	cache_write(model, N, BYTES + 1, 2);
	REFUSED(hoist_cache_attach(model, 0, &image), -ESTALE, "had 3");
	OK(unlink(model));
	REFUSED(hoist_cache_attach(model, 0, &image), -ENOENT, "model.safetensors");
	write_model(3);
	REFUSED(hoist_cache_attach(model, 0, &image), -ESTALE, model);
	CHECK(image == NULL);
	/* An attached image stays as it was; an added one replaces it for the next. */
	OK(hoist_cache_add(model, NULL, &image));
	cache_check(image, N, BYTES, 3);
	cache_check(old, N, BYTES, 1);
	hoist_image_close(image);
	hoist_image_close(old);
	write_model(1);
	OK(hoist_cache_add(model, NULL, NULL));
	check_list(0);
}

/* --- folders --- */

static void write_folder(void)
{
	const char *path = cache_path("folder");
	OK(mkdir(cache_path("folder"), 0755));
	cache_write(cache_path("folder/a.safetensors"), 2, 100, 5);
	OK(hoist_cache_add(path, NULL, NULL));
}

/* A folder that cannot be read to its end: nobody knows its checkpoint. */
static void run_bad_folder(const char *path)
{
	const hoist_cache_options options = {.size = sizeof options, .flags = HOIST_CACHE_REPLACE};
	unsigned n = 0;
	OK(stat(path, &bad_folder));
	do {
		bad_readdir = ++n;
		int err = hoist_cache_add(path, &options, NULL);
		CHECK(err == (bad_readdir == 0 ? -EIO : 0));
	} while (bad_readdir == 0);
	CHECK(n > 3 * 3); /* opened, and looked through before and after the load */
	bad_readdir = 0;
}

static void run_folder(void)
{
	hoist_image *image = NULL;
	const char *path = cache_path("folder");
	write_folder();
	OK(hoist_cache_attach(path, 0, &image));
	cache_check(image, 2, 100, 5);
	hoist_image_close(image);
	run_bad_folder(path);
	/* A file that does not belong to the checkpoint. */
	cache_write(cache_path("folder/notes.txt"), 1, 1, 0);
	OK(hoist_cache_attach(path, 0, &image));
	hoist_image_close(image);
	image = NULL;
	/* Files that do. */
	support_put_safetensors(cache_path("folder/b.safetensors"), "{", "", 0);
	CHECK(hoist_cache_attach(path, 0, &image) == -EBADMSG); /* it is no checkpoint any more */
	support_put_safetensors(cache_path("folder/b.safetensors"),
				"{\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
				"x", 1);
	REFUSED(hoist_cache_attach(path, 0, &image), -ESTALE, "has other files");
	CHECK(image == NULL);
	OK(unlink(cache_path("folder/b.safetensors")));
	/* It was added without leave to follow links: none is followed to look at it, either. */
	OK(symlink("../model.safetensors", cache_path("folder/b.safetensors")));
	CHECK(hoist_cache_attach(path, 0, &image) == -EXDEV);
	OK(unlink(cache_path("folder/b.safetensors")));
	OK(hoist_cache_attach(path, 0, &image));
	hoist_image_close(image);
	/* A checkpoint that is gone can be dropped. */
	OK(unlink(cache_path("folder/notes.txt")));
	OK(unlink(cache_path("folder/a.safetensors")));
	OK(rmdir(cache_path("folder")));
	size_t n = 0;
	OK(hoist_cache_drop(path, &n));
	CHECK(n == 1);
	REFUSED(hoist_cache_drop(path, &n), -ENOENT, "not in the cache");
}

/* --- options --- */

static int progressed;

static int progress(void *context, uint64_t done, uint64_t total)
{
	CHECK(done <= total && context == &progressed);
	progressed++;
	return 0;
}

static int stop(void *context, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	(void)context;
	return 1;
}

static void run_options(void)
{
	hoist_image *image = NULL;
	const int node = 0;
	static const int absent = 999;
	static const struct {
		hoist_cache_options o;
		const char *text;
	} rows[] = {
		{{.placement = HOIST_PLACE_PREFER, .nodes = &absent, .n_nodes = 1},
		 "no NUMA node 999"},
		{{.placement = HOIST_PLACE_PREFER, .nodes = &absent}, "takes one"},
		{{.placement = 9}, "placement is 9"},
		{{.pages = 7}, "pages is 7"},
		{{.io = HOIST_IO_MAP}, "io is 3"},
		{{.flags = 8}, "0x8"},
		{{.image_flags = 16}, "0x10"},
	};
	hoist_budget *budget = NULL;
	OK(hoist_budget_create((size_t)64 << 20, &budget));
	hoist_cache_options o = {
		.size = sizeof o,
		.flags = HOIST_CACHE_REPLACE,
		.image_flags = HOIST_IMAGE_READ_ONLY,
		.budget = budget,
		.placement = HOIST_PLACE_PREFER,
		.nodes = &node,
		.n_nodes = 1,
		.pages = HOIST_PAGES_HUGETLB,
		.progress = progress,
		.progress_context = &progressed,
	};
	OK(hoist_cache_add(model, &o, &image));
	hoist_image_info info = {.size = sizeof info};
	OK(hoist_image_get_info(image, &info));
	/* There may be no such pages here: then it says so. */
	CHECK(info.pages == HOIST_PAGES_HUGETLB || strstr(info.note, "no hugetlb pages") != NULL);
	CHECK(info.node == 0 || info.node == -1);
	cache_check(image, N, BYTES, 1);
	hoist_image_close(image);
	image = NULL;
	o.progress = stop;
	REFUSED(hoist_cache_add(model, &o, &image), -ECANCELED, "ancel");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		o = rows[i].o;
		o.size = sizeof o;
		o.flags = o.flags != 0 ? o.flags : HOIST_CACHE_REPLACE;
		REFUSED(hoist_cache_add(model, &o, &image), -EINVAL, rows[i].text);
	}
	REFUSED(hoist_cache_add(NULL, NULL, NULL), -EINVAL, "NULL");
	REFUSED(hoist_cache_attach(model, 4, &image), -EINVAL, "0x4");
	REFUSED(hoist_cache_attach(model, 0, NULL), -EINVAL, "NULL");
	REFUSED(hoist_cache_drop("", NULL), -EINVAL, "empty");
	REFUSED(hoist_cache_add(cache_path("absent"), NULL, NULL), -ENOENT, "absent");
	CHECK(image == NULL);
	/* Nothing of all that was published. */
	OK(hoist_cache_attach(model, 0, &image));
	cache_check(image, N, BYTES, 1);
	hoist_image_close(image);
	hoist_budget_unref(budget);
}

/* --- the end --- */

static void run_drop(void)
{
	hoist_image *image = NULL;
	hoist_cache_list *list = NULL;
	size_t n = 0;
	OK(hoist_cache_attach(model, 0, &image));
	OK(hoist_cache_drop(NULL, &n));
	CHECK(n == 1);
	cache_wait_for_end();
	cache_check(image, N, BYTES, 1);
	hoist_image_close(image);
	REFUSED(hoist_cache_attach(model, 0, &image), -ENOENT, "not in the cache");
	REFUSED(hoist_cache_drop(NULL, &n), -ENOENT, "nothing");
	OK(hoist_cache_list_create(&list));
	CHECK(hoist_cache_list_n_images(list) == 0);
	hoist_cache_list_destroy(list);
}

int main(int argc, char **argv)
{
	(void)cache_test_begin(argc, argv);
	run_simple();
	run_read_only();
	check_list(5);
	run_raw();
	run_asked_anew();
	run_set_back();
	run_stale();
	run_folder();
	run_options();
	run_kinds(model);
	run_drop();
	return 0;
}
