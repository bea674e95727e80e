/* SPDX-License-Identifier: MIT */
/* A test's folder and its files, and a comparison of loaded buffers with the bytes on the disk. */
#include "config.h"

#include "tests/support/load-support.h"
#include "tests/support/random.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

const char *support_folder(void)
{
	if (folder[0] == '\0') {
		const char *base = getenv("TMPDIR");
		snprintf(folder, sizeof folder, "%.200s/hoist-load-XXXXXX", base ? base : "/tmp");
		CHECK(mkdtemp(folder) != NULL);
	}
	return folder;
}

void support_cleanup(void)
{
	if (folder[0] != '\0')
		support_remove(folder);
	folder[0] = '\0';
}

void support_remove(const char *path)
{
	DIR *dir = opendir(path);
	CHECK(dir != NULL);
	const struct dirent *entry;
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_type != DT_DIR)
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	(void)closedir(dir);
	OK(rmdir(path));
}

const char *support_path(const char *name)
{
	static char paths[64][512];
	static unsigned n;
	char *path = paths[n++ % 64];
	snprintf(path, sizeof paths[0], "%s/%s", support_folder(), name);
	return path;
}

static FILE *create(const char *name)
{
	FILE *file = fopen(name[0] == '/' ? name : support_path(name), "wb");
	CHECK(file != NULL);
	return file;
}

void support_put(const char *name, const void *bytes, size_t n)
{
	FILE *file = create(name);
	CHECK(fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

void support_put_safetensors(const char *name, const char *header, const void *data, size_t n)
{
	uint64_t length = strlen(header);
	FILE *file = create(name);
	CHECK(fwrite(&length, 8, 1, file) == 1 && fwrite(header, length, 1, file) == 1);
	CHECK(fwrite(data, 1, n, file) == n && fclose(file) == 0);
}

hoist_checkpoint *support_open(const char *name)
{
	hoist_checkpoint *checkpoint = NULL;
	OK(hoist_checkpoint_open(name[0] == '/' ? name : support_path(name), 0, &checkpoint));
	return checkpoint;
}

hoist_device *support_device(const char *spec)
{
	hoist_device *device = NULL;
	OK(hoist_device_open(spec, &device));
	return device;
}

hoist_load *support_load(const char *name, const hoist_load_options *o)
{
	hoist_checkpoint *checkpoint = support_open(name);
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, o, &load));
	hoist_checkpoint_close(checkpoint);
	OK(hoist_load_wait(load));
	return load;
}

void support_said(const char *piece)
{
	if (strstr(hoist_error(), piece) == NULL)
		fprintf(stderr, "no \"%s\"\n", piece);
	CHECK(strstr(hoist_error(), piece) != NULL);
}

void support_load_fails(hoist_checkpoint *checkpoint, const hoist_load_options *o, int err,
			const char *piece)
{
	hoist_load *load = NULL;
	int got = hoist_load_start(checkpoint, o, &load);
	if (got == 0)
		got = hoist_load_wait(load);
	if (got != err)
		fprintf(stderr, "%d is not %d\n", got, err);
	CHECK(got == err);
	support_said(piece);
	hoist_load_destroy(load);
}

/* The field of the stage. */
uint64_t support_time(const hoist_load_report *r, enum hoist_stage stage)
{
	const uint64_t times[] = {
		[HOIST_STAGE_WORK] = r->work_ns,	 [HOIST_STAGE_PLAN] = r->plan_ns,
		[HOIST_STAGE_ALLOCATE] = r->allocate_ns, [HOIST_STAGE_CALLER] = r->caller_ns,
		[HOIST_STAGE_READ] = r->read_ns,	 [HOIST_STAGE_CONVERT] = r->convert_ns,
		[HOIST_STAGE_COPY] = r->copy_ns,	 [HOIST_STAGE_PAGES] = r->pages_ns,
		[HOIST_STAGE_GROUP] = r->group_ns,	 [HOIST_STAGE_BUDGET] = r->budget_ns,
	};
	CHECK((size_t)stage < sizeof times / sizeof times[0]);
	return times[stage];
}

