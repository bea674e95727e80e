/* SPDX-License-Identifier: MIT */
/* Specs: as values and text, how many devices they need, and which there are. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/compat.h"
#include "tests/support/lib-unit.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void emulate_only(const char *what)
{
	emulate();
	setenv("HOIST_EMULATE", what, 1);
}

static void without_drivers(void)
{
	unsetenv("HOIST_EMULATE");
	setenv("HOIST_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
	setenv("HOIST_HIP_LIBRARY", "/nowhere/libhip.so", 1);
}

/* proves: S1.13 S1.14 V112 */
Test(spec, ids_of_accelerators_begin_at_0)
{
	hoist_spec spec = {77, 77};
	REFUSED(hoist_spec_make(HOIST_SPEC_GPU, -1, &spec), -EINVAL,
		"gpu with id -1; ids begin at 0");
	REFUSED(hoist_spec_make(HOIST_SPEC_CUDA, -2, &spec), -EINVAL, "ids begin at 0");
	REFUSED(hoist_spec_make(-1, 0, &spec), -EINVAL, "type -1");
	REFUSED(hoist_spec_make(4, 0, &spec), -EINVAL, "type 4");
	cr_expect_eq(spec.type, 77);
	OK(hoist_spec_make(HOIST_SPEC_GPU, 0, &spec));
	cr_expect(spec.type == HOIST_SPEC_GPU && spec.id == 0);
	OK(hoist_spec_make(HOIST_SPEC_CPU, -1, &spec));
	cr_expect(spec.type == HOIST_SPEC_CPU && spec.id == -1);
	OK(hoist_spec_parse("cpu", 0, &spec));
	cr_expect(spec.type == HOIST_SPEC_CPU && spec.id == -1);
}

static const struct {
	const char *text;
	int type;
	int id;
} texts[] = {
	{"cpu", HOIST_SPEC_CPU, -1},	{"cpu:0", HOIST_SPEC_CPU, 0},
	{"cpu:99", HOIST_SPEC_CPU, 99}, {"gpu:0", HOIST_SPEC_GPU, 0},
	{"gpu:12", HOIST_SPEC_GPU, 12}, {"cuda:1", HOIST_SPEC_CUDA, 1},
	{"hip:3", HOIST_SPEC_HIP, 3},	{"hip:2147483647", HOIST_SPEC_HIP, INT_MAX},
};

/* proves: S1.14 */
Test(spec, text_goes_in_and_out)
{
	for (size_t i = 0; i < COUNT(texts); i++) {
		char text[HOIST_SPEC_BYTES];
		hoist_spec spec;
		OK(hoist_spec_parse(texts[i].text, 0, &spec));
		cr_expect(spec.type == texts[i].type && spec.id == texts[i].id, "%s",
			  texts[i].text);
		OK(hoist_spec_format(spec, text, sizeof text));
		cr_expect_str_eq(text, texts[i].text);
		memset(text, '?', sizeof text);
		REFUSED(hoist_spec_format(spec, text, strlen(texts[i].text)), -EINVAL,
			"HOIST_SPEC_BYTES suffice");
		cr_expect_eq(text[0], '?');
		OK(hoist_spec_format(spec, text, strlen(texts[i].text) + 1));
	}
	hoist_spec spec = {HOIST_SPEC_GPU, -1};
	REFUSED(hoist_spec_format(spec, NULL, 0), -EINVAL, "ids begin at 0");
	OK(hoist_spec_parse("gpu", 0, &spec));
	cr_expect(spec.type == HOIST_SPEC_GPU && spec.id == 0);
	OK(hoist_spec_parse("cuda:99999999999999999999", 0, &spec));
	cr_expect(spec.type == HOIST_SPEC_CUDA && spec.id == INT_MAX);
}

