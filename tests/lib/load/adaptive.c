/* SPDX-License-Identifier: MIT */
/* Adaptive loads: ranges are mapped that the page cache holds.  The linker (--wrap) sends the
 * library's questions about the cache through this program, which answers them from a pattern: a
 * page may leave the real cache at any moment, and a map shows the file either way.  Maps can fail,
 * with the hole in the address space that some kernels leave.
 *
 * Exit: 0, 1. */
#include "config.h"

#include "tests/lib/load/adaptive.h"
#include "lib/plan/adaptive.h"

/* --- the model --- */

enum { MOST = 24 };

static unsigned n_cancelled, n_dropped;

/* Tensors of random sizes in two files. */
static hoist_checkpoint *make(uint64_t *state)
{
	static const size_t most[] = {300, 9000, 700000, 7 * MIB};
	const char *const names[] = {"a.safetensors", "b.safetensors"};
	size_t sizes[MOST];
	size_t first[] = {0, 0, 1 + random_below(state, MOST)};
	first[1] = random_below(state, first[2]);
	for (size_t i = 0; i < first[2]; i++)
		sizes[i] = random_below(state, most[random_below(state, 4)]);
	for (size_t f = 0; f < 2; f++)
		support_write(names[f], first[f], first[f + 1] - first[f], sizes + first[f],
			      (int)random_below(state, 4096));
	support_write_index(names, first, 2);
	hoist_checkpoint *checkpoint;
	OK(hoist_checkpoint_open(support_folder(), 0, &checkpoint));
	return checkpoint;
}

/* The load maps what the answers called hot, but for bytes in front of an extent's first. */
static void check_report(hoist_load *load, int n_failures)
{
	hoist_load_report report = support_report(load);
	size_t bytes;
	size_t n = count_maps(support_folder(), &bytes);
	CHECK(report.mapped_bytes <= hot_bytes);
	CHECK(report.direct_bytes + report.cached_bytes + report.mapped_bytes >= report.bytes);
	CHECK(n <= n_hot_runs && bytes >= report.mapped_bytes);
	if (n_failures == 0)
		CHECK(report.mapped_bytes + n_hot_runs * PAGE >= hot_bytes &&
		      bytes <= report.mapped_bytes + 2 * PAGE * n_hot_runs);
	CHECK((strstr(report.io_reason, "mapped") != NULL) == (report.mapped_bytes > 0));
	CHECK((n > 0) == (report.mapped_bytes > 0));
}

/* Ends the load, and drops its tensors one by one in any order: each is right as long as it is
 * held, whichever others have gone. */
static void end_and_drop(hoist_checkpoint *checkpoint, hoist_load *load, uint64_t *state)
{
	hoist_buffer *buffers[MOST + 1];
	size_t which[MOST + 1];
	size_t n = hoist_load_n_tensors(load);
	CHECK(n <= MOST + 1);
	for (size_t i = 0; i < n; i++)
		OK(hoist_load_tensor(load, i, &which[i], &buffers[i]));
	hoist_load_destroy(load);
	for (; n > 0; n--) {
		size_t i = random_below(state, n);
		compare_one(checkpoint, which[i], buffers[i]);
		hoist_buffer_unref(buffers[i]);
		buffers[i] = buffers[n - 1];
		which[i] = which[n - 1];
		n_dropped++;
	}
}

/* Leaves the load in the middle, cancelled or not. */
static void leave(hoist_load *load, uint64_t *state)
{
	int done = 0;
	bool cancel = random_below(state, 2) != 0; /* how many steps there are depends on time */
	for (uint64_t n = random_below(state, 12); n > 0 && done == 0; n--)
		done = hoist_load_step(load, random_below(state, 2) * 1000000);
	CHECK(done >= 0);
	if (cancel) {
		hoist_load_cancel(load);
		int err = hoist_load_wait(load);
		CHECK(err == -ECANCELED || err == 0);
		n_cancelled++;
	}
	hoist_load_destroy(load);
}

