/* SPDX-License-Identifier: MIT */
/* lib/cache/cache.c - adds, lists and drops images.
 * The contract is in hoist/cache.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "lib/cache/cache.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "numa/topology.h"

/* A holder may end just when a request reaches it: a new one is started then. */
#define TRIES 20

#define LOCK_US 20000

/* --- options --- */

static int check_nodes(const hoist_cache_options *o)
{
	if (o->placement < HOIST_PLACE_DEFAULT || o->placement > HOIST_PLACE_INTERLEAVE)
		return hoist__fail(-EINVAL, "hoist_cache_options.placement is %d; it is 0 to %d",
				   o->placement, HOIST_PLACE_INTERLEAVE);
	bool needed = o->placement > HOIST_PLACE_LOCAL;
	if (needed != (o->n_nodes > 0) || (o->n_nodes > 0 && o->nodes == NULL) ||
	    (o->placement == HOIST_PLACE_PREFER && o->n_nodes > 1))
		return hoist__fail(
			-EINVAL, "hoist_cache_options: %zu nodes for placement %d, which takes %s",
			o->n_nodes, o->placement,
			!needed				     ? "none"
			: o->placement == HOIST_PLACE_PREFER ? "one"
							     : "at least one");
	for (size_t i = 0; i < o->n_nodes; i++)
		if (!hoist__device_has_node(o->nodes[i]))
			return hoist__fail(-EINVAL, "this machine has no NUMA node %d",
					   o->nodes[i]);
	return 0;
}

static int check_options(const hoist_cache_options *o)
{
	if ((o->flags & ~HOIST_CACHE_REPLACE) != 0)
		return hoist__fail(-EINVAL, "hoist_cache_options.flags has unknown bits: 0x%x",
				   o->flags);
	if ((o->image_flags & ~HOIST_IMAGE_READ_ONLY) != 0)
		return hoist__fail(-EINVAL,
				   "hoist_cache_options.image_flags has unknown bits: 0x%x",
				   o->image_flags);
	if ((unsigned)o->io > HOIST_IO_CACHED)
		return hoist__fail(-EINVAL, "hoist_cache_options.io is %d; it is 0 to %d",
				   (int)o->io, HOIST_IO_CACHED);
	if (o->pages < HOIST_PAGES_DEFAULT || o->pages > HOIST_PAGES_HUGETLB)
		return hoist__fail(-EINVAL, "hoist_cache_options.pages is %d; it is 0 to %d",
				   o->pages, HOIST_PAGES_HUGETLB);
	return check_nodes(o);
}

/* --- add --- */

/* The state of one add. */
struct adding {
	const char *path;
	const hoist_cache_options *options;
	hoist_checkpoint *checkpoint;
	struct hoist__image_key key;
	struct hoist__memory_file file;
};

static int message_of(const struct adding *adding, struct hoist__cache_message *ret)
{
	int err = hoist__cache_message_init(HOIST__CACHE_PUT, adding->path, ret);
	if (err < 0)
		return err;
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	ret->node = adding->file.node;
	ret->pages = (uint32_t)adding->file.pages;
	ret->tensor_bytes = hoist_checkpoint_bytes(adding->checkpoint);
	ret->n_tensors = hoist_checkpoint_n_tensors(adding->checkpoint);
	ret->added_ns = (uint64_t)now.tv_sec * HOIST__NS_PER_S + (uint64_t)now.tv_nsec;
	memcpy(ret->note, adding->file.note, sizeof ret->note);
	return 0;
}

/* Putting the same image twice gives one image, so a PUT can be repeated. */
static int publish(const struct adding *adding)
{
	struct hoist__cache_message message;
	int err = -ENOENT;
	for (int tries = 0; tries < TRIES && (err == -ENOENT || err == -EPIPE); tries++) {
		err = tries > 0 ? hoist__cache_start(adding->options->holder) : 0;
		if (err < 0)
			return err;
		err = message_of(adding, &message);
		if (err == 0)
			err = hoist__cache_ask(&message, adding->file.fd, NULL);
		if (err < 0 && err != -ENOENT && err == message.status)
			return hoist__fail_errno(err, "the cache's holder does not take %s",
						 adding->path);
	}
	if (err == -ENOENT || err == -EPIPE)
		return hoist__fail(
			-EPIPE, "the cache's holder process ended at each of %d requests", TRIES);
	return err;
}

/* Checks that the checkpoint is unchanged since the key was made.  The load has checked the
 * shards. */
