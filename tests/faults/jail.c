/* SPDX-License-Identifier: MIT */
/* jail WORD... -- PROGRAM [ARGUMENT]... - runs a program where something is missing.
 *
 *     docker          Docker's default seccomp profile, and no capability that Docker drops
 *     older           a seccomp profile that knows no call of the last ten years: EPERM
 *     sandbox         no io_uring, mbind ...: ENOSYS, as where the kernel is another
 *     user, user=N    as user and group 65531, or N, which own nothing
 *     memlock=N, nofile=N, as=N, nproc=N, fsize=N, stack=N   resource limits
 *     noproc          nothing in /proc and /sys
 *     nodev           in /dev only null, zero and urandom: no shm
 *     readonly        the root file system, and all of it, but what is mounted
 *     cgroup=FOLDER   in that control group
 *
 * Exit status: the program's; 77 with a reason if the system around this process forbids it (EPERM
 * and the like, no others); 99 if it fails. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifdef HAVE_SECCOMP
#include "tests/faults/seccomp.h"
#endif

#define NOBODY 65531

static void fail(const char *what)
{
	(void)fprintf(stderr, "jail: %s: %s\n", what, strerror(errno));
	exit(99);
}

static void skip(const char *why)
{
	(void)printf("skipped: %s\n", why);
	exit(77);
}

static void require(bool done, const char *what)
{
	if (!done)
		fail(what);
}

/* Skips the test for a step that the container around this process may forbid. */
static void require_leave(bool done, const char *what)
{
	if (done)
		return;
	if (errno != EPERM && errno != EACCES)
		fail(what);
	(void)printf("skipped: this container forbids %s: %s\n", what, strerror(errno));
	exit(77);
}

/* --- what is mounted --- */

static void own_mounts(void)
{
	static bool done;
	if (done)
		return;
	if (geteuid() != 0)
		skip("only root may mount");
	require_leave(unshare(CLONE_NEWNS) == 0, "mount namespaces");
	bool private = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	if (!private && errno == EINVAL)
		skip("the root here is a folder (chroot), nothing mounted");
	require_leave(private, "private mounts");
	done = true;
}

static void hide(const char *path)
{
	own_mounts();
	require_leave(mount("none", path, "tmpfs", MS_RDONLY, "size=4k") == 0, path);
}

static void make_device(const char *path, unsigned minor)
{
	require_leave(mknod(path, S_IFCHR | 0666, makedev(1, minor)) == 0, path);
	require(chmod(path, 0666) == 0, path);
}

static void bare_dev(void)
{
	own_mounts();
	require_leave(mount("none", "/dev", "tmpfs", 0, "size=64k,mode=755") == 0, "/dev");
	make_device("/dev/null", 3);
	make_device("/dev/zero", 5);
	make_device("/dev/urandom", 9);
	require(mount(NULL, "/dev", NULL, MS_REMOUNT | MS_RDONLY, "size=64k,mode=755") == 0,
		"/dev read-only");
}

static void read_only_root(void)
{
	own_mounts();
	require_leave(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0,
		      "a read-only root");
}

/* --- the user, and the rights of the user --- */

static void become(uid_t user)
{
	if (geteuid() != 0)
		return; /* is nobody in particular */
	require_leave(setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 &&
			      setresuid(user, user, user) == 0,
		      "becoming another user");
}

/* Keeps the capabilities that root has in a container of Docker's. */
static void drop_capabilities(void)
{
	static const int kept[] = {CAP_CHOWN,	    CAP_DAC_OVERRIDE, CAP_FOWNER,
				   CAP_FSETID,	    CAP_KILL,	      CAP_SETGID,
				   CAP_SETUID,	    CAP_SETPCAP,      CAP_NET_BIND_SERVICE,
				   CAP_NET_RAW,	    CAP_SYS_CHROOT,   CAP_MKNOD,
				   CAP_AUDIT_WRITE, CAP_SETFCAP};
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{0}};
	unsigned long long mask = 0;
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
		mask |= 1ULL << kept[i];
	for (int cap = 0; geteuid() == 0 && prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if ((mask >> cap & 1) == 0)
			require(prctl(PR_CAPBSET_DROP, cap) == 0, "dropping a capability");
	require(syscall(SYS_capget, &head, data) == 0, "asking for capabilities");
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (unsigned)(mask >> (32 * i));
		data[i].effective &= (unsigned)(mask >> (32 * i));
		data[i].inheritable = 0;
	}
	require(syscall(SYS_capset, &head, data) == 0, "dropping capabilities");
}

