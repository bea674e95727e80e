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
 * An image is one file in memory (memfd) with all tensors of a checkpoint and a table of them,
 * sealed: nobody can change, shrink or grow it.  All who attach it share its pages, each through a
 * mapping of its own that is copied on write: what one writes, no other sees.  Attaching opens none
 * of the checkpoint's files and parses no header.
 *
 * Memory lives as long as somebody has it: that is the holder, a small process in the background
 * that keeps the descriptors of all images of one user, hands them out over a Unix socket, and has
 * nothing mapped.  hoist_cache_add() starts it where there is none (see options.holder); it ends
 * when its last image is dropped.  If it is killed, the images go with it, once those who are
 * attached let go; nothing else is lost.
 *
 * Its socket is in a folder of the user's alone: $XDG_RUNTIME_DIR/hoist, else /run/user/UID/hoist,
 * else /tmp/hoist-UID.  The folder goes with the last image.  A folder that is somebody else's, or
 * that others may use, is refused, and so is one that cannot be made: the text names it.  A peer of
 * another user is refused on both sides.  What comes from it is checked as a file's header is.
 *
 * An image is known by the path of its checkpoint (links resolved), and is as good as the
 * checkpoint's files are what they were: device, inode, size, time of last write (mtime) and time of
 * last change (ctime) of each shard and of the index, and which files a folder has.  If any differs,
 * attaching is -ESTALE, and adding makes a new one.  A write whose mtime was set back moves ctime;
 * so do chmod, chown, a rename and a further link, after which the image is made anew although the
 * bytes are the same.  Whole checkpoints are cached, not selections.
 *
 * Images are in huge pages where the kernel can make them (Linux 6.1, unless
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled is "deny"): 10,000 tensors of 1 GiB in all are
 * there in 1 ms, and each was touched in 5.  In small ones the first touch of each 64 KiB costs a
 * page fault: 40 ms.
 *
 * Its pages are charged to the memory cgroup of the process that added it, and to no Budget; an
 * image that is larger than what the group has left is refused before it is made (-ENOMEM), as the
 * kernel would end the process.
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

#define HOIST_IMAGE_READ_ONLY 1u /* buffers are read-only.  Of hugetlb pages: without it, as many
				  * pages must be free as the image has, since each may be copied */

/* Attaches the image of the checkpoint at @path.
 * Returns: 0; -ENOENT there is no image of it, or no holder, or no such path; -ESTALE the
 *   checkpoint has changed since (the text says what); -EINVAL; -EPERM the holder, or its folder, is
 *   not this user's; -EBADMSG what came from the holder is no image; -ENOMEM, -EMFILE. */
HOIST_API int hoist_cache_attach(const char *path, unsigned flags, hoist_image **ret);

/* Takes NULL.  Buffers that were handed out live on, and the mapping with them. */
HOIST_API void hoist_image_close(hoist_image *image);

typedef struct hoist_image_info {
	size_t size;           /* in: sizeof(hoist_image_info) */
	const char *path;      /* of the checkpoint, links resolved */
	const char *format;    /* hoist_checkpoint_format(); "" in a list */
	uint64_t bytes;        /* of memory */
	uint64_t tensor_bytes; /* of all tensors */
	uint64_t n_tensors;
	uint64_t age_ns;       /* since it was added */
	uint64_t n_attached;   /* how often it was handed out; 0 but in a list */
	int node;              /* the NUMA node that its pages are on; -1: several, or unknown */
	int pages;             /* HOIST_PAGES_HUGETLB, _SMALL; _DEFAULT: transparent huge pages */
	const char *note;      /* why pages or node are not what was asked for; "" if they are */
} hoist_image_info;

/* Fills @info up to the size it says; pointers live as long as the image.
 * Returns: 0; -EINVAL for a bad size. */
HOIST_API int hoist_image_get_info(const hoist_image *image, hoist_image_info *info);

/* What the checkpoint's functions of these names say, without the checkpoint. */
HOIST_API size_t hoist_image_n_tensors(const hoist_image *image);
HOIST_API int hoist_image_tensor(const hoist_image *image, size_t index, hoist_tensor_info *info);
HOIST_API int hoist_image_find(const hoist_image *image, const char *name, size_t *ret);
HOIST_API size_t hoist_image_n_metadata(const hoist_image *image);
HOIST_API int hoist_image_metadata(const hoist_image *image, size_t index, const char **key,
				   const char **value);