static void adds_up(const hoist_load_report *report)
{
	uint64_t sum = 0;
	for (int stage = 0; stage <= HOIST_STAGE_BUDGET; stage++)
		sum += support_time(report, (enum hoist_stage)stage);
	CHECK(sum == report->ns);
}

hoist_load_report support_report(hoist_load *load)
{
	hoist_load_report report = {.size = sizeof report};
	OK(hoist_load_get_report(load, &report));
	adds_up(&report);
	return report;
}

void support_times(hoist_load *load, hoist_load_report *times)
{
	hoist_load_report now = {.size = sizeof now};
	OK(hoist_load_get_times(load, &now));
	CHECK(now.n_reads == 0 && now.bytes == 0);
	adds_up(&now);
	CHECK(now.ns >= times->ns);
	for (int stage = 0; stage <= HOIST_STAGE_BUDGET; stage++)
		CHECK(support_time(&now, (enum hoist_stage)stage) >=
		      support_time(times, (enum hoist_stage)stage));
	*times = now;
}

/* The bytes of a file depend on its first tensor's number alone. */
static void write_random(FILE *file, size_t bytes, uint64_t *state)
{
	unsigned char block[65536];
	for (size_t n; bytes > 0; bytes -= n) {
		n = bytes < sizeof block ? bytes : sizeof block;
		random_fill(state, block, n);
		CHECK(fwrite(block, 1, n, file) == n);
	}
}

void support_write(const char *name, size_t first, size_t n, const size_t *sizes, int data_offset)
{
	char *header;
	size_t header_bytes;
	FILE *text = open_memstream(&header, &header_bytes);
	CHECK(text != NULL);
	uint64_t offset = 0;
	fprintf(text, "{\"__metadata__\":{\"format\":\"test\"}");
	for (size_t i = 0; i < n; i++) {
		fprintf(text,
			",\"t%06zu\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%llu,%llu]"
			"}",
			first + i, sizes[i], (unsigned long long)offset,
			(unsigned long long)(offset + sizes[i]));
		offset += sizes[i];
	}
	fputc('}', text);
	fflush(text);
	for (size_t at = 8 + header_bytes; data_offset >= 0 && at % 4096 != (size_t)data_offset;
	     at++)
		fputc(' ', text);
	OK(fclose(text));
	FILE *file = create(name);
	uint64_t length = header_bytes;
	CHECK(fwrite(&length, 1, 8, file) == 8);
	CHECK(fwrite(header, 1, header_bytes, file) == header_bytes);
	uint64_t state = 88172645463325252u + first;
	write_random(file, offset, &state);
	CHECK(fflush(file) == 0 && fsync(fileno(file)) == 0 && fclose(file) == 0);
	free(header);
}

void support_write_index(const char *const *files, const size_t *first, size_t n_files)
{
	FILE *file = create("model.safetensors.index.json");
	fprintf(file, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
	for (size_t f = 0; f < n_files; f++)
		for (size_t t = first[f]; t < first[f + 1]; t++)
			fprintf(file, "%s\"t%06zu\":\"%s\"", t > 0 ? "," : "", t, files[f]);
	fprintf(file, "}}\n");
	OK(fclose(file));
}

void support_keep_digests(const char *name)
{
	hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_DIGEST};
	hoist_load *load = support_load(name, &o);
	hoist_checkpoint *checkpoint = support_open(name);
	size_t n = hoist_load_n_tensors(load);
	unsigned char(*digests)[16] = calloc(n + 1, sizeof *digests);
	CHECK(digests != NULL);
	for (size_t t = 0; t < n; t++)
		OK(hoist_load_digest(load, t, digests[t]));
	OK(hoist_checkpoint_keep_digests(checkpoint, n, digests));
	free(digests);
	hoist_checkpoint_close(checkpoint);
	hoist_load_destroy(load);
}

