/* SPDX-License-Identifier: MIT */
/* The checkpoints of the sweep: five tensors in one file, in two with an index, and as GGUF. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All kinds of ends: rows to be cut, an odd few bytes, none, halves to be converted, more than one
 * read. */
const char *const sweep_names[SWEEP_N_TENSORS] = {"a", "b", "c", "d", "e"};
const hoist_dtype sweep_dtypes[SWEEP_N_TENSORS] = {HOIST_U8, HOIST_U8, HOIST_U8, HOIST_F16,
						   HOIST_U8};
static const int64_t shapes[SWEEP_N_TENSORS][2] = {
	{SWEEP_ROWS, SWEEP_COLUMNS}, {17, 0}, {0, 0}, {70000, 0}, {70001, 0}};

static char folder[3000];

size_t sweep_bytes(size_t tensor)
{
	static const size_t bytes[SWEEP_N_TENSORS] = {(size_t)SWEEP_ROWS * SWEEP_COLUMNS, 17, 0,
						      140000, 70001};
	return bytes[tensor];
}

int sweep_shape(size_t tensor, int64_t ret[2])
{
	memcpy(ret, shapes[tensor], sizeof shapes[tensor]);
	return tensor == 0 ? 2 : 1;
}

void sweep_fill(size_t tensor, unsigned model, unsigned char *ret)
{
	size_t n = sweep_bytes(tensor);
	for (size_t i = 0; i < n; i++)
		ret[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + tensor * 31 + model * 101);
	for (size_t i = 1; sweep_dtypes[tensor] == HOIST_F16 && i < n; i += 2)
		ret[i] &= 0x3f; /* a small positive number */
}

int sweep_compare(hoist_buffer *buffer, size_t tensor, unsigned model)
{
	static unsigned char got[SWEEP_MOST_BYTES];
	static unsigned char want[SWEEP_MOST_BYTES];
	size_t n = sweep_bytes(tensor);
	if (hoist_buffer_bytes(buffer) != n || hoist_buffer_dtype(buffer) != sweep_dtypes[tensor])
		sweep_wrong("tensor %zu has %zu bytes", tensor, hoist_buffer_bytes(buffer));
	sweep_fill(tensor, model, want);
	int err = hoist_buffer_copy_out(buffer, got, n);
	if (err == 0 && memcmp(got, want, n) != 0)
		sweep_wrong("tensor %zu has the wrong bytes", tensor);
	return err;
}

int sweep_compare_bytes(hoist_buffer *buffer, const void *want, size_t bytes)
{
	static unsigned char got[SWEEP_MOST_BYTES];
	if (hoist_buffer_bytes(buffer) != bytes) {
		sweep_wrong("%zu bytes, not %zu", hoist_buffer_bytes(buffer), bytes);
		return 0;
	}
	int err = hoist_buffer_copy_out(buffer, got, bytes);
	if (err == 0 && memcmp(got, want, bytes) != 0)
		sweep_wrong("%zu wrong bytes", bytes);
	return err;
}

int sweep_compare_gguf(hoist_buffer *buffer, size_t tensor)
{
	static unsigned char want[SWEEP_MOST_BYTES];
	sweep_fill(tensor, 0, want);
	return sweep_compare_bytes(buffer, want, sweep_bytes(tensor));
}