/* The tensor's buffer, on the CPU; a new reference.
 * Returns: 0; -EINVAL index; -ENOMEM. */
HOIST_API int hoist_image_buffer(hoist_image *image, size_t index, hoist_buffer **ret);

/* --- the cache --- */

/* @done of @total bytes, 0 while memory is taken for them; 0 of 0 while another process adds the
 * same.  Returns: 0; else the adding ends with -ECANCELED. */
typedef int hoist_cache_progress(void *context, uint64_t done, uint64_t total);

#define HOIST_CACHE_REPLACE 1u /* also where there is an image of just this checkpoint */

typedef struct hoist_cache_options {
	size_t size;             /* sizeof(hoist_cache_options) */
	unsigned flags;
	unsigned open_flags;     /* of hoist_checkpoint_open() */
	unsigned image_flags;    /* of *ret, as hoist_cache_attach() has them */
	enum hoist_engine engine; /* how it is loaded: as in hoist_load_options */
	enum hoist_io io;        /* not MAP */
	hoist_budget *budget;
	int placement;           /* HOIST_PLACE_...: where pages go; 0: the node of the thread that
				  * touches first */
	const int *nodes;
	size_t n_nodes;
	int pages;               /* HOIST_PAGES_...; DEFAULT: huge ones where they can be had;
				  * HUGETLB: as DEFAULT where there are too few */
	hoist_cache_progress *progress; /* called some ten times a second; NULL: nobody */
	void *progress_context;
	const char *holder;      /* the program that becomes the holder, if there is none yet: run as
				  * "PROGRAM cache hold", it calls hoist_cache_hold().  NULL:
				  * $HOIST_CACHE_HOLDER, or the command `hoist` where it was
				  * installed, or in $PATH */
} hoist_cache_options;

/* Loads the checkpoint at @path into a new image, seals it and gives it to the holder; replaces the
 * image of that path if there is one, which those who have it attached keep.  An image of just this
 * checkpoint is left as it is.  Of several who add one at once, one loads it and the others wait.
 * Nothing is published before all of it is there: who is killed leaves nothing behind.
 * @options NULL: all defaults.  @ret: NULL, or the image, attached.
 * Returns: 0; -EINVAL; -ECANCELED; -ESTALE the checkpoint changed meanwhile; as
 *   hoist_checkpoint_open() and hoist_load_wait(); -ENOMEM, also where the image is more than the
 *   control group has left; -EFBIG more than RLIMIT_FSIZE, which holds for memfds, too; -ENOENT no
 *   program to be the holder; -EPERM; -EMFILE the holder has as many images as it may: 4096, or what
 *   its descriptors allow; -EPIPE it ended, again and again; -ECHILD it did not start. */
HOIST_API int hoist_cache_add(const char *path, const hoist_cache_options *options,
			      hoist_image **ret);

/* What the holder has, in the order it was added; a snapshot.  None where there is no holder.
 * Returns: 0; -EPERM; -EBADMSG, also of more than 4096; -ENOMEM, -EMFILE. */
typedef struct hoist_cache_list hoist_cache_list;
HOIST_API int hoist_cache_list_create(hoist_cache_list **ret);
HOIST_API void hoist_cache_list_destroy(hoist_cache_list *list); /* takes NULL */
HOIST_API size_t hoist_cache_list_n_images(const hoist_cache_list *list);
/* Pointers live as long as the list.  Returns: 0; -EINVAL for an index that is too large, or a bad
 * size. */
HOIST_API int hoist_cache_list_image(const hoist_cache_list *list, size_t index,
				     hoist_image_info *info);

/* Drops the image of @path, or with NULL all.  Memory is free once those who have it attached have
 * let go of it.  @ret: NULL, or how many there were.
 * Returns: 0; -ENOENT there is none of that path; -EPERM, -EBADMSG; -ENOMEM, -EMFILE. */
HOIST_API int hoist_cache_drop(const char *path, size_t *ret);

/* Makes the calling process's user a holder, unless he has one: a child of this process goes to the
 * background and is it; the caller goes on, and may end.  The holder is as large as the caller:
 * this is for programs that do nothing else (`hoist cache hold`), and have one thread.
 * Returns: 0, it answers; -EPERM; -ENOMEM, -EMFILE; -EAGAIN no process to be had, or one has the
 *   holder's lock and does not answer; -ECHILD it ended at once; what the folder gives. */
HOIST_API int hoist_cache_hold(void);

HOIST_END

#endif
