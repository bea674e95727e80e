/* SPDX-License-Identifier: MIT */
/* The soak's parent: it makes the files, ends the holder, and shows stuck processes and counts. */
#include "config.h"

#include "tests/soak/parent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "lib/cache/cache.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/under-tsan.h"

bool soak_is_watched(void)
{
#if UNDER_TSAN || defined(QUIET_FORKS)
	return true;
#else
	return false;
#endif
}

/* --- files --- */

void soak_make_files(void)
{
	struct soak_model model;
	soak_make_statics(board->seed);
	for (unsigned i = 0; i < 4; i++) {
		soak_model_make(soak_random(), &model);
		soak_write(&model, soak_file(i));
	}
	for (unsigned i = 0; i < SOAK_CACHED; i++) {
		soak_model_make(soak_random(), &model);
		soak_write(&model, soak_path("c%u.safetensors", i));
	}
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

void soak_clean_up(void)
{
	(void)hoist_cache_drop(NULL, NULL);
	(void)nftw(soak_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- the holder --- */

/* Whose socket it is; only a process that says that it holds is killed. */
static bool is_holder(pid_t pid)
{
	char path[64];
	char line[4096];
	(void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
	if (fd >= 0)
		close(fd);
	return n > 0 && memmem(line, (size_t)n, "hold", 5) != NULL;
}

bool soak_kill_holder(void)
{
	struct sockaddr_un address;
	struct ucred peer = {.pid = 0};
	socklen_t bytes = sizeof peer;
	int in = open(soak_path("run/hoist"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (in < 0)
		return false;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	hoist__cache_address(in, &address);
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
		OK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes));
	close(fd);
	close(in);
	return peer.pid > 1 && is_holder(peer.pid) && kill(peer.pid, SIGKILL) == 0;
}

/* --- stuck processes --- */

static void show_file(const char *what, int pid, int tid)
{
	char path[128];
	char text[2048];
	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, tid, what);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	if (fd >= 0)
		close(fd);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	if (n > 0)
		(void)fprintf(stderr, "    %s: %.*s\n", what, (int)n, text);
}

static void show_debugger(int pid)
{
	char text[16];
	(void)snprintf(text, sizeof text, "%d", pid);
	(void)fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)execlp("timeout", "timeout", "60", "gdb", "-p", text, "-batch", "-nx", "-ex",
			     "thread apply all backtrace 16", (char *)NULL);
		_exit(127);
	}
	(void)waitpid(child, NULL, 0);
}

/* Its threads, and its children, which are of its forks. */
static void show_process(int pid)
{
	char path[64];
	char line[64];
	(void)snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *dir = opendir(path);
	if (dir == NULL)
		return;
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		int tid = atoi(entry->d_name);
		if (tid == 0)
			continue;
		(void)fprintf(stderr, "  process %d, thread %d\n", pid, tid);
		show_file("comm", pid, tid);
		show_file("syscall", pid, tid);
		show_file("wchan", pid, tid);
		show_file("stack", pid, tid);
		(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, tid);
		FILE *children = fopen(path, "re");
		while (children != NULL && fscanf(children, "%63s", line) == 1)
			show_process(atoi(line));
		if (children != NULL)
			(void)fclose(children);
	}
	(void)closedir(dir);
	show_debugger(pid);
}

void soak_show_slot(int slot)
{
	for (int b = 0; b < SOAK_BEATS; b++) {
		const struct soak_beat *beat = &board->slots[slot].beats[b];
		uint64_t since = atomic_load(&beat->since_ns);
		(void)fprintf(
			stderr, "  slot %d, thread %d (%d): %s of seed %#" PRIx64 ", for %.1f s\n",
			slot, b, atomic_load(&beat->tid),
			soak_action_name(atomic_load(&beat->action)), atomic_load(&beat->seed),
			since == 0 ? 0.0 : (double)(soak_now() - since) / 1e9);
	}
}

bool soak_is_stuck(void)
{
	uint64_t limit = SOAK_STUCK_SECONDS * UINT64_C(1000000000) * (soak_is_watched() ? 2 : 1);
	for (int slot = 0; slot < SOAK_SLOTS; slot++)
		for (int b = 0; b < SOAK_BEATS; b++) {
			int pid = atomic_load(&board->slots[slot].pid);
			uint64_t since = atomic_load(&board->slots[slot].beats[b].since_ns);
			uint64_t now = soak_now();
			if (pid == 0 || since == 0 || now < since + limit)
				continue;
			(void)fprintf(stderr, "process %d (slot %d) is stuck:\n", pid, slot);
			soak_show_slot(slot);
			show_process(pid);
			return true;
		}
	return false;
}

void soak_show_counts(void)
{
	static const char *const names[] = {
#define X(name) #name,
		SOAK_COUNTS(X)
#undef X
	};
	uint64_t all = 0;
	for (int i = SOAK_load; i < SOAK_rest; i++) {
		printf("%s %" PRIu64 "  ", soak_action_name(i), atomic_load(&board->actions[i]));
		all += atomic_load(&board->actions[i]);
	}
	printf("\n");
	for (int i = 0; i < SOAK_N_COUNTS; i++)
		printf("%s %" PRIu64 "  ", names[i], atomic_load(&board->counts[i]));
	printf("\nfigure: soak.actions %" PRIu64
	       " loads, saves, images, copies, forks and the like, none stuck\n",
	       all);
	printf("figure: soak.digests %" PRIu64 " results compared by digest, %.1f GB\n",
	       atomic_load(&board->counts[SOAK_N_digests]),
	       (double)atomic_load(&board->counts[SOAK_N_bytes]) / 1e9);
}
