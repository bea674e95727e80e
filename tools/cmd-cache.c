/* SPDX-License-Identifier: MIT */
/* tools/cmd-cache.c - hoist cache: keeps checkpoints in memory (add, list, drop); hoist load
 * --cache.
 * The contract is in tools/cached.h and tools/tool.h. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hoist/hoist.h>

#include "tools/args.h"
#include "tools/cached.h"
#include "tools/selection.h"
#include "cli/clock.h"
#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/progress.h"

static const char *pages_name(int pages)
{
	return pages == HOIST_PAGES_HUGETLB ? "hugetlb"
	       : pages == HOIST_PAGES_SMALL ? "small"
					    : "transparent huge";
}

static const char *node_name(int node, struct text *ret)
{
	(void)snprintf(ret->chars, sizeof ret->chars, "%d", node);
	return node < 0 ? "-" : ret->chars;
}

/* --- add --- */

static int show_progress(void *context, uint64_t done, uint64_t total)
{
	uint64_t *last = context;
	*last = done;
	if (total > 0)
		progress_update(done, total);
	return interrupted() != 0;
}

/* Adds, or finds, the image, and attaches it. */
static int add(const struct args *args, bool replace, hoist_image **ret)
{
	uint64_t done = 0;
	struct text text;
	hoist_budget *budget = NULL;
	if (args->budget != 0 && hoist_budget_create(args->budget, &budget) != 0)
		return fail_library();
	const hoist_cache_options options = {
		.size = sizeof options,
		.flags = replace ? HOIST_CACHE_REPLACE : 0,
		.open_flags = args->open_flags,
		.image_flags = HOIST_IMAGE_READ_ONLY,
		.engine = args->engine,
		.io = args->io,
		.budget = budget,
		.placement = args->node >= 0 ? HOIST_PLACE_BIND : HOIST_PLACE_DEFAULT,
		.nodes = &args->node,
		.n_nodes = args->node >= 0 ? 1 : 0,
		.pages = args->pages,
		.progress = show_progress,
		.progress_context = &done,
		/* without /proc, the installed command is used */
		.holder = access("/proc/self/exe", X_OK) == 0 ? "/proc/self/exe" : NULL,
	};
	interrupt_watch();
	progress_begin("caching");
	int err = hoist_cache_add(cached_path(args), &options, ret);
	progress_end();
	hoist_budget_unref(budget);
	if (err == -ECANCELED)
		return fail("cancelled after %s", format_bytes(done, &text));
	return err != 0 ? fail_call(err) : STATUS_OK;
}

static json_t *image_json(const hoist_image_info *info)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:i, s:s, s:o, s:f, s:o}", "path",
			 json_text(info->path), "bytes", json_count(info->bytes), "tensor_bytes",
			 json_count(info->tensor_bytes), "tensors", json_count(info->n_tensors),
			 "node", info->node, "pages", pages_name(info->pages), "note",
			 json_text(info->note), "age_seconds", (double)info->age_ns / 1e9,
			 "attached", json_count(info->n_attached));
}

/* An image that is there already stays where it is, and as it is. */
static int check_place(const struct args *args)
{
	hoist_image *image = NULL;
	hoist_image_info info = {.size = sizeof info};
	if (args->replace || !args_given(args, OPTION_NODE | OPTION_PAGES) ||
	    hoist_cache_attach(cached_path(args), HOIST_IMAGE_READ_ONLY, &image) != 0)
		return STATUS_OK;
	(void)hoist_image_get_info(image, &info);
	hoist_image_close(image);
	bool moves = args->node >= 0 && args->node != info.node;
	bool changes = args_given(args, OPTION_PAGES) && args->pages != info.pages;
	if (!moves && !changes)
		return STATUS_OK;
	return fail("%s is cached already, in other memory than --%s asks for; add --replace, or "
		    "leave out --%s",
		    cached_path(args), moves ? "node" : "pages", moves ? "node" : "pages");
}

