/* SPDX-License-Identifier: MIT */
/* The process that serves: libfuse's low level, so that one node is one file whatever it is called,
 * and no answer is anybody's but ours. */
#include "config.h"

#include "tests/faults/fuse-server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/faults/fuse-answers.h"

#define MAX_THREADS 96u

/* fi->fh */
#define HANDLE_DIRECT 1u
#define HANDLE_WRITES 2u
#define HANDLE_UNCACHED 4u /* what is read goes to its reader, and into no page */

static void lock(void)
{
	pthread_mutex_lock(&faultfs->lock);
}

static void unlock(void)
{
	pthread_mutex_unlock(&faultfs->lock);
}

static struct ffs_node *node_of(fuse_ino_t ino)
{
	return &faultfs->nodes[ino - FFS_FIRST];
}

static bool is_node(fuse_ino_t ino)
{
	return ino >= FFS_FIRST && ino < FFS_FIRST + FFS_NODES;
}

/* --- attributes --- */

static void describe(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_blksize = 4096};
	st->st_uid = getuid();
	st->st_gid = getgid();
	if (!is_node(ino)) {
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = 2;
		return;
	}
	const struct ffs_node *node = node_of(ino);
	st->st_mode = S_IFREG | 0644;
	st->st_nlink = node->name[0] != '\0';
	st->st_size = (off_t)node->bytes + faultfs->size_shift;
	if (faultfs->size_zero)
		st->st_size = 0;
	st->st_mtim.tv_sec = node->mtime_ns / 1000000000;
	st->st_mtim.tv_nsec = node->mtime_ns % 1000000000;
	st->st_ctim = st->st_mtim;
}

static void fill_entry(unsigned index, struct fuse_entry_param *entry)
{
	*entry = (struct fuse_entry_param){.ino = index + FFS_FIRST};
	entry->generation = faultfs->nodes[index].generation;
	entry->attr_timeout = faultfs->attr_timeout;
	describe(entry->ino, &entry->attr);
	faultfs->nodes[index].n_lookups++;
}

static void serve_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int err = ffs_spoil(req, FFS_LOOKUP, parent);
	struct fuse_entry_param entry;
	lock();
	int found = ffs_node_find(name);
	if (err == 0 && found >= 0)
		fill_entry((unsigned)found, &entry);
	unlock();
	if (err != 0 || found < 0)
		fuse_reply_err(req, err != 0 ? err : ENOENT);
	else
		fuse_reply_entry(req, &entry);
}

static void serve_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	lock();
	if (is_node(ino)) {
		struct ffs_node *node = node_of(ino);
		node->n_lookups -= n < node->n_lookups ? n : node->n_lookups;
		ffs_node_drop(node);
	}
	unlock();
	fuse_reply_none(req);
}

static void serve_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	int err = is_node(ino) ? ffs_spoil(req, FFS_GETATTR, ino) : 0;
	struct stat st;
	lock();
	describe(ino, &st);
	unlock();
	if (err != 0)
		fuse_reply_err(req, err);
	else
		fuse_reply_attr(req, &st, faultfs->attr_timeout);
}

static void serve_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what,
			  struct fuse_file_info *fi)
{
	(void)fi;
	int err = (what & FUSE_SET_ATTR_SIZE) != 0 ? ffs_spoil(req, FFS_TRUNCATE, ino) : 0;
	struct stat st;
	lock();
	if (err == 0 && is_node(ino) && (what & FUSE_SET_ATTR_SIZE) != 0) {
		struct ffs_node *node = node_of(ino);
		uint64_t bytes = (uint64_t)attr->st_size;
		if (bytes > FFS_NODE_BYTES) {
			err = EFBIG;
		} else {
			if (bytes < node->bytes)
				memset(ffs_bytes((unsigned)(ino - FFS_FIRST)) + bytes, 0,
				       (size_t)(node->bytes - bytes));
			node->bytes = bytes;
			ffs_node_touch(node);
		}
	}
	describe(ino, &st);
	unlock();
	if (err != 0)
		fuse_reply_err(req, err);
	else
		fuse_reply_attr(req, &st, faultfs->attr_timeout);
}

/* --- files --- */

