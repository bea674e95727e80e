/* SPDX-License-Identifier: MIT */
/* Other users of the machine: what they can reach of buffers that are passed and of the cache. */
#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "hoist/ipc.h"
#include "lib/cache/cache.h"
#include "tests/faults/secure.h"
#include "tests/support/patience.h"

static atomic_uint *n_refused; /* of all processes */

#define IS_REFUSED(condition)                                                                      \
	do {                                                                                       \
		CHECK(condition);                                                                  \
		atomic_fetch_add(n_refused, 1);                                                    \
	} while (0)

static void count_refused(void)
{
	void *shared = mmap(NULL, sizeof *n_refused, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	n_refused = shared;
}

/* --- buffers over a socket --- */

/* For what is not refused, on a machine that is busy. */
#define PATIENCE_MS 20000

static int listener;
static int expected;

static void listen_here(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "s"};
	(void)unlink("s");
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(listener >= 0);
	OK(bind(listener, (const struct sockaddr *)&address, sizeof address));
	OK(chmod("s", 0666));
	OK(listen(listener, 4));
}

static void send_one(void)
{
	const int64_t shape[] = {100};
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "s"};
	hoist_device *cpu = NULL;
	hoist_buffer *buffer = NULL;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	OK(connect(fd, (const struct sockaddr *)&address, sizeof address));
	OK(hoist_device_open("cpu", &cpu));
	OK(hoist_buffer_create(cpu, HOIST_U8, 1, shape, HOIST_BUFFER_SHAREABLE, &buffer));
	CHECK(hoist_ipc_send(fd, buffer, PATIENCE_MS) == expected);
	atomic_fetch_add(n_refused, expected != 0);
	hoist_buffer_unref(buffer);
	hoist_device_unref(cpu);
	close(fd);
}

static int ready;

static void receive_one(void)
{
	hoist_buffer *got = NULL;
	listen_here();
	CHECK(write(ready, "", 1) == 1);
	int fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	CHECK(hoist_ipc_receive(fd, PATIENCE_MS, &got) == expected);
	atomic_fetch_add(n_refused, expected != 0);
	CHECK((got != NULL) == (expected == 0));
	hoist_buffer_unref(got);
	char rest[256];
	while (recv(fd, rest, sizeof rest, 0) > 0) /* not before he has seen what he sees */
		;
	close(fd);
}

/* @from connects to @to and sends. */
static void pass(uid_t from, uid_t to, int sent, int received)
{
	char byte;
	int ends[2];
	OK(pipe(ends));
	ready = ends[1];
	expected = received;
	pid_t child = secure_start(to, receive_one);
	close(ends[1]);
	CHECK(read(ends[0], &byte, 1) == 1);
	close(ends[0]);
	expected = sent;
	as(from, send_one);
	secure_await(child);
	OK(unlink("s"));
}

/* --- the cache --- */

static void use_own_folder(void)
{
	char path[PATH_MAX + 16];
	(void)snprintf(path, sizeof path, "%s/run", secure_base);
	OK(setenv("XDG_RUNTIME_DIR", path, 1));
	OK(setenv("HOIST_CACHE_HOLDER", "/proc/self/exe", 1));
}

static void add_image(void)
{
	hoist_image *image = NULL;
	use_own_folder();
	OK(mkdir("run", 0755));
	cache_write("model.safetensors", 3, 100, 1);
	OK(hoist_cache_add("model.safetensors", NULL, NULL));
	OK(hoist_cache_attach("model.safetensors", 0, &image));
	cache_check(image, 3, 100, 1);
	hoist_image_close(image);
}

/* He sees the folder's name, and no more; his own cache is elsewhere. */
static void look_for_image(void)
{
	hoist_image *image = NULL;
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "run/hoist/holder"};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	use_own_folder();
	CHECK(fd >= 0);
	IS_REFUSED(connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 &&
		   errno == EACCES);
	close(fd);
	IS_REFUSED(open("run/hoist", O_RDONLY | O_DIRECTORY) < 0 && errno == EACCES);
	IS_REFUSED(open("run/hoist/holder.lock", O_RDONLY) < 0 && errno == EACCES);
	IS_REFUSED(unlink("run/hoist/holder") < 0 && errno == EACCES);
	IS_REFUSED(rename("run/hoist", "run/other") < 0 && errno == EACCES);
	REFUSED(hoist_cache_attach("model.safetensors", 0, &image), -ENOENT, "not in the cache");
	atomic_fetch_add(n_refused, 1);
}