static void a_model(uint64_t round)
{
	uint64_t state = round;
	uint64_t done, total;
	hoist_checkpoint *checkpoint = make(&state);
	const char *patterns[] = {"t*[02468]"};
	hoist_load_options o = {
		.size = sizeof o,
		.engine = (enum hoist_engine)(random_below(&state, 2) * HOIST_ENGINE_THREADS),
		.tensors = random_below(&state, 2) ? patterns : NULL,
		.n_tensors = 1,
		.flags = random_below(&state, 2) ? HOIST_LOAD_DIGEST : 0,
		.chunk_bytes = random_below(&state, 3) * (PAGE * 301),
	};
	if (o.tensors == NULL)
		o.n_tensors = 0;
	seed = round;
	hot_of = (unsigned)random_below(&state, 9);
	fail_maps = random_below(&state, 4) == 0 ? (int)random_below(&state, 4) : 0;
	n_failed = 0;
	answers = PATTERN;
	hoist_load *load = start(checkpoint, o);
	fail_maps = 0;
	if (random_below(&state, 4) == 0) {
		leave(load, &state);
		hoist_checkpoint_close(checkpoint);
		CHECK(n_maps(support_folder()) == 0);
		return;
	}
	OK(hoist_load_wait(load));
	check_report(load, n_failed);
	support_compare(checkpoint, load);
	hoist_load_progress(load, &done, &total);
	CHECK(done == total);
	if ((o.flags & HOIST_LOAD_DIGEST) != 0)
		compare_digests(checkpoint, &o, load);
	end_and_drop(checkpoint, load, &state);
	CHECK(n_maps(support_folder()) == 0);
	hoist_checkpoint_close(checkpoint);
}

/* --- many runs --- */

/* If there are more runs than a load may map, the longest are mapped.  The split plan has every
 * byte once. */
static void the_longest_are_mapped(void)
{
	const uint64_t bytes = (uint64_t)24 << 30;
	const struct hoist__plan_asked asked = {.kind = HOIST__PLAN_HOST};
	const struct hoist__plan_options options = {
		.wants = &asked, .n_wants = 1, .tensor_align = 256};
	char header[128];
	(void)snprintf(header, sizeof header,
		       "{\"t\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
		       (unsigned long long)bytes, (unsigned long long)bytes);
	support_put_safetensors("sparse.safetensors", header, "", 0);
	OK(truncate(support_path("sparse.safetensors"), (off_t)(8 + strlen(header) + bytes)));
	hoist_checkpoint *checkpoint = support_open("sparse.safetensors");
	struct hoist__plan plan;
	size_t n_maps = 0;
	OK(hoist__plan_make(checkpoint, &options, &plan));
	seed = 7;
	hot_of = 4;
	answers = PATTERN;
	hot_run = hot_bytes = hot_end = 0;
	n_hot_runs = 0;
	OK(hoist__adaptive_find(checkpoint, &plan, &n_maps));
	end_run();
	answers = REAL;
	uint64_t least = UINT64_MAX, mapped = 0, useful = 0;
	size_t n = 0;
	for (size_t e = 0; e < plan.n_extents; e++) {
		const struct hoist__plan_extent *extent = &plan.extents[e];
		CHECK(e == 0 || extent->begin == plan.extents[e - 1].end);
		if (!extent->mapped)
			continue;
		n++;
		mapped += extent->end - extent->begin;
		if (extent->end - extent->begin < least)
			least = extent->end - extent->begin;
	}
	/* Half of the granules are hot, so half of the 3,000 runs have one granule: none of these
	 * is left.
	 */
	CHECK(n_hot_runs > 2000 && n == 1000 && n_maps == 1000 && least > 2 * MIB);
	CHECK(mapped < hot_bytes && mapped > hot_bytes / 3);
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	while (hoist__plan_next(&plan, 8 * MIB, &cursor, &chunk)) {
		const struct hoist__plan_extent *extent = &plan.extents[chunk.extent];
		CHECK(chunk.offset + chunk.need <= extent->end);
		useful += chunk.useful;
	}
	CHECK(useful == bytes);
	hoist__plan_fini(&plan);
	hoist_checkpoint_close(checkpoint);
}

/* --- the page cache itself --- */

