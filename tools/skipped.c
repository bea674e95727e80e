/* SPDX-License-Identifier: MIT */
/* tools/skipped.c - shows which values --skip-unsupported left out of a checkpoint.
 * The contract is in tools/skipped.h. */
#include "config.h"

#include "tools/skipped.h"

#include <stdio.h>

#include "cli/format.h"
#include "cli/json.h"

/* Returns the value's name; the file's, if the whole file was left out. */
static const char *shown_name(const hoist_checkpoint *checkpoint, const hoist_skipped_info *info)
{
	hoist_file_info file = {.size = sizeof file, .path = ""};
	if (info->name[0] != '\0')
		return info->name;
	(void)hoist_checkpoint_file(checkpoint, info->file, &file);
	return base_name(file.path);
}

void skipped_print(const hoist_checkpoint *checkpoint)
{
	hoist_skipped_info info = {.size = sizeof info};
	size_t width = 7;
	for (size_t i = 0; hoist_checkpoint_skipped(checkpoint, i, &info) == 0; i++) {
		size_t columns = escaped_width(shown_name(checkpoint, &info));
		if (columns > width && columns <= 60)
			width = columns;
	}
	for (size_t i = 0; hoist_checkpoint_skipped(checkpoint, i, &info) == 0; i++) {
		const char *name = shown_name(checkpoint, &info);
		size_t columns = escaped_width(name);
		if (i == 0)
			(void)printf("\n%-*s  %s\n", (int)width, "SKIPPED", "REASON");
		print_escaped(stdout, name);
		(void)printf("%*s  ", columns < width ? (int)(width - columns) : 0, "");
		print_escaped(stdout, info.reason);
		(void)putchar('\n');
	}
}

json_t *skipped_json(const hoist_checkpoint *checkpoint)
{
	json_t *list = json_array();
	hoist_skipped_info info = {.size = sizeof info};
	for (size_t i = 0; hoist_checkpoint_skipped(checkpoint, i, &info) == 0; i++) {
		json_t *row = json_pack("{s:o, s:o, s:o}", "name", json_text(info.name), "reason",
					json_text(info.reason), "file", json_count(info.file));
		if (json_array_append_new(list, row) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

void skipped_note(const hoist_checkpoint *checkpoint)
{
	struct text count;
	size_t n = hoist_checkpoint_n_skipped(checkpoint);
	if (n == 1)
		(void)fputs("hoist: 1 value is left out, because hoist cannot read it; `hoist ls "
			    "--skip-unsupported` names it, with the reason\n",
			    stderr);
	else if (n > 1)
		(void)fprintf(
			stderr,
			"hoist: %s values are left out, because hoist cannot read them; `hoist "
			"ls --skip-unsupported` names them, with the reasons\n",
			format_count(n, &count));
}
