/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): the doctor's probe.  After a failure it
 * says why there is no advice. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "hoist/doctor.h"
#include "io/file.h"
#include "lib/doctor/doctor.h"
#include "tests/faults/sweep.h"

#define BYTES ((off_t)40 << 20)

static struct hoist__file *file;

/* False: no direct reads here, and so little that could fail. */
static bool open_file(void)
{
	const char *path = sweep_path("probed");
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, BYTES) != 0) /* a hole is read at once */
		sweep_die("%s cannot be made", path);
	(void)close(fd);
	if (hoist__file_open(AT_FDCWD, path, NULL, 0, &file) != 0)
		sweep_die("%s cannot be opened", path);
	(void)unlink(path);
	return file->direct_fd >= 0;
}

/* Exactly one of the two texts is there in any case. */
static int the_doctor_probes(void)
{
	static struct hoist_doctor doctor;
	doctor = (struct hoist_doctor){.n_checks = 0};
	hoist__doctor_probe(&doctor, "it", file);
	const struct hoist__advice *advice = &doctor.advice;
	bool advised = advice->text[0] != '\0';
	if (advised == (advice->skipped[0] != '\0'))
		sweep_wrong("advice '%s', skipped '%s'", advice->text, advice->skipped);
	if (!advised && (advice->chunk_bytes != 0 || advice->direct_rate > 0))
		sweep_wrong("figures without advice");
	if (advice->bytes > (uint64_t)256 << 20)
		sweep_wrong("%llu bytes were read", (unsigned long long)advice->bytes);
	return advised ? 0 : -ENOMEM;
}

const struct sweep_scenario sweep_lib_doctor[] = {
	{.name = "lib-doctor",
	 .kinds = SWEEP_COLD(SWEEP_OWN),
	 .set_up = open_file,
	 .run = the_doctor_probes,
	 .has_texts = true},
	{.name = NULL},
};