/* A file that was just read is mapped as far as the cache kept it. */
static void a_cached_file_is_mapped(void)
{
	static const size_t sizes[] = {9 * MIB, 100, 7 * MIB};
	static unsigned char scratch[MIB];
	support_write("hot.safetensors", 0, 3, sizes, 0);
	uint64_t mapped = 0;
	for (uint64_t until = 0; mapped < 15 * MIB && patience(&until);) {
		int fd = open(support_path("hot.safetensors"), O_RDONLY | O_CLOEXEC);
		while (read(fd, scratch, sizeof scratch) > 0)
			continue;
		close(fd);
		hoist_load_report report;
		const hoist_load_options o = {.size = sizeof o, .io = HOIST_IO_ADAPTIVE};
		support_load_and_compare(support_path("hot.safetensors"), &o, &report);
		mapped = report.mapped_bytes;
	}
	CHECK(mapped >= 15 * MIB);
}

/* --- files that change --- */

static const size_t three[] = {5 * MIB + 17, 3000, 6 * MIB};

static hoist_checkpoint *open_three(void)
{
	support_write("three.safetensors", 0, 3, three, 100);
	return support_open("three.safetensors");
}

/* A file that shrinks while it is loaded is a failure of the load, digested or not, and no signal.
 */
static void a_shrinking_file_is_an_error(void)
{
	static const unsigned flags[] = {0, HOIST_LOAD_DIGEST};
	for (int f = 0; f < 2; f++) {
		hoist_checkpoint *checkpoint = open_three();
		hoist_load *load = start_all_hot(checkpoint, flags[f]);
		CHECK(n_maps("three.safetensors") == 1);
		OK(truncate(support_path("three.safetensors"), (off_t)(6 * MIB)));
		int err = hoist_load_wait(load);
		CHECK(err == -ENODATA || (err == -EBADMSG && flags[f] == 0));
		support_said("three.safetensors");
		hoist_load_destroy(load);
		CHECK(n_maps("three.safetensors") == 0);
		hoist_checkpoint_close(checkpoint);
	}
}

/* Later, a touch of what is gone raises SIGBUS, and what was read stays. */
static void a_file_that_shrinks_later(void)
{
	for (int hot = 0; hot < 2; hot++) {
		hoist_checkpoint *checkpoint = open_three();
		answers = hot ? ALL : NONE;
		hoist_load *load = start(checkpoint, (hoist_load_options){0});
		OK(hoist_load_wait(load));
		hoist_buffer *last = tensor(load, 2);
		const unsigned char *bytes = hoist_buffer_data(last);
		unsigned char was = bytes[5 * MIB];
		hoist_load_destroy(load);
		OK(truncate(support_path("three.safetensors"), (off_t)(6 * MIB)));
		CHECK(touch(bytes + 5 * MIB) == (hot ? -SIGBUS : was));
		CHECK(touch(bytes) >= 0);
		hoist_buffer_unref(last);
		hoist_checkpoint_close(checkpoint);
	}
}

static void digests_are_verified(void)
{
	hoist_save_options options = {.size = sizeof options, .flags = HOIST_SAVE_DIGEST};
	const char *path = support_path("digests.safetensors");
	hoist_checkpoint *checkpoint = open_three();
	hoist_save *save = NULL;
	OK(hoist_save_create(path, &options, &save));
	for (size_t i = 0; i < 3; i++)
		OK(hoist_save_add_tensor(save, NULL, checkpoint, i));
	OK(hoist_save_start(save));
	OK(hoist_save_wait(save));
	hoist_save_destroy(save);
	hoist_checkpoint_close(checkpoint);
	checkpoint = support_open("digests.safetensors");
	for (int damaged = 0; damaged < 2; damaged++) {
		if (damaged) {
			hoist_tensor_info info = info_of(checkpoint, 2);
			FILE *file = fopen(path, "r+b");
			CHECK(file != NULL && fseek(file, (long)info.offset + 99, SEEK_SET) == 0);
			int byte = fgetc(file);
			OK(fseek(file, (long)info.offset + 99, SEEK_SET));
			CHECK(fputc(byte ^ 1, file) != EOF && fclose(file) == 0);
			hoist_checkpoint_close(checkpoint);
			checkpoint = support_open("digests.safetensors");
		}
		hoist_load *load = start_all_hot(checkpoint, HOIST_LOAD_VERIFY);
		CHECK(hoist_load_wait(load) == (damaged ? -EBADMSG : 0));
		if (damaged)
			support_said("t000002");
		CHECK(support_report(load).mapped_bytes > 10 * MIB);
		hoist_load_destroy(load);
	}
	hoist_checkpoint_close(checkpoint);
}

/* --- buffers --- */