const char *sweep_path(const char *name)
{
	static char paths[8][3200];
	static unsigned next;
	char *path = paths[next++ % 8];
	(void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
	return path;
}

/* --- files, byte by byte --- */

static void write_file(const char *name, size_t first, size_t end)
{
	static const char *const dtypes[] = {"U8", "U8", "U8", "F16", "U8"};
	static const char *const texts[] = {"100,1000", "17", "0", "70000", "70001"};
	static unsigned char bytes[SWEEP_MOST_BYTES];
	char header[1024];
	size_t used =
		(size_t)snprintf(header, sizeof header, "{\"__metadata__\":{\"model\":\"0\"}");
	size_t at = 0;
	for (size_t t = first; t < end; t++) {
		used += (size_t)snprintf(header + used, sizeof header - used,
					 ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
					 "\"data_offsets\":[%zu,%zu]}",
					 sweep_names[t], dtypes[t], texts[t], at,
					 at + sweep_bytes(t));
		at += sweep_bytes(t);
	}
	header[used++] = '}';
	uint64_t prefix = used;
	FILE *file = fopen(sweep_path(name), "w");
	bool good = file != NULL && fwrite(&prefix, 8, 1, file) == 1 &&
		    fwrite(header, used, 1, file) == 1;
	for (size_t t = first; good && t < end; t++) {
		sweep_fill(t, 0, bytes);
		good = fwrite(bytes, 1, sweep_bytes(t), file) == sweep_bytes(t);
	}
	if (!good || fflush(file) != 0 || fsync(fileno(file)) < 0 || fclose(file) != 0)
		sweep_die("%s cannot be written", sweep_path(name));
}

static void write_text(const char *name, const char *text)
{
	FILE *file = fopen(sweep_path(name), "w");
	if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
		sweep_die("%s cannot be written", sweep_path(name));
}

static void put(unsigned char **to, const void *from, size_t bytes)
{
	memcpy(*to, from, bytes);
	*to += bytes;
}

/* One tensor, "a", of 8-bit integers, which begins 128 bytes into the file. */
static void write_gguf(void)
{
	static unsigned char bytes[SWEEP_MOST_BYTES];
	unsigned char *to = bytes;
	const uint32_t version = 3;
	const uint64_t counts[] = {1, 0, 1}; /* tensors, key-values, the name's length */
	const uint32_t rank = 2;
	const uint64_t shape[] = {SWEEP_COLUMNS, SWEEP_ROWS};
	const uint32_t type = 24; /* I8 */
	const uint64_t offset = 0;
	put(&to, "GGUF", 4);
	put(&to, &version, 4);
	put(&to, counts, sizeof counts);
	put(&to, "a", 1);
	put(&to, &rank, 4);
	put(&to, shape, sizeof shape);
	put(&to, &type, 4);
	put(&to, &offset, 8);
	to = bytes + (to - bytes + 31) / 32 * 32;
	sweep_fill(0, 0, to);
	to += sweep_bytes(0);
	FILE *file = fopen(sweep_path("m.gguf"), "w");
	if (file == NULL || fwrite(bytes, (size_t)(to - bytes), 1, file) != 1 || fclose(file) != 0)
		sweep_die("%s cannot be written", sweep_path("m.gguf"));
}

void sweep_make_files(void)
{
	const char *temporary = getenv("TMPDIR");
	(void)snprintf(folder, sizeof folder, "%.2900s/hoist-sweep-XXXXXX",
		       temporary != NULL ? temporary : "/tmp");
	if (mkdtemp(folder) == NULL || mkdir(sweep_path("shards"), 0700) < 0 ||
	    mkdir(sweep_path("run"), 0700) < 0)
		sweep_die("no folder %s", folder);
	write_file("m.safetensors", 0, SWEEP_N_TENSORS);
	write_file("shards/m-00001-of-00002.safetensors", 0, 3);
	write_file("shards/m-00002-of-00002.safetensors", 3, SWEEP_N_TENSORS);
	write_text("shards/m.safetensors.index.json",
		   "{\"metadata\":{\"total_size\":310018},\"weight_map\":{"
		   "\"a\":\"m-00001-of-00002.safetensors\",\"b\":\"m-00001-of-00002.safetensors\","
		   "\"c\":\"m-00001-of-00002.safetensors\",\"d\":\"m-00002-of-00002.safetensors\","
		   "\"e\":\"m-00002-of-00002.safetensors\"}}\n");
	write_gguf();
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

void sweep_remove_files(void)
{
	(void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
