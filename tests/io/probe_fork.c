/* SPDX-License-Identifier: MIT */
/* Forks while other threads ask whether io_uring works: the child may ask, too. */
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/engine.h"
#include "tests/support/quiet-fork.h"

#define N_FORKS 200
#define N_THREADS 3

static atomic_bool stop;
static atomic_int n_asked;

static void *ask(void *argument)
{
	char note[128];
	(void)argument;
	while (!stop) {
		quiet_begin();
		(void)hoist__uring_probe(note, sizeof note);
		quiet_end();
		n_asked++;
	}
	return NULL;
}

/* Returns: the child had an answer, the parent's. */
static bool child_may_ask(int verdict)
{
	int status = -1;
	pid_t child = quiet_fork();
	if (child == 0) {
		char note[128] = "";
		(void)signal(SIGALRM, SIG_DFL);
		(void)alarm(100);
		_exit(hoist__uring_probe(note, sizeof note) != verdict || note[0] == '\0');
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return false;
	if (status != 0)
		(void)fprintf(stderr, "the child %s\n",
			      WIFSIGNALED(status) ? "waited for ever" : "had another answer");
	return status == 0;
}

int main(void)
{
	pthread_t threads[N_THREADS];
	bool well = true;
	for (size_t i = 0; i < N_THREADS; i++)
		if (pthread_create(&threads[i], NULL, ask, NULL) != 0)
			return 1;
	int verdict = hoist__uring_probe(NULL, 0);
	for (int i = 0; well && i < N_FORKS; i++) {
		int before = n_asked;
		well = child_may_ask(verdict);
		while (well && n_asked == before)
			(void)sched_yield();
	}
	stop = true;
	for (size_t i = 0; i < N_THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	printf("%d forks, %d questions\n", N_FORKS, (int)n_asked);
	return well ? 0 : 1;
}
