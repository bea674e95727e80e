/* SPDX-License-Identifier: MIT */
/* hoist/cache.h - checkpoints kept in memory, for processes that come and go.
 *
 *     hoist_cache_add("model/", NULL, NULL);         // once: loads it, 70 GB or so
 *
 *     hoist_cache_attach("model/", 0, &image);       // each worker: milliseconds
 *     hoist_image_find(image, "lm_head.weight", &i);
 *     hoist_image_buffer(image, i, &weight);
 *     hoist_image_close(image);                      // buffers live on
 *
 * An image is one file in memory (memfd) with all tensors of a checkpoint and a table of them.  The
 * file is sealed: no process can change, shrink or grow it.  All processes that attach the image
 * share its pages.  Each has a mapping of its own that is copied on write: no process sees the
 * writes of another.  Attaching opens none of the checkpoint's files and parses no header.  Whole
 * checkpoints are cached, not selections of tensors.
 *
 * The holder is a small process in the background that keeps the memory of all images of one user
 * alive: it keeps their descriptors, hands them out over a Unix socket, and maps none.
 * hoist_cache_add() starts the holder if there is none (see options.holder).  The holder ends when
 * its last image is dropped.  If it is killed, the images are lost once the attached processes have
 * let go of them; nothing else is lost.
 *
 * The holder's socket is in a folder of the user's alone: $XDG_RUNTIME_DIR/hoist, else
 * /run/user/UID/hoist, else /tmp/hoist-UID.  The folder goes with the last image.  hoist refuses a
 * folder that belongs to another user, that others may use, or that cannot be made: the text names
 * the folder.  Both sides refuse a peer of another user.  Data from the holder is checked as
 * strictly as a file's header.
 *
 * An image is known by the path of its checkpoint (links resolved), and is valid as long as the
 * checkpoint's files have not changed.  hoist compares device, inode, size, time of last write
 * (mtime) and time of last change (ctime) of each shard and of the index, and the list of files in
 * a folder.  If any differs, attaching is -ESTALE, and adding makes a new image.  ctime shows a
 * write whose mtime was set back.  chmod, chown, a rename and a further link change ctime, too: the
 * image is then made anew although the bytes are the same.
 *
 * Images are in huge pages where the kernel can make them (Linux 6.1, unless
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled is "deny").  10,000 tensors of 1 GiB in all are
 * then attached in 1 ms, and touching all of them takes 5 ms.  In small pages the first touch of
 * each 64 KiB costs a page fault, and touching all of them takes 40 ms.
 *
 * An image's pages are charged to the memory control group of the process that added the image, and
 * to no Budget.  An image that is larger than the rest of the group's limit is refused before it is
 * made (-ENOMEM), because the kernel would end the process.
 *
 * Threads: every function may be called from any thread; an image is immutable.  fork: a child
 * goes on with images and buffers.
 */
#ifndef HOIST_CACHE_H
#define HOIST_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>
#include <hoist/checkpoint.h>
#include <hoist/error.h>
#include <hoist/load.h>
#include <hoist/memory.h>

HOIST_BEGIN

/* --- images --- */

typedef struct hoist_image hoist_image;

#define HOIST_IMAGE_READ_ONLY 1u /* buffers are read-only.  An image in hugetlb pages needs, without
				  * this flag, as many free pages as it has, because each may be
				  * copied */

/* Attaches the image of the checkpoint at @path.
 * Returns: 0; -ENOENT (no image of this checkpoint; no holder; no such path); -ESTALE (the
 *   checkpoint has changed since the image was made: the text says how); -EINVAL; -EPERM (the
 *   holder, or its folder, is not this user's); -EBADMSG (the holder's answer is no image);
 *   -ENOMEM, -EMFILE. */
HOIST_API int hoist_cache_attach(const char *path, unsigned flags, hoist_image **ret);

/* Takes NULL.  Buffers that were handed out live on, and keep the mapping. */
HOIST_API void hoist_image_close(hoist_image *image);

typedef struct hoist_image_info {
	size_t size;           /* in: sizeof(hoist_image_info) */
	const char *path;      /* of the checkpoint, links resolved */
	const char *format;    /* hoist_checkpoint_format(); "" in a list */
	uint64_t bytes;        /* of the image's memory */
	uint64_t tensor_bytes; /* of all tensors */
	uint64_t n_tensors;
	uint64_t age_ns;       /* since the image was added */
	uint64_t n_attached;   /* how often the holder handed the image out; 0 outside of a list */
	int node;              /* the NUMA node that the pages are on; -1: several, or unknown */
	int pages;             /* HOIST_PAGES_HUGETLB, _SMALL; _DEFAULT: transparent huge pages */
	const char *note;      /* why pages or node differ from the options; "" if they do not */
} hoist_image_info;

/* Fills @info up to info->size.  Pointers live as long as the image.
 * Returns: 0; -EINVAL (info->size is 0 or larger than this library knows). */
HOIST_API int hoist_image_get_info(const hoist_image *image, hoist_image_info *info);

/* The five functions below answer as those of hoist/checkpoint.h with the same names, without the
 * checkpoint's files.  Pointers live as long as the image.
 *
 * The number of tensors, as hoist_checkpoint_n_tensors(). */
