/* SPDX-License-Identifier: MIT */
/* Files that NumPy, PyTorch, safetensors and gguf wrote (data/make.py): each tensor's place and
 * values, as these libraries read them, and the metadata. */
#include "config.h"

#include <math.h>

#include "base/number.h"
#include "hoist/number.h"
#include "tests/support/format-expect.h"

struct expected {
	const char *name;
	hoist_dtype dtype;
	int rank;
	int64_t shape[2];
	bool strided;
	int64_t strides[2];
	double sum; /* of the elements; of complex ones, of their real parts; of blocks, none */
};

static double element(const struct bytes *file, const struct hoist__tensor *tensor, int64_t at)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	uint64_t byte = tensor->offset + (uint64_t)at * (info->bits / 8);
	cr_assert_leq(byte + info->bits / 8, tensor->offset + tensor->bytes, "%s", tensor->name);
	cr_assert_leq(byte + info->bits / 8, file->n);
	hoist_number number = hoist__number_load(info, file->p + byte, 0);
	switch (number.kind) {
	case HOIST_NUMBER_F64:
		return number.as.f64;
	case HOIST_NUMBER_C128:
		return number.as.c128.re;
	case HOIST_NUMBER_U64:
		return (double)number.as.u64;
	default:
		return (double)number.as.i64;
	}
}

static double sum(const struct bytes *file, const struct hoist__tensor *tensor)
{
	int64_t n[2] = {1, 1};
	int64_t strides[2] = {0, 0};
	double total = 0;
	for (int i = 0; i < tensor->rank; i++) {
		n[i] = tensor->shape[i];
		strides[i] = tensor->strides != NULL	   ? tensor->strides[i]
			     : i == 0 && tensor->rank == 2 ? tensor->shape[1]
							   : 1;
	}
	for (int64_t i = 0; i < n[0]; i++)
		for (int64_t k = 0; k < n[1]; k++)
			total += element(file, tensor, i * strides[0] + k * strides[1]);
	return total;
}

static void expect_tensor(const struct bytes *file, const struct hoist__manifest *manifest,
			  const struct expected *row)
{
	const struct hoist__tensor *tensor = find_tensor(manifest, row->name);
	cr_expect_eq(tensor->dtype, row->dtype, "%s", row->name);
	cr_assert_eq(tensor->rank, row->rank, "%s", row->name);
	cr_expect_eq(tensor->strides != NULL, row->strided, "%s", row->name);
	for (int i = 0; i < row->rank; i++) {
		cr_assert_eq(tensor->shape[i], row->shape[i], "%s", row->name);
		cr_assert(tensor->strides == NULL || tensor->strides[i] == row->strides[i], "%s",
			  row->name);
	}
	if (hoist__dtype_info(tensor->dtype)->block_bytes > 0)
		return;
	double total = sum(file, tensor);
	cr_expect(fabs(total - row->sum) < 1e-12, "%s: %.17g is not %.17g", row->name, total,
		  row->sum);
}

static void expect_all(const char *name, enum hoist__format format, bool lenient,
		       const struct expected *rows, size_t n, struct hoist__manifest **ret)
{
	struct bytes file = {.n = 0};
	enum hoist__format found;
	struct hoist__manifest *manifest = NULL;
	cr_assert(bytes_load_data(&file, name), "%s", name);
	struct hoist__reader reader = reader_of(&file, name);
	reader.lenient = lenient;
	cr_assert_eq(hoist__format_detect(&reader, &found), 0, "%s", hoist__error_text());
	cr_assert_eq(found, format, "%s", name);
	cr_assert_eq(hoist__format_parse(&reader, format, &manifest), 0, "%s", hoist__error_text());
	cr_assert_eq(manifest->n_tensors, n, "%s", name);
	for (size_t i = 0; i < n; i++)
		expect_tensor(&file, manifest, &rows[i]);
	for (size_t i = 1; i < n; i++)
		cr_expect_leq(manifest->tensors[i - 1].offset, manifest->tensors[i].offset);
	cr_expect_eq(manifest->data_offset, manifest->tensors[0].offset);
	bytes_free(&file);
	*ret = manifest;
}