/* proves: S4.22 */
Test(spec, case_matters_unless_it_is_said_not_to)
{
	static const struct {
		const char *text;
		int type;
		int id;
	} any[] = {{"CPU", HOIST_SPEC_CPU, -1},	   {"CUDA:0", HOIST_SPEC_CUDA, 0},
		   {"GPU", HOIST_SPEC_GPU, 0},	   {"Gpu:2", HOIST_SPEC_GPU, 2},
		   {"cuda:1", HOIST_SPEC_CUDA, 1}, {"HiP:1", HOIST_SPEC_HIP, 1}};
	static const char *const bad[] = {"METAL",   "WEBGPU:0", "CUDA:", "CUDA:x",
					  "CUDA:-1", "",	 "CP",	  "GPU 1"};
	hoist_spec spec;
	for (size_t i = 0; i < COUNT(any); i++) {
		OK(hoist_spec_parse(any[i].text, HOIST_SPEC_ANY_CASE, &spec));
		cr_expect(spec.type == any[i].type && spec.id == any[i].id, "%s", any[i].text);
		if (strcmp(any[i].text, "cuda:1") != 0)
			REFUSED(hoist_spec_parse(any[i].text, 0, &spec), -EINVAL,
				"names no device; say cpu, cuda:N, hip:N or gpu:N");
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		REFUSED(hoist_spec_parse(bad[i], HOIST_SPEC_ANY_CASE, &spec), -EINVAL,
			"names no device");
	REFUSED(hoist_spec_parse(NULL, 0, &spec), -EINVAL, "names no device");
	REFUSED(hoist_spec_parse("cpu", 2, &spec), -EINVAL, "unknown flags 0x2");
}

/* --- how many devices --- */

/* proves: S1.20 V109 V111 */
Test(spec, the_highest_id_says_how_many_devices)
{
	static const struct {
		const char *vector;
		hoist_spec specs[3];
		size_t n;
		int count;
	} cases[] = {
		{"V111 cpu", {{HOIST_SPEC_CPU, -1}}, 1, 1},
		{"cpu:99", {{HOIST_SPEC_CPU, 99}}, 1, 1},
		{"V111 gpu 0", {{HOIST_SPEC_GPU, 0}}, 1, 1},
		{"V111 0 3 5",
		 {{HOIST_SPEC_GPU, 0}, {HOIST_SPEC_GPU, 3}, {HOIST_SPEC_GPU, 5}},
		 3,
		 6},
		{"V111 none", {{0, 0}}, 0, 1},
		{"V109 []", {{0, 0}}, 0, 1},
		{"V109 [0,1,2]",
		 {{HOIST_SPEC_GPU, 0}, {HOIST_SPEC_GPU, 1}, {HOIST_SPEC_GPU, 2}},
		 3,
		 3},
		{"by api", {{HOIST_SPEC_HIP, 1}, {HOIST_SPEC_CPU, 8}, {HOIST_SPEC_CUDA, 0}}, 3, 2},
	};
	int count = 0;
	for (size_t i = 0; i < COUNT(cases); i++) {
		OK(hoist_virtual_count(cases[i].specs, cases[i].n, &count));
		cr_expect_eq(count, cases[i].count, "%s: %d", cases[i].vector, count);
	}
	const hoist_spec bad = {HOIST_SPEC_GPU, -1};
	const hoist_spec last = {HOIST_SPEC_GPU, INT_MAX};
	REFUSED(hoist_virtual_count(&bad, 1, &count), -EINVAL, "ids begin at 0");
	REFUSED(hoist_virtual_count(&last, 1, &count), -EOVERFLOW, "2147483647");
}

static void expect_count(const char *vector, const char *words, int expected)
{
	int count = -7;
	OK(hoist_virtual_count_of(&words, 1, &count));
	cr_expect_eq(count, expected, "%s \"%s\": %d", vector, words, count);
}

/* proves: S1.21 V107 V108 V109 */
Test(spec, words_of_a_command_line_say_how_many)
{
	without_drivers();
	expect_count("V107", "gpu:all", 1);
	expect_count("V108", "gpu:0,3", 4);
	expect_count("V109", "gpu", 1);
	expect_count("V109", "cpu", 1);
	expect_count("ignored", "GPU", 1);
	expect_count("ignored", "default", 1);
	expect_count("ignored", "", 1);
	expect_count("ignored", "cuda:7", 1);
	expect_count("case", "GPU:2", 3);
	expect_count("case", "gPu:AlL", 1);
	expect_count("blanks", "gpu: 1 ,,\t5 , ", 6);
	expect_count("all among them", "gpu:all,2", 3);
	expect_count("nothing", "gpu:", 1);
	expect_count("signs", "gpu:+4,-9", 5);
	expect_count("below 0", "gpu:-9", 1);
	expect_count("underscores", "gpu:1_0", 11);
	expect_count("zeros", "gpu:007", 8);
	static const char *const bad[] = {"gpu:x",  "gpu:1,x", "gpu:1.0",  "gpu:1 2", "gpu:_1",
					  "gpu:1_", "gpu:+",   "gpu:1__0", "gpu:0x1", "gpu:--1"};
	int count = -7;
	for (size_t i = 0; i < COUNT(bad); i++)
		REFUSED(hoist_virtual_count_of(&bad[i], 1, &count), -EINVAL, "is no number");
	static const char *const far[] = {"gpu:2147483647", "gpu:99999999999999999999999"};
	for (size_t i = 0; i < COUNT(far); i++)
		REFUSED(hoist_virtual_count_of(&far[i], 1, &count), -EOVERFLOW,
			"than an int counts");
	static const char *const several[] = {"gpu:1", "cpu", "gpu:4,0", "gpu"};
	OK(hoist_virtual_count_of(several, COUNT(several), &count));
	cr_expect_eq(count, 5);
	OK(hoist_virtual_count_of(NULL, 0, &count));
	cr_expect_eq(count, 1);
	const char *null = NULL;
	REFUSED(hoist_virtual_count_of(&null, 1, &count), -EINVAL, "word 0 of 1 is NULL");
}

/* proves: S1.21 V106 */
Test(spec, all_names_every_gpu_of_the_machine)
{
	emulate_only("cuda:4");
	expect_count("V106", "gpu:all", 4);
	expect_count("V106", "GPU:ALL", 4);
	expect_count("not the machine's", "gpu:1,all", 2);
}

/* --- devices that are there --- */

/* proves: S1.16 S1.18 S1.19 V114 V115 */
Test(spec, without_accelerators_there_is_the_cpu)
{
	without_drivers();
	hoist_spec specs[2] = {{77, 77}, {77, 77}};
	const hoist_spec gpu = {HOIST_SPEC_GPU, 0}, cpu = {HOIST_SPEC_CPU, 99};
	const char *text = NULL;
	size_t n = 0;
	int yes = -1;
	OK(hoist_spec_scan(0, specs, 2, &n));
	cr_expect(n == 1 && specs[0].type == HOIST_SPEC_CPU && specs[0].id == -1, "V114");
	cr_expect_eq(specs[1].type, 77);
	OK(hoist_spec_scan(HOIST_SCAN_CPU, NULL, 0, &n));
	cr_expect_eq(n, 1);
	OK(hoist_spec_exist(&cpu, 1, &yes));
	cr_expect_eq(yes, 1, "V115 cpu:99");
	OK(hoist_spec_exist(&gpu, 1, &yes));
	cr_expect_eq(yes, 0, "V115 gpu:0");
	OK(hoist_spec_exist(NULL, 0, &yes));
	cr_expect_eq(yes, 1, "V115 none");
	OK(hoist_accelerator_count(&yes));
	cr_expect_eq(yes, 0);
	OK(hoist_accelerator_api(&text));
	cr_expect_str_eq(text, "cpu");
	REFUSED(hoist_accelerator_architecture(&text), -ENODEV, "neither API has a device");
	hoist_device *device = NULL;
	REFUSED(hoist_spec_open(&gpu, 1, &device), -ENODEV, "\"gpu:0\": neither API has a device");
	cr_expect_null(device);
}

/* proves: S1.16 S1.17 S1.18 S1.19 V114 */
Test(spec, with_accelerators_they_are_all_there_is)
{
	emulate_only("cuda:2,hip:1");
	hoist_spec specs[4] = {{77, 77}, {77, 77}, {77, 77}, {77, 77}};
	const char *text = NULL;
	size_t n = 0;
	int yes = -1;
	OK(hoist_spec_scan(0, specs, 4, &n));
	cr_expect_eq(n, 2, "V114");
	for (int i = 0; i < 2; i++)
		cr_expect(specs[i].type == HOIST_SPEC_GPU && specs[i].id == i);
	cr_expect_eq(specs[2].type, 77);
	OK(hoist_spec_exist(specs, 2, &yes));
	cr_expect_eq(yes, 1);
	OK(hoist_spec_scan(HOIST_SCAN_CPU, specs, 2, &n));
	cr_expect_eq(n, 3);
	cr_expect(specs[0].type == HOIST_SPEC_CPU && specs[0].id == -1);
	cr_expect(specs[1].type == HOIST_SPEC_GPU && specs[1].id == 0);
	REFUSED(hoist_spec_scan(2, NULL, 0, &n), -EINVAL, "unknown flags 0x2");
	static const hoist_spec some[] = {
		{HOIST_SPEC_CUDA, 1}, {HOIST_SPEC_HIP, 0}, {HOIST_SPEC_HIP, 1}};
	OK(hoist_spec_exist(some, 2, &yes));
	cr_expect_eq(yes, 1);
	OK(hoist_spec_exist(some, 3, &yes));
	cr_expect_eq(yes, 0);
	const hoist_spec bad = {HOIST_SPEC_GPU, -1};
	REFUSED(hoist_spec_exist(&bad, 1, &yes), -EINVAL, "ids begin at 0");
	OK(hoist_accelerator_count(&yes));
	cr_expect_eq(yes, 2);
	OK(hoist_accelerator_api(&text));
	cr_expect_str_eq(text, "cuda");
	OK(hoist_accelerator_architecture(&text));
	cr_expect_str_eq(text, "sm_90");
}

/* proves: S1.15 V099 */
Test(spec, are_opened_in_their_order)
{
	emulate_only("cuda:2");
	static const hoist_spec specs[] = {{HOIST_SPEC_CPU, 99},
					   {HOIST_SPEC_GPU, 0},
					   {HOIST_SPEC_CUDA, 1},
					   {HOIST_SPEC_CPU, -1}};
	static const char *const names[] = {"cpu", "cuda:0", "cuda:1", "cpu"};
	hoist_device *opened[COUNT(specs)] = {NULL};
	OK(hoist_spec_open(specs, COUNT(specs), opened));
	for (size_t i = 0; i < COUNT(specs); i++) {
		cr_expect_str_eq(hoist_device_spec(opened[i]), names[i]);
		hoist_device_info info = device_info_of(opened[i]);
		cr_expect(i == 2 || info.id == 0, "the CPU's id is always 0");
		hoist_device_unref(opened[i]);
	}
	cr_expect_eq(opened[0], opened[3]);
	OK(hoist_spec_open(NULL, 0, NULL));
	static const hoist_spec bad[] = {
		{HOIST_SPEC_GPU, 1}, {HOIST_SPEC_GPU, 7}, {HOIST_SPEC_GPU, -1}};
	hoist_device *none[3] = {NULL};
	REFUSED(hoist_spec_open(bad, 3, none), -EINVAL,
		"spec 2 of 3: \"gpu:7\": this machine has 2 emulated CUDA devices; say cuda:0 to "
		"cuda:1");
	REFUSED(hoist_spec_open(&bad[2], 1, none), -EINVAL, "ids begin at 0");
	cr_expect_null(none[0]);
}

Test(spec, a_malformed_environment_is_no_empty_machine)
{
	emulate_only("cuda:none");
	size_t n = 77;
	int count = 77;
	REFUSED(hoist_spec_scan(0, NULL, 0, &n), -EINVAL, "HOIST_EMULATE=cuda:none");
	REFUSED(hoist_accelerator_count(&count), -EINVAL, "HOIST_EMULATE=cuda:none");
	cr_expect(n == 77 && count == 77);
}
