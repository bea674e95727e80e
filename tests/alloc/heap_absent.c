/* SPDX-License-Identifier: MIT */
/* A program that has no jemalloc: heaps say so, and how to get it.  The same program with
 * jemalloc preloaded has them. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/heap.h"
#include "alloc/jemalloc.h"
#include "base/error.h"
#include "tests/support/check.h"

static struct hoist__pool *new_pool(void)
{
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_HOST};
	struct hoist__pool *pool;
	CHECK(hoist__pool_create(&options, &pool) == 0);
	return pool;
}

static void run_absent(void)
{
	struct hoist__pool *pool = new_pool();
	struct hoist__heap *heap = NULL;
	CHECK(hoist__heap_create(pool, &heap) == -ENOTSUP && heap == NULL);
	CHECK(strstr(hoist__error_text(), "-ljemalloc") != NULL);
	CHECK(strstr(hoist__error_text(), "LD_PRELOAD=") != NULL);
	hoist__pool_unref(pool);
}

static int run_present(void)
{
	struct hoist__je je;
	struct hoist__heap *heap;
	uintptr_t block;
	if (hoist__je_find(&je) != 0)
		return 77; /* the loader did not find it */
	struct hoist__pool *pool = new_pool();
	CHECK(hoist__heap_create(pool, &heap) == 0);
	CHECK(hoist__heap_alloc(heap, 1000, 0, &block) == 0);
	memset((void *)block, 1, 1000);
	CHECK(hoist__heap_free(heap, block) == 0);
	hoist__heap_destroy(heap);
	hoist__pool_unref(pool);
	return 0;
}

static int preloaded(void)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)setenv("LD_PRELOAD", "libjemalloc.so.2", 1);
		(void)execl("/proc/self/exe", "heap_absent", "present", (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	const char *sanitizers = getenv("HOIST_TEST_SANITIZERS");
	if (argc == 2 && strcmp(argv[1], "present") == 0)
		return run_present();
	run_absent();
	/* A sanitizer wants to be the first that is loaded. */
	if (sanitizers != NULL && sanitizers[0] != '\0')
		return 0;
	int status = preloaded();
	CHECK(status == 0 || status == 77);
	printf("preloaded: %s\n", status == 0 ? "works" : "not installed");
	return 0;
}