static int check_key(const struct adding *adding)
{
	struct hoist__image_key now = {0};
	int err = hoist__image_key_make(adding->path, adding->checkpoint, &now);
	if (err < 0)
		return err;
	bool same = now.n_files == adding->key.n_files;
	for (size_t f = 0; same && f < now.n_files; f++) {
		const struct hoist__image_file *a = &now.files[f];
		const struct hoist__image_file *b = &adding->key.files[f];
		same = a->dev == b->dev && a->ino == b->ino && a->bytes == b->bytes &&
		       (a->kind == HOIST__IMAGE_FOLDER ||
			(a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns));
	}
	hoist__image_key_free(&now);
	return same ? 0
		    : hoist__fail(
			      -ESTALE,
			      "%s changed while hoist cached the checkpoint; add the checkpoint "
			      "again once its files stay as they are",
			      adding->path);
}

/* The key is made before the bytes are read and compared afterwards: a checkpoint that changes
 * meanwhile is not published.  The caller's image is opened before the publication, so that its
 * failure publishes nothing. */
static int make_and_publish(struct adding *adding, hoist_image **ret)
{
	hoist_image *image = NULL;
	int err = hoist_checkpoint_open(adding->path, adding->options->open_flags,
					&adding->checkpoint);
	if (err == 0)
		err = hoist__image_key_make(adding->path, adding->checkpoint, &adding->key);
	if (err == 0)
		err = hoist__cache_fill(adding->checkpoint, adding->path, &adding->key,
					adding->options, &adding->file);
	if (err == 0)
		err = check_key(adding);
	if (err == 0 && ret != NULL)
		err = hoist__image_open(adding->file.fd, adding->options->image_flags, &image);
	if (err == 0)
		err = publish(adding);
	if (err == 0 && ret != NULL)
		*ret = image;
	else
		hoist_image_close(image);
	return err;
}

/* A holder is found or started before the load, so that no image is loaded that no holder can take.
 * A new holder waits some seconds for an image.  If it has ended by the time there is one, another
 * holder is started. */
static int find_holder(const hoist_cache_options *options)
{
	int err = hoist__cache_answers();
	return err == -ENOENT || err == -EPIPE ? hoist__cache_start(options->holder) : err;
}

/* Finds the image that is in the cache already, if it is of this checkpoint, and has tensors or raw
 * bytes, and all or only supported values, as asked. */
static bool find_same(const struct adding *adding, hoist_image **ret)
{
	hoist_image *image = NULL;
	if (hoist__cache_find(adding->path, HOIST__CACHE_PEEK, adding->options->image_flags,
			      &image) < 0)
		return false;
	const struct hoist__image_table *table = hoist__image_table_of(image);
	unsigned told = HOIST_OPEN_RAW;
	if (strcmp(table->strings + table->header->format, "pytorch") == 0)
		told |= HOIST_OPEN_SKIP_UNSUPPORTED;
	bool same = ((table->header->open_flags ^ adding->options->open_flags) & told) == 0;
	if (same && ret != NULL)
		*ret = image;
	else
		hoist_image_close(image);
	return same;
}

/* Pre: the lock of the path is held. */
static int add(struct adding *adding, hoist_image **ret)
{
	if ((adding->options->flags & HOIST_CACHE_REPLACE) == 0 && find_same(adding, ret))
		return 0;
	int err = find_holder(adding->options);
	if (err == 0)
		err = make_and_publish(adding, ret);
	hoist__memory_file_close(&adding->file);
	hoist__image_key_free(&adding->key);
	hoist_checkpoint_close(adding->checkpoint);
	return err;
}

/* Waits as long as another process has the lock, which is loading the same checkpoint. */
static int wait_for_lock(const char *name, const hoist_cache_options *o,
			 struct hoist__cache_lock *ret)
{
	int err;
	while ((err = hoist__cache_lock(name, ret)) == -EAGAIN) {
		if (o->progress != NULL && o->progress(o->progress_context, 0, 0) != 0)
			return hoist__fail(-ECANCELED,
					   "cancelled while another process caches the checkpoint");
		(void)usleep(LOCK_US);
	}
	return err;
}

/* The lock is that of the path: of several processes that add one checkpoint, the first loads it,
 * and the others wait and then find its image, unless they replace it. */
