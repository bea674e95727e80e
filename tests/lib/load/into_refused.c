/* SPDX-License-Identifier: MIT */
/* Loads in place that are refused, and those beside them that are not. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <hoist/layout.h>

#include "tests/support/load-support.h"

enum { CPU, CUDA_0, CUDA_1, HIP_0, N_DEVICES, ROWS = 96, COLUMNS = 64, MATRIX = ROWS * COLUMNS };

static hoist_device *devices[N_DEVICES];
static float values[3 * MATRIX]; /* "q", "k" and "v", of [ROWS, COLUMNS] each */

static hoist_buffer *make(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape)
{
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_create(device, dtype, rank, shape, HOIST_BUFFER_ZERO, &buffer));
	return buffer;
}

static hoist_checkpoint *write_matrices(void)
{
	char header[512];
	for (size_t i = 0; i < 3 * MATRIX; i++)
		values[i] = (float)i;
	(void)snprintf(header, sizeof header,
		       "{\"q\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
		       "\"k\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]},"
		       "\"v\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]},"
		       "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[%d,%d]}}",
		       ROWS, COLUMNS, MATRIX * 4, ROWS, COLUMNS, MATRIX * 4, MATRIX * 8, ROWS,
		       COLUMNS, MATRIX * 8, MATRIX * 12, MATRIX * 4, MATRIX * 4 + 4);
	/* "i" would overlap "k": safetensors forbids that, so "i" lies behind. */
	char *last = strstr(header, ",\"i\"");
	(void)snprintf(last, sizeof header - (size_t)(last - header),
		       ",\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[%d,%d]}}",
		       MATRIX * 12, MATRIX * 12 + 4);
	static unsigned char bytes[MATRIX * 12 + 4];
	memcpy(bytes, values, sizeof values);
	support_put_safetensors("qkv.safetensors", header, bytes, sizeof bytes);
	return support_open("qkv.safetensors");
}

/* --- fused matrices --- */

static hoist_buffer *part(hoist_buffer *fused, int axis, int number)
{
	const int64_t n = axis == 0 ? ROWS : COLUMNS;
	const hoist_slice all = {HOIST_NONE, HOIST_NONE, 1, 0};
	hoist_slice slices[2] = {all, all};
	hoist_buffer *made = NULL;
	slices[axis] = (hoist_slice){number * n, (number + 1) * n, 1, 0};
	OK(hoist_buffer_slice(fused, 2, slices, &made));
	return made;
}

/* Three tensors into the rows, or the columns, of one buffer. */
static void fused_on(hoist_checkpoint *checkpoint, hoist_device *device, int axis)
{
	static const char *const names[] = {"q", "k", "v"};
	const int64_t shape[] = {axis == 0 ? 3 * ROWS : ROWS, axis == 1 ? 3 * COLUMNS : COLUMNS};
	static float out[3 * MATRIX];
	hoist_buffer *fused = make(device, HOIST_F32, 2, shape);
	hoist_load_into into[3];
	hoist_load *load = NULL;
	for (int i = 0; i < 3; i++)
		into[i] = (hoist_load_into){names[i], part(fused, axis, i)};
	const hoist_load_options o = {.size = sizeof o, .into = into, .n_into = 3};
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	OK(hoist_buffer_copy_out(fused, out, sizeof out));
	for (size_t i = 0; i < 3 * MATRIX; i++) {
		size_t row = i / (size_t)shape[1];
		size_t column = i % (size_t)shape[1];
		size_t from =
			axis == 0 ? i
				  : column / COLUMNS * MATRIX + row * COLUMNS + column % COLUMNS;
		CHECK(out[i] == values[from]);
	}
	for (int i = 0; i < 3; i++) {
		hoist_buffer *given = NULL;
		OK(hoist_load_buffer(load, names[i], &given));
		CHECK(given == into[i].buffer);
		hoist_buffer_unref(given);
		hoist_buffer_unref(into[i].buffer);
	}
	hoist_load_destroy(load);
	hoist_buffer_unref(fused);
}

