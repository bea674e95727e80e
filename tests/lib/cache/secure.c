/* SPDX-License-Identifier: MIT */
/* Buffers and images are shared with processes of the same user only.  The kernel names the user
 * of a peer; here this answer is changed.  tests/faults/secure.sh has real users. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hoist/ipc.h"
#include "lib/cache/cache.h"
#include "tests/support/lib-cache.h"
#include "tests/support/wrap.h"

static uid_t told; /* of every peer; 0: the truth */

WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *bytes))
{
	int result = __real_getsockopt(fd, level, name, value, bytes);
	if (result == 0 && level == SOL_SOCKET && name == SO_PEERCRED && told != 0)
		((struct ucred *)value)->uid = told;
	return result;
}

static uid_t another(void)
{
	return geteuid() + 4711;
}

/* --- buffers over sockets --- */

static hoist_buffer *make_buffer(void)
{
	const int64_t shape[] = {100};
	hoist_device *cpu = NULL;
	hoist_buffer *buffer = NULL;
	OK(hoist_device_open("cpu", &cpu));
	OK(hoist_buffer_create(cpu, HOIST_U8, 1, shape, HOIST_BUFFER_SHAREABLE, &buffer));
	hoist_device_unref(cpu);
	return buffer;
}

static void run_peers(int type)
{
	int ends[2];
	char byte;
	hoist_buffer *buffer = make_buffer();
	hoist_buffer *got = NULL;
	OK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends));
	/* Nothing is sent to another user, and nothing of his is read. */
	told = another();
	REFUSED(hoist_ipc_send(ends[0], buffer, 1000), -EPERM, "hoist_ipc_export()");
	CHECK(recv(ends[1], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	told = 0;
	OK(hoist_ipc_send(ends[0], buffer, 1000));
	told = another();
	REFUSED(hoist_ipc_receive(ends[1], 1000, &got), -EPERM, "process");
	CHECK(got == NULL);
	/* The socket is as good as before. */
	told = 0;
	OK(hoist_ipc_receive(ends[1], 1000, &got));
	CHECK(hoist_buffer_data(got) == hoist_buffer_data(buffer));
	hoist_buffer_unref(got);
	hoist_buffer_unref(buffer);
	close(ends[0]);
	close(ends[1]);
}

/* The system says of a socket that the socket has no peer. */
static void run_unconnected(void)
{
	hoist_buffer *buffer = make_buffer();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK(hoist_ipc_send(fd, buffer, 1000) == -ENOTCONN);
	close(fd);
	hoist_buffer_unref(buffer);
}

/* --- the cache --- */

static void run_cache(void)
{
	hoist_image *image = NULL;
	size_t n = 0;
	const char *model = cache_path("model.safetensors");
	cache_write(model, 3, 100, 1);
	OK(hoist_cache_add(model, NULL, NULL));
	told = another();
	REFUSED(hoist_cache_attach(model, 0, &image), -EPERM, "the cache's peer is process");
	REFUSED(hoist_cache_add(model, NULL, &image), -EPERM, "the cache's peer is process");
	REFUSED(hoist_cache_drop(NULL, &n), -EPERM, "the cache's peer is process");
	CHECK(image == NULL);
	told = 0;
	OK(hoist_cache_attach(model, 0, &image));
	cache_check(image, 3, 100, 1);
	hoist_image_close(image);
}

/* The folder, the socket and the locks are the user's alone, whatever the umask. */
static mode_t mode_of(const char *name)
{
	struct stat status;
	OK(lstat(cache_path(name), &status));
	CHECK(status.st_uid == geteuid());
	return status.st_mode & 07777;
}

static void run_modes(void)
{
	CHECK(mode_of("hoist") == 0700);
	CHECK((mode_of("hoist/holder.lock") & 077) == 0);
	CHECK((mode_of("hoist/holder") & 07000) == 0);
}

/* A folder that another user could have put in the place is not used. */
static void run_folder(void)
{
	hoist_cache_list *list = NULL;
	OK(chmod(cache_path("hoist"), 0750));
	REFUSED(hoist_cache_list_create(&list), -EPERM, "is open to others (mode 0750)");
	OK(chmod(cache_path("hoist"), 0700));
	OK(hoist_cache_drop(NULL, NULL));
	cache_wait_for_no_folder(); /* the holder closes its socket before it removes the folder */
	const char *there = cache_path("elsewhere");
	OK(mkdir(there, 0700));
	OK(symlink("elsewhere", cache_path("hoist")));
	REFUSED(hoist_cache_list_create(&list), -EPERM, "is a link, or no folder");
	REFUSED(hoist_cache_hold(), -EPERM, "is a link, or no folder");
	OK(unlink(cache_path("hoist")));
	/* Nor is what lies in it followed: a lock that is a link. */
	OK(mkdir(cache_path("hoist"), 0700));
	OK(symlink("../target", cache_path("hoist/holder.lock")));
	REFUSED(hoist_cache_hold(), -ELOOP, "holder.lock");
	CHECK(access(cache_path("target"), F_OK) != 0);
	OK(unlink(cache_path("hoist/holder.lock")));
}

int main(int argc, char **argv)
{
	if (argc == 1)
		(void)umask(0); /* the holder's, too */
	(void)cache_test_begin(argc, argv);
	run_peers(SOCK_STREAM);
	run_peers(SOCK_SEQPACKET);
	run_unconnected();
	run_cache();
	run_modes();
	run_folder();
	return 0;
}