/* Even root, whom no folder stops, is not answered: only the user is. */
static void ask_as_root(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "run/hoist/holder"};
	struct hoist__cache_message message;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	OK(connect(fd, (const struct sockaddr *)&address, sizeof address));
	OK(hoist__cache_message_init(HOIST__CACHE_LIST, "", &message));
	(void)send(fd, &message, sizeof message, MSG_NOSIGNAL);
	ssize_t n = recv(fd, &message, sizeof message, 0);
	IS_REFUSED(n == 0 || (n < 0 && errno == ECONNRESET));
	close(fd);
}

static void drop_image(void)
{
	use_own_folder();
	OK(hoist_cache_drop(NULL, NULL));
}

/* --- a folder that he has put where mine would be --- */

#define FALSE_FOLDER "/tmp/hoist-64001"

static void make_false_folder(void)
{
	(void)umask(0);
	OK(mkdir(FALSE_FOLDER, 0777));
}

static void make_false_link(void)
{
	OK(symlink(secure_base, FALSE_FOLDER));
}

static const char *refusal;

static void refuse_folder(void)
{
	hoist_cache_list *list = NULL;
	OK(unsetenv("XDG_RUNTIME_DIR"));
	REFUSED(hoist_cache_list_create(&list), -EPERM, refusal);
	REFUSED(hoist_cache_hold(), -EPERM, refusal);
	REFUSED(hoist_cache_add("model.safetensors", NULL, NULL), -EPERM, refusal);
	atomic_fetch_add(n_refused, 3);
}

/* --- a folder that cannot be made, or opened, is named, with what to do --- */

static void refuse_own_folder(void)
{
	char text[PATH_MAX + 128];
	hoist_cache_list *list = NULL;
	use_own_folder();
	for (uint64_t until = 0; access("run/hoist", F_OK) == 0;) /* of the holder that ends */
		CHECK(patience(&until));
	OK(chmod("run", 0500));
	(void)snprintf(text, sizeof text,
		       "making the cache's folder %s/run/hoist: Permission denied; set "
		       "XDG_RUNTIME_DIR to a folder of your own",
		       secure_base);
	REFUSED(hoist_cache_hold(), -EACCES, text);
	REFUSED(hoist_cache_add("model.safetensors", NULL, NULL), -EACCES, text);
	OK(chmod("run", 0700));
	OK(mkdir("run/hoist", 0));
	(void)snprintf(text, sizeof text,
		       "%s/run/hoist is closed to its own user (mode 0000); make the mode 0700, "
		       "or remove the folder",
		       secure_base);
	REFUSED(hoist_cache_hold(), -EPERM, text);
	REFUSED(hoist_cache_list_create(&list), -EPERM, text);
	OK(rmdir("run/hoist"));
}

/* A system without /tmp. */
static void refuse_missing_parent(void)
{
	OK(mkdir("empty", 0755));
	OK(chroot("empty"));
	OK(setuid(MINE));
	OK(unsetenv("XDG_RUNTIME_DIR"));
	REFUSED(hoist_cache_hold(), -ENOENT,
		"making the cache's folder /tmp/hoist-64001: No such file or directory; set "
		"XDG_RUNTIME_DIR to a folder of your own");
}

/* One that ended early may have left them. */
static void remove_false(void)
{
	struct stat status;
	if (lstat(FALSE_FOLDER, &status) == 0 && status.st_uid == HIS)
		OK(remove(FALSE_FOLDER));
}

static void run_false_folder(void)
{
	as(HIS, make_false_folder);
	refusal = "belongs to user 64002, not to 64001; set XDG_RUNTIME_DIR";
	as(MINE, refuse_folder);
	OK(rmdir(FALSE_FOLDER));
	as(HIS, make_false_link);
	refusal = "is a link, or no folder";
	as(MINE, refuse_folder);
	OK(unlink(FALSE_FOLDER));
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "cache") == 0 && strcmp(argv[2], "hold") == 0)
		return hoist_cache_hold() < 0;
	secure_begin();
	count_refused();
	pass(HIS, MINE, -EPERM, -EPERM);
	pass(HIS, 0, 0, -EPERM); /* root is no stranger to him, but he is to root */
	pass(0, HIS, -EPERM, -EPIPE);
	pass(HIS, HIS, 0, 0);
	as(MINE, add_image);
	as(HIS, look_for_image);
	ask_as_root();
	as(MINE, drop_image);
	as(MINE, refuse_own_folder);
	as(0, refuse_missing_parent);
	/* All runs of this test at one time share the names. */
	int one = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(one >= 0 && flock(one, LOCK_EX) == 0);
	remove_false();
	if (access(FALSE_FOLDER, F_OK) == 0 || access("/tmp/hoist-64002", F_OK) == 0)
		printf("folders of users %u and %u are there: not replaced\n", MINE, HIS);
	else
		run_false_folder();
	close(one);
	printf("figure: secure.users %u ways of another user to a buffer, image, lock or folder: "
	       "all refused\n",
	       atomic_load(n_refused));
	return 0;
}
