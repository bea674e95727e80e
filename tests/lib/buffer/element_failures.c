/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): elements are read, written and printed.
 * Each answer is right or an error. */
#include "config.h"

#include <string.h>

#include "hoist/element.h"
#include "hoist/hoist.h"
#include "hoist/number.h"
#include "tests/faults/sweep.h"

static const char expected[] =
	"hoist.Buffer([0.0, 0.0, 0.0, 1.5], dtype=f4_e2m1fn, shape=(4,), device=cuda:1)";

static void look(int err, hoist_number item, hoist_number element, const char *text)
{
	if (err != 0 && text[0] != '\0')
		sweep_wrong("failed, and wrote %s", text);
	if (err == 0 && (item.as.i64 != 5 || element.as.f64 != 1.5))
		sweep_wrong("wrong numbers");
	if (err == 0 && strcmp(text, expected) != 0)
		sweep_wrong("%s", text);
}

static int elements(void)
{
	const int64_t shape[] = {4}, last = -1;
	hoist_buffer *one = NULL, *many = NULL;
	hoist_number item = hoist_number_bool(1), element = item;
	char text[256] = "";
	int err = sweep_open_devices();
	STEP(err, hoist_buffer_scalar(hoist_number_i64(5), HOIST_I32, sweep_devices[1], &one));
	STEP(err, hoist_buffer_item(one, &item));
	STEP(err, hoist_buffer_create(sweep_devices[2], HOIST_F4_E2M1FN, 1, shape,
				      HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO, &many));
	STEP(err, hoist_buffer_set(many, 1, &last, hoist_number_f64(1.5), 0));
	STEP(err, hoist_buffer_get(many, 1, &last, &element));
	int64_t n = 0;
	if (err == 0)
		n = hoist_buffer_describe(many, HOIST_DESCRIBE_VALUES, text, sizeof text);
	if (n < 0)
		err = (int)n;
	look(err, item, element, text);
	hoist_buffer_unref(one);
	hoist_buffer_unref(many);
	return err;
}

const struct sweep_scenario sweep_lib_element[] = {
	{.name = "lib-element",
	 .api = "cuda",
	 .kinds = SWEEP_COLD(SWEEP_OWN) | SWEEP_WARM(SWEEP_DRIVER),
	 .run = elements,
	 .check = sweep_check_devices,
	 .tries_again = true},
	{.name = NULL},
};