static int open_as_told(struct fuse_file_info *fi)
{
	if ((fi->flags & O_DIRECT) != 0 && faultfs->refuse_direct_open) {
		atomic_fetch_add(&faultfs->n_faults, 1);
		return EINVAL;
	}
	fi->direct_io = faultfs->direct_io;
	fi->keep_cache = faultfs->keep_cache;
	fi->fh = ((fi->flags & O_DIRECT) != 0 ? HANDLE_DIRECT : 0) |
		 ((fi->flags & O_ACCMODE) != O_RDONLY ? HANDLE_WRITES : 0) |
		 (fi->direct_io ? HANDLE_UNCACHED : 0);
	return 0;
}

static void serve_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int err = ffs_spoil(req, FFS_OPEN, ino);
	if (err == 0)
		err = open_as_told(fi);
	if (err != 0)
		fuse_reply_err(req, err);
	else
		fuse_reply_open(req, fi);
}

static void serve_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			 struct fuse_file_info *fi)
{
	(void)mode;
	struct fuse_entry_param entry;
	int err = ffs_spoil(req, FFS_CREATE, parent);
	lock();
	if (err == 0 && ffs_node_find(name) >= 0)
		err = EEXIST;
	int made = err == 0 ? ffs_node_make(name) : -err;
	if (made >= 0)
		fill_entry((unsigned)made, &entry);
	unlock();
	if (made >= 0 && open_as_told(fi) == 0)
		fuse_reply_create(req, &entry, fi);
	else
		fuse_reply_err(req, made < 0 ? -made : EINVAL);
}

static int refuse_direct(const struct fuse_file_info *fi)
{
	if ((fi->fh & HANDLE_DIRECT) == 0 || !faultfs->refuse_direct_read)
		return 0;
	atomic_fetch_add(&faultfs->n_faults, 1);
	return EINVAL;
}

static void serve_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	int err = ffs_spoil(req, FFS_READ, ino);
	if (err == 0)
		err = refuse_direct(fi);
	char *copy = err == 0 ? malloc(size + 1) : NULL;
	if (err != 0 || copy == NULL) {
		fuse_reply_err(req, err != 0 ? err : ENOMEM);
		return;
	}
	unsigned index = (unsigned)(ino - FFS_FIRST);
	lock();
	ffs_change_if_due(index);
	uint64_t bytes = node_of(ino)->bytes;
	uint64_t left = (uint64_t)offset < bytes ? bytes - (uint64_t)offset : 0;
	size_t n = size < left ? size : (size_t)left;
	if ((fi->fh & HANDLE_UNCACHED) != 0)
		n = ffs_less(n, faultfs->short_read);
	memcpy(copy, ffs_bytes(index) + (left > 0 ? offset : 0), n);
	unlock();
	fuse_reply_buf(req, copy, n);
	free(copy);
}

static void serve_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t size, off_t offset,
			struct fuse_file_info *fi)
{
	int err = ffs_spoil(req, FFS_WRITE, ino);
	if (err == 0)
		err = refuse_direct(fi);
	if (err == 0 && (uint64_t)offset + size > FFS_NODE_BYTES)
		err = EFBIG;
	lock();
	size_t n = err == 0 ? ffs_less(size, faultfs->short_write) : 0;
	if (err == 0 && n > faultfs->room) {
		atomic_fetch_add(&faultfs->n_faults, 1);
		err = ENOSPC;
	}
	if (err == 0) {
		struct ffs_node *node = node_of(ino);
		uint64_t end = (uint64_t)offset + n;
		memcpy(ffs_bytes((unsigned)(ino - FFS_FIRST)) + offset, from, n);
		node->bytes = end > node->bytes ? end : node->bytes;
		ffs_node_touch(node);
		if (faultfs->room != UINT64_MAX)
			faultfs->room -= n;
	}
	unlock();
	if (err != 0)
		fuse_reply_err(req, err);
	else
		fuse_reply_write(req, n);
}

static void serve_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes,
			    struct fuse_file_info *fi)
{
	(void)fi;
	int err = ffs_spoil(req, FFS_FALLOCATE, ino);
	uint64_t end = (uint64_t)offset + (uint64_t)bytes;
	if (err == 0 && mode != 0)
		err = EOPNOTSUPP;
	if (err == 0 && end > FFS_NODE_BYTES)
		err = EFBIG;
	lock();
	if (err == 0 && end > faultfs->room) {
		atomic_fetch_add(&faultfs->n_faults, 1);
		err = ENOSPC;
	}
	if (err == 0 && end > node_of(ino)->bytes)
		node_of(ino)->bytes = end;
	unlock();
	fuse_reply_err(req, err);
}

