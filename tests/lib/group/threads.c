/* SPDX-License-Identifier: MIT */
/* Ranks that are threads of one process: what is shared is shared without races. */
#include "config.h"

#include <pthread.h>
#include <unistd.h>

#include <hoist/group.h>

#include "tests/support/load-support.h"

enum { N_RANKS = 3, N_LOADS = 4 };

static hoist_checkpoint *checkpoints[N_RANKS];
static hoist_load *loads[N_RANKS][N_LOADS];

/* The same name, again and again. */
static void *rank_main(void *argument)
{
	unsigned rank = (unsigned)(uintptr_t)argument;
	char name[64];
	(void)snprintf(name, sizeof name, "shm:threads-%d", (int)getpid());
	const hoist_group group = {
		.size = sizeof group, .name = name, .rank = rank, .n_ranks = N_RANKS};
	for (unsigned i = 0; i < N_LOADS; i++) {
		const char *names[] = {"t*[0246]"};
		hoist_load_options o = {.size = sizeof o};
		o.engine = i % 2 == 0 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS;
		if (rank == i % N_RANKS) {
			o.tensors = names;
			o.n_tensors = 1;
		}
		OK(hoist_group_load(&group, checkpoints[rank], &o, &loads[rank][i]));
		OK(hoist_load_wait(loads[rank][i]));
	}
	return NULL;
}

int main(void)
{
	static const size_t sizes[] = {7000000, 3000, 12000000, 0, 25000000, 8192, 1};
	pthread_t threads[N_RANKS];
	support_write("model.safetensors", 0, 7, sizes, -1);
	for (unsigned r = 0; r < N_RANKS; r++)
		checkpoints[r] = support_open("model.safetensors");
	for (unsigned r = 0; r < N_RANKS; r++)
		OK(pthread_create(&threads[r], NULL, rank_main, (void *)(uintptr_t)r));
	for (unsigned r = 0; r < N_RANKS; r++)
		OK(pthread_join(threads[r], NULL));
	for (unsigned r = 0; r < N_RANKS; r++) {
		for (unsigned i = 0; i < N_LOADS; i++) {
			support_compare(checkpoints[r], loads[r][i]);
			hoist_load_destroy(loads[r][i]);
		}
		hoist_checkpoint_close(checkpoints[r]);
	}
	support_cleanup();
	return 0;
}