#define EXPECT_ALL(name, format, rows, ret)                                                        \
	expect_all(name, format, false, rows, sizeof rows / sizeof rows[0], ret)

#define EXPECT_METADATA(manifest, expected)                                                        \
	expect_metadata(manifest, expected, sizeof expected / sizeof expected[0])

Test(real, numpys_arrays)
{
	static const struct expected one[] = {
		{"arr_0", HOIST_F32, 2, {3, 4}, true, {1, 3}, 66},
	};
	static const struct expected many[] = {
		{"c", HOIST_F32, 2, {3, 4}, false, {0}, 66},
		{"f", HOIST_F32, 2, {3, 4}, true, {1, 3}, 66},
		{"bf16", HOIST_BF16, 2, {1, 4}, false, {0}, 6},
		{"scalar", HOIST_I64, 0, {0}, false, {0}, -7},
		{"empty", HOIST_BOOL, 2, {0, 3}, false, {0}, 0},
		{"arr_0", HOIST_C64, 1, {2}, false, {0}, 1},
	};
	struct hoist__manifest *manifest = NULL;
	EXPECT_ALL("numpy-fortran.npy", HOIST__NPY, one, &manifest);
	hoist__manifest_destroy(manifest);
	EXPECT_ALL("numpy-stored.npz", HOIST__NPZ, many, &manifest);
	hoist__manifest_destroy(manifest);
}

Test(real, numpys_compressed_arrays_are_refused)
{
	struct bytes file = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	cr_assert(bytes_load_data(&file, "numpy-compressed.npz"));
	struct hoist__reader reader = reader_of(&file, "numpy-compressed.npz");
	cr_expect_eq(hoist__format_parse(&reader, HOIST__NPZ, &manifest), -ENOTSUP);
	cr_expect_str_eq(hoist__error_text(),
			 "numpy-compressed.npz: entry \"a.npy\" is compressed (method 8, deflate), "
			 "and only stored entries are read; numpy.savez writes such, "
			 "numpy.savez_compressed does not");
	bytes_free(&file);
}

/* Two names of one weight; attributes of an OrderedDict, which are no metadata. */
Test(real, pytorchs_state_of_a_model)
{
	static const struct expected rows[] = {
		{"emb.weight", HOIST_F32, 2, {4, 3}, false, {0}, -1.4890521578490734},
		{"head.weight", HOIST_F32, 2, {4, 3}, false, {0}, -1.4890521578490734},
		{"head.bias", HOIST_F32, 1, {4}, false, {0}, -0.010409325361251831},
	};
	struct hoist__manifest *manifest = NULL;
	EXPECT_ALL("torch-state.pt", HOIST__TORCH, rows, &manifest);
	cr_expect_eq(manifest->tensors[0].offset, manifest->tensors[1].offset);
	cr_expect_str_eq(manifest->tensors[0].name, "emb.weight");
	cr_expect_eq(manifest->n_metadata, 0);
	hoist__manifest_destroy(manifest);
}

#define ADAM "optimizer.state."

