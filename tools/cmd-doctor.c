/* SPDX-License-Identifier: MIT */
/* tools/cmd-doctor.c - hoist doctor: the things that work here, the things that do not, and the
 * remedies.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>

#include <hoist/doctor.h>

#include "tools/args.h"
#include "cli/format.h"
#include "cli/json.h"

#define NAME_WIDTH 20

static int print_table(const hoist_doctor *doctor)
{
	hoist_check_info check = {.size = sizeof check};
	size_t n_failed = 0;
	for (size_t i = 0; hoist_doctor_check(doctor, i, &check) == 0; i++) {
		(void)printf("%-*s  %-3s  ", NAME_WIDTH, check.name, check.ok ? "yes" : "no");
		print_escaped(stdout, check.detail);
		if (check.remedy[0] != '\0') {
			(void)printf("\n%*s  ->   ", NAME_WIDTH, "");
			print_escaped(stdout, check.remedy);
		}
		(void)putchar('\n');
		n_failed += !check.ok;
	}
	hoist_advice advice = {.size = sizeof advice};
	if (hoist_doctor_advice(doctor, &advice) != 0)
		return fail_library();
	bool skipped = advice.skipped[0] != '\0';
	(void)printf("%-*s  %-3s  ", NAME_WIDTH, "recommended", skipped ? "-" : "");
	print_escaped(stdout, skipped ? advice.skipped : advice.text);
	(void)putchar('\n');
	if (n_failed == 0)
		(void)printf("\neverything works here\n");
	else
		(void)printf("\n%zu of %zu findings say no; hoist works all the same, but more "
			     "slowly, or without the device that a finding names\n",
			     n_failed, hoist_doctor_n_checks(doctor));
	return STATUS_OK;
}

static json_t *recommend_json(const hoist_doctor *doctor)
{
	hoist_advice advice = {.size = sizeof advice};
	if (hoist_doctor_advice(doctor, &advice) != 0)
		return NULL;
	return json_pack("{s:o, s:o, s:s, s:o, s:i, s:f, s:f, s:f, s:b, s:f, s:o}", "text",
			 json_text(advice.text), "skipped", json_text(advice.skipped), "io",
			 advice.io == HOIST_IO_CACHED ? "cached" : "auto", "chunk_bytes",
			 json_count(advice.chunk_bytes), "depth", (int)advice.depth,
			 "direct_gb_per_s", advice.direct_rate / 1e9, "cached_gb_per_s",
			 advice.cached_rate / 1e9, "hot_gb_per_s", advice.hot_rate / 1e9,
			 "huge_pages", advice.huge_pages, "huge_gain", advice.huge_gain, "bytes",
			 json_count(advice.bytes));
}

static int print_json(const hoist_doctor *doctor)
{
	json_t *checks = json_array();
	hoist_check_info check = {.size = sizeof check};
	for (size_t i = 0; hoist_doctor_check(doctor, i, &check) == 0; i++) {
		json_t *row = json_pack("{s:o, s:b, s:o, s:o}", "name", json_text(check.name), "ok",
					check.ok, "detail", json_text(check.detail), "remedy",
					json_text(check.remedy));
		if (json_array_append_new(checks, row) != 0) {
			json_decref(checks);
			return fail_memory();
		}
	}
	json_t *recommend = recommend_json(doctor);
	return json_print(json_pack("{s:o, s:o}", "checks", checks, "recommend", recommend), true);
}

int cmd_doctor(const struct args *args)
{
	hoist_doctor *doctor = NULL;
	if (hoist_doctor_create(args->operands[0], &doctor) != 0)
		return fail_library();
	int status = args->json ? print_json(doctor) : print_table(doctor);
	hoist_doctor_destroy(doctor);
	return status;
}
