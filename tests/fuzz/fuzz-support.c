/* SPDX-License-Identifier: MIT */
/* Checks that all fuzz targets make of an input: memory, time, descriptors, mappings, and the
 * promises of each result. */
#include "config.h"

#include "tests/fuzz/fuzz-support.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <sanitizer/allocator_interface.h>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/utf8.h"

/* --- memory --- */

static _Thread_local bool counting;
static size_t live;
static size_t peak;

/* The most that any input took; for the ratio, inputs that are all constants do not count. */
#define LEAST_READ 2048
static size_t most_bytes;
static double most_times;
static double most_seconds; /* of the processor, and so of this thread's alone */

static void at_malloc(const volatile void *memory, size_t bytes)
{
	(void)memory;
	if (!counting)
		return;
	live += bytes;
	peak = live > peak ? live : peak;
}

static void at_free(const volatile void *memory)
{
	if (counting && memory != NULL)
		live -= __sanitizer_get_allocated_size(memory);
}

void fuzz_memory_begin(void)
{
	live = peak = 0;
	counting = true;
}

size_t fuzz_memory_end(void)
{
	counting = false;
	return peak;
}

/* --- what is left behind --- */

/* A leaked one has the lowest free number: it is below, and one call says of all whether they are
 * open.  The number that the next one would get says nothing: what leaked may lie above it. */
#define MOST_FDS 256

size_t fuzz_n_fds(void)
{
	struct pollfd fds[MOST_FDS];
	size_t closed = 0;
	for (int fd = 0; fd < MOST_FDS; fd++)
		fds[fd] = (struct pollfd){.fd = fd};
	HOLDS(poll(fds, MOST_FDS, 0) >= 0);
	for (int fd = 0; fd < MOST_FDS; fd++)
		closed += (fds[fd].revents & POLLNVAL) != 0;
	return MOST_FDS - closed;
}

static unsigned n_asked;
static const char *unmapped;

static void look_at_mappings(void)
{
	char line[4352];
	FILE *maps = fopen("/proc/self/maps", "re");
	HOLDS(maps != NULL);
	while (fgets(line, sizeof line, maps) != NULL) {
		if (strstr(line, unmapped) == NULL)
			continue;
		(void)fprintf(stderr, "left mapped: %s", line);
		abort();
	}
	(void)fclose(maps);
}

void fuzz_check_mappings(const char *of)
{
	unmapped = of;
	if (++n_asked % 256 == 0)
		look_at_mappings();
}

static void at_end(void)
{
	if (unmapped != NULL)
		look_at_mappings();
	if (most_bytes > 0)
		(void)fprintf(stderr,
			      "fuzz: parsing took at most %zu bytes, %.1f times what was read, "
			      "%.3f s\n",
			      most_bytes, most_times, most_seconds);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	HOLDS(__sanitizer_install_malloc_and_free_hooks(at_malloc, at_free) > 0);
	(void)atexit(at_end);
	return 0;
}

static size_t count_read(const struct fuzz_file *file)
{
	size_t ret = 0;
	for (size_t i = 0; i < file->n; i++)
		ret += file->read[i];
	return ret;
}

static void judge_memory(const struct fuzz_file *file, enum hoist__format format, size_t bytes)
{
	size_t read = count_read(file);
	bool torch = format == HOIST__TORCH;
	size_t times = torch ? FUZZ_MEMORY_TIMES_TORCH : FUZZ_MEMORY_TIMES;
	size_t more = torch ? FUZZ_MEMORY_BYTES_TORCH : FUZZ_MEMORY_BYTES;
	most_bytes = bytes > most_bytes ? bytes : most_bytes;
	if (read >= LEAST_READ && (double)bytes / (double)read > most_times)
		most_times = (double)bytes / (double)read;
	if (bytes <= times * read + more)
		return;
	(void)fprintf(stderr, "parsing took %zu bytes of memory, and had read %zu bytes\n", bytes,
		      read);
	abort();
}

/* --- time --- */

