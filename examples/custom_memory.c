/* SPDX-License-Identifier: MIT */
/* custom_memory MODEL: loads MODEL into memory of an allocator of the program's own.
 *
 *     cc custom_memory.c $(pkg-config --cflags --libs hoist) -o custom_memory
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <hoist/hoist.h>

struct arena {
	atomic_size_t live_bytes;
};

/* Called from any thread.  A size that is a multiple of the alignment is what C11 asks for. */
static int arena_alloc(void *context, size_t bytes, size_t align, hoist_stream *stream,
		       uintptr_t *ret)
{
	struct arena *arena = context;
	void *block = aligned_alloc(align, (bytes + align - 1) / align * align);

	(void)stream;
	if (block == NULL)
		return -ENOMEM;
	atomic_fetch_add(&arena->live_bytes, bytes);
	*ret = (uintptr_t)block;
	return 0;
}

static void arena_free(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	struct arena *arena = context;

	(void)stream;
	atomic_fetch_sub(&arena->live_bytes, bytes);
	free((void *)address);
}

static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

int main(int argc, char **argv)
{
	struct arena arena = {0};
	const hoist_memory_functions functions = {.size = sizeof functions,
						  .alloc = arena_alloc,
						  .free = arena_free,
						  .is_host_accessible = 1};
	const hoist_memory_options ours = {.size = sizeof ours,
					   .kind = HOIST_MEMORY_CUSTOM,
					   .name = "arena",
					   .functions = &functions,
					   .functions_context = &arena};
	hoist_memory *memory;
	hoist_checkpoint *checkpoint;
	hoist_load *load;

	if (argc < 2) {
		fprintf(stderr, "usage: %s MODEL\n", argv[0]);
		return 2;
	}
	check(hoist_memory_create(&ours, &memory), "memory");
	const hoist_load_options options = {.size = sizeof options, .memory = memory};
	check(hoist_checkpoint_open(argv[1], 0, &checkpoint), "checkpoint");
	check(hoist_load_start(checkpoint, &options, &load), "load");
	check(hoist_load_wait(load), "load");
	printf("%zu bytes\n", (size_t)arena.live_bytes);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_memory_unref(memory);
	printf("%zu bytes are left\n", (size_t)arena.live_bytes);
	return 0;
}
