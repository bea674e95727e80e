/* SPDX-License-Identifier: MIT */
/* tools/cmd-ls.c - hoist ls: the tensors of a checkpoint, and its metadata.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <hoist/checkpoint.h>

#include "tools/args.h"
#include "tools/selection.h"
#include "tools/skipped.h"
#include "tools/tree.h"
#include "cli/format.h"
#include "cli/json.h"

/* @strides is 0 if no tensor has strides. */
struct widths {
	int name, shape, bytes, file, strides;
};

static int digits(uint64_t n)
{
	int count = 1;
	for (; n >= 10; n /= 10)
		count++;
	return count;
}

/* Prints "[4096, 128]"; rank 0 is "[]". */
static void print_list(const int64_t *values, int n)
{
	(void)fputc('[', stdout);
	for (int i = 0; i < n; i++)
		(void)printf("%s%" PRId64, i > 0 ? ", " : "", values[i]);
	(void)fputc(']', stdout);
}

/* Returns how many columns the list takes; no value is negative. */
static int list_width(const int64_t *values, int n)
{
	int width = 2 + (n > 1 ? 2 * (n - 1) : 0);
	for (int i = 0; i < n; i++)
		width += digits((uint64_t)values[i]);
	return width;
}

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

/* The most columns of a table column.  A longer text sticks out alone; otherwise one name of a
 * megabyte would make every line as long. */
#define MOST_COLUMNS 160

/* Returns the columns that a text takes, or 0 if no column is widened for it. */
static int text_width(const char *text)
{
	size_t width = escaped_width(text);
	return width <= MOST_COLUMNS ? (int)width : 0;
}

static void print_padded(const char *text, int width)
{
	size_t taken = escaped_width(text);
	print_escaped(stdout, text);
	if (taken < (size_t)width)
		(void)printf("%*s", width - (int)taken, "");
}

static struct widths measure(const hoist_checkpoint *checkpoint, const struct selection *selection)
{
	struct widths widths = {4, 5, 5, 4, 0}; /* the widths of the headings */
	hoist_tensor_info tensor = {.size = sizeof tensor};
	hoist_file_info file = {.size = sizeof file};
	uint64_t most = 0;
	struct text text;
	for (size_t i = 0; hoist_checkpoint_tensor(checkpoint, i, &tensor) == 0; i++) {
		if (!selection_has(selection, i))
			continue;
		widths.name = max_int(widths.name, text_width(tensor.name));
		widths.shape = max_int(widths.shape, list_width(tensor.shape, tensor.rank));
		most = tensor.bytes > most ? tensor.bytes : most;
		if (tensor.strides != NULL)
			widths.strides = max_int(max_int(widths.strides, 7),
						 list_width(tensor.strides, tensor.rank));
	}
	widths.bytes = max_int(widths.bytes, (int)strlen(format_count(most, &text)));
	for (size_t i = 0; hoist_checkpoint_file(checkpoint, i, &file) == 0; i++)
		widths.file = max_int(widths.file, text_width(base_name(file.path)));
	return widths;
}

/* Prints the strides, or "" if they follow from the shape. */
static void print_strides(const struct widths *widths, const hoist_tensor_info *tensor)
{
	int width = 0;
	if (widths->strides == 0)
		return;
	if (tensor->strides != NULL) {
		print_list(tensor->strides, tensor->rank);
		width = list_width(tensor->strides, tensor->rank);
	}
	(void)printf("%*s  ", widths->strides - width, "");
}

static void print_tensor(const hoist_checkpoint *checkpoint, const struct widths *widths,
			 const hoist_tensor_info *tensor)
{
	hoist_file_info file = {.size = sizeof file, .path = ""};
	struct text bytes;
	(void)hoist_checkpoint_file(checkpoint, tensor->file, &file);
	print_padded(tensor->name, widths->name);
	(void)printf("  %-11s  ", hoist_dtype_name(tensor->dtype));
	print_list(tensor->shape, tensor->rank);
	(void)printf("%*s  ", widths->shape - list_width(tensor->shape, tensor->rank), "");
	print_strides(widths, tensor);
	(void)printf("%*s  ", widths->bytes, format_count(tensor->bytes, &bytes));
	print_padded(base_name(file.path), widths->file);
	(void)printf("  %" PRIu64 "\n", tensor->offset);
}

/* The most bytes of a value that are shown: arrays may have 100,000 words. */
#define SHOWN_BYTES 72

static void print_value(const char *value)
{
	char shown[SHOWN_BYTES + 1];
	size_t n = strlen(value);
	size_t cut = n;
	struct text count;
	if (n > SHOWN_BYTES) {
		/* Do not cut within a character. */
		cut = SHOWN_BYTES;
		while (cut > SHOWN_BYTES - 3 && ((unsigned char)value[cut] & 0xc0) == 0x80)
			cut--;
	}
	memcpy(shown, value, cut);
	shown[cut] = '\0';
	print_escaped(stdout, shown);
	if (cut < n)
		(void)printf("... (%s bytes)", format_count(n, &count));
	(void)putchar('\n');
}