int hoist_cache_add(const char *path, const hoist_cache_options *options, hoist_image **ret)
{
	hoist_cache_options o;
	struct hoist__cache_lock lock;
	char *resolved = NULL;
	int err = hoist__options_in("hoist_cache_options", options, &o, sizeof o);
	if (err == 0)
		err = check_options(&o);
	if (err == 0)
		err = hoist__cache_path(path, &resolved);
	if (err < 0)
		return err;
	struct adding adding = {.path = resolved, .options = &o, .file = {.fd = -1}};
	struct hoist__lock_name name = hoist__cache_lock_name(resolved);
	err = wait_for_lock(name.text, &o, &lock);
	if (err == 0) {
		err = add(&adding, ret);
		hoist__cache_unlock(&lock);
	}
	free(resolved);
	return err;
}

/* --- list --- */

struct hoist_cache_list {
	size_t n;
	uint64_t taken_ns; /* CLOCK_REALTIME */
	struct hoist__cache_message *images;
};

/* Asks for the image with the next higher id.  Ids must rise and their number is bounded, so that a
 * faulty holder cannot keep the caller in an endless loop. */
static int list_next(hoist_cache_list *list, uint64_t *id)
{
	struct hoist__cache_message *images = realloc(list->images, (list->n + 1) * sizeof *images);
	if (images == NULL)
		return hoist__fail_nomem("a list of images", (list->n + 1) * sizeof *images);
	list->images = images;
	struct hoist__cache_message *next = &images[list->n];
	int err = hoist__cache_message_init(HOIST__CACHE_LIST, "", next);
	next->id = *id;
	if (err == 0)
		err = hoist__cache_ask(next, -1, NULL);
	if (err == 0 && next->id <= *id)
		err = hoist__fail(-EBADMSG, "the cache's holder lists an image twice");
	if (err == 0 && list->n == HOIST__CACHE_MOST_IMAGES)
		err = hoist__fail(-EBADMSG, "the cache's holder lists more than %d images",
				  HOIST__CACHE_MOST_IMAGES);
	if (err == 0) {
		*id = next->id;
		list->n++;
	}
	return err;
}

int hoist_cache_list_create(hoist_cache_list **ret)
{
	uint64_t id = 0;
	int err = 0;
	struct timespec now;
	hoist_cache_list *list = calloc(1, sizeof *list);
	if (list == NULL)
		return hoist__fail_nomem("a list of images", sizeof *list);
	clock_gettime(CLOCK_REALTIME, &now);
	list->taken_ns = (uint64_t)now.tv_sec * HOIST__NS_PER_S + (uint64_t)now.tv_nsec;
	while (err == 0)
		err = list_next(list, &id);
	if (err != -ENOENT && err != -EPIPE) {
		hoist_cache_list_destroy(list);
		return err;
	}
	*ret = list;
	return 0;
}

void hoist_cache_list_destroy(hoist_cache_list *list)
{
	if (list == NULL)
		return;
	free(list->images);
	free(list);
}

size_t hoist_cache_list_n_images(const hoist_cache_list *list)
{
	return list->n;
}

int hoist_cache_list_image(const hoist_cache_list *list, size_t index, hoist_image_info *info)
{
	if (index >= list->n)
		return hoist__fail(-EINVAL, "image %zu does not exist: the list has %zu", index,
				   list->n);
	const struct hoist__cache_message *image = &list->images[index];
	uint64_t now = list->taken_ns;
	const hoist_image_info full = {
		.size = sizeof full,
		.path = image->path,
		.format = "",
		.bytes = image->bytes,
		.tensor_bytes = image->tensor_bytes,
		.n_tensors = image->n_tensors,
		.age_ns = now > image->added_ns ? now - image->added_ns : 0,
		.n_attached = image->n_attached,
		.node = image->node,
		.pages = (int)image->pages,
		.note = image->note,
	};
	return hoist__options_out("hoist_image_info", info, &full, sizeof full);
}

/* --- drop --- */

int hoist_cache_drop(const char *path, size_t *ret)
{
	struct hoist__cache_message message;
	char *resolved = NULL;
	/* The checkpoint may be gone: then the path is taken as it was listed. */
	bool gone = path != NULL && hoist__cache_path(path, &resolved) < 0;
	const char *asked = path == NULL ? "" : gone ? path : resolved;
	int err = path != NULL && path[0] == '\0'
			  ? hoist__fail(-EINVAL, "the path of an image to drop is empty")
			  : hoist__cache_message_init(HOIST__CACHE_DROP, asked, &message);
	if (err == 0)
		err = hoist__cache_ask(&message, -1, NULL);
	if (err == -ENOENT || err == -EPIPE)
		err = path != NULL ? hoist__fail(-ENOENT, "%s is not in the cache", asked)
				   : hoist__fail(-ENOENT, "there is nothing in the cache");
	if (err == 0 && ret != NULL)
		*ret = (size_t)message.id;
	free(resolved);
	return err;
}