static int cache_add(const struct args *args)
{
	hoist_image *image = NULL;
	hoist_image_info info = {.size = sizeof info};
	struct text a, b, c;
	int status = args_only(args, "add", ~(unsigned)OPTION_ALL);
	if (status == STATUS_OK && args->operands[1] == NULL)
		status = args_refuse(args, "", "add", ": PATH is missing");
	if (status == STATUS_OK)
		status = check_place(args);
	if (status == STATUS_OK)
		status = add(args, args->replace, &image);
	if (status != STATUS_OK)
		return status;
	(void)hoist_image_get_info(image, &info);
	if (args->json) {
		status = json_print(image_json(&info), true);
	} else {
		(void)fputs("cached    ", stdout);
		print_escaped(stdout, info.path);
		(void)printf("\n          %s tensor%s, %s\n", format_count(info.n_tensors, &a),
			     info.n_tensors == 1 ? "" : "s", format_bytes(info.tensor_bytes, &b));
		(void)printf("memory    %s, %s pages, node %s\n", format_bytes(info.bytes, &a),
			     pages_name(info.pages), node_name(info.node, &c));
		if (info.note[0] != '\0') {
			(void)fputs("          ", stdout);
			print_escaped(stdout, info.note);
			(void)putchar('\n');
		}
	}
	hoist_image_close(image);
	return status;
}

/* --- list --- */

static int list_json(const hoist_cache_list *list)
{
	json_t *images = json_array();
	hoist_image_info info = {.size = sizeof info};
	for (size_t i = 0; hoist_cache_list_image(list, i, &info) == 0; i++)
		if (json_array_append_new(images, image_json(&info)) != 0) {
			json_decref(images);
			return fail_memory();
		}
	return json_print(json_pack("{s:o}", "images", images), true);
}

static int list_table(const hoist_cache_list *list)
{
	hoist_image_info info = {.size = sizeof info};
	struct text a, b, c, d;
	uint64_t total = 0;
	if (hoist_cache_list_n_images(list) > 0)
		(void)printf("%10s  %9s  %4s  %-16s  %8s  %8s  %s\n", "BYTES", "TENSORS", "NODE",
			     "PAGES", "AGE", "ATTACHED", "PATH");
	for (size_t i = 0; hoist_cache_list_image(list, i, &info) == 0; i++) {
		(void)printf("%10s  %9s  %4s  %-16s  %8s  %8" PRIu64 "  ",
			     format_bytes(info.bytes, &a), format_count(info.n_tensors, &b),
			     node_name(info.node, &c), pages_name(info.pages),
			     format_seconds((double)info.age_ns / 1e9, &d), info.n_attached);
		print_escaped(stdout, info.path);
		(void)putchar('\n');
		total += info.bytes;
	}
	(void)printf("%s in %zu image%s\n", format_bytes(total, &a),
		     hoist_cache_list_n_images(list),
		     hoist_cache_list_n_images(list) == 1 ? "" : "s");
	return STATUS_OK;
}

static int cache_list(const struct args *args)
{
	hoist_cache_list *list = NULL;
	int status = args_only(args, "list", OPTION_JSON);
	if (status != STATUS_OK)
		return status;
	int err = hoist_cache_list_create(&list);
	if (err != 0)
		return fail_call(err);
	status = args->json ? list_json(list) : list_table(list);
	hoist_cache_list_destroy(list);
	return status;
}

/* --- drop --- */

static int cache_drop(const struct args *args)
{
	size_t n = 0;
	int status = args_only(args, "drop", OPTION_ALL | OPTION_JSON);
	if (status != STATUS_OK)
		return status;
	if (args->all == (args->operands[1] != NULL))
		return args_refuse(args, "", "drop", " takes either a PATH or --all");
	int err = hoist_cache_drop(args->operands[1], &n);
	if (err == -ENOENT && args->all)
		err = 0;
	if (err != 0)
		return fail_call(err);
	if (args->json)
		return json_print(json_pack("{s:o}", "dropped", json_count(n)), true);
	(void)printf("dropped %zu image%s\n", n, n == 1 ? "" : "s");
	return STATUS_OK;
}

int cmd_cache(const struct args *args)
{
	const char *what = args->operands[0];
	const char *path = args->operands[1];
	if (strcmp(what, "add") == 0)
		return cache_add(args);
	if (strcmp(what, "drop") == 0)
		return cache_drop(args);
	bool list = strcmp(what, "list") == 0;
	if (!list && strcmp(what, "hold") != 0)
		return args_refuse(args, "", what, ": it must be add, list or drop");
	if (path != NULL)
		return args_refuse(args, "one argument too many: ", path, "");
	if (list)
		return cache_list(args);
	int err = hoist_cache_hold(); /* the process that `hoist cache add` starts */
	return err != 0 ? fail_call(err) : STATUS_OK;
}

/* --- load --cache --- */

