/* SPDX-License-Identifier: MIT */
/* tools/cmd-devices.c - hoist devices: the CPU and every accelerator that a driver offers.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <hoist/device.h>

#include "tools/args.h"
#include "cli/format.h"
#include "cli/json.h"

static const char *const apis[] = {"cpu", "cuda", "hip"};

#define N_APIS (sizeof apis / sizeof apis[0])

/* Collects the rows: prints them as a table, or (json) puts them into arrays. */
struct listing {
	json_t *devices; /* NULL: print the table */
	json_t *missing;
};

/* A device that cannot tell its free memory (it fails, or another process has exclusive use of it)
 * is listed all the same. */
struct row {
	hoist_device_info info;
	const char *spec;
	bool free_known;
	uint64_t free_bytes;
};

static int append(json_t *array, json_t *value)
{
	return json_array_append_new(array, value) == 0 ? STATUS_OK : fail_memory();
}

static int add_json(struct listing *listing, const struct row *row)
{
	const hoist_device_info *info = &row->info;
	return append(listing->devices,
		      json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:b, s:o, s:o}", "spec",
				json_text(row->spec), "api", json_text(info->api), "name",
				json_text(info->name), "architecture",
				json_text(info->architecture), "pci", json_text(info->pci),
				"total_memory", json_count(info->total_memory), "free_memory",
				row->free_known ? json_count(row->free_bytes) : json_null(),
				"numa_node", info->numa_node, "emulated", info->emulated, "library",
				json_text(info->library), "library_reason",
				json_text(info->library_reason)));
}

static void add_line(const struct row *row)
{
	struct text total, free_text;
	char node[16] = "-";
	if (row->info.numa_node >= 0)
		(void)snprintf(node, sizeof node, "%d", row->info.numa_node);
	(void)printf("%-8s  %-12s  %9s  %9s  %4s  ", row->spec, row->info.architecture,
		     format_bytes(row->info.total_memory, &total),
		     row->free_known ? format_bytes(row->free_bytes, &free_text) : "?", node);
	print_escaped(stdout, row->info.name);
	(void)printf("%s\n", row->info.emulated ? " (emulated)" : "");
}

/* Prints one line for all devices of an API. */
static void add_library(const hoist_device_info *info)
{
	(void)printf("%s devices by ", info->api);
	print_escaped(stdout, info->library);
	(void)printf(" (%s)\n", info->library_reason);
}

static int add_device(struct listing *listing, const char *api, int id, bool last)
{
	char spec[32];
	hoist_device *device = NULL;
	(void)snprintf(spec, sizeof spec, "%s:%d", api, id);
	if (hoist_device_open(id == 0 ? api : spec, &device) != 0)
		return fail_library();
	struct row row = {.info = {.size = sizeof row.info}, .spec = hoist_device_spec(device)};
	uint64_t total = 0;
	int status = STATUS_OK;
	if (hoist_device_get_info(device, &row.info) != 0) {
		status = fail_library();
	} else {
		row.free_known = hoist_device_memory(device, &row.free_bytes, &total) == 0;
		if (listing->devices != NULL)
			status = add_json(listing, &row);
		else
			add_line(&row);
		if (listing->devices == NULL && last && row.info.library[0] != '\0')
			add_library(&row.info);
	}
	hoist_device_unref(device);
	return status;
}

static int add_missing(struct listing *listing, const char *api)
{
	if (listing->devices != NULL)
		return append(listing->missing, json_pack("{s:s, s:o}", "api", api, "reason",
							  json_text(hoist_error())));
	const char *reason = hoist_error();
	size_t length = strlen(api);
	if (strncasecmp(reason, api, length) == 0 && strncmp(reason + length, ": ", 2) == 0)
		reason += length + 2; /* skips the repeated "CUDA: " */
	(void)printf("no %s device: ", api);
	print_escaped(stdout, reason);
	(void)putchar('\n');
	return STATUS_OK;
}

static int add_api(struct listing *listing, const char *api)
{
	int n = 0;
	if (hoist_device_count(api, &n) != 0)
		return add_missing(listing, api);
	int status = STATUS_OK;
	for (int id = 0; id < n && status == STATUS_OK; id++)
		status = add_device(listing, api, id, id == n - 1);
	return status;
}

int cmd_devices(const struct args *args)
{
	struct listing listing = {0};
	if (args->json) {
		listing.devices = json_array();
		listing.missing = json_array();
		if (listing.devices == NULL || listing.missing == NULL) {
			json_decref(listing.devices);
			json_decref(listing.missing);
			return fail_memory();
		}
	} else {
		(void)printf("%-8s  %-12s  %9s  %9s  %4s  %s\n", "DEVICE", "ARCHITECTURE", "MEMORY",
			     "FREE", "NODE", "NAME");
	}
	int status = STATUS_OK;
	for (size_t i = 0; i < N_APIS && status == STATUS_OK; i++)
		status = add_api(&listing, apis[i]);
	if (!args->json)
		return status;
	if (status == STATUS_OK)
		return json_print(json_pack("{s:o, s:o}", "devices", listing.devices, "missing",
					    listing.missing),
				  true);
	json_decref(listing.devices);
	json_decref(listing.missing);
	return status;
}
