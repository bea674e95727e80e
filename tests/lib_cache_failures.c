/* SPDX-License-Identifier: MIT */
/* Every allocation of adding, attaching, listing and dropping fails in turn: it comes out as an
 * error, leaves nothing half done, and works the next time.  Exit: 0, 1. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "tests/lib-cache.h"
#include "tests/lib-failing.h"

#define N 4
#define BYTES 3000u

static char model[4096];

static int count_fds(void)
{
	int n = 0;
	DIR *folder = opendir("/proc/self/fd");
	CHECK(folder != NULL);
	while (readdir(folder) != NULL)
		n++;
	(void)closedir(folder);
	return n;
}

static int use(void)
{
	const hoist_cache_options options = {.size = sizeof options, .flags = HOIST_CACHE_REPLACE};
	hoist_image *image = NULL;
	hoist_buffer *buffer = NULL;
	hoist_cache_list *list = NULL;
	int err = hoist_cache_add(model, &options, NULL);
	if (err == 0)
		err = hoist_cache_attach(model, 0, &image);
	if (err == 0)
		err = hoist_image_buffer(image, 1, &buffer);
	if (err == 0)
		err = hoist_cache_list_create(&list);
	if (err == 0)
		CHECK(hoist_cache_list_n_images(list) == 2);
	hoist_cache_list_destroy(list);
	hoist_buffer_unref(buffer);
	hoist_image_close(image);
	return err == 0 ? hoist_cache_drop(model, NULL) : err;
}

static void scenario(unsigned long n)
{
	int before = count_fds();
	lib_fail_allocation(n);
	int err = use();
	lib_fail_allocation(0);
	if (err != 0 && (!lib_is_failure(err) || hoist_error()[0] == '\0'))
		lib_die("allocation %lu: an unexpected error, %d", n, err);
	if (count_fds() != before)
		lib_die("allocation %lu: %d descriptors more", n, count_fds() - before);
	if (use() != 0)
		lib_die("after allocation %lu: does not work any more", n);
}

int main(int argc, char **argv)
{
	(void)cache_test_begin(argc, argv);
	(void)snprintf(model, sizeof model, "%s", cache_path("model.safetensors"));
	cache_write(model, N, BYTES, 4);
	/* One more, so that the holder stays. */
	cache_write(cache_path("other.safetensors"), 1, 1, 4);
	CHECK(hoist_cache_add(cache_path("other.safetensors"), NULL, NULL) == 0);
	lib_sweep_allocations(scenario, 2000);
	return 0;
}
