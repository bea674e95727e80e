/* SPDX-License-Identifier: MIT */
/* Images on small and on huge pages, and images of tensors of several dtypes and layouts. */
#include "config.h"

#include "tests/lib/cache/kinds.h"

#include <string.h>
#include <sys/prctl.h>

#include "alloc/populate.h"
#include "base/error.h"
#include "tests/support/lib-cache.h"
#include "tests/support/load-support.h"
#include "tests/support/wrap.h"

/* --- pages --- */

static hoist_image_info info_of(const char *path, int pages, hoist_image **ret)
{
	hoist_image_info info = {.size = sizeof info};
	const hoist_cache_options o = {
		.size = sizeof o, .flags = HOIST_CACHE_REPLACE, .pages = pages};
	OK(hoist_cache_add(path, &o, ret));
	OK(hoist_image_get_info(*ret, &info));
	return info;
}

static bool no_pages;

WRAP(int, hoist__populate_parallel,
     (const struct hoist__populate_job *job, struct hoist__populate_report *report))
{
	if (no_pages)
		return hoist__fail(-ENOMEM, "no pages for the test");
	return __real_hoist__populate_parallel(job, report);
}

/* An image of 9 MiB is populated before it is read, one of 36 MiB while it is read. */
static void run_pages_of(size_t bytes)
{
	const char *path = cache_path("large.safetensors");
	hoist_image *image = NULL;
	cache_write(path, 3, bytes, 6);
	/* Huge ones, whatever the kernel's default is, or the reason. */
	hoist_image_info info = info_of(path, HOIST_PAGES_DEFAULT, &image);
	CHECK(info.pages == HOIST_PAGES_DEFAULT || info.pages == HOIST_PAGES_SMALL);
	CHECK((info.pages == HOIST_PAGES_SMALL) == (strstr(info.note, "small pages") != NULL));
	cache_check(image, 3, bytes, 6);
	hoist_image_close(image);
	info = info_of(path, HOIST_PAGES_SMALL, &image);
	CHECK(info.pages == HOIST_PAGES_SMALL && info.note[0] == '\0');
	hoist_image_close(image);
	/* To this process it makes none: unless it gives them at a touch, there is a reason. */
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0) {
		info = info_of(path, HOIST_PAGES_DEFAULT, &image);
		CHECK(info.pages == HOIST_PAGES_DEFAULT || strstr(info.note, "EINVAL") != NULL);
		cache_check(image, 3, bytes, 6);
		hoist_image_close(image);
		OK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
	}
	/* An image that gets no pages is refused, and the one before it stays. */
	const hoist_cache_options o = {.size = sizeof o, .flags = HOIST_CACHE_REPLACE};
	no_pages = true;
	REFUSED(hoist_cache_add(path, &o, &image), -ENOMEM, "no pages for the test");
	no_pages = false;
	OK(hoist_cache_attach(path, 0, &image));
	cache_check(image, 3, bytes, 6);
	hoist_image_close(image);
	OK(hoist_cache_drop(path, NULL));
}

static void run_pages(const char *model)
{
	hoist_image *image = NULL;
	run_pages_of((size_t)3 << 20);
	run_pages_of((size_t)12 << 20);
	hoist_image_info info = info_of(model, HOIST_PAGES_DEFAULT, &image);
	CHECK(info.pages == HOIST_PAGES_DEFAULT || strstr(info.note, "less than 2 MiB") != NULL);
	hoist_image_close(image);
}

/* --- tensors of all kinds --- */

static void run_dtypes(void)
{
	static const char header[] =
		"{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
		"\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[12,12]},"
		"\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]}}";
	unsigned char data[20];
	const char *path = cache_path("kinds.safetensors");
	hoist_image *image = NULL;
	hoist_buffer *buffer = NULL;
	size_t index;
	for (unsigned i = 0; i < sizeof data; i++)
		data[i] = (unsigned char)i;
	support_put_safetensors(path, header, data, sizeof data);
	OK(hoist_cache_add(path, NULL, &image));
	OK(hoist_image_find(image, "e", &index));
	OK(hoist_image_buffer(image, index, &buffer));
	CHECK(hoist_buffer_elements(buffer) == 0 && hoist_buffer_shape(buffer)[1] == 7);
	hoist_buffer_unref(buffer);
	OK(hoist_image_find(image, "b", &index));
	OK(hoist_image_buffer(image, index, &buffer));
	CHECK(hoist_buffer_rank(buffer) == 2 && hoist_buffer_dtype(buffer) == HOIST_BF16);
	CHECK(memcmp(hoist_buffer_data(buffer), data, 12) == 0);
	hoist_buffer_unref(buffer);
	OK(hoist_image_find(image, "s", &index));
	OK(hoist_image_buffer(image, index, &buffer));
	CHECK(hoist_buffer_rank(buffer) == 0 && hoist_buffer_bytes(buffer) == 8);
	CHECK(memcmp(hoist_buffer_data(buffer), data + 12, 8) == 0);
	hoist_buffer_unref(buffer);
	hoist_image_close(image);
	/* No tensors at all. */
	cache_write(cache_path("none.safetensors"), 0, 0, 0);
	OK(hoist_cache_add(cache_path("none.safetensors"), NULL, &image));
	CHECK(hoist_image_n_tensors(image) == 0);
	hoist_image_close(image);
	OK(hoist_cache_drop(cache_path("none.safetensors"), NULL));
	OK(hoist_cache_drop(path, NULL));
}

/* A tensor that is not in C order keeps its strides. */
static void run_strided(void)
{
	static const char header[] = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
	const float values[] = {1, 2, 3, 4, 5, 6};
	char head[118];
	const char *path = cache_path("strided.npy");
	hoist_image *image = NULL;
	hoist_buffer *buffer = NULL;
	hoist_tensor_info info = {.size = sizeof info};
	memset(head, ' ', sizeof head);
	memcpy(head, header, sizeof header - 1);
	head[sizeof head - 1] = '\n';
	FILE *file = fopen(path, "w");
	CHECK(file != NULL && fwrite("\x93NUMPY\1\0\x76\0", 1, 10, file) == 10);
	CHECK(fwrite(head, sizeof head, 1, file) == 1);
	CHECK(fwrite(values, sizeof values, 1, file) == 1);
	OK(fclose(file));
	OK(hoist_cache_add(path, NULL, NULL));
	OK(hoist_cache_attach(path, 0, &image));
	OK(hoist_image_tensor(image, 0, &info));
	CHECK(info.strides != NULL && info.strides[0] == 1 && info.strides[1] == 2);
	OK(hoist_image_buffer(image, 0, &buffer));
	CHECK(!hoist_buffer_is_contiguous(buffer) && hoist_buffer_strides(buffer)[1] == 2);
	CHECK(memcmp(hoist_buffer_data(buffer), values, sizeof values) == 0);
	hoist_buffer_unref(buffer);
	hoist_image_close(image);
	OK(hoist_cache_drop(path, NULL));
}

void run_kinds(const char *model)
{
	run_pages(model);
	run_dtypes();
	run_strided();
}