/* The kernel maps huge pages of the page cache whole if they lie in memory as in the file. */
static void tensors_lie_in_huge_pages_as_in_the_file(void)
{
	static const char *const subsets[] = {"t000000", "t000002"};
	hoist_checkpoint *checkpoint = open_three();
	for (size_t s = 0; s < 2; s++) {
		answers = ALL;
		const hoist_load_options o = {.tensors = &subsets[s], .n_tensors = 1};
		hoist_load *load = start(checkpoint, o);
		OK(hoist_load_wait(load));
		CHECK(support_report(load).mapped_bytes > 4 * MIB);
		hoist_buffer *buffer = tensor(load, 0);
		CHECK((hoist_buffer_address(buffer) - info_of(checkpoint, 2 * s).offset) %
			      (2 * MIB) ==
		      0);
		hoist_buffer_unref(buffer);
		hoist_load_destroy(load);
	}
	hoist_checkpoint_close(checkpoint);
}

/* So do large files behind others, mapped or read; an empty tensor and small files lie between. */
static void each_large_file_lies_in_huge_pages(void)
{
	static const char *const names[] = {"1.safetensors", "2.safetensors", "3.safetensors",
					    "4.safetensors"};
	static const size_t sizes[] = {5 * MIB + 17, 1000, 130 * MIB, 0, 3 * MIB, 129 * MIB, 77};
	static const size_t first[] = {0, 1, 4, 5, 7};
	static const size_t large[] = {2, 5};
	for (size_t f = 0; f < 4; f++)
		support_write(names[f], first[f], first[f + 1] - first[f], sizes + first[f],
			      (int)(100 * f));
	support_write_index(names, first, 4);
	hoist_checkpoint *checkpoint = support_open(support_folder());
	for (int hot = 0; hot < 2; hot++) {
		answers = hot ? ALL : NONE;
		hoist_load *load = start(checkpoint, (hoist_load_options){0});
		OK(hoist_load_wait(load));
		support_compare(checkpoint, load);
		for (size_t i = 0; i < 2 && hot; i++) {
			hoist_buffer *buffer = tensor(load, large[i]);
			CHECK((hoist_buffer_address(buffer) -
			       info_of(checkpoint, large[i]).offset) %
				      (2 * MIB) ==
			      0);
			hoist_buffer_unref(buffer);
		}
		hoist_load_destroy(load);
	}
	hoist_checkpoint_close(checkpoint);
	for (size_t f = 0; f < 4; f++)
		OK(unlink(support_path(names[f])));
	OK(unlink(support_path("model.safetensors.index.json")));
}

static void write_all(hoist_buffer *buffer, unsigned char byte)
{
	memset(hoist_buffer_data(buffer), byte, hoist_buffer_bytes(buffer));
}

static void has_all(hoist_buffer *buffer, unsigned char byte)
{
	const unsigned char *bytes = hoist_buffer_data(buffer);
	for (size_t i = 0; i < hoist_buffer_bytes(buffer); i++)
		CHECK(bytes[i] == byte);
}

/* Buffers outlive load and checkpoint; writes stay private; pages go back with each tensor, and the
 * maps with the last. */
static void tensors_go_back_one_by_one(void)
{
	static const size_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
	for (size_t o = 0; o < 3; o++) {
		hoist_buffer *buffers[3];
		hoist_checkpoint *checkpoint = open_three();
		hoist_load *load = start_all_hot(checkpoint, 0);
		OK(hoist_load_wait(load));
		for (size_t i = 0; i < 3; i++)
			buffers[i] = tensor(load, i);
		hoist_load_destroy(load);
		size_t bytes;
		size_t held = 0;
		CHECK(count_maps("three.safetensors", &bytes) == 1);
		for (size_t i = 0; i < 3; i++) {
			write_all(buffers[i], (unsigned char)(i + 1));
			held += three[i];
		}
		for (size_t k = 0; k < 3; k++) {
			size_t gone = orders[o][k];
			for (size_t i = k; i < 3; i++)
				has_all(buffers[orders[o][i]], (unsigned char)(orders[o][i] + 1));
			hoist_buffer_unref(buffers[gone]);
			held -= three[gone];
			CHECK(resident_maps("three.safetensors") <= held + 6 * PAGE);
		}
		CHECK(n_maps("three.safetensors") == 0);
		/* The file is what it was. */
		hoist_load_report report;
		const hoist_load_options plain = {.size = sizeof plain, .io = HOIST_IO_CACHED};
		load = support_load("three.safetensors", &plain);
		support_compare(checkpoint, load);
		report = support_report(load);
		CHECK(report.mapped_bytes == 0);
		hoist_load_destroy(load);
		hoist_checkpoint_close(checkpoint);
	}
}

