/* SPDX-License-Identifier: MIT */
/* tools/cmd-digest.c - hoist digest: an XXH3-128 of every tensor, from where it was loaded.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "cli/format.h"
#include "cli/json.h"
#include "tools/operation.h"
#include "tools/unconverted.h"
#include "cli/progress.h"

struct digest {
	char hex[2 * sizeof(XXH128_canonical_t) + 1]; /* as xxhsum prints digests */
};

static int add_piece(void *context, const hoist_tensor_info *tensor, const unsigned char *bytes,
		     size_t n, uint64_t offset)
{
	(void)tensor;
	(void)offset;
	if (XXH3_128bits_update(context, bytes, n) == XXH_OK)
		return STATUS_OK;
	return fail("XXH3-128 failed");
}

static void finish_digest(XXH3_state_t *state, struct digest *ret)
{
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
	for (size_t i = 0; i < sizeof canonical.digest; i++)
		(void)snprintf(ret->hex + 2 * i, 3, "%02x", canonical.digest[i]);
}

/* Prints "<digest>  <name>".  On a terminal the name is shown as elsewhere.  A name with a line end
 * would look like two lines: as with sha256sum, such a line begins with a backslash, and its name
 * has \n, \r and \\. */
static void print_digest(const struct digest *digest, const char *name)
{
	if (isatty(STDOUT_FILENO)) {
		(void)printf("%s  ", digest->hex);
		print_escaped(stdout, name);
		(void)putchar('\n');
		return;
	}
	if (strpbrk(name, "\r\n") == NULL) {
		(void)printf("%s  %s\n", digest->hex, name);
		return;
	}
	(void)printf("\\%s  ", digest->hex);
	for (; *name != '\0'; name++) {
		const char *escape = *name == '\n'   ? "\\n"
				     : *name == '\r' ? "\\r"
				     : *name == '\\' ? "\\\\"
						     : NULL;
		(void)(escape != NULL ? fputs(escape, stdout) : fputc(*name, stdout));
	}
	(void)fputc('\n', stdout);
}

/* Digests all tensors in order; each digest is printed, or appended to @rows. */
static int digest_all(struct operation *op, XXH3_state_t *state, json_t *rows)
{
	size_t n = hoist_load_n_tensors(op->load);
	progress_begin("digesting");
	for (size_t i = 0; i < n; i++) {
		hoist_tensor_info tensor;
		struct digest digest;
		(void)XXH3_128bits_reset(state);
		int status = operation_read(op, 0, i, &tensor, add_piece, state);
		if (status != STATUS_OK)
			return status;
		finish_digest(state, &digest);
		if (rows == NULL) {
			print_digest(&digest, tensor.name);
			if (output_failed())
				return STATUS_FAILED;
			continue;
		}
		json_t *row = json_pack("{s:o, s:s}", "name", json_text(tensor.name), "xxh3_128",
					digest.hex);
		if (json_array_append_new(rows, row) != 0)
			return fail_memory();
	}
	progress_end();
	return STATUS_OK;
}

static int digest_json(struct operation *op, XXH3_state_t *state)
{
	json_t *rows = json_array();
	if (rows == NULL)
		return fail_memory();
	int status = digest_all(op, state, rows);
	if (status != STATUS_OK) {
		json_decref(rows);
		return status;
	}
	return json_print(json_pack("{s:s, s:b, s:o}", "device", op->report.device, "emulated",
				    op->report.emulated, "digests", rows),
			  false);
}

/* Finds out before all is read whether files can be written beside the checkpoint's. */
static int check_folders(const struct operation *op)
{
	hoist_file_info file = {.size = sizeof file};
	for (size_t f = 0; hoist_checkpoint_file(op->checkpoint, f, &file) == 0; f++) {
		const char *name = base_name(file.path);
		char *folder = name == file.path ? strdup(".")
						 : strndup(file.path, (size_t)(name - file.path));
		if (folder == NULL)
			return fail_memory();
		int status = access(folder, W_OK | X_OK) == 0
				     ? STATUS_OK
				     : fail("%s: no digests can be kept there: %s", folder,
					    strerror(errno));
		free(folder);
		if (status != STATUS_OK)
			return status;
	}
	return STATUS_OK;
}

/* Keeps the load's digests of all tensors beside the files. */
static int keep(const struct operation *op)
{
	size_t n = hoist_load_n_tensors(op->load);
	unsigned char(*digests)[16] = calloc(n > 0 ? n : 1, sizeof *digests);
	if (digests == NULL)
		return fail_memory();
	int err = 0;
	for (size_t i = 0; err == 0 && i < n; i++) {
		size_t which = 0;
		hoist_buffer *buffer = NULL;
		err = hoist_load_tensor(op->load, i, &which, &buffer);
		hoist_buffer_unref(buffer);
		if (err == 0)
			err = hoist_load_digest(op->load, i, digests[which]);
	}
	if (err == 0)
		err = hoist_checkpoint_keep_digests(op->checkpoint, n, digests);
	free(digests);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

int cmd_digest(const struct args *args)
{
	struct operation op;
	XXH3_state_t *state = NULL;
	if (args->keep && args_given(args, OPTION_TENSOR | OPTION_CONVERT))
		return args_refuse(args,
				   "digests are kept of whole tensors, and of all: leave out ",
				   "--keep", ", or --tensor, --exclude, --slice and --dtype");
	int status = operation_open(&op, args);
	if (status == STATUS_OK && args->keep)
		status = check_folders(&op);
	if (status == STATUS_OK && (state = XXH3_createState()) == NULL)
		status = fail_memory();
	if (status == STATUS_OK)
		status = operation_load(&op, args);
	if (status == STATUS_OK)
		status = unconverted_note(args->load.dtype, op.load);
	if (status == STATUS_OK)
		status = args->json ? digest_json(&op, state) : digest_all(&op, state, NULL);
	if (status == STATUS_OK && args->keep)
		status = keep(&op);
	(void)XXH3_freeState(state);
	operation_close(&op);
	return status;
}
