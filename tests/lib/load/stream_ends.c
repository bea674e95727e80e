/* SPDX-License-Identifier: MIT */
/* Loads that give tensors one by one and end in the middle: in a forked child, cancelled,
 * destroyed, without memory, damaged. */
#include "config.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/load/stream.h"

/* A child has no part in the load, and may drop its copies of the buffers. */
static void a_forked_child_is_told(void)
{
	hoist_load_options o = {
		.size = sizeof o, .flags = HOIST_LOAD_STREAM, .window_bytes = 2 * MIB};
	hoist_load *load = start(&o);
	hoist_load_item item = next_of(load);
	drop(&item);
	item = next_of(load);
	drop(&item);
	item = next_of(load);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(try_next(load, UINT64_MAX) == -ESTALE && hoist_load_fd(load) == -ESTALE);
		drop(&item);
		hoist_load_destroy(load);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	drop(&item);
	while (try_next(load, UINT64_MAX) > 0)
		continue;
	hoist_load_destroy(load);
}

/* Given tensors outlive a load that is cancelled, or destroyed, in the middle. */
static void a_load_may_end_in_the_middle(void)
{
	for (unsigned n = 0; n < N; n++)
		for (unsigned way = 0; way < 4; way++) {
			hoist_load_options o = {.size = sizeof o,
						.flags = HOIST_LOAD_STREAM |
							 (way < 2 ? HOIST_LOAD_CALLER_DRIVEN : 0),
						.window_bytes = 6 * MIB};
			hoist_load *load = start(&o);
			hoist_load_item held[N];
			unsigned n_held = 0;
			while (n_held < n) {
				held[n_held] = (hoist_load_item){.size = sizeof held[0]};
				int got = hoist_load_next(load, UINT64_MAX, &held[n_held]);
				if (got == -ENOBUFS)
					break;
				CHECK(got == 1);
				n_held++;
			}
			if (way % 2 == 0) {
				hoist_load_cancel(load);
				int got;
				while ((got = try_next(load, UINT64_MAX)) == 1)
					continue;
				CHECK(got == -ECANCELED || got == -ENOBUFS);
			}
			hoist_load_destroy(load);
			while (n_held > 0) {
				same_bytes(held[n_held - 1].tensor, held[n_held - 1].buffer);
				drop(&held[--n_held]);
			}
		}
}

/* Memory that runs out while the load runs is the load's failure; what was given stays. */
static void memory_may_run_out(void)
{
	struct backing backing = {0};
	hoist_device *device = support_device("cpu");
	hoist_memory *memory = make_custom(&backing, device, 1, 0);
	hoist_load_options o = {.size = sizeof o,
				.memory = memory,
				.flags = HOIST_LOAD_STREAM | HOIST_LOAD_CALLER_DRIVEN,
				.window_bytes = 400 * KIB};
	hoist_load *load = start(&o);
	hoist_load_item item = {.size = sizeof item};
	do {
		drop(&item);
		item.size = sizeof item;
		CHECK(look(load, &item) == 1);
	} while (item.tensor != 2);
	backing.fail = -ENOSPC;
	hoist_load_item none = {.size = sizeof none};
	CHECK(look(load, &none) == -ENOBUFS);
	same_bytes(2, item.buffer);
	drop(&item);
	CHECK(look(load, &none) == -ENOSPC && none.buffer == NULL);
	support_said("t000003");
	CHECK(hoist_load_wait(load) == -ENOSPC);
	hoist_load_destroy(load);
	CHECK(backing.n_allocs == backing.n_frees);
	hoist_memory_unref(memory);
	hoist_device_unref(device);
}

/* Overwrites a byte of the file. */
static void damage(const char *path, long at)
{
	FILE *file = fopen(path, "r+b");
	CHECK(file != NULL && fseek(file, at, SEEK_SET) == 0);
	int was = fgetc(file);
	CHECK(fseek(file, at, SEEK_SET) == 0 && fputc(was ^ 1, file) != EOF);
	OK(fclose(file));
}

/* The tensors before a damaged one are given, and right; the damaged one never is. */
static void a_damaged_tensor_is_not_given(void)
{
	hoist_load_options o = {.size = sizeof o};
	hoist_save_options save_options = {.size = sizeof save_options, .flags = HOIST_SAVE_DIGEST};
	const char *path = support_path("digests.safetensors");
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	hoist_save *save = NULL;
	OK(hoist_save_create(path, &save_options, &save));
	for (size_t i = 0; i < N; i++)
		OK(hoist_save_add_tensor(save, NULL, checkpoint, i));
	OK(hoist_save_start(save));
	OK(hoist_save_wait(save));
	hoist_save_destroy(save);
	hoist_checkpoint_close(checkpoint);
	checkpoint = support_open("digests.safetensors");
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, 10, &info));
	damage(path, (long)info.offset + 12345);
	for (size_t window = 0; window <= 4 * MIB; window += 4 * MIB) {
		o.flags = HOIST_LOAD_STREAM | HOIST_LOAD_VERIFY | HOIST_LOAD_CALLER_DRIVEN;
		o.window_bytes = window;
		hoist_load *load = NULL;
		OK(hoist_load_start(checkpoint, &o, &load));
		hoist_load_item item = {.size = sizeof item};
		int got;
		while ((got = look(load, &item)) == 1) {
			CHECK(item.tensor < 10);
			same_bytes(item.tensor, item.buffer);
			drop(&item);
		}
		CHECK(got == -EBADMSG);
		support_said("tensor \"t000010\" of ");
		CHECK(hoist_load_wait(load) == -EBADMSG);
		hoist_load_destroy(load);
	}
	hoist_checkpoint_close(checkpoint);
}

/* A file that has lost its end gives what is before, then the failure with file, byte and tensor.
 */
static void a_file_that_shrank_fails_where_it_ends(void)
{
	support_write("short.safetensors", 0, N, sizes, 1333);
	hoist_checkpoint *checkpoint = support_open("short.safetensors");
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, 8, &info));
	OK(truncate(support_path("short.safetensors"), (off_t)info.offset + 99));
	hoist_load_options o = {.size = sizeof o,
				.flags = HOIST_LOAD_STREAM | HOIST_LOAD_CALLER_DRIVEN,
				.window_bytes = 3 * MIB,
				.depth = 1};
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, &o, &load));
	hoist_load_item item = {.size = sizeof item};
	size_t n = 0;
	int got;
	for (; (got = look(load, &item)) == 1; n++) {
		CHECK(item.tensor < 8);
		same_bytes(item.tensor, item.buffer);
		drop(&item);
	}
	char where[32];
	(void)snprintf(where, sizeof where, "ends at byte %llu",
		       (unsigned long long)info.offset + 99);
	CHECK(got == -ENODATA && n > N_EMPTY);
	support_said("short.safetensors");
	support_said(where);
	support_said("\"t000008\"");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

int main(void)
{
	support_emulate("cuda:1");
	support_write("m.safetensors", 0, N, sizes, 1333);
	a_forked_child_is_told();
	a_load_may_end_in_the_middle();
	memory_may_run_out();
	a_damaged_tensor_is_not_given();
	a_file_that_shrank_fails_where_it_ends();
	support_cleanup();
	return 0;
}