static void parts_of_one_buffer(void)
{
	hoist_checkpoint *checkpoint = write_matrices();
	for (int d = 0; d < N_DEVICES; d++)
		for (int axis = 0; axis < 2; axis++)
			fused_on(checkpoint, devices[d], axis);
	hoist_checkpoint_close(checkpoint);
}

/* --- refusals --- */

static hoist_buffer *buffers[12];

enum { Q, WIDE, INTEGERS, STILL, ROW, FROZEN, LOOKS, HALF, CLOSED, ON_CUDA, DOUBLE, PAIRS };

static void make_buffers(void)
{
	const int64_t shape[] = {ROWS, COLUMNS};
	const int64_t wide[] = {ROWS, COLUMNS + 1};
	const int64_t one[] = {1, COLUMNS};
	hoist_layout layout = {.rank = 2, .itemsize = 4, .shape = {ROWS, COLUMNS}};
	hoist_buffer *base = make(devices[CPU], HOIST_F32, 2, one);
	hoist_buffer *large = make(devices[CPU], HOIST_F32, 1, &(int64_t){4 * MATRIX});
	buffers[Q] = make(devices[CPU], HOIST_F32, 2, shape);
	buffers[WIDE] = make(devices[CPU], HOIST_F32, 2, wide);
	buffers[INTEGERS] = make(devices[CPU], HOIST_I64, 2, shape);
	layout.strides[1] = 1;
	OK(hoist_buffer_with_layout(base, &layout, HOIST_F32, &buffers[STILL]));
	OK(hoist_buffer_read_only(buffers[Q], &buffers[LOOKS]));
	buffers[FROZEN] = make(devices[CPU], HOIST_F32, 2, shape);
	OK(hoist_buffer_freeze(buffers[FROZEN]));
	buffers[CLOSED] = make(devices[CPU], HOIST_F32, 2, shape);
	OK(hoist_buffer_close(buffers[CLOSED], NULL));
	buffers[ON_CUDA] = make(devices[CUDA_0], HOIST_F32, 2, shape);
	OK(hoist_buffer_view(large, MATRIX * 2, HOIST_F32, 2, shape, &buffers[HALF]));
	OK(hoist_buffer_view(large, 0, HOIST_F32, 2, shape, &buffers[DOUBLE]));
	/* Every third element from 0 and from 1: they interleave, and share none. */
	layout.strides[0] = 3 * COLUMNS;
	layout.strides[1] = 3;
	OK(hoist_buffer_with_layout(large, &layout, HOIST_F32, &buffers[ROW]));
	layout.offset = 1;
	OK(hoist_buffer_with_layout(large, &layout, HOIST_F32, &buffers[PAIRS]));
	hoist_buffer_unref(base);
	hoist_buffer_unref(large);
}