static void print_metadata(const hoist_checkpoint *checkpoint)
{
	const char *key = NULL;
	const char *value = NULL;
	int width = 8;
	for (size_t i = 0; hoist_checkpoint_metadata(checkpoint, i, &key, &value) == 0; i++)
		width = max_int(width, text_width(key));
	for (size_t i = 0; hoist_checkpoint_metadata(checkpoint, i, &key, &value) == 0; i++) {
		if (i == 0)
			(void)printf("\n%-*s  %s\n", width, "METADATA", "VALUE");
		print_padded(key, width);
		(void)fputs("  ", stdout);
		print_value(value);
	}
}

/* Prints the rows of the selected tensors.  *bytes: of these. */
static int print_tensors(const hoist_checkpoint *checkpoint, const struct selection *selection,
			 uint64_t *bytes)
{
	struct widths widths = measure(checkpoint, selection);
	(void)printf("%-*s  %-11s  %-*s  ", widths.name, "NAME", "DTYPE", widths.shape, "SHAPE");
	if (widths.strides > 0)
		(void)printf("%-*s  ", widths.strides, "STRIDES");
	(void)printf("%*s  %-*s  %s\n", widths.bytes, "BYTES", widths.file, "FILE", "OFFSET");
	hoist_tensor_info tensor = {.size = sizeof tensor};
	for (size_t i = 0; hoist_checkpoint_tensor(checkpoint, i, &tensor) == 0; i++) {
		if (!selection_has(selection, i))
			continue;
		print_tensor(checkpoint, &widths, &tensor);
		*bytes += tensor.bytes;
		if (output_failed())
			return STATUS_FAILED;
	}
	return STATUS_OK;
}

/* The metadata are the whole checkpoint's, as are the files.  A tree has the tensors alone. */
static int print_text(const hoist_checkpoint *checkpoint, const struct selection *selection,
		      bool tree)
{
	uint64_t bytes = 0;
	int status = tree ? tree_print(checkpoint, selection, &bytes)
			  : print_tensors(checkpoint, selection, &bytes);
	if (status != STATUS_OK)
		return status;
	if (selection->picked == NULL)
		bytes = hoist_checkpoint_bytes(checkpoint);
	if (!tree) {
		print_metadata(checkpoint);
		skipped_print(checkpoint);
	}
	size_t n_files = hoist_checkpoint_n_files(checkpoint);
	struct text count, all, exact, size;
	(void)printf("\n%s tensor%s", format_count(selection->n, &count),
		     selection->n == 1 ? "" : "s");
	if (selection->picked != NULL)
		(void)printf(" of %s", format_count(hoist_checkpoint_n_tensors(checkpoint), &all));
	(void)printf(", %s bytes (%s) in %zu %s file%s", format_count(bytes, &exact),
		     format_bytes(bytes, &size), n_files, hoist_checkpoint_format(checkpoint),
		     n_files == 1 ? "" : "s");
	if (hoist_checkpoint_n_skipped(checkpoint) > 0)
		(void)printf("; %s skipped",
			     format_count(hoist_checkpoint_n_skipped(checkpoint), &count));
	(void)putchar('\n');
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

static json_t *list_json(const int64_t *values, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++) {
		if (json_array_append_new(list, json_integer(values[i])) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *tensor_json(const hoist_tensor_info *tensor)
{
	return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "name", json_text(tensor->name),
			 "dtype", hoist_dtype_name(tensor->dtype), "shape",
			 list_json(tensor->shape, tensor->rank), "strides",
			 tensor->strides != NULL ? list_json(tensor->strides, tensor->rank)
						 : json_null(),
			 "bytes", json_count(tensor->bytes), "file", json_count(tensor->file),
			 "offset", json_count(tensor->offset));
}

static json_t *tensors_json(const hoist_checkpoint *checkpoint, const struct selection *selection)
{
	json_t *tensors = json_array();
	hoist_tensor_info tensor = {.size = sizeof tensor};
	for (size_t i = 0; hoist_checkpoint_tensor(checkpoint, i, &tensor) == 0; i++) {
		if (selection_has(selection, i) &&
		    json_array_append_new(tensors, tensor_json(&tensor)) != 0) {
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
			continue; /* another file's, with another value: the first one counts */
		if (json_object_set_new(metadata, key, json_text(value)) != 0) {
			json_decref(metadata);
			return NULL;
		}
	}
	return metadata;
}

static int print_json(const hoist_checkpoint *checkpoint, const struct selection *selection)
{
	json_t *object = json_pack(
		"{s:s, s:o, s:o, s:o, s:o}", "format", hoist_checkpoint_format(checkpoint), "files",
		files_json(checkpoint), "tensors", tensors_json(checkpoint, selection), "metadata",
		metadata_json(checkpoint), "skipped", skipped_json(checkpoint));
	return json_print(object, false);
}

int cmd_ls(const struct args *args)
{
	hoist_checkpoint *checkpoint = NULL;
	struct selection selection;
	if (args->tree && args->json)
		return args_refuse(args, "--json lists tensors without a tree: leave out ",
				   "--tree", "");
	int err = hoist_checkpoint_open(args->operands[0], args->open_flags, &checkpoint);
	if (err != 0)
		return fail_call(err);
	int status = selection_of(args, checkpoint, &selection);
	if (status == STATUS_OK) {
		status = args->json ? print_json(checkpoint, &selection)
				    : print_text(checkpoint, &selection, args->tree);
		selection_free(&selection);
	}
	hoist_checkpoint_close(checkpoint);
	return status;
}