/* Freezing, forking and exporting are about one tensor; a child has maps of its own. */
static void tensors_are_buffers_like_others(void)
{
	hoist_checkpoint *checkpoint = open_three();
	hoist_load *load = start_all_hot(checkpoint, 0);
	OK(hoist_load_wait(load));
	hoist_buffer *first = tensor(load, 0), *last = tensor(load, 2), *fork_of;
	struct DLManagedTensorVersioned *exported;
	unsigned char *bytes = hoist_buffer_data(last); /* as long as the export lives */
	unsigned char byte = bytes[0];
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	OK(hoist_buffer_fork(1, &last, 1, &fork_of));
	OK(hoist_buffer_freeze(first));
	CHECK(hoist_buffer_write(first, 0, "x", 1) == -EROFS);
	OK(hoist_buffer_write(last, 1, "x", 1));
	OK(hoist_buffer_to_dlpack(last, NULL, &exported));
	hoist_buffer_unref(last);
	hoist_buffer_unref(first);
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		bool same = bytes[0] == byte;
		hoist_dlpack_release(exported);
		_exit(same && n_maps("three.safetensors") == 0 ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(n_maps("three.safetensors") == 1);
	CHECK(bytes[1] == 'x');
	hoist_dlpack_release(exported);
	CHECK(n_maps("three.safetensors") == 0);
	CHECK(*(unsigned char *)hoist_buffer_data(fork_of) == byte);
	hoist_buffer_unref(fork_of);
}

/* --- options --- */

/* These loads read everything, and look at nothing when they start. */
static void others_act_as_auto(void)
{
	hoist_device *cpu = support_device("cpu");
	hoist_memory *memory;
	OK(hoist_memory_of_device(cpu, HOIST_MEMORY_HOST, &memory));
	const hoist_load_target one = {.size = sizeof one};
	const hoist_load_target *const two[] = {&one, &one};
	const hoist_load_options all[] = {
		{.memory = memory},
		{.flags = HOIST_LOAD_SPLIT},
		{.targets = two, .n_targets = 2},
	};
	hoist_checkpoint *checkpoint = open_three();
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		answers = ALL;
		hoist_load *load = start(checkpoint, all[i]);
		OK(hoist_load_wait(load));
		CHECK(support_report(load).mapped_bytes == 0 && n_maps("three.safetensors") == 0);
		support_compare(checkpoint, load);
		hoist_load_destroy(load);
	}
	const hoist_load_options drops = {
		.size = sizeof drops, .io = HOIST_IO_ADAPTIVE, .flags = HOIST_LOAD_DROP_CACHE};
	support_load_fails(checkpoint, &drops, -EINVAL, "DROP_CACHE");
	hoist_load *none;
	const hoist_load_options beyond = {.size = sizeof beyond, .io = HOIST_IO_ADAPTIVE + 1};
	CHECK(hoist_load_start(checkpoint, &beyond, &none) == -EINVAL);
	hoist_checkpoint_close(checkpoint);
	hoist_memory_unref(memory);
	hoist_device_unref(cpu);
}

int main(void)
{
	for (uint64_t round = 1; round <= 60; round++) {
		check_at("round %llu", (unsigned long long)round);
		a_model(round);
	}
	check_at("the model is over");
	printf("figure: adaptive.model %u tensors dropped one by one, %u loads cancelled\n",
	       n_dropped, n_cancelled);
	CHECK(n_dropped > 100 && n_cancelled > 0);
	the_longest_are_mapped();
	a_cached_file_is_mapped();
	a_shrinking_file_is_an_error();
	a_file_that_shrinks_later();
	digests_are_verified();
	tensors_lie_in_huge_pages_as_in_the_file();
	each_large_file_lies_in_huge_pages();
	tensors_go_back_one_by_one();
	tensors_are_buffers_like_others();
	others_act_as_auto();
	support_cleanup();
	return 0;
}
