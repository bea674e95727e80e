/* SPDX-License-Identifier: MIT */
/* Chooses the format: the one that the caller names, else the path ending's.
 * The contract is in lib/save/save.h.
 *
 * An ending that stands for a format that hoist does not write is refused: the file would not be
 * what its name says. */
#include "config.h"

#include <string.h>
#include <strings.h>

#include "lib/save/save.h"

/* The formats that can be written; the first is the default. */
static const struct hoist__save_format formats[] = {
	{"safetensors", ".safetensors", HOIST__SAFETENSORS, true, hoist__safetensors_write},
	{"gguf", ".gguf", HOIST__GGUF, true, hoist__gguf_write},
	{"npy", ".npy", HOIST__NPY, false, hoist__npy_write},
	{"max", ".max", HOIST__MAX, false, hoist__max_write},
};

static const struct {
	const char *ending;
	const char *what;
} not_written[] = {
	{".pt", "PyTorch's files"},
	{".pth", "PyTorch's files"},
	{".bin", "PyTorch's files"},
	{".ckpt", "PyTorch's files"},
	{".pkl", "Python's pickles"},
	{".pickle", "Python's pickles"},
	{".npz", "NumPy's archives"},
	{".h5", "HDF5"},
	{".hdf5", "HDF5"},
	{".onnx", "ONNX"},
	{".msgpack", "Flax's files"},
	{".pb", "TensorFlow's files"},
	{".tflite", "TensorFlow's files"},
	{".zip", "archives"},
	{".tar", "archives"},
	{".gz", "archives"},
	{".json", "JSON, but for NAME.safetensors.index.json"},
};

/* The case of an ending does not matter. */
static bool ends_in(const char *path, const char *ending)
{
	size_t n = strlen(path);
	size_t m = strlen(ending);
	return n >= m && strcasecmp(path + n - m, ending) == 0;
}

/* An index has a lower-case ending only: readers look for no other name. */
static bool is_index(const char *path)
{
	size_t n = strlen(path);
	size_t m = strlen(HOIST__SAVE_INDEX_ENDING);
	return n >= m && strcmp(path + n - m, HOIST__SAVE_INDEX_ENDING) == 0;
}

static int find_by_name(const char *path, const char *name, const struct hoist__save_format **ret)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(formats); i++)
		if (strcmp(formats[i].name, name) == 0) {
			*ret = &formats[i];
			return 0;
		}
	return hoist__fail(-EINVAL,
			   "saving %s: there is no format \"%.60s\" that can be written; leave it "
			   "out for safetensors",
			   path, name);
}

static int refuse_ending(const char *path, size_t i)
{
	return hoist__fail(-EINVAL,
			   "saving %s: hoist does not write %s; let the name end in .safetensors, "
			   ".gguf, .npy or .max, or say which of these the file is to be "
			   "(hoist_save_options.format, --format)",
			   path, not_written[i].what);
}

int hoist__save_format_find(const char *path, const char *name,
			    const struct hoist__save_format **ret)
{
	if (name != NULL)
		return find_by_name(path, name, ret);
	const struct hoist__save_format *format = &formats[0];
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(formats); i++)
		if (ends_in(path, formats[i].ending))
			format = &formats[i];
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(not_written); i++)
		if (ends_in(path, not_written[i].ending) && !is_index(path))
			return refuse_ending(path, i);
	*ret = format;
	return 0;
}
