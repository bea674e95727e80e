/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint-folder.c - finds which of a folder's files are the checkpoint.
 * The contract is in hoist/checkpoint.h.
 *
 * The name of a file decides whether the file is looked at, its content what the file is. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/order.h"
#include "io/again.h"
#include "lib/checkpoint/checkpoint.h"

/* In the order in which the kinds are tried. */
enum kind { SAFETENSORS_INDEX, SAFETENSORS, GGUF, TORCH_INDEX, NPZ, NPY, MAX, TORCH, N_KINDS };

/* The first suffix that matches a name decides its kind. */
static const struct {
	const char *suffix;
	enum kind kind;
} suffixes[] = {
	{".safetensors.index.json", SAFETENSORS_INDEX},
	{".safetensors", SAFETENSORS},
	{".gguf", GGUF},
	{".bin.index.json", TORCH_INDEX},
	{".npz", NPZ},
	{".npy", NPY},
	{".max", MAX},
	{".pt", TORCH},
	{".pth", TORCH},
	{".bin", TORCH},
};

/* The file to open if there are several of a kind. */
static const char *const preferred[N_KINDS] = {
	[SAFETENSORS_INDEX] = "model.safetensors.index.json",
	[SAFETENSORS] = "model.safetensors",
	[TORCH_INDEX] = "pytorch_model.bin.index.json",
	[TORCH] = "pytorch_model.bin",
};

struct names {
	char **list;
	size_t n;
};

struct folder {
	int fd;
	const char *path;
	bool has_kept;
	struct names names[N_KINDS];
};

static void free_names(struct folder *folder)
{
	for (size_t k = 0; k < N_KINDS; k++) {
		for (size_t i = 0; i < folder->names[k].n; i++)
			free(folder->names[k].list[i]);
		free(folder->names[k].list);
	}
}

static int add_name(struct names *names, const char *name)
{
	char **list = realloc(names->list, (names->n + 1) * sizeof *list);
	if (list == NULL)
		return hoist__fail_nomem("a list of files", (names->n + 1) * sizeof *list);
	names->list = list;
	names->list[names->n] = strdup(name);
	if (names->list[names->n] == NULL)
		return hoist__fail_nomem("a file name", strlen(name));
	names->n++;
	return 0;
}

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name);
	size_t m = strlen(suffix);
	return n > m && strcmp(name + n - m, suffix) == 0;
}

/* Hidden files are left out. */
static int sort_name(void *context, const char *name)
{
	struct folder *folder = context;
	folder->has_kept |= has_suffix(name, HOIST__KEPT_ENDING);
	for (size_t i = 0; name[0] != '.' && i < HOIST__ARRAY_SIZE(suffixes); i++)
		if (has_suffix(name, suffixes[i].suffix))
			return add_name(&folder->names[suffixes[i].kind], name);
	return 0;
}

/* Returns the next entry.  At the end, returns NULL with errno 0. */
static struct dirent *next_entry(DIR *dir)
{
	struct dirent *entry;
	unsigned n = 0;
	do {
		errno = 0;
		entry = readdir(dir);
	} while (entry == NULL && hoist__again(errno, &n));
	return entry;
}

int hoist__folder_list(int dir_fd, const char *path, const char *display,
		       int (*each)(void *context, const char *name), void *context)
{
	int fd = HOIST__UNINTERRUPTED(openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		int err = -errno;
		if (fd >= 0)
			close(fd);
		return hoist__fail_errno(err, "listing %s", display);
	}
	int err = 0;
	struct dirent *entry;
	while (err == 0 && (entry = next_entry(dir)) != NULL)
		err = each(context, entry->d_name);
	if (err == 0 && errno != 0)
		err = hoist__fail_errno(-errno, "listing %s", display);
	closedir(dir);
	return err;
}

static int list_folder(struct folder *folder)
{
	int err = hoist__folder_list(folder->fd, ".", folder->path, sort_name, folder);
	for (size_t k = 0; k < N_KINDS; k++)
		if (folder->names[k].n > 1)
			qsort(folder->names[k].list, folder->names[k].n,
			      sizeof *folder->names[k].list, hoist__compare_texts);
	return err;
}

static int add_all(hoist_checkpoint *checkpoint, const struct folder *folder,
		   const struct names *names)
{
	return hoist__checkpoint_add(checkpoint, folder->fd, folder->path,
				     (const char *const *)names->list, names->n);
}

/* Returns the only file of its kind, or the preferred one.  NULL, without setting the error text,
 * if there is neither. */
static const char *the_one(const struct folder *folder, enum kind kind)
{
	const struct names *names = &folder->names[kind];
	for (size_t i = 0; i < names->n; i++)
		if (names->n == 1 ||
		    (preferred[kind] != NULL && strcmp(names->list[i], preferred[kind]) == 0))
			return names->list[i];
	return NULL;
}

