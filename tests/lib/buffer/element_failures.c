/* SPDX-License-Identifier: MIT */
/* Every allocation and every driver call of reading, writing and printing elements fails once, in
 * turn: what was asked for is right or an error, and nothing is left over. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/element.h"
#include "hoist/hoist.h"
#include "hoist/number.h"
#include "tests/support/lib-failing.h"
#include "tests/support/lib-support.h"

#define MANY 1000

struct scenario {
	hoist_device *devices[LIB_N_DEVICES];
	hoist_buffer *one, *many;
	hoist_number item, element;
	char text[256];
};

static const char expected[] =
	"hoist.Buffer([0.0, 0.0, 0.0, 1.5], dtype=f4_e2m1fn, shape=(4,), device=cuda:1)";

static int run(struct scenario *s)
{
	const int64_t shape[] = {4}, last = -1;
	int err = hoist_buffer_scalar(hoist_number_i64(5), HOIST_I32, s->devices[1], &s->one);
	if (err == 0)
		err = hoist_buffer_item(s->one, &s->item);
	if (err == 0)
		err = hoist_buffer_create(s->devices[2], HOIST_F4_E2M1FN, 1, shape,
					  HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO, &s->many);
	if (err == 0)
		err = hoist_buffer_set(s->many, 1, &last, hoist_number_f64(1.5), 0);
	if (err == 0)
		err = hoist_buffer_get(s->many, 1, &last, &s->element);
	if (err < 0)
		return err;
	int64_t n = hoist_buffer_describe(s->many, HOIST_DESCRIBE_VALUES, s->text, sizeof s->text);
	return n < 0 ? (int)n : 0;
}

static void drop(struct scenario *s)
{
	hoist_buffer_unref(s->one);
	hoist_buffer_unref(s->many);
	s->one = NULL;
	s->many = NULL;
}

static void run_once(struct scenario *s, const char *what, unsigned long n)
{
	s->item = s->element = hoist_number_bool(1);
	s->text[0] = '\0';
	int err = run(s);
	if (err != 0 && !lib_is_failure(err))
		lib_die("%s %lu: an unexpected error, %d", what, n, err);
	if (err != 0 && hoist_error()[0] == '\0')
		lib_die("%s %lu: no text", what, n);
	if (err != 0 && s->text[0] != '\0')
		lib_die("%s %lu: failed, and wrote %s", what, n, s->text);
	if (err == 0 && (s->item.as.i64 != 5 || s->element.as.f64 != 1.5))
		lib_die("%s %lu: wrong numbers", what, n);
	if (err == 0 && strcmp(s->text, expected) != 0)
		lib_die("%s %lu: %s", what, n, s->text);
	drop(s);
}

static void must_work(struct scenario *s, const char *what, unsigned long n)
{
	int err = run(s);
	if (err != 0 || strcmp(s->text, expected) != 0)
		lib_die("after %s %lu: does not work any more: %d", what, n, err);
	drop(s);
	if (!lib_nothing_outstanding(s->devices) || !lib_drivers_content())
		lib_die("after %s %lu: something is left", what, n);
}

static int open_devices(struct scenario *s)
{
	int err = 0;
	for (int i = 0; err == 0 && i < LIB_N_DEVICES; i++)
		err = hoist_device_open(lib_specs[i], &s->devices[i]);
	return err;
}

static void run_alone(unsigned long n)
{
	static struct scenario s;
	lib_fail_allocation(n);
	int err = open_devices(&s);
	if (err == 0)
		run_once(&s, "allocation", n);
	else if (!lib_is_failure(err))
		lib_die("allocation %lu: opening: %d", n, err);
	lib_fail_allocation(0);
	if (err == 0 || open_devices(&s) == 0)
		must_work(&s, "allocation", n);
}

static void sweep_driver(struct scenario *s)
{
	unsigned long n = 1;
	for (bool struck = true; struck; n++) {
		char fault[32];
		(void)snprintf(fault, sizeof fault, "any:%lu", n);
		if (lib_fail("cuda", fault) != 0)
			lib_die("%s is not understood", fault);
		uint64_t before = lib_counters("cuda").injected_failures;
		run_once(s, fault, n);
		struck = lib_counters("cuda").injected_failures != before;
		if (!lib_nothing_outstanding(s->devices) || !lib_drivers_content())
			lib_die("%s: something is left", fault);
		lib_reset("cuda");
		must_work(s, fault, n);
		if (n == MANY)
			lib_die("the driver's sweep does not end");
	}
	if (n < 10)
		lib_die("the driver's sweep ended at %lu", n);
	printf("%lu driver calls failed in turn\n", n - 1);
}

int main(void)
{
	static struct scenario s;
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	(void)fflush(stdout);
	lib_sweep_allocations(run_alone, MANY);
	if (open_devices(&s) != 0)
		lib_die("opening the devices");
	must_work(&s, "nothing", 0);
	sweep_driver(&s);
	for (int i = 0; i < LIB_N_DEVICES; i++)
		hoist_device_unref(s.devices[i]);
	return 0;
}
