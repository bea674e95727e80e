/* SPDX-License-Identifier: MIT */
/* Memory of all sorts as a load's destination, tensors that claim more elements than there are
 * bytes anywhere, and options that do not go together. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "hoist/element.h"
#include "hoist/number.h"
#include "tests/support/format-archive.h"
#include "tests/support/load-support.h"

#define N 100001

static hoist_checkpoint *checkpoint;
static hoist_device *cuda;

/* --- memory --- */

/* A resource whose blocks lie @shift bytes beside where they should, or that has none. */
struct odd {
	size_t shift;
	int err;
	unsigned live;
};

static int odd_alloc(void *context, size_t bytes, size_t align, hoist_stream *stream,
		     uintptr_t *ret)
{
	struct odd *odd = context;
	void *block = NULL;
	(void)stream;
	if (odd->err < 0)
		return odd->err;
	OK(posix_memalign(&block, align < sizeof(void *) ? sizeof(void *) : align,
			  bytes + odd->shift));
	*ret = (uintptr_t)block + odd->shift;
	odd->live++;
	return 0;
}

static void odd_free(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	struct odd *odd = context;
	(void)bytes;
	(void)stream;
	odd->live--;
	free((void *)(address - odd->shift));
}

static hoist_memory *make_odd(struct odd *odd)
{
	const hoist_memory_functions functions = {.size = sizeof functions,
						  .alloc = odd_alloc,
						  .free = odd_free,
						  .is_host_accessible = 1};
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_CUSTOM,
					      .functions = &functions,
					      .functions_context = odd};
	hoist_memory *memory = NULL;
	OK(hoist_memory_create(&options, &memory));
	return memory;
}

static void resources_are_taken_as_they_are(void)
{
	struct odd odd = {.shift = 0};
	hoist_load_options o = {.size = sizeof o};
	hoist_load *load;
	o.memory = make_odd(&odd);
	CHECK(hoist_load_start(checkpoint, &o, &load) == 0 && odd.live == 1);
	OK(hoist_load_wait(load));
	support_compare(checkpoint, load);
	hoist_buffer *buffer;
	OK(hoist_load_buffer(load, "t000000", &buffer));
	hoist_load_destroy(load);
	CHECK(odd.live == 1);
	hoist_buffer_unref(buffer);
	CHECK(odd.live == 0);
	odd.shift = 64;
	support_load_fails(checkpoint, &o, -EINVAL, "not aligned to 4096");
	odd.err = -ENOSPC;
	support_load_fails(checkpoint, &o, -ENOSPC, "destination");
	odd.err = 0;
	o.device = cuda;
	support_load_fails(checkpoint, &o, -EINVAL, "has memory of cpu");
	CHECK(odd.live == 0);
	hoist_memory_unref(o.memory);
}

/* --- options --- */

static void some_options_exclude_each_other(void)
{
	static const hoist_load_slice slice = {.tensor = "t000000", .n_ranks = 1};
	static const hoist_load_slice nameless = {.n_ranks = 1};
	struct odd odd = {.shift = 0};
	hoist_memory *memory = make_odd(&odd);
	const struct {
		hoist_load_options o;
		const char *piece;
	} rows[] = {
		{{.slices = &slice, .n_slices = 1, .flags = HOIST_LOAD_DIGEST}, "whole tensors"},
		{{.slices = &slice, .n_slices = 1, .flags = HOIST_LOAD_VERIFY}, "whole tensors"},
		{{.slices = &nameless, .n_slices = 1}, "names no tensor"},
		{{.io = (enum hoist_io)5}, "io is 5; it is 0 to 4"},
		{{.flags = 1u << 30}, "unknown bits: 0x40000000"},
		{{.io = HOIST_IO_MAP, .flags = HOIST_LOAD_DIGEST}, "digests"},
		{{.io = HOIST_IO_MAP, .memory = memory}, "the caller's memory"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_load_options o = rows[i].o;
		o.size = sizeof o;
		support_load_fails(checkpoint, &o, -EINVAL, rows[i].piece);
	}
	hoist_memory_unref(memory);
}

/* --- claims --- */

#define VIEW(name, shape)                                                                          \
	"X\3\0\0\0" name "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"                   \
	"ctorch\nFloatStorage\nX\1\0\0\0"                                                          \
	"0X\3\0\0\0cpuK\4tQK\1" shape "K\0K\0\x86\x89"                                             \
	"ccollections\nOrderedDict\n)RtRs"
#define LONG(high) "\x8a\x08\0\0\0\0\0" high "\0\0"

/* One element, expanded: to more than any machine has, and to more than can be counted. */
static void claims_cost_nothing(void)
{
	static const char pickle[] =
		"\x80\2}" VIEW("big", LONG("\1") "K\4\x86") VIEW("ten", "K\2K\5\x86") ".";
	static const float data[4] = {1, 2.5F, 3, 4};
	struct archive archive = {.align = 64, .flags = 0x800};
	archive_add(&archive, "m/data.pkl", pickle, sizeof pickle - 1);
	archive_add(&archive, "m/data/0", data, sizeof data);
	archive_end(&archive, "");
	support_put("m.pt", archive.file.p, archive.file.n);
	archive_free(&archive);
	checkpoint = support_open("m.pt");
	for (int way = 0; way < 6; way++) {
		const hoist_load_options o = {.size = sizeof o,
					      .device = way % 2 ? cuda : NULL,
					      .dtype = way < 4 && way >= 2 ? HOIST_F16 : 0,
					      .io = way >= 4 ? HOIST_IO_MAP : HOIST_IO_AUTO};
		hoist_load *load;
		hoist_buffer *buffer;
		hoist_number number;
		uint16_t halves[10];
		float floats[10];
		const int64_t last[] = {1, 4};
		const int64_t far[] = {((int64_t)1 << 40) - 1, 3};
		OK(hoist_load_start(checkpoint, &o, &load));
		OK(hoist_load_wait(load));
		hoist_load_report report = support_report(load);
		CHECK(report.bytes == 4 || way >= 4);
		OK(hoist_load_buffer(load, "ten", &buffer));
		CHECK(hoist_buffer_get(buffer, 2, last, &number) == 0 && number.as.f64 == 2.5);
		OK(hoist_buffer_copy_out(buffer, o.dtype ? (void *)halves : floats,
					 o.dtype ? sizeof halves : sizeof floats));
		CHECK(o.dtype ? halves[9] == 0x4100 : floats[9] == 2.5F);
		hoist_buffer_unref(buffer);
		OK(hoist_load_buffer(load, "big", &buffer));
		CHECK(hoist_buffer_get(buffer, 2, far, &number) == 0 && number.as.f64 == 2.5);
		hoist_buffer_unref(buffer);
		hoist_load_destroy(load);
	}
	hoist_checkpoint_close(checkpoint);
}

int main(void)
{
	static const size_t sizes[] = {N, 0, 7};
	support_emulate("cuda:1");
	cuda = support_device("cuda:0");
	support_write("m.safetensors", 0, 3, sizes, -1);
	checkpoint = support_open("m.safetensors");
	resources_are_taken_as_they_are();
	some_options_exclude_each_other();
	hoist_checkpoint_close(checkpoint);
	claims_cost_nothing();
	hoist_device_unref(cuda);
	support_cleanup();
	return 0;
}