static int fail_several(const struct folder *folder, const char *what, size_t n, const char *first,
			const char *second)
{
	return hoist__fail(-EINVAL, "%s has %zu %s (%s, %s%s); name the one to open", folder->path,
			   n, what, first, second, n > 2 ? ", ..." : "");
}

static int open_index(hoist_checkpoint *checkpoint, const struct folder *folder, enum kind kind)
{
	const struct names *names = &folder->names[kind];
	const char *name = the_one(folder, kind);
	if (name == NULL)
		return fail_several(folder, "index files", names->n, names->list[0],
				    names->list[1]);
	char *display = hoist__join_path(folder->path, name);
	if (display == NULL)
		return -ENOMEM;
	struct hoist__file *file;
	int err = hoist__file_open(folder->fd, name, display,
				   HOIST__FILE_NO_DIRECT | checkpoint->file_flags, &file);
	free(display);
	if (err < 0)
		return err;
	err = hoist__checkpoint_add_index(checkpoint, folder->fd, folder->path, file);
	hoist__file_close(file);
	return err;
}

/* The folder must have one model: a single file, or parts, of which the first is opened here. */
static int open_gguf(hoist_checkpoint *checkpoint, const struct folder *folder)
{
	const struct names *names = &folder->names[GGUF];
	const char *models[2] = {NULL, NULL};
	size_t n = 0;
	for (size_t i = 0; i < names->n; i++) {
		unsigned of;
		if (hoist__gguf_name(names->list[i], &of) > 1)
			continue;
		if (n < HOIST__ARRAY_SIZE(models))
			models[n] = names->list[i];
		n++;
	}
	if (n == 0)
		return hoist__fail(-ENOENT,
				   "%s has parts of a GGUF model (%s, ...), but not the first one",
				   folder->path, names->list[0]);
	if (n > 1)
		return fail_several(folder, "GGUF models", n, models[0], models[1]);
	int err = hoist__checkpoint_add(checkpoint, folder->fd, folder->path, models, 1);
	if (err == 0 && hoist__gguf_is_first(&checkpoint->files[0]))
		err = hoist__gguf_add_parts(checkpoint, folder->fd, folder->path, models[0]);
	return err;
}

/* A .npy file does not name its tensor: the file's name does. */
static int open_arrays(hoist_checkpoint *checkpoint, const struct folder *folder)
{
	const struct names *names = &folder->names[NPY];
	int err = add_all(checkpoint, folder, names);
	for (size_t i = 0; err == 0 && i < names->n; i++) {
		const struct hoist__checkpoint_file *shard = &checkpoint->files[i];
		if (shard->format != HOIST__NPY)
			continue;
		err = hoist__manifest_rename(shard->manifest, names->list[i],
					     strlen(names->list[i]) - strlen(".npy"));
		if (err < 0)
			return hoist__fail_in(err, "opening %s", shard->file->path);
	}
	return err;
}

static int open_only(hoist_checkpoint *checkpoint, const struct folder *folder, enum kind kind,
		     const char *what)
{
	const struct names *names = &folder->names[kind];
	const char *name = the_one(folder, kind);
	if (name == NULL)
		return fail_several(folder, what, names->n, names->list[0], names->list[1]);
	return hoist__checkpoint_add(checkpoint, folder->fd, folder->path, &name, 1);
}

static int open_kind(hoist_checkpoint *checkpoint, const struct folder *folder, enum kind kind)
{
	switch (kind) {
	case SAFETENSORS_INDEX:
	case TORCH_INDEX:
		return open_index(checkpoint, folder, kind);
	case SAFETENSORS:
		/* Without a preferred file, all files are parts of one checkpoint. */
		if (the_one(folder, kind) != NULL)
			return open_only(checkpoint, folder, kind, "files");
		return add_all(checkpoint, folder, &folder->names[kind]);
	case GGUF:
		return open_gguf(checkpoint, folder);
	case NPY:
		return open_arrays(checkpoint, folder);
	case NPZ:
		return open_only(checkpoint, folder, kind, ".npz files");
	case MAX:
		return open_only(checkpoint, folder, kind, ".max files");
	case TORCH:
		return open_only(checkpoint, folder, kind, ".pt, .pth and .bin files");
	case N_KINDS:
		break;
	}
	return hoist__fail(-ENOENT,
			   "%s has no checkpoint: no file *.safetensors.index.json, *.safetensors, "
			   "*.gguf, *.bin.index.json, *.npz, *.npy, *.max, *.pt, *.pth or *.bin is "
			   "there",
			   folder->path);
}

int hoist__checkpoint_add_folder(hoist_checkpoint *checkpoint, int dir_fd, const char *path)
{
	struct folder folder = {.fd = dir_fd, .path = path};
	int err = list_folder(&folder);
	checkpoint->none_kept = !folder.has_kept;
	enum kind kind = 0;
	while (kind < N_KINDS && folder.names[kind].n == 0)
		kind++;
	if (err == 0)
		err = open_kind(checkpoint, &folder, kind);
	free_names(&folder);
	return err;
}