static void bad_buffers_are_refused(void)
{
	hoist_checkpoint *checkpoint = write_matrices();
	make_buffers();
	const struct {
		struct {
			const char *name;
			int buffer;
		} into[2];
		int err; /* 0: the load succeeds */
		const char *piece;
		unsigned flags;
	} cases[] = {
		{{{"q", WIDE}},
		 -EINVAL,
		 "tensor \"q\" has the shape [96, 64], and its buffer [96, "
		 "65]; give a buffer of the tensor's shape",
		 0},
		{{{"q", INTEGERS}}, -EINVAL, "is f32, and its buffer of shape [96, 64] is i64", 0},
		{{{"q", STILL}}, -EINVAL, "elements that overlap", 0},
		{{{"q", LOOKS}}, -EROFS, "into[0]: the buffer for \"q\"", 0},
		{{{"q", FROZEN}}, -EROFS, "frozen", 0},
		{{{"q", CLOSED}}, -EBADF, "closed", 0},
		{{{"q", -1}}, -EINVAL, "is NULL", 0},
		{{{NULL, Q}}, -EINVAL, "into[0].tensor is NULL", 0},
		{{{"q", Q}, {"q", ROW}}, -EINVAL, "both name \"q\"", 0},
		{{{"q", Q}, {"k", Q}}, -EINVAL, "overlap", 0},
		{{{"q", HALF}, {"k", DOUBLE}}, -EINVAL, "overlap", 0},
		{{{"q", ROW}, {"k", HALF}}, -EINVAL, "overlap", 0},
		{{{"q", Q}, {"k", ON_CUDA}}, -EINVAL, "the target is cpu", 0},
		{{{"q", ON_CUDA}, {"k", Q}}, -EINVAL, "the target is cuda:0", 0},
		{{{"[qk]", Q}}, -EINVAL, "matches \"q\" and \"k\"", 0},
		{{{"no", Q}}, -ENOENT, "no tensor is called", 0},
		{{{"q", Q}}, -EINVAL, "HOIST_LOAD_STREAM", HOIST_LOAD_STREAM},
		{{{"q", ROW}, {"k", PAIRS}}, 0, NULL, 0},
		{{{"[q]", Q}, {"k", HALF}}, 0, NULL, HOIST_LOAD_DIGEST},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_load_into into[2];
		hoist_load *load = NULL;
		size_t n = 0;
		for (; n < 2 && (cases[i].into[n].name != NULL || (i == 7 && n == 0)); n++)
			into[n] = (hoist_load_into){cases[i].into[n].name,
						    cases[i].into[n].buffer < 0
							    ? NULL
							    : buffers[cases[i].into[n].buffer]};
		const hoist_load_options o = {
			.size = sizeof o, .into = into, .n_into = n, .flags = cases[i].flags};
		check_at("case %zu", i);
		CHECK(hoist_load_start(checkpoint, &o, &load) == cases[i].err);
		if (cases[i].err < 0) {
			support_said(cases[i].piece);
			continue;
		}
		OK(hoist_load_wait(load));
		hoist_load_destroy(load);
	}
	for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
		hoist_buffer_unref(buffers[i]);
	hoist_checkpoint_close(checkpoint);
}

static void options_beside_into_are_refused(void)
{
	hoist_checkpoint *checkpoint = write_matrices();
	const int64_t shape[] = {ROWS, COLUMNS};
	hoist_buffer *q = make(devices[CPU], HOIST_F32, 2, shape);
	const hoist_load_into into = {"q", q};
	const char *const names[] = {"q"};
	const hoist_load_target target = {.size = sizeof target};
	const hoist_load_target *const targets[] = {&target};
	const hoist_load_slice half = {.tensor = "q", .axis = 0, .n_ranks = 2};
	const struct {
		hoist_load_options o;
		const char *piece;
	} cases[] = {
		{{.tensors = names, .n_tensors = 1}, "into names the tensors"},
		{{.dtype = HOIST_BF16}, "leave tensors, dtype, memory and replicas unset"},
		{{.replicas = devices, .n_replicas = 1}, "replicas unset"},
		{{.io = HOIST_IO_MAP}, "a map is memory of its own"},
		{{.targets = targets, .n_targets = 1}, "of their own"},
		{{.device = devices[CUDA_0]}, "the target is cuda:0"},
		{{.slices = &half, .n_slices = 1}, "the slice of \"q\" has the shape [48, 64]"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_load_options o = cases[i].o;
		check_at("case %zu", i);
		o.size = sizeof o;
		o.into = &into;
		o.n_into = 1;
		support_load_fails(checkpoint, &o, -EINVAL, cases[i].piece);
	}
	const hoist_load_options none = {.size = sizeof none, .n_into = 1};
	support_load_fails(checkpoint, &none, -EINVAL, "into is NULL; give both");
	hoist_buffer_unref(q);
	hoist_checkpoint_close(checkpoint);
}

/* Without `into` there are no states. */
static void other_loads_have_no_states(void)
{
	hoist_checkpoint *checkpoint = write_matrices();
	enum hoist_into_state state = HOIST_INTO_TORN;
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, NULL, &load));
	OK(hoist_load_wait(load));
	CHECK(hoist_load_into_state(load, 0, 0, &state) == -EINVAL && state == HOIST_INTO_TORN);
	support_said("not in place");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

int main(void)
{
	support_emulate("cuda:2,hip:1");
	lib_open_all(devices);
	CASE(parts_of_one_buffer);
	CASE(bad_buffers_are_refused);
	CASE(options_beside_into_are_refused);
	CASE(other_loads_have_no_states);
	for (int d = 0; d < N_DEVICES; d++)
		hoist_device_unref(devices[d]);
	support_cleanup();
	return 0;
}