/* Asked first, as a profile that libseccomp cannot make of its list is wrong, and not forbidden. */
static void filter_calls(const char *how)
{
#ifdef HAVE_SECCOMP
	static const unsigned action = SECCOMP_RET_ERRNO;
	bool docker = strcmp(how, "docker") == 0;
	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0)
		skip("this container, or its kernel, forbids seccomp filters");
	if (docker)
		drop_capabilities();
	require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "giving up new privileges");
	errno = EINVAL;
	require(docker			    ? fault_seccomp_docker()
		: strcmp(how, "older") == 0 ? fault_seccomp_older()
					    : fault_seccomp_sandbox(),
		how);
#else
	(void)how;
	(void)drop_capabilities;
	skip("libseccomp was not there when this was built");
#endif
}

/* --- limits --- */

static bool limit(const char *word)
{
	static const struct {
		const char *name;
		__rlimit_resource_t resource;
	} limits[] = {
		{"memlock=", RLIMIT_MEMLOCK}, {"nofile=", RLIMIT_NOFILE}, {"as=", RLIMIT_AS},
		{"nproc=", RLIMIT_NPROC},     {"fsize=", RLIMIT_FSIZE},	  {"stack=", RLIMIT_STACK},
	};
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		size_t length = strlen(limits[i].name);
		if (strncmp(word, limits[i].name, length) != 0)
			continue;
		/* The limit counts all processes of the user, and a tester has others. */
		if (limits[i].resource == RLIMIT_NPROC && geteuid() != 0)
			skip("only root can become a user who has no process");
		rlim_t value = strtoull(word + length, NULL, 10);
		struct rlimit both = {value, value};
		require_leave(setrlimit(limits[i].resource, &both) == 0, word);
		return true;
	}
	return false;
}

static void enter_cgroup(const char *folder)
{
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/cgroup.procs", folder);
	FILE *file = fopen(path, "we");
	require_leave(file != NULL, path);
	require_leave(fprintf(file, "%d\n", (int)getpid()) > 0 && fclose(file) == 0, path);
}

/* --- all of it, in the order in which each is still allowed --- */

static bool has(char **words, const char *word)
{
	for (; *words != NULL; words++)
		if (strcmp(*words, word) == 0)
			return true;
	return false;
}

static void check_words(char **words)
{
	static const char *const known[] = {"docker", "older", "sandbox", "user",
					    "noproc", "nodev", "readonly"};
	for (; *words != NULL; words++) {
		bool found = strchr(*words, '=') != NULL;
		for (size_t i = 0; !found && i < sizeof known / sizeof known[0]; i++)
			found = strcmp(*words, known[i]) == 0;
		errno = EINVAL;
		require(found, *words);
	}
}

static void lock_up(char **words)
{
	check_words(words);
	for (char **word = words; *word != NULL; word++)
		if (strncmp(*word, "cgroup=", 7) == 0)
			enter_cgroup(*word + 7);
	if (has(words, "nodev"))
		bare_dev();
	if (has(words, "noproc")) {
		hide("/sys");
		hide("/proc");
	}
	if (has(words, "readonly"))
		read_only_root();
	for (char **word = words; *word != NULL; word++) {
		errno = EINVAL;
		if (strchr(*word, '=') != NULL && strncmp(*word, "cgroup=", 7) != 0 &&
		    strncmp(*word, "user=", 5) != 0)
			require(limit(*word), *word);
	}
	if (has(words, "user"))
		become(NOBODY);
	for (char **word = words; *word != NULL; word++)
		if (strncmp(*word, "user=", 5) == 0)
			become((uid_t)strtoul(*word + 5, NULL, 10));
	static const char *const filters[] = {"docker", "older", "sandbox"};
	for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
		if (has(words, filters[i]))
			filter_calls(filters[i]);
}

int main(int argc, char **argv)
{
	int i = 1;
	while (i < argc && strcmp(argv[i], "--") != 0)
		i++;
	if (i + 1 >= argc) {
		(void)fprintf(stderr, "usage: jail WORD... -- PROGRAM [ARGUMENT]...\n");
		return 2;
	}
	argv[i] = NULL;
	(void)signal(SIGXFSZ, SIG_DFL);
	lock_up(argv + 1);
	(void)execv(argv[i + 1], argv + i + 1);
	fail(argv[i + 1]);
}
