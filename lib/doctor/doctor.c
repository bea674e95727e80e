/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor.c - collects the findings, and runs the examinations in order.
 * The contract is in hoist/doctor.h and lib/doctor/doctor.h. */
#include "config.h"

#include "hoist/doctor.h"
#include "lib/core/options.h"
#include "lib/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes over @detail; NULL means that there was no memory for it. */
static int add(hoist_doctor *doctor, const char *name, bool ok, char *detail, const char *remedy)
{
	char *remedy_copy = strdup(remedy);
	struct hoist__check *checks = NULL;
	if (detail != NULL && remedy_copy != NULL)
		checks = reallocarray(doctor->checks, doctor->n_checks + 1, sizeof *checks);
	if (checks == NULL) {
		free(detail);
		free(remedy_copy);
		return hoist__fail_nomem("the doctor's findings", sizeof *checks);
	}
	struct hoist__check *check = &checks[doctor->n_checks++];
	*check = (struct hoist__check){.ok = ok, .detail = detail, .remedy = remedy_copy};
	(void)snprintf(check->name, sizeof check->name, "%s", name);
	doctor->checks = checks;
	return 0;
}

static char *HOIST__PRINTF(1, 0) format_detail(const char *format, va_list arguments)
{
	char *detail = NULL;
	return vasprintf(&detail, format, arguments) < 0 ? NULL : detail;
}

int hoist__doctor_yes(hoist_doctor *doctor, const char *name, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *detail = format_detail(format, arguments);
	va_end(arguments);
	return add(doctor, name, true, detail, "");
}

int hoist__doctor_no(hoist_doctor *doctor, const char *name, const char *remedy, const char *format,
		     ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *detail = format_detail(format, arguments);
	va_end(arguments);
	return add(doctor, name, false, detail, remedy);
}

int hoist__doctor_error(hoist_doctor *doctor, const char *name, const char *remedy)
{
	const char *text = hoist__error_text();
	const char *separator = strstr(text, "; ");
	size_t length = separator != NULL ? (size_t)(separator - text) : strlen(text);
	char *detail = strndup(text, length);
	return add(doctor, name, false, detail, separator != NULL ? separator + 2 : remedy);
}

int hoist_doctor_create(const char *path, hoist_doctor **ret)
{
	hoist_doctor *doctor = calloc(1, sizeof *doctor);
	if (doctor == NULL)
		return hoist__fail_nomem("a doctor", sizeof *doctor);
	int err = hoist__doctor_path(doctor, path != NULL ? path : ".");
	if (err == 0)
		err = hoist__doctor_machine(doctor);
	if (err == 0)
		err = hoist__doctor_numa(doctor, "/sys");
	if (err == 0)
		err = hoist__doctor_devices(doctor);
	if (err == 0)
		err = hoist__doctor_network(doctor);
	doctor->path = NULL;
	if (err < 0) {
		hoist_doctor_destroy(doctor);
		return err;
	}
	*ret = doctor;
	return 0;
}

void hoist_doctor_destroy(hoist_doctor *doctor)
{
	if (doctor == NULL)
		return;
	for (size_t i = 0; i < doctor->n_checks; i++) {
		free(doctor->checks[i].detail);
		free(doctor->checks[i].remedy);
	}
	free(doctor->checks);
	free(doctor);
}

int hoist_doctor_advice(const hoist_doctor *doctor, hoist_advice *ret)
{
	const struct hoist__advice *advice = &doctor->advice;
	const hoist_advice full = {
		.size = sizeof full,
		.text = advice->text,
		.skipped = advice->skipped,
		.io = advice->io,
		.chunk_bytes = advice->chunk_bytes,
		.depth = advice->depth,
		.direct_rate = advice->direct_rate,
		.cached_rate = advice->cached_rate,
		.hot_rate = advice->hot_rate,
		.huge_pages = advice->huge_pages,
		.huge_gain = advice->huge_gain,
		.bytes = advice->bytes,
	};
	return hoist__options_out("hoist_advice", ret, &full, sizeof full);
}

size_t hoist_doctor_n_checks(const hoist_doctor *doctor)
{
	return doctor->n_checks;
}

int hoist_doctor_check(const hoist_doctor *doctor, size_t index, hoist_check_info *info)
{
	if (index >= doctor->n_checks)
		return hoist__fail(-EINVAL, "check %zu: the doctor made %zu", index,
				   doctor->n_checks);
	const struct hoist__check *check = &doctor->checks[index];
	hoist_check_info full = {
		.size = sizeof full,
		.name = check->name,
		.ok = check->ok,
		.detail = check->detail,
		.remedy = check->remedy,
	};
	return hoist__options_out("hoist_check_info", info, &full, sizeof full);
}