Test(real, pytorchs_checkpoint_of_a_training)
{
	static const struct expected rows[] = {
		{"model.t", HOIST_F32, 2, {6, 4}, true, {1, 6}, 276},
		{"model.row", HOIST_F32, 1, {6}, false, {0}, 51},
		{"model.column", HOIST_F32, 1, {4}, true, {6}, 44},
		{"model.bf16", HOIST_BF16, 2, {2, 6}, false, {0}, 66},
		{"model.f16", HOIST_F16, 2, {4, 6}, false, {0}, 276},
		{"model.bool", HOIST_BOOL, 2, {4, 6}, false, {0}, 20},
		{"model.i64", HOIST_I64, 1, {3}, false, {0}, 3},
		{"model.c64", HOIST_C64, 1, {2}, false, {0}, 4},
		{"model.u8", HOIST_U8, 1, {3}, false, {0}, 3},
		{"model.scalar", HOIST_F32, 0, {0}, false, {0}, 5},
		{"model.empty", HOIST_F32, 2, {0, 3}, false, {0}, 0},
		{"model.wide", HOIST_F32, 2, {2, 3}, true, {0, 0}, 0},
		{"list.0", HOIST_F32, 2, {1, 6}, false, {0}, 15},
		{"list.1.0", HOIST_F32, 1, {6}, false, {0}, 87},
		{"parameter", HOIST_F32, 2, {1, 6}, false, {0}, 15},
		{"optimizer.state.0.step", HOIST_F32, 0, {0}, false, {0}, 1},
		{ADAM "0.exp_avg", HOIST_F32, 2, {4, 3}, false, {0}, -1.4039752399548888},
		{ADAM "0.exp_avg_sq", HOIST_F32, 2, {4, 3}, false, {0}, 0.02283678579624393},
		{"optimizer.state.1.step", HOIST_F32, 0, {0}, false, {0}, 1},
		{"optimizer.state.1.exp_avg", HOIST_F32, 1, {4}, false, {0}, 0.800000011920929},
		{ADAM "1.exp_avg_sq", HOIST_F32, 1, {4}, false, {0}, 0.01600000075995922},
	};
	static pair_of_texts metadata[] = {
		{"epoch", "3"}, {"lr", "0.001"}, {"name", "tiny"}, {"flag", "True"}, {"neg", "-5"},
	};
	struct hoist__manifest *manifest = NULL;
	EXPECT_ALL("torch-train.pt", HOIST__TORCH, rows, &manifest);
	EXPECT_METADATA(manifest, metadata);
	hoist__manifest_destroy(manifest);
}

/* A training's checkpoint with what torch.load() makes objects of. */
Test(real, pytorchs_objects_are_skipped)
{
	static const struct expected rows[] = {
		{"a", HOIST_F32, 2, {2, 3}, false, {0}, 15},
		{"net.steps", HOIST_I64, 1, {4}, false, {0}, 6},
		{"net.fc.weight", HOIST_F32, 2, {2, 3}, false, {0}, 15},
		{"owned.inner.a", HOIST_F32, 2, {2, 3}, false, {0}, 21},
		{"b.c", HOIST_F32, 2, {2, 3}, false, {0}, 27},
		{"net.fc.bias", HOIST_F32, 1, {2}, false, {0}, 0.24771975725889206},
	};
	static pair_of_texts metadata[] = {
		{"args.lr", "0.5"}, {"args.name", "tiny"}, {"step", "7"},
		{"loss", "0.1"},    {"done", "True"},	   {"counts.seen", "3"},
	};
	static const char *const skipped[] = {"?",	"array", "b.c",	      "meta",	"net",
					      "net.fc", "owned", "quantised", "sparse", "tags"};
	struct hoist__manifest *manifest = NULL;
	expect_all("torch-mixed.pt", HOIST__TORCH, true, rows, sizeof rows / sizeof rows[0],
		   &manifest);
	EXPECT_METADATA(manifest, metadata);
	cr_assert_eq(manifest->n_skipped, sizeof skipped / sizeof skipped[0]);
	for (size_t i = 0; i < manifest->n_skipped; i++)
		cr_expect_str_eq(manifest->skipped[i].name, skipped[i]);
	hoist__manifest_destroy(manifest);
}

/* Protocol 4, and no dict around the tensor. */
Test(real, pytorchs_tensor_without_a_name)
{
	static const struct expected rows[] = {
		{"tensor", HOIST_F32, 2, {4, 6}, false, {0}, 276},
	};
	struct hoist__manifest *manifest = NULL;
	EXPECT_ALL("torch-bare.pt", HOIST__TORCH, rows, &manifest);
	hoist__manifest_destroy(manifest);
}