static double seconds(void)
{
	struct timespec now;
	HOLDS(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void judge_time(double begun)
{
	double took = seconds() - begun;
	most_seconds = took > most_seconds ? took : most_seconds;
	if (took <= FUZZ_SECONDS)
		return;
	(void)fprintf(stderr, "parsing took %.1f s\n", took);
	abort();
}

/* --- bytes that decide --- */

uint64_t fuzz_take(struct fuzz_bytes *from, unsigned n)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < n && from->n > 0; i++, from->n--)
		value |= (uint64_t)*from->p++ << 8 * i;
	return value;
}

uint64_t fuzz_below(struct fuzz_bytes *from, uint64_t n)
{
	unsigned bytes = n <= 1			  ? 0
			 : n <= 256		  ? 1
			 : n <= 65536		  ? 2
			 : n <= UINT64_C(1) << 32 ? 4
						  : 8;
	return fuzz_take(from, bytes) % n;
}

/* --- files --- */

static int read_bytes(void *context, uint64_t offset, void *buffer, size_t bytes)
{
	struct fuzz_file *file = context;
	HOLDS(offset <= file->n && bytes <= file->n - offset && bytes > 0);
	memcpy(buffer, file->bytes + offset, bytes);
	if (file->read != NULL)
		memset(file->read + offset, true, bytes);
	return 0;
}

struct hoist__reader fuzz_reader(struct fuzz_file *file)
{
	return (struct hoist__reader){"fuzz", file->n, read_bytes, file, file->lenient};
}

static int parse(struct fuzz_file *file, const enum hoist__format *format, struct fuzz_parsed *ret)
{
	const struct hoist__reader reader = fuzz_reader(file);
	int err = 0;
	if (format != NULL)
		ret->format = *format;
	else
		err = hoist__format_detect(&reader, &ret->format);
	if (err == 0 && ret->format == HOIST__INDEX) {
		memset(file->read, true, file->n);
		err = hoist__index_parse("fuzz", file->bytes, file->n, &ret->index);
	} else if (err == 0) {
		err = hoist__format_parse(&reader, ret->format, &ret->manifest);
	}
	return err;
}

static int parse_and_check(const uint8_t *bytes, size_t n, const enum hoist__format *format,
			   bool lenient, struct fuzz_parsed *ret)
{
	struct fuzz_file file = {bytes, n, calloc(n + 1, 1), lenient};
	HOLDS(file.read != NULL);
	*ret = (struct fuzz_parsed){.format = HOIST__RAW};
	double begun = seconds();
	fuzz_memory_begin();
	int err = parse(&file, format, ret);
	size_t memory = fuzz_memory_end();
	judge_time(begun);
	judge_memory(&file, ret->format, memory);
	free(file.read);
	HOLDS(err == 0 || err == -EBADMSG || err == -ENOTSUP);
	HOLDS((err == 0) == (ret->manifest != NULL || ret->index != NULL));
	if (err < 0)
		fuzz_check_text(hoist_error());
	if (ret->index != NULL)
		fuzz_check_index(ret->index);
	if (ret->manifest != NULL)
		fuzz_check_manifest(ret->manifest, n);
	return err;
}

int fuzz_parse(const uint8_t *bytes, size_t n, struct fuzz_parsed *ret)
{
	return parse_and_check(bytes, n, NULL, false, ret);
}

/* A lenient reader finds in a file that has nothing to skip the same as another one. */
static void check_lenient(const uint8_t *bytes, size_t n, enum hoist__format format,
			  const struct hoist__manifest *strict)
{
	struct fuzz_parsed parsed;
	int err = parse_and_check(bytes, n, &format, true, &parsed);
	HOLDS(strict == NULL || (err == 0 && parsed.manifest->n_skipped == 0 &&
				 parsed.manifest->n_tensors == strict->n_tensors &&
				 parsed.manifest->n_metadata == strict->n_metadata));
	fuzz_parsed_free(&parsed);
}

void fuzz_format(const uint8_t *bytes, size_t n, enum hoist__format format)
{
	struct fuzz_parsed parsed;
	(void)parse_and_check(bytes, n, &format, false, &parsed);
	check_lenient(bytes, n, format, parsed.manifest);
	fuzz_parsed_free(&parsed);
}