HOIST_API size_t hoist_image_n_tensors(const hoist_image *image);
/* As hoist_checkpoint_tensor(). */
HOIST_API int hoist_image_tensor(const hoist_image *image, size_t index, hoist_tensor_info *info);
/* As hoist_checkpoint_find(). */
HOIST_API int hoist_image_find(const hoist_image *image, const char *name, size_t *ret);
/* As hoist_checkpoint_n_metadata(). */
HOIST_API size_t hoist_image_n_metadata(const hoist_image *image);
/* As hoist_checkpoint_metadata(). */
HOIST_API int hoist_image_metadata(const hoist_image *image, size_t index, const char **key,
				   const char **value);

/* The buffer of tensor @index, on the CPU; a new reference.
 * Returns: 0; -EINVAL (@index is too large); -ENOMEM. */
HOIST_API int hoist_image_buffer(hoist_image *image, size_t index, hoist_buffer **ret);

/* --- the cache --- */

/* The progress of hoist_cache_add(): @done of @total bytes are loaded.  @done is 0 while memory is
 * taken for the bytes; both are 0 while another process adds the same checkpoint.
 * Returns: 0; any other value ends the call with -ECANCELED. */
typedef int hoist_cache_progress(void *context, uint64_t done, uint64_t total);

#define HOIST_CACHE_REPLACE 1u /* makes a new image even if there is a valid one */

typedef struct hoist_cache_options {
	size_t size;             /* sizeof(hoist_cache_options) */
	unsigned flags;
	unsigned open_flags;     /* of hoist_checkpoint_open() */
	unsigned image_flags;    /* of hoist_cache_attach(), for *ret */
	enum hoist_engine engine; /* how the checkpoint is loaded: as in hoist_load_options */
	enum hoist_io io;        /* not MAP */
	hoist_budget *budget;
	int placement;           /* HOIST_PLACE_...: the node of the pages; 0: the node of the
				  * thread that touches a page first */
	const int *nodes;
	size_t n_nodes;
	int pages;               /* HOIST_PAGES_...; DEFAULT: huge pages where the kernel has them;
				  * HUGETLB: as DEFAULT where there are too few */
	hoist_cache_progress *progress; /* called some ten times a second; NULL: no calls */
	void *progress_context;
	const char *holder;      /* the program that becomes the holder, if there is none yet: run
				  * as "PROGRAM cache hold", the program calls hoist_cache_hold().
				  * NULL: $HOIST_CACHE_HOLDER, or the command `hoist` where it was
				  * installed, or in $PATH */
} hoist_cache_options;

/* Loads the checkpoint at @path into a new image, seals the image and gives it to the holder.
 * @options NULL: all defaults.  @ret NULL: nothing is attached; else the image, attached.
 *
 * A valid image of the checkpoint is left as it is, unless REPLACE is set.  An image of the same
 * path that is not valid any more is replaced; processes that have it attached keep it.  If several
 * processes add one checkpoint at once, one loads it and the others wait.  An image is published
 * only when it is complete: a process that is killed leaves none behind.
 * Returns: 0; -EINVAL; -ECANCELED; -ESTALE (the checkpoint changed during the call); as
 *   hoist_checkpoint_open() and hoist_load_wait(); -ENOMEM (also: the image is larger than the rest
 *   of the control group's limit); -EFBIG (the image is larger than RLIMIT_FSIZE, which holds for
 *   memfds, too); -ENOENT (no program to be the holder); -EPERM; -EMFILE (the holder has as many
 *   images as it can: 4096, or as its descriptors allow); -EPIPE (the holder ended, again and
 *   again); -ECHILD (the holder did not start). */
HOIST_API int hoist_cache_add(const char *path, const hoist_cache_options *options,
			      hoist_image **ret);

typedef struct hoist_cache_list hoist_cache_list;

/* A list of the holder's images in the order in which they were added; a snapshot.  Without a
 * holder the list is empty.
 * Returns: 0; -EPERM (as hoist_cache_attach()); -EBADMSG (the holder's answer is no list, or has
 *   more than 4096 images); -ENOMEM, -EMFILE. */
HOIST_API int hoist_cache_list_create(hoist_cache_list **ret);
HOIST_API void hoist_cache_list_destroy(hoist_cache_list *list); /* takes NULL */
/* The number of images in the list. */
HOIST_API size_t hoist_cache_list_n_images(const hoist_cache_list *list);
/* Fills @info up to info->size with image @index.  Pointers live as long as the list.
 * Returns: 0; -EINVAL (@index is too large; info->size is 0 or larger than this library knows). */
HOIST_API int hoist_cache_list_image(const hoist_cache_list *list, size_t index,
				     hoist_image_info *info);

/* Drops the image of @path; @path NULL: all images.  The memory is free once the processes that
 * have an image attached have let go of it.  *@ret (@ret may be NULL) is the number of dropped
 * images.
 * Returns: 0; -ENOENT (no image of that path); -EPERM, -EBADMSG (as hoist_cache_list_create());
 *   -ENOMEM, -EMFILE. */
HOIST_API int hoist_cache_drop(const char *path, size_t *ret);

/* Starts a holder for the calling process's user, unless there is one.  A child of this process
 * goes to the background and is the holder; the caller goes on, and may end.  The holder is as
 * large as the caller: so call this in a program that does nothing else (`hoist cache hold`) and
 * has one thread.
 * Returns: 0, the holder answers; -EPERM (as hoist_cache_attach()); -ENOMEM, -EMFILE; -EAGAIN (no
 *   further process is possible; a process has the holder's lock and does not answer); -ECHILD (the
 *   holder ended at once); the errors of using the folder. */
HOIST_API int hoist_cache_hold(void);

HOIST_END

#endif
