/* SPDX-License-Identifier: MIT */
/* The shared memory of the soak: its map, the counts, the actions, and the names of files. */
#include "config.h"

#include "tests/soak/board.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>

struct soak_board *board;
char soak_folder[256];
_Thread_local struct soak_self self;

static void map_board(int fd)
{
	void *map = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	close(fd);
	board = map;
}

void soak_board_make(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, sizeof *board) == 0);
	map_board(fd);
}

void soak_board_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	map_board(fd);
}

uint64_t soak_now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

const char *soak_action_name(int action)
{
	static const char *const names[] = {
#define X(name) #name,
		SOAK_ACTIONS(X)
#undef X
	};
	return action >= 0 && action < SOAK_N_ACTIONS ? names[action] : "?";
}

void soak_count(enum soak_count count, uint64_t n)
{
	atomic_fetch_add_explicit(&board->counts[count], n, memory_order_relaxed);
}

void soak_begin(enum soak_action action, uint64_t seed)
{
	self.random = seed;
	atomic_store(&self.beat->action, action);
	atomic_store(&self.beat->seed, seed);
	soak_beat();
	atomic_fetch_add_explicit(&board->actions[action], 1, memory_order_relaxed);
}

void soak_beat(void)
{
	atomic_store(&self.beat->since_ns, soak_now());
}

const char *soak_path(const char *format, ...)
{
	static _Thread_local char paths[8][512];
	static _Thread_local unsigned next;
	char *path = paths[next++ % 8];
	int n = snprintf(path, sizeof paths[0], "%s/", soak_folder);
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(path + n, sizeof paths[0] - (size_t)n, format, arguments);
	va_end(arguments);
	return path;
}

void check_failed(const char *file, int line, const char *function, const char *what)
{
	int action = self.beat != NULL ? atomic_load(&self.beat->action) : SOAK_idle;
	uint64_t seed = self.beat != NULL ? atomic_load(&self.beat->seed) : 0;
	(void)fprintf(stderr,
		      "%s:%d: %s: failed: %s\n  process %d (slot %d), thread %d, doing %s of seed "
		      "%#llx; HOIST_TEST_SEED=%#llx\n  hoist_error(): %s\n",
		      file, line, function, what, (int)getpid(), self.slot, self.thread,
		      soak_action_name(action), (unsigned long long)seed,
		      board != NULL ? (unsigned long long)board->seed : 0ULL, hoist_error());
	(void)fflush(stderr);
	if (board != NULL)
		atomic_store(&board->failed, true);
	_exit(1);
}
