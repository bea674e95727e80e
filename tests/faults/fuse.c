/* SPDX-License-Identifier: MIT */
/* The memory that test and server share, and the mount. */
#include "config.h"

#include "tests/faults/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/fuse-server.h"

struct faultfs *faultfs;
char ffs_folder[512];

static unsigned char *arena;
static pid_t server;

unsigned char *ffs_bytes(unsigned node)
{
	return arena + node * FFS_NODE_BYTES;
}

/* --- nodes; under the lock --- */

static int find(const char *name)
{
	for (unsigned i = 0; i < FFS_NODES; i++)
		if (faultfs->nodes[i].used && strcmp(faultfs->nodes[i].name, name) == 0)
			return (int)i;
	return -1;
}

int ffs_node_find(const char *name)
{
	return name[0] != '\0' && strlen(name) < sizeof faultfs->nodes[0].name ? find(name) : -1;
}

int ffs_node_make(const char *name)
{
	static const struct ffs_node none;
	if (strlen(name) >= sizeof none.name)
		return -ENAMETOOLONG;
	for (unsigned i = 0; i < FFS_NODES; i++) {
		struct ffs_node *node = &faultfs->nodes[i];
		if (node->used)
			continue;
		uint64_t generation = node->generation + 1;
		*node = none;
		node->used = true;
		node->generation = generation;
		(void)snprintf(node->name, sizeof node->name, "%s", name);
		ffs_node_touch(node);
		memset(ffs_bytes(i), 0, FFS_NODE_BYTES);
		return (int)i;
	}
	return -ENOSPC;
}

void ffs_node_touch(struct ffs_node *node)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	node->mtime_ns = ns > node->mtime_ns ? ns : node->mtime_ns + 1;
}

void ffs_node_drop(struct ffs_node *node)
{
	if (node->name[0] == '\0' && node->n_lookups == 0)
		node->used = false;
}

/* A process that has the old file open keeps it; the name is another file's. */
static void replace(unsigned old)
{
	char name[sizeof faultfs->nodes[0].name];
	memcpy(name, faultfs->nodes[old].name, sizeof name);
	faultfs->nodes[old].name[0] = '\0';
	int new = ffs_node_make(name);
	if (new < 0)
		abort();
	faultfs->nodes[new].bytes = faultfs->nodes[old].bytes;
	memset(ffs_bytes((unsigned)new), 0xa5, FFS_NODE_BYTES);
}

void ffs_node_change(unsigned index, enum ffs_change change)
{
	struct ffs_node *node = &faultfs->nodes[index];
	unsigned char *bytes = ffs_bytes(index);
	switch (change) {
	case FFS_NO_CHANGE:
		return;
	case FFS_GROW:
		node->bytes += 4096;
		break;
	case FFS_SHRINK:
		node->bytes -= node->bytes / 3;
		break;
	case FFS_REWRITE:
		for (uint64_t i = 0; i < node->bytes; i++)
			bytes[i] = (unsigned char)~bytes[i];
		break;
	case FFS_REPLACE:
		replace(index);
		return;
	}
	ffs_node_touch(node);
}

/* --- the test's side --- */

void ffs_apply(unsigned node, enum ffs_change change)
{
	pthread_mutex_lock(&faultfs->lock);
	ffs_node_change(node, change);
	pthread_mutex_unlock(&faultfs->lock);
}

int ffs_find(const char *name)
{
	pthread_mutex_lock(&faultfs->lock);
	int found = ffs_node_find(name);
	pthread_mutex_unlock(&faultfs->lock);
	return found;
}

unsigned ffs_n_names(void)
{
	unsigned n = 0;
	pthread_mutex_lock(&faultfs->lock);
	for (unsigned i = 0; i < FFS_NODES; i++)
		n += faultfs->nodes[i].used && faultfs->nodes[i].name[0] != '\0';
	pthread_mutex_unlock(&faultfs->lock);
	return n;
}

void ffs_heal(void)
{
	struct faultfs *fs = faultfs;
	pthread_mutex_lock(&fs->lock);
	for (unsigned i = 0; i < FFS_N_OPS; i++) {
		fs->ops[i] = (struct ffs_fault){0};
		fs->delay_us[i] = 0;
		atomic_store(&fs->n_calls[i], 0);
	}
	fs->short_read = fs->short_write = 0;
	fs->direct_io = fs->keep_cache = false;
	fs->attr_timeout = 0;
	fs->refuse_direct_open = fs->refuse_direct_read = false;
	fs->size_shift = 0;
	fs->size_zero = fs->stalls_all = false;
	fs->room = UINT64_MAX;
	fs->change = FFS_NO_CHANGE;
	atomic_store(&fs->stalled, false);
	pthread_mutex_unlock(&fs->lock);
}

/* --- the mount --- */

static void skip(const char *why)
{
	printf("skipped: %s\n", why);
	exit(77);
}

static void share_memory(void)
{
	faultfs = mmap(NULL, sizeof *faultfs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	arena = mmap(NULL, FFS_NODES * FFS_NODE_BYTES, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (faultfs == MAP_FAILED || arena == MAP_FAILED)
		skip("no memory to share with the file system");
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&faultfs->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	faultfs->random = 88172645463325252u;
	ffs_heal();
}

/* The mount ends with the namespace, whatever becomes of the test. */
static void leave_namespace(void)
{
	if (unshare(CLONE_NEWNS) == 0)
		(void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

void ffs_mount(void)
{
	int ready[2];
	char why[256];
	const char *base = getenv("TMPDIR");
	if (access("/dev/fuse", R_OK | W_OK) < 0)
		skip("/dev/fuse is not there, or not for this user");
	(void)snprintf(ffs_folder, sizeof ffs_folder, "%.400s/hoist-fuse-XXXXXX",
		       base != NULL ? base : "/tmp");
	if (mkdtemp(ffs_folder) == NULL || pipe2(ready, O_CLOEXEC) < 0)
		skip("no folder to mount a file system on");
	share_memory();
	leave_namespace();
	pid_t parent = getpid();
	server = fork();
	if (server == 0) {
		close(ready[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		_exit(ffs_serve(ffs_folder, ready[1]));
	}
	close(ready[1]);
	ssize_t n = server > 0 ? read(ready[0], why, sizeof why - 1) : -1;
	close(ready[0]);
	if (n == 1 && why[0] == '+')
		return;
	why[n > 0 ? n : 0] = '\0';
	if (server > 0)
		(void)waitpid(server, NULL, 0);
	(void)rmdir(ffs_folder);
	skip(n > 0 ? why : "the file system did not start");
}

bool ffs_read_only(bool on)
{
	return mount("none", ffs_folder, NULL, MS_REMOUNT | (on ? MS_RDONLY : 0), NULL) == 0;
}

static void detach(void)
{
	char command[600];
	if (umount2(ffs_folder, MNT_DETACH) == 0)
		return;
	(void)snprintf(command, sizeof command, "fusermount3 -uz '%s'", ffs_folder);
	(void)!system(command);
}

void ffs_kill(void)
{
	(void)kill(server, SIGKILL);
	(void)waitpid(server, NULL, 0);
	server = 0;
}

void ffs_unmount(void)
{
	detach();
	if (server > 0)
		ffs_kill();
	(void)rmdir(ffs_folder);
}
