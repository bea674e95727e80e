/* SPDX-License-Identifier: MIT */
/* hoist ls - the tensors of a checkpoint. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <hoist/checkpoint.h>

#include "tools/args.h"
#include "tools/format.h"
#include "tools/json.h"

struct widths {
	int name, shape, bytes, file;
};

/* "[4096, 128]"; rank 0 is "[]".  Returns its length; @out NULL only measures. */
static int print_shape(FILE *out, const hoist_tensor_info *tensor)
{
	int length = 2;
	if (out != NULL)
		(void)fputc('[', out);
	for (int i = 0; i < tensor->rank; i++) {
		char extent[32];
		length += snprintf(extent, sizeof extent, "%s%" PRId64, i > 0 ? ", " : "",
				   tensor->shape[i]);
		if (out != NULL)
			(void)fputs(extent, out);
	}
	if (out != NULL)
		(void)fputc(']', out);
	return length;
}

static void print_padded(const char *text, int width)
{
	print_escaped(stdout, text);
	(void)printf("%*s", width - (int)escaped_width(text), "");
}

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

static struct widths measure(const hoist_checkpoint *checkpoint)
{
	struct widths widths = {4, 5, 5, 4}; /* the headings' */
	hoist_tensor_info tensor = {.size = sizeof tensor};
	hoist_file_info file = {.size = sizeof file};
	for (size_t i = 0; hoist_checkpoint_tensor(checkpoint, i, &tensor) == 0; i++) {
		struct text text;
		widths.name = max_int(widths.name, (int)escaped_width(tensor.name));
		widths.shape = max_int(widths.shape, print_shape(NULL, &tensor));
		widths.bytes =
			max_int(widths.bytes, (int)strlen(format_count(tensor.bytes, &text)));
	}
	for (size_t i = 0; hoist_checkpoint_file(checkpoint, i, &file) == 0; i++)
		widths.file = max_int(widths.file, (int)escaped_width(base_name(file.path)));
	return widths;
}

static void print_tensor(const hoist_checkpoint *checkpoint, const struct widths *widths,
			 const hoist_tensor_info *tensor)
{
	hoist_file_info file = {.size = sizeof file, .path = ""};
	struct text bytes;
	(void)hoist_checkpoint_file(checkpoint, tensor->file, &file);
	print_padded(tensor->name, widths->name);
	(void)printf("  %-11s  ", hoist_dtype_name(tensor->dtype));
	int length = print_shape(stdout, tensor);
	(void)printf("%*s  %*s  ", widths->shape - length, "", widths->bytes,
		     format_count(tensor->bytes, &bytes));
	print_padded(base_name(file.path), widths->file);
	(void)printf("  %" PRIu64 "\n", tensor->offset);
}

static int print_table(const hoist_checkpoint *checkpoint)
{
	struct widths widths = measure(checkpoint);
	(void)printf("%-*s  %-11s  %-*s  %*s  %-*s  %s\n", widths.name, "NAME", "DTYPE",
		     widths.shape, "SHAPE", widths.bytes, "BYTES", widths.file, "FILE", "OFFSET");
	hoist_tensor_info tensor = {.size = sizeof tensor};
	for (size_t i = 0; hoist_checkpoint_tensor(checkpoint, i, &tensor) == 0; i++) {
		print_tensor(checkpoint, &widths, &tensor);
		if (output_failed())
			return STATUS_FAILED;
	}
	size_t n_tensors = hoist_checkpoint_n_tensors(checkpoint);
	size_t n_files = hoist_checkpoint_n_files(checkpoint);
	uint64_t bytes = hoist_checkpoint_bytes(checkpoint);
	struct text count, exact, size;
	(void)printf("\n%s tensor%s, %s bytes (%s) in %zu %s file%s\n",
		     format_count(n_tensors, &count), n_tensors == 1 ? "" : "s",
		     format_count(bytes, &exact), format_bytes(bytes, &size), n_files,
		     hoist_checkpoint_format(checkpoint), n_files == 1 ? "" : "s");
	return STATUS_OK;
}

static json_t *files_json(const hoist_checkpoint *checkpoint)
{
	json_t *files = json_array();
	hoist_file_info file = {.size = sizeof file};
	for (size_t i = 0; hoist_checkpoint_file(checkpoint, i, &file) == 0; i++) {
		json_t *row = json_pack("{s:o, s:o}", "path", json_text(file.path), "bytes",
					json_count(file.bytes));
		if (json_array_append_new(files, row) != 0) {
			json_decref(files);
			return NULL;
		}
	}
	return files;
}

static json_t *tensor_json(const hoist_tensor_info *tensor)
{
	json_t *shape = json_array();
	for (int i = 0; i < tensor->rank; i++) {
		if (json_array_append_new(shape, json_integer(tensor->shape[i])) != 0) {
			json_decref(shape);
			return NULL;
		}
	}
	return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "name", json_text(tensor->name), "dtype",
			 hoist_dtype_name(tensor->dtype), "shape", shape, "bytes",
			 json_count(tensor->bytes), "file", json_count(tensor->file), "offset",
			 json_count(tensor->offset));
}

static json_t *tensors_json(const hoist_checkpoint *checkpoint)
{
	json_t *tensors = json_array();
	hoist_tensor_info tensor = {.size = sizeof tensor};
	for (size_t i = 0; hoist_checkpoint_tensor(checkpoint, i, &tensor) == 0; i++) {
		if (json_array_append_new(tensors, tensor_json(&tensor)) != 0) {
			json_decref(tensors);
			return NULL;
		}
	}
	return tensors;
}

static json_t *metadata_json(const hoist_checkpoint *checkpoint)
{
	json_t *metadata = json_object();
	const char *key = NULL;
	const char *value = NULL;
	for (size_t i = 0; hoist_checkpoint_metadata(checkpoint, i, &key, &value) == 0; i++) {
		if (json_object_get(metadata, key) != NULL)
			continue; /* another file's, of another value: the first one counts */
		if (json_object_set_new(metadata, key, json_text(value)) != 0) {
			json_decref(metadata);
			return NULL;
		}
	}
	return metadata;
}

static int print_json(const hoist_checkpoint *checkpoint)
{
	json_t *object =
		json_pack("{s:s, s:o, s:o, s:o}", "format", hoist_checkpoint_format(checkpoint),
			  "files", files_json(checkpoint), "tensors", tensors_json(checkpoint),
			  "metadata", metadata_json(checkpoint));
	return json_print(object, false);
}

int cmd_ls(const struct args *args)
{
	hoist_checkpoint *checkpoint = NULL;
	int err = hoist_checkpoint_open(args->operands[0], args->open_flags, &checkpoint);
	if (err != 0)
		return fail_call(err);
	int status = args->json ? print_json(checkpoint) : print_table(checkpoint);
	hoist_checkpoint_close(checkpoint);
	return status;
}
