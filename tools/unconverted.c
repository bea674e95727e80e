/* SPDX-License-Identifier: MIT */
/* tools/unconverted.c - the tensors that --dtype leaves in the file's dtype.
 * The contract is in tools/unconverted.h. */
#include "config.h"

#include "tools/unconverted.h"

#include <stdio.h>
#include <string.h>

#include <hoist/buffer.h>

#include "cli/format.h"
#include "cli/fail.h"
#include "tools/tool.h"

static void add_dtype(struct unconverted *unconverted, const char *name)
{
	size_t used = strlen(unconverted->dtypes);
	size_t n = strlen(name);
	/* The name of a dtype may be the beginning of another's: f8_e4m3fn, f8_e4m3fnuz. */
	for (const char *at = unconverted->dtypes; (at = strstr(at, name)) != NULL; at += n)
		if ((at == unconverted->dtypes || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
			return;
	(void)snprintf(unconverted->dtypes + used, sizeof unconverted->dtypes - used, "%s%s",
		       used > 0 ? ", " : "", name);
}

void unconverted_count(struct unconverted *unconverted, hoist_dtype asked, hoist_dtype dtype)
{
	if (asked == HOIST_DTYPE_INVALID || dtype == asked)
		return;
	unconverted->n++;
	add_dtype(unconverted, hoist_dtype_name(dtype));
}

int unconverted_count_all(struct unconverted *unconverted, hoist_dtype asked, hoist_load *load)
{
	size_t n = asked != HOIST_DTYPE_INVALID ? hoist_load_n_tensors(load) : 0;
	for (size_t i = 0; i < n; i++) {
		hoist_buffer *buffer = NULL;
		if (hoist_load_tensor(load, i, &(size_t){0}, &buffer) != 0)
			return fail_library();
		unconverted_count(unconverted, asked, hoist_buffer_dtype(buffer));
		hoist_buffer_unref(buffer);
	}
	return STATUS_OK;
}

static void print(FILE *out, const char *before, const struct unconverted *unconverted,
		  const char *converted)
{
	struct text count;
	if (unconverted->n > 0)
		(void)fprintf(out,
			      "%s%s tensor%s left as in the file: %s; %s alone are converted\n",
			      before, format_count(unconverted->n, &count),
			      unconverted->n == 1 ? "" : "s", unconverted->dtypes, converted);
}

int unconverted_note(hoist_dtype asked, hoist_load *load)
{
	struct unconverted unconverted = {0};
	int status = unconverted_count_all(&unconverted, asked, load);
	print(stderr, "hoist: --dtype: ", &unconverted, LOADS_CONVERT);
	return status;
}

void unconverted_print(const struct unconverted *unconverted, const char *converted)
{
	print(stdout, "dtype     ", unconverted, converted);
}
