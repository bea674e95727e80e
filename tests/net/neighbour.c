/* SPDX-License-Identifier: MIT */
/* Memory of another process, found by its description. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/neighbour.h"
#include "tests/support/unit-check.h"

static const struct hoist__secret secret = {.key = "the secret of the group"};

static int memory(char letter)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, &letter, 1), 1);
	return fd;
}

static char letter_of(int fd)
{
	char letter = 0;
	cr_assert_eq(pread(fd, &letter, 1, 0), 1);
	return letter;
}

/* A child that has the memory at `description`, and lives until it is killed. */
static pid_t start_other(struct hoist__neighbour *description)
{
	int pipes[2];
	cr_assert_eq(pipe(pipes), 0);
	pid_t child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		hoist__neighbour_describe(&secret, memory('b'), description);
		if (write(pipes[1], description, sizeof *description) > 0)
			(void)pause();
		_exit(1);
	}
	cr_assert_eq(read(pipes[0], description, sizeof *description),
		     (ssize_t)sizeof *description);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	return child;
}

static void end_other(pid_t child)
{
	int status;
	cr_assert_eq(kill(child, SIGKILL), 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
}

Test(net_neighbour, memory_of_another_process_is_opened_for_reading)
{
	struct hoist__neighbour own, other;
	int fd = -1;
	int mine = memory('a');
	hoist__neighbour_describe(&secret, mine, &own);
	pid_t child = start_other(&other);
	cr_assert_neq(own.machine, 0);
	cr_assert_eq(own.machine, other.machine);
	cr_assert_eq(other.process, (uint32_t)child);
	cr_assert_eq(hoist__neighbour_open(&other, mine, &fd), 0);
	cr_assert_eq(letter_of(fd), 'b');
	cr_assert_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	cr_assert_neq(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	end_other(child);
	cr_assert_eq(letter_of(fd), 'b'); /* the memory outlives the process */
	(void)close(fd);
	cr_assert_lt(hoist__neighbour_open(&other, mine, &fd), 0);
	(void)close(mine);
}

Test(net_neighbour, another_secret_is_another_machine)
{
	static const struct hoist__secret another = {.key = "the secret of others"};
	struct hoist__neighbour a, b;
	int mine = memory('a');
	hoist__neighbour_describe(&secret, mine, &a);
	hoist__neighbour_describe(&another, mine, &b);
	cr_assert_neq(a.machine, b.machine);
	(void)close(mine);
	hoist__neighbour_describe(&secret, mine, &b); /* no descriptor */
	cr_assert_eq(b.machine, 0);
}

/* A description may lead to any file, which is not opened unless it is the memory: a pipe that
 * nobody writes to would block. */
Test(net_neighbour, other_files_are_not_opened)
{
	struct hoist__neighbour own, other;
	struct stat about;
	int fd = -1;
	int pipes[2];
	int mine = memory('a');
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(pipe(pipes), 0);
	hoist__neighbour_describe(&secret, mine, &own);
	const int fds[] = {pipes[0], file, open("/dev/null", O_RDONLY | O_CLOEXEC)};
	for (unsigned i = 0; i < sizeof fds / sizeof fds[0]; i++) {
		cr_assert_eq(fstat(fds[i], &about), 0);
		other = own;
		other.descriptor = (uint32_t)fds[i];
		other.inode = about.st_ino;
		cr_assert_eq(hoist__neighbour_open(&other, mine, &fd), -ESTALE);
		(void)close(fds[i]);
	}
	other = own;
	other.inode++;
	cr_assert_eq(hoist__neighbour_open(&other, mine, &fd), -ESTALE);
	other.descriptor = 1000000;
	cr_assert_eq(hoist__neighbour_open(&other, mine, &fd), -ENOENT);
	(void)close(pipes[1]);
	(void)close(mine);
}