void fuzz_parsed_free(struct fuzz_parsed *parsed)
{
	hoist__manifest_destroy(parsed->manifest);
	hoist__index_destroy(parsed->index);
	*parsed = (struct fuzz_parsed){.format = HOIST__RAW};
}

/* --- what was promised --- */

void fuzz_check_text(const char *text)
{
	HOLDS(text != NULL && hoist__utf8_text(text, strlen(text)) == strlen(text));
}

static void check_tensor(const struct hoist__tensor *tensor, size_t file_bytes)
{
	int64_t strides[HOIST__MAX_RANK];
	int64_t low;
	int64_t high;
	uint64_t elements;
	size_t bytes = 0;
	HOLDS(tensor->name_bytes > 0 && strlen(tensor->name) == tensor->name_bytes);
	fuzz_check_text(tensor->name);
	HOLDS(hoist__dtype_info(tensor->dtype) != NULL);
	HOLDS(tensor->rank >= 0 && tensor->rank <= HOIST__MAX_RANK);
	HOLDS(tensor->offset <= file_bytes && tensor->bytes <= file_bytes - tensor->offset);
	HOLDS(hoist__layout_c_strides(tensor->rank, tensor->shape, strides) == 0);
	if (tensor->strides == NULL) {
		HOLDS(hoist__layout_elements(tensor->rank, tensor->shape, &elements) == 0);
		HOLDS(hoist_dtype_bytes(tensor->dtype, elements, &bytes) == 0);
		HOLDS(bytes == tensor->bytes);
		return;
	}
	for (int i = 0; i < tensor->rank; i++)
		HOLDS(tensor->strides[i] >= 0);
	HOLDS(hoist__layout_bounds(tensor->dtype, tensor->rank, tensor->shape, tensor->strides,
				   &low, &high) == 0);
	HOLDS(low == 0 && (uint64_t)high == tensor->bytes);
}

void fuzz_check_manifest(const struct hoist__manifest *manifest, size_t file_bytes)
{
	HOLDS(manifest->data_offset <= file_bytes);
	for (size_t i = 0; i < manifest->n_tensors; i++) {
		check_tensor(&manifest->tensors[i], file_bytes);
		HOLDS(i == 0 || manifest->tensors[i - 1].offset <= manifest->tensors[i].offset);
		HOLDS(manifest->by_name[i] < manifest->n_tensors);
		HOLDS(i == 0 || strcmp(manifest->tensors[manifest->by_name[i - 1]].name,
				       manifest->tensors[manifest->by_name[i]].name) < 0);
	}
	for (size_t i = 0; i < manifest->n_metadata; i++) {
		fuzz_check_text(manifest->metadata[i].key);
		fuzz_check_text(manifest->metadata[i].value);
	}
	for (size_t i = 0; i < manifest->n_skipped; i++) {
		fuzz_check_text(manifest->skipped[i].name);
		fuzz_check_text(manifest->skipped[i].reason);
		HOLDS(i == 0 ||
		      strcmp(manifest->skipped[i - 1].name, manifest->skipped[i].name) <= 0);
	}
}

void fuzz_check_index(const struct hoist__index *index)
{
	for (size_t f = 0; f < index->n_files; f++) {
		const char *name = index->files[f];
		HOLDS(name[0] != '\0' && name[0] != '/' && strstr(name, "//") == NULL);
		HOLDS(strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 &&
		      strstr(name, "/../") == NULL);
		HOLDS(strlen(name) < 3 || strcmp(name + strlen(name) - 3, "/..") != 0);
		HOLDS(f == 0 || strcmp(index->files[f - 1], name) < 0);
		HOLDS(index->first[f] < index->first[f + 1]);
	}
	for (size_t i = 0; i < index->n_entries; i++) {
		HOLDS(index->of_file[i] < index->n_entries);
		HOLDS(index->entries[i].file < index->n_files);
		HOLDS(i == 0 || strcmp(index->entries[i - 1].tensor, index->entries[i].tensor) < 0);
	}
	for (size_t i = 0; i < index->n_metadata; i++) {
		fuzz_check_text(index->metadata[i].key);
		fuzz_check_text(index->metadata[i].value);
	}
}
