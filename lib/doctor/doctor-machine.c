/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-machine.c - examines io_uring, memory and its limits, huge pages.
 * The contract is in lib/doctor/doctor.h. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/figure.h"
#include "device/device.h"
#include "hoist/doctor.h"
#include "hoist/load.h"
#include "io/engine.h"
#include "lib/doctor/doctor.h"
#include "numa/group.h"

/* Reads the first line of a small file; "" if the file cannot be read. */
static void read_line(const char *path, char *line, size_t bytes)
{
	line[0] = '\0';
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t n = read(fd, line, bytes - 1);
	(void)close(fd);
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
}

static int check_uring(hoist_doctor *doctor)
{
	char note[256] = "";
	int err = hoist__uring_probe(note, sizeof note);
	if (err == -ENOMEM)
		return hoist__doctor_error(doctor, "io_uring",
					   "raise RLIMIT_MEMLOCK (see locked memory), or free "
					   "memory; until then threads read, at a higher CPU cost");
	if (err < 0)
		return hoist__doctor_error(
			doctor, "io_uring",
			"allow io_uring_setup, io_uring_enter and io_uring_register in the "
			"container's seccomp profile, set sysctl kernel.io_uring_disabled=0, or "
			"use Linux 5.6 or newer; until then threads read, at a higher CPU cost");
	return hoist__doctor_yes(doctor, "io_uring", "%s", note[0] != '\0' ? note : "a ring works");
}

/* A control group may allow less than the machine has: the smaller figure decides. */
static int check_memory(hoist_doctor *doctor)
{
	struct hoist__dev *cpu = NULL;
	uint64_t available = 0;
	uint64_t total = 0;
	static const char remedy[] = "end other programs, or give the container more memory";
	if (hoist__dev_get(HOIST__API_CPU, 0, &cpu) < 0 ||
	    hoist__dev_mem_info(cpu, &available, &total) < 0)
		return hoist__doctor_error(doctor, "memory", "mount /proc; loading works without");
	struct hoist__group group;
	char limit[128] = "";
	if (hoist__group_look("", &group) == 0 && group.limit_bytes < total) {
		(void)snprintf(limit, sizeof limit,
			       "; this control group may use %s, and has %s of that left",
			       hoist__figure(group.limit_bytes).text,
			       hoist__figure(group.left_bytes).text);
		available = hoist__min_u64(available, group.left_bytes);
	}
	if (available < 2 * HOIST_BUDGET_DEFAULT)
		return hoist__doctor_no(doctor, "memory", remedy, "only %s of %s are available%s",
					hoist__figure(available).text, hoist__figure(total).text,
					limit);
	return hoist__doctor_yes(doctor, "memory", "%s of %s are available%s",
				 hoist__figure(available).text, hoist__figure(total).text, limit);
}

/* Pages are locked only when touched, so that testing the limit costs nothing. */
bool hoist__doctor_can_lock(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	bool locked = mlock2(memory, bytes, MLOCK_ONFAULT) == 0;
	(void)munmap(memory, bytes);
	return locked;
}

static int check_locked_memory(hoist_doctor *doctor)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	struct hoist__figure allowed = hoist__figure(limit.rlim_cur);
	const char *text = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : allowed.text;
	if (hoist__doctor_can_lock(HOIST_BUDGET_DEFAULT))
		return hoist__doctor_yes(doctor, "locked memory",
					 "%s can be locked (RLIMIT_MEMLOCK: %s)",
					 hoist__figure(HOIST_BUDGET_DEFAULT).text, text);
	return hoist__doctor_no(
		doctor, "locked memory",
		"`ulimit -l unlimited`, LimitMEMLOCK=infinity for a service, `docker run --ulimit "
		"memlock=-1`",
		"the default staging budget, %s, cannot be locked: RLIMIT_MEMLOCK is %s",
		hoist__figure(HOIST_BUDGET_DEFAULT).text, text);
}

static int check_thp(hoist_doctor *doctor)
{
	static const char name[] = "transparent pages";
	static const char file[] = "/sys/kernel/mm/transparent_hugepage/enabled";
	char line[64];
	read_line(file, line, sizeof line);
	if (strstr(line, "[always]") != NULL || strstr(line, "[madvise]") != NULL)
		return hoist__doctor_yes(doctor, name, "large pages on request: %s", line);
	if (line[0] == '\0')
		return hoist__doctor_no(doctor, name,
					"use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
					"this kernel has no transparent huge pages");
	return hoist__doctor_no(
		doctor, name, "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
		"switched off: %s is %s; direct reads are slower without", file, line);
}

int hoist__doctor_machine(hoist_doctor *doctor)
{
	static int (*const checks[])(hoist_doctor *) = {
		check_uring,
		check_memory,
		check_locked_memory,
		check_thp,
	};
	int err = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(checks) && err == 0; i++)
		err = checks[i](doctor);
	return err;
}