Test(real, safetensors_tensors)
{
	static const struct expected rows[] = {
		{"model.i64", HOIST_I64, 0, {0}, false, {0}, -7},
		{"model.f64", HOIST_F64, 1, {6}, false, {0}, 15},
		{"model.empty", HOIST_F32, 2, {0, 3}, false, {0}, 0},
		{"model.f32", HOIST_F32, 2, {4, 6}, false, {0}, 276},
		{"model.i32", HOIST_I32, 1, {3}, false, {0}, 3},
		{"model.f16", HOIST_F16, 2, {2, 6}, false, {0}, 66},
		{"model.\xc3\xa9", HOIST_U16, 2, {1, 2}, false, {0}, 2},
		{"model.i16", HOIST_I16, 1, {3}, false, {0}, 3},
		{"model.i8", HOIST_I8, 1, {6}, false, {0}, -3},
		{"model.u8", HOIST_U8, 1, {5}, false, {0}, 10},
		{"model.bool", HOIST_BOOL, 2, {4, 6}, false, {0}, 20},
	};
	static pair_of_texts metadata[] = {
		{"format", "np"},
		{"note", "two\nlines, \"\xc3\xa9\" and \xe2\x98\x83"},
	};
	struct hoist__manifest *manifest = NULL;
	EXPECT_ALL("safetensors-numpy.safetensors", HOIST__SAFETENSORS, rows, &manifest);
	EXPECT_METADATA(manifest, metadata);
	hoist__manifest_destroy(manifest);
}

Test(real, ggufs_tensors)
{
	static const struct expected rows[] = {
		{"token_embd.weight", HOIST_F32, 2, {2, 32}, false, {0}, 2016},
		{"output_norm.weight", HOIST_F16, 1, {32}, false, {0}, 496},
		{"blk.0.ffn_up.weight", HOIST_Q8_0, 2, {2, 32}, false, {0}, 0},
		{"blk.0.ffn_down.weight", HOIST_Q4_0, 2, {2, 32}, false, {0}, 0},
		{"blk.0.attn_norm", HOIST_BF16, 2, {2, 32}, false, {0}, 2016},
		{"i8", HOIST_I8, 1, {6}, false, {0}, -3},
		{"i32", HOIST_I32, 1, {3}, false, {0}, 3},
	};
	static pair_of_texts metadata[] = {
		{"general.architecture", "llama"},
		{"general.name", "tiny"},
		{"llama.context_length", "4096"},
		{"llama.attention.layer_norm_rms_epsilon", "1e-05"},
		{"general.file_type", "7"},
		{"tokenizer.ggml.tokens", "[\"<s>\",\"</s>\",\"\xc3\xa9\",\"\xe2\x98\x83\"]"},
		{"tokenizer.ggml.scores", "[0,-1.5,3.00000001e+38,0.5]"},
		{"tokenizer.ggml.token_type", "[3,3,1,1]"},
		{"general.flag", "true"},
		{"general.long", "-4611686018427387904"},
		{"general.double", "0.1"},
	};
	struct hoist__manifest *manifest = NULL;
	EXPECT_ALL("gguf-llama.gguf", HOIST__GGUF, rows, &manifest);
	EXPECT_METADATA(manifest, metadata);
	hoist__manifest_destroy(manifest);
}

/* Every byte of the files changed, and every length: never a crash, never a read outside; what is
 * accepted lies within the file. */
static void mutate(const char *name, enum hoist__format format)
{
	struct bytes file = {.n = 0};
	cr_assert(bytes_load_data(&file, name), "%s", name);
	for (size_t at = 0; at < 2 * file.n; at++) {
		unsigned char *byte = &file.p[at % file.n];
		unsigned char was = *byte;
		*byte = at < file.n ? (unsigned char)~was : (unsigned char)(was + 1);
		(void)parse_spoiled(&file, file.n, format);
		*byte = was;
	}
	cut_everywhere(&file, format);
	bytes_free(&file);
}

Test(real, no_byte_is_trusted)
{
	mutate("numpy-stored.npz", HOIST__NPZ);
	mutate("torch-state.pt", HOIST__TORCH);
	mutate("torch-bare.pt", HOIST__TORCH);
	mutate("torch-train.pt", HOIST__TORCH);
	mutate("torch-mixed.pt", HOIST__TORCH);
}
