/* SPDX-License-Identifier: MIT */
/* format/index-write.c - writes the text of an index of shards.
 * The contract is in format/write.h. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/json-write.h"
#include "format/write.h"

/* `total_size` is that of the files that are written now; an old value among the metadata is left
 * out. */
int hoist__index_write(const char *const *files, size_t n_tensors, const char *const *tensors,
		       const size_t *file_of, uint64_t total_bytes, size_t n_metadata,
		       const struct hoist__metadata *metadata, char **ret, size_t *ret_bytes)
{
	struct hoist__json_text json = {0};
	hoist__json_printf(&json, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64,
			   total_bytes);
	for (size_t i = 0; i < n_metadata; i++) {
		if (strcmp(metadata[i].key, "total_size") == 0)
			continue;
		hoist__json_printf(&json, ",\n    ");
		hoist__json_put_string(&json, metadata[i].key);
		hoist__json_printf(&json, ": ");
		hoist__json_put_string(&json, metadata[i].value);
	}
	hoist__json_printf(&json, "\n  },\n  \"weight_map\": {");
	for (size_t i = 0; i < n_tensors; i++) {
		hoist__json_printf(&json, "%s\n    ", i > 0 ? "," : "");
		hoist__json_put_string(&json, tensors[i]);
		hoist__json_printf(&json, ": ");
		hoist__json_put_string(&json, files[file_of[i]]);
	}
	hoist__json_printf(&json, "\n  }\n}\n");
	if (json.err < 0) {
		free(json.text);
		return json.err;
	}
	*ret = json.text;
	*ret_bytes = json.bytes;
	return 0;
}