static void serve_fsync(fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *fi)
{
	(void)data;
	(void)fi;
	fuse_reply_err(req, ffs_spoil(req, FFS_FSYNC, ino));
}

static void serve_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *fi)
{
	(void)data;
	(void)fi;
	fuse_reply_err(req, ffs_spoil(req, FFS_FSYNCDIR, ino));
}

/* A flush fails only for a file that was opened to be written: a file that is read has nothing to
 * lose. */
static void serve_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_err(req, (fi->fh & HANDLE_WRITES) != 0 ? ffs_spoil(req, FFS_FLUSH, ino) : 0);
}

/* --- the folder --- */

static void serve_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			  struct fuse_file_info *fi)
{
	(void)fi;
	int err = ffs_spoil(req, FFS_READDIR, ino);
	char *out = err == 0 ? malloc(size) : NULL;
	if (out == NULL) {
		fuse_reply_err(req, err != 0 ? err : ENOMEM);
		return;
	}
	size_t used = 0;
	lock();
	for (unsigned i = (unsigned)offset; i < FFS_NODES; i++) {
		const struct ffs_node *node = &faultfs->nodes[i];
		struct stat st;
		if (!node->used || node->name[0] == '\0')
			continue;
		describe(i + FFS_FIRST, &st);
		size_t n = fuse_add_direntry(req, out + used, size - used, node->name, &st, i + 1);
		if (n > size - used)
			break;
		used += n;
	}
	unlock();
	fuse_reply_buf(req, out, used);
	free(out);
}

static void unname(int index)
{
	faultfs->nodes[index].name[0] = '\0';
	ffs_node_drop(&faultfs->nodes[index]);
}

static void serve_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
			 const char *new, unsigned flags)
{
	(void)to;
	int err = flags != 0 ? EINVAL : ffs_spoil(req, FFS_RENAME, parent);
	lock();
	int from = ffs_node_find(name);
	int old = ffs_node_find(new);
	if (err == 0 && from < 0)
		err = ENOENT;
	if (err == 0 && strlen(new) >= sizeof faultfs->nodes[0].name)
		err = ENAMETOOLONG;
	if (err == 0 && old >= 0 && old != from)
		unname(old);
	if (err == 0)
		(void)snprintf(faultfs->nodes[from].name, sizeof faultfs->nodes[from].name, "%s",
			       new);
	unlock();
	fuse_reply_err(req, err);
}

static void serve_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int err = ffs_spoil(req, FFS_UNLINK, parent);
	lock();
	int found = ffs_node_find(name);
	if (err == 0 && found < 0)
		err = ENOENT;
	if (err == 0)
		unname(found);
	unlock();
	fuse_reply_err(req, err);
}

/* --- serving --- */

/* So many reads of one mount the kernel has on the way; it waits with more. */
static void start(void *data, struct fuse_conn_info *connection)
{
	(void)data;
	connection->max_background = MAX_THREADS;
	connection->congestion_threshold = MAX_THREADS;
}

/* The kernel answers the calls that are missing here (links, nameless files): the file system has
 * none of these. */
static const struct fuse_lowlevel_ops ops = {
	.init = start,
	.lookup = serve_lookup,
	.forget = serve_forget,
	.getattr = serve_getattr,
	.setattr = serve_setattr,
	.open = serve_open,
	.create = serve_create,
	.read = serve_read,
	.write = serve_write,
	.fallocate = serve_fallocate,
	.fsync = serve_fsync,
	.fsyncdir = serve_fsyncdir,
	.flush = serve_flush,
	.readdir = serve_readdir,
	.rename = serve_rename,
	.unlink = serve_unlink,
};

static int say(int ready, const char *text)
{
	(void)!write(ready, text, strlen(text));
	return 1;
}

int ffs_serve(const char *folder, int ready)
{
	char program[] = "hoist-test", o[] = "-o", option[] = "default_permissions";
	char *words[] = {program, o, option, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
	if (session == NULL)
		return say(ready, "libfuse makes no session");
	if (fuse_session_mount(session, folder) != 0)
		return say(ready, "FUSE cannot be mounted: it needs root, or fusermount3");
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
	fuse_loop_cfg_set_idle_threads(config, MAX_THREADS);
	(void)say(ready, "+");
	close(ready);
	int err = fuse_session_loop_mt(session, config);
	fuse_loop_cfg_destroy(config);
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	return err == 0 ? 0 : 1;
}