const char *cached_path(const struct args *args)
{
	return args->command->run == cmd_cache ? args->operands[1] : args->operands[0];
}

struct cached {
	const struct args *args;
	hoist_image *image;
	hoist_device *device;
	struct selection selection;
	hoist_buffer **loaded; /* on a device other than the CPU */
	size_t n_loaded;
	const char *was; /* why it was added, or "" */
};

/* Finds the image.  A checkpoint that is not cached, or that has changed since, is cached now. */
static int find_or_add(struct cached *cached)
{
	int err = hoist_cache_attach(cached_path(cached->args), HOIST_IMAGE_READ_ONLY,
				     &cached->image);
	cached->was = err == -ENOENT   ? "was not in it; it is now"
		      : err == -ESTALE ? "had changed; it was cached again"
				       : "";
	if (err == -ENOENT || err == -ESTALE)
		return add(cached->args, false, &cached->image);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

/* Loads one tensor.  For the host it is there already.  For a device it is copied through pinned
 * staging, as hoist copies pageable memory. */
static int load_one(struct cached *cached, size_t index, hoist_load_report *report)
{
	hoist_buffer *here = NULL;
	if (!selection_has(&cached->selection, index))
		return STATUS_OK;
	if (hoist_image_buffer(cached->image, index, &here) != 0)
		return fail_library();
	report->n_tensors++;
	report->bytes += hoist_buffer_bytes(here);
	int err = 0;
	if (strcmp(hoist_device_spec(cached->device), "cpu") != 0) {
		err = hoist_buffer_copy(here, cached->device, &cached->loaded[cached->n_loaded]);
		cached->n_loaded += err == 0;
		report->n_copies += err == 0;
	}
	hoist_buffer_unref(here);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

static int load_all(struct cached *cached, hoist_load_report *report)
{
	size_t n = hoist_image_n_tensors(cached->image);
	uint64_t total = 0;
	hoist_image_info info = {.size = sizeof info};
	(void)hoist_image_get_info(cached->image, &info);
	total = info.tensor_bytes;
	cached->loaded = calloc(n > 0 ? n : 1, sizeof(hoist_buffer *));
	if (cached->loaded == NULL)
		return fail_memory();
	progress_begin("loading");
	for (size_t i = 0; i < n; i++) {
		int status = load_one(cached, i, report);
		if (status != STATUS_OK)
			return status;
		if (interrupted())
			return fail("cancelled");
		progress_update(report->bytes, total);
	}
	progress_end();
	return STATUS_OK;
}

/* No load runs here, so the report is filled by hand. */
int cached_load(const struct args *args, hoist_load_report *report)
{
	struct cached cached = {.args = args};
	hoist_device_info device = {.size = sizeof device};
	uint64_t start = clock_ns();
	uint64_t start_cpu = clock_ns_of(CLOCK_PROCESS_CPUTIME_ID);
	*report = (hoist_load_report){.size = sizeof *report};
	int err = hoist_device_open(args->device, &cached.device);
	if (err == 0)
		err = hoist_device_get_info(cached.device, &device);
	int status = err != 0 ? fail_call(err) : find_or_add(&cached);
	if (status == STATUS_OK)
		status = selection_of_image(args, cached.image, &cached.selection);
	if (status == STATUS_OK)
		status = load_all(&cached, report);
	report->mapped_bytes = report->n_copies == 0 ? report->bytes : 0;
	report->ns = clock_ns() - start;
	report->work_ns = report->ns;
	report->cpu_ns = clock_ns_of(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
	report->emulated = device.emulated;
	(void)snprintf(report->device, sizeof report->device, "%s",
		       cached.device != NULL ? hoist_device_spec(cached.device) : "");
	(void)snprintf(report->engine, sizeof report->engine, "cache");
	(void)snprintf(report->engine_reason, sizeof report->engine_reason, "%s", "as asked");
	(void)snprintf(report->io_reason, sizeof report->io_reason, "from the cache%s%s%s",
		       cached.was != NULL && cached.was[0] != '\0' ? ": the checkpoint " : "",
		       cached.was != NULL ? cached.was : "",
		       report->n_copies > 0 ? "; copied through pinned staging" : "");
	for (size_t i = 0; i < cached.n_loaded; i++)
		hoist_buffer_unref(cached.loaded[i]);
	free(cached.loaded);
	selection_free(&cached.selection);
	hoist_image_close(cached.image);
	hoist_device_unref(cached.device);
	return status;
}
