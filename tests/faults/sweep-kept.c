/* SPDX-License-Identifier: MIT */
/* Copies of this program and of the stand-in drivers, so that a build does the sweep no harm. */
#include "config.h"

#include "tests/faults/sweep.h"
#include "tests/support/keep-programs.h"

#include <elf.h>
#include <sys/stat.h>

long sweep_driver_kib;

/* The bytes of addresses that a library takes, once it is loaded. */
static long library_kib(const char *path)
{
	Elf64_Ehdr head;
	Elf64_Phdr part;
	uint64_t end = 0;
	FILE *file = fopen(path, "re");
	if (file == NULL || fread(&head, sizeof head, 1, file) != 1 ||
	    fseek(file, (long)head.e_phoff, SEEK_SET) != 0)
		sweep_die("%s", path);
	for (unsigned i = 0; i < head.e_phnum; i++) {
		if (fread(&part, sizeof part, 1, file) != 1)
			sweep_die("%s", path);
		if (part.p_type == PT_LOAD && part.p_vaddr + part.p_memsz > end)
			end = part.p_vaddr + part.p_memsz;
	}
	(void)fclose(file);
	return (long)((end + 4095) / 4096 * 4);
}

/* The larger of the two: either may be the one that could not be mapped. */
static void measure_drivers(const char *folder)
{
	static const char *const apis[] = {"cuda", "hip"};
	char path[4096];
	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof path, "%s/libhoist-emulated-%s.so", folder, apis[i]);
		long kib = library_kib(path);
		if (kib > sweep_driver_kib)
			sweep_driver_kib = kib;
	}
}

void sweep_keep_programs(void)
{
	char text[4096];
	const char *folder = sweep_path("kept");
	const char *options = getenv("ASAN_OPTIONS");
	if (mkdir(folder, 0700) < 0)
		sweep_die("%s", folder);
	keep_programs(folder, "holder");
	measure_drivers(folder);
	/* A search for leaks makes calls of its own, which would fail. */
	(void)snprintf(text, sizeof text, "%s:detect_leaks=0", options != NULL ? options : "");
	if (SWEEP_SANITIZED && setenv("ASAN_OPTIONS", text, 1) < 0)
		sweep_die("the environment");
}
