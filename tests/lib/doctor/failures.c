/* SPDX-License-Identifier: MIT */
/* Every allocation of hoist's own that the doctor's probe makes fails once, in turn: it then says
 * why there is no advice, and leaves nothing open. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/doctor.h"
#include "io/file.h"
#include "lib/doctor/doctor.h"
#include "tests/support/count.h"
#include "tests/support/lib-failing.h"

#define BYTES ((off_t)40 << 20)

static struct hoist__file *file;

/* True if there is advice; exactly one of the two texts is there in any case. */
static bool probe(unsigned long n)
{
	struct hoist_doctor *doctor = calloc(1, sizeof *doctor);
	if (doctor == NULL)
		lib_die("no memory");
	lib_fail_allocation(n);
	hoist__doctor_probe(doctor, "it", file);
	lib_fail_allocation(0);
	bool advised = doctor->advice.text[0] != '\0';
	if (advised == (doctor->advice.skipped[0] != '\0'))
		lib_die("allocation %lu: advice '%s', skipped '%s'", n, doctor->advice.text,
			doctor->advice.skipped);
	if (!advised && (doctor->advice.chunk_bytes != 0 || doctor->advice.direct_rate > 0))
		lib_die("allocation %lu: figures without advice", n);
	if (doctor->advice.bytes > (uint64_t)256 << 20)
		lib_die("allocation %lu: %llu bytes were read", n,
			(unsigned long long)doctor->advice.bytes);
	free(doctor);
	return advised;
}

static void scenario(unsigned long n)
{
	unsigned before = count_entries("/proc/self/fd");
	(void)probe(n);
	if (count_entries("/proc/self/fd") != before)
		lib_die("allocation %lu: %u descriptors more", n,
			count_entries("/proc/self/fd") - before);
	if (!probe(0))
		lib_die("after allocation %lu: no advice any more", n);
}

int main(void)
{
	const char *folder = getenv("TMPDIR");
	char path[512];
	(void)snprintf(path, sizeof path, "%s/doctor.XXXXXX", folder != NULL ? folder : "/tmp");
	int fd = mkstemp(path);
	if (fd < 0 || ftruncate(fd, BYTES) != 0) /* a hole is read at once */
		lib_die("%s cannot be made", path);
	int err = hoist__file_open(AT_FDCWD, path, NULL, 0, &file);
	(void)unlink(path);
	(void)close(fd);
	if (err != 0)
		lib_die("%s cannot be opened", path);
	if (file->direct_fd < 0) {
		(void)puts("skipped: no direct reads here, and so little that could fail");
		return 77;
	}
	lib_sweep_allocations(scenario, 500);
	hoist__file_close(file);
	return 0;
}
