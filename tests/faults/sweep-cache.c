/* SPDX-License-Identifier: MIT */
/* Scenarios: the cache with its holder.  Any call of any of them fails. */
#include "config.h"

#include "tests/faults/sweep.h"
#include "tests/support/patience.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int compare_image(hoist_image *image, size_t n_tensors,
			 int (*compare)(hoist_buffer *buffer, size_t tensor))
{
	int err = 0;
	if (hoist_image_n_tensors(image) != n_tensors)
		sweep_wrong("an image of %zu tensors", hoist_image_n_tensors(image));
	for (size_t i = 0; err == 0 && i < n_tensors; i++) {
		hoist_buffer *buffer = NULL;
		err = hoist_image_buffer(image, i, &buffer);
		STEP(err, compare(buffer, i));
		hoist_buffer_unref(buffer);
	}
	return err;
}

static int use_image(const char *path, size_t n_tensors,
		     int (*compare)(hoist_buffer *buffer, size_t tensor))
{
	hoist_image *image = NULL;
	int err = hoist_cache_attach(path, 0, &image);
	if (err != 0 && image != NULL)
		sweep_wrong("an image that could not be attached is given");
	STEP(err, compare_image(image, n_tensors, compare));
	hoist_image_close(image);
	return err;
}

static int compare_one(hoist_buffer *buffer, size_t tensor)
{
	return sweep_compare(buffer, tensor, 0);
}

static int use_own(void)
{
	return use_image(sweep_path("m.safetensors"), SWEEP_N_TENSORS, compare_one);
}

static int use_other(void)
{
	return use_image(sweep_path("m.gguf"), 1, sweep_compare_gguf);
}

static int use_cache(size_t n_images)
{
	const hoist_cache_options o = {.size = sizeof o,
				       .flags = HOIST_CACHE_REPLACE,
				       .engine = HOIST_ENGINE_THREADS,
				       .budget = sweep_budget};
	const char *path = sweep_path("m.safetensors");
	hoist_cache_list *list = NULL;
	int err = hoist_cache_add(path, &o, NULL);
	STEP(err, use_own());
	STEP(err, hoist_cache_list_create(&list));
	if (err == 0 && hoist_cache_list_n_images(list) != n_images)
		sweep_wrong("%zu images", hoist_cache_list_n_images(list));
	hoist_cache_list_destroy(list);
	return err == 0 ? hoist_cache_drop(path, NULL) : err;
}

static int cache_alone(void)
{
	return use_cache(1);
}

static int cache_held(void)
{
	return use_cache(2);
}

/* If it is there, it is right. */
static void check_image(void)
{
	int err = use_own();
	if (err != 0 && err != -ENOENT)
		sweep_wrong("attaching gives %d (%s)", err, hoist_error());
	err = hoist_cache_drop(sweep_path("m.safetensors"), NULL);
	if (err != 0 && err != -ENOENT)
		sweep_wrong("dropping gives %d (%s)", err, hoist_error());
}

/* The holder ends with its last image. */
static void end_cache(void)
{
	int err = hoist_cache_drop(NULL, NULL);
	if (err != 0 && err != -ENOENT)
		sweep_wrong("dropping gives %d (%s)", err, hoist_error());
	for (uint64_t until = 0; sweep_reap();)
		if (!patience(&until)) {
			sweep_wrong("the holder does not end");
			return;
		}
}

static void check_alone(int err)
{
	(void)err;
	check_image();
	end_cache();
}

static void prepare_cache(void)
{
	(void)mkdir(sweep_path("cache"), 0700);
	if (setenv("XDG_RUNTIME_DIR", sweep_path("cache"), 1) < 0)
		sweep_die("the cache's folder");
}

/* --- a holder that lives all the time --- */

static struct sweep_counts held; /* by the holder, with the other image alone */

/* One of this process's children; 0: none. */
static pid_t find_holder(void)
{
	char text[512] = "";
	char path[64];
	FILE *file = fopen("/proc/thread-self/children", "r");
	if (file == NULL)
		sweep_die("/proc/thread-self/children");
	(void)!fgets(text, sizeof text, file);
	(void)fclose(file);
	char *at = text;
	long pid;
	while ((pid = strtol(at, &at, 10)) > 0) {
		char name[32] = "";
		(void)snprintf(path, sizeof path, "/proc/%ld/comm", pid);
		file = fopen(path, "r");
		if (file != NULL) {
			(void)!fgets(name, sizeof name, file);
			(void)fclose(file);
		}
		if (strcmp(name, "hoist-cache\n") == 0)
			return (pid_t)pid;
	}
	return 0;
}

static bool count_held(struct sweep_counts *ret)
{
	pid_t pid = find_holder();
	bool there = pid > 0 && sweep_count_other(pid, ret);
	ret->blocks = atomic_load(&sweep->holder_blocks);
	return there;
}

/* Another image is there all the time: the holder outlives every failure. */
static void hold_another(void)
{
	if (hoist_cache_add(sweep_path("m.gguf"), NULL, NULL) != 0)
		sweep_die("the other image");
	(void)usleep(20000); /* until it knows that nobody asks any more */
	if (!count_held(&held))
		sweep_die("the holder is not to be found");
}

static void prepare_held(void)
{
	prepare_cache();
	hold_another();
}

static void check_held(int err)
{
	struct sweep_counts now;
	char text[512];
	(void)err;
	check_image();
	err = use_other();
	if (err != 0) {
		sweep_wrong("the other image is gone: %d (%s)", err, hoist_error());
		hold_another();
	}
	uint64_t until = 0;
	do {
		if (!count_held(&now)) {
			sweep_wrong("the holder is not to be found");
			return;
		}
		if (!sweep_counts_more(&now, &held, text, sizeof text))
			return;
	} while (patience(&until));
	sweep_wrong("the holder has more: %s", text);
	held = now;
}

const struct sweep_scenario sweep_caches[] = {
	{.name = "cache",
	 .prepare = prepare_cache,
	 .run = cache_alone,
	 .check = check_alone,
	 .finish = end_cache},
	{.name = "cache-held",
	 .prepare = prepare_held,
	 .run = cache_held,
	 .check = check_held,
	 .finish = end_cache},
	{.name = "lib-cache",
	 .kinds = SWEEP_WARM(SWEEP_OWN),
	 .prepare = prepare_held,
	 .run = cache_held,
	 .check = check_held,
	 .finish = end_cache},
	{.name = NULL},
};