/* Compares in pieces, so that a tensor of any size needs little memory. */
static void compare_buffer(hoist_buffer *buffer, const hoist_tensor_info *tensor, int fd)
{
	unsigned char got[128 << 10];
	unsigned char want[sizeof got];
	CHECK(hoist_buffer_bytes(buffer) == tensor->bytes);
	CHECK(hoist_buffer_dtype(buffer) == tensor->dtype);
	CHECK(hoist_buffer_rank(buffer) == tensor->rank);
	for (uint64_t at = 0; at < tensor->bytes; at += sizeof got) {
		size_t n =
			tensor->bytes - at < sizeof got ? (size_t)(tensor->bytes - at) : sizeof got;
		OK(hoist_buffer_read(buffer, at, got, n));
		CHECK(pread(fd, want, n, (off_t)(tensor->offset + at)) == (ssize_t)n);
		CHECK(memcmp(got, want, n) == 0);
	}
}

void support_compare(hoist_checkpoint *checkpoint, hoist_load *load)
{
	size_t open_file = SIZE_MAX;
	int fd = -1;
	/* Each tensor on a device is a round trip to it: of very many, every 29th is
	 * enough (29 has nothing in common with any size or alignment used here). */
	hoist_load_report report = support_report(load);
	size_t n = hoist_load_n_tensors(load);
	size_t step = n > 10000 && report.n_copies > 0 ? 29 : 1;
	for (size_t i = 0; i < n; i += step) {
		size_t t;
		hoist_buffer *buffer;
		hoist_tensor_info tensor = {.size = sizeof tensor};
		OK(hoist_load_tensor(load, i, &t, &buffer));
		OK(hoist_checkpoint_tensor(checkpoint, t, &tensor));
		if (tensor.file != open_file) {
			hoist_file_info file = {.size = sizeof file};
			OK(hoist_checkpoint_file(checkpoint, tensor.file, &file));
			if (fd >= 0)
				close(fd);
			fd = open(file.path, O_RDONLY | O_CLOEXEC);
			CHECK(fd >= 0);
			open_file = tensor.file;
		}
		compare_buffer(buffer, &tensor, fd);
		hoist_buffer_unref(buffer);
	}
	if (fd >= 0)
		close(fd);
}

void support_load_and_compare(const char *path, const hoist_load_options *o,
			      hoist_load_report *report)
{
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	OK(hoist_load_start(checkpoint, o, &load));
	OK(hoist_load_wait(load));
	support_compare(checkpoint, load);
	uint64_t done;
	uint64_t total;
	hoist_load_progress(load, &done, &total);
	CHECK(done == total);
	*report = support_report(load);
	CHECK(report->bytes == total);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

void support_emulate(const char *devices)
{
	OK(setenv("HOIST_EMULATE", devices, 1));
	if (getenv("HOIST_EMULATOR_DIR") != NULL)
		return;
	fprintf(stderr,
		"skipped: HOIST_EMULATOR_DIR does not say where the stand-in drivers are\n");
	exit(77);
}

void *support_control(const char *api, const char *function)
{
	char path[512];
	const char *where = getenv("HOIST_EMULATOR_DIR");
	snprintf(path, sizeof path, "%s/libhoist-emulated-%s.so", where ? where : "", api);
	void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	if (library == NULL)
		return NULL;
	void *found = dlsym(library, function);
	dlclose(library);
	return found;
}

void support_set_rate(const char *api, uint64_t bytes_per_second)
{
	__typeof__(&hoist_emulator_set_rate) set;
	*(void **)&set = support_control(api, "hoist_emulator_set_rate");
	CHECK(set != NULL);
	set(bytes_per_second);
}

void support_hold(const char *api, bool on)
{
	__typeof__(&hoist_emulator_hold) hold;
	*(void **)&hold = support_control(api, "hoist_emulator_hold");
	CHECK(hold != NULL);
	hold(on);
}
