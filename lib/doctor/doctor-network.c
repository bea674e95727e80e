/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-network.c - examines what carries bytes between machines.
 * The contract is in lib/doctor/doctor.h. */
#include "config.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hoist/doctor.h"
#include "lib/doctor/doctor.h"
#include "net/fabric.h"

#define NAME "across machines"

/* Before this version a peer that is disconnected amid transfers aborts the process (net/fabric.h).
 */
#define SAFE_MAJOR 1
#define SAFE_MINOR 16

/* The slots of a member of a group, at most: RDMA locks them. */
#define SLOT_BYTES ((size_t)128 << 20)

/* The names in a folder; "" if there are none. */
static void list(const char *root, const char *folder, char *names, size_t bytes)
{
	char path[512];
	const struct dirent *entry;
	names[0] = '\0';
	(void)snprintf(path, sizeof path, "%s%s", root, folder);
	DIR *dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		size_t used = strlen(names);
		if (entry->d_name[0] != '.' && used + strlen(entry->d_name) + 2 <= bytes)
			(void)snprintf(names + used, bytes - used, "%s%s", used > 0 ? " " : "",
				       entry->d_name);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

/* UCX's modules lie in the folder "ucx" beside its libraries. */
static bool has_module(const struct hoist__fabric_facts *facts, const char *module)
{
	char path[512];
	const char *slash = strrchr(facts->library, '/');
	(void)snprintf(path, sizeof path, "%.*s/ucx/lib%s.so.0",
		       slash != NULL ? (int)(slash - facts->library) : 0, facts->library, module);
	return slash == NULL || access(path, F_OK) == 0;
}

int hoist__doctor_rdma(hoist_doctor *doctor, const struct hoist__fabric_facts *facts,
		       const char *root, bool can_lock)
{
	static const char name[] = "RDMA";
	char devices[256], nodes[256];
	list(root, "/sys/class/infiniband", devices, sizeof devices);
	list(root, "/dev/infiniband", nodes, sizeof nodes);
	if (devices[0] == '\0')
		return hoist__doctor_yes(doctor, name,
					 "no RDMA device is here: bytes go by TCP, and within "
					 "the machine by memory");
	if (nodes[0] == '\0')
		return hoist__doctor_no(doctor, name,
					"load the kernel's module ib_uverbs, or give the container "
					"the devices: `docker run --device /dev/infiniband`",
					"the devices %s are not in /dev/infiniband: bytes go by "
					"TCP",
					devices);
	if (!facts->rdma && !has_module(facts, "uct_ib"))
		return hoist__doctor_no(doctor, name,
					"use a UCX that has the module (Debian: libucx0; not the "
					"wheels libucx-cu12 and libucx-cu13)",
					"UCX has no module libuct_ib for the devices %s: bytes go "
					"by TCP",
					devices);
	if (!facts->rdma)
		return hoist__doctor_no(doctor, name,
					"`ibv_devinfo` says whether a port is active; UCX_TLS, "
					"UCX_NET_DEVICES, HOIST_UCX_TLS and HOIST_UCX_NET_DEVICES "
					"may leave the devices out",
					"UCX takes none of the devices %s: bytes go by TCP",
					devices);
	if (!can_lock)
		return hoist__doctor_no(doctor, name,
					"`ulimit -l unlimited`, LimitMEMLOCK=infinity for a "
					"service, `docker run --ulimit memlock=-1`",
					"%zu MiB of slots cannot be locked for %s: groups fail, or "
					"read from storage",
					SLOT_BYTES >> 20, devices);
	return hoist__doctor_yes(doctor, name, "UCX uses %s", devices);
}

static int check_interfaces(hoist_doctor *doctor, const struct hoist__fabric_facts *facts)
{
	if (facts->network)
		return hoist__doctor_yes(doctor, "network",
					 "UCX has a way to other machines: HOIST_UCX_NET_DEVICES "
					 "chooses among its devices");
	return hoist__doctor_no(
		doctor, "network",
		"give the machine or the container an interface (`docker run --network host`); "
		"UCX_TLS and UCX_NET_DEVICES may leave interfaces out",
		"UCX has no way to other machines, no interface but the loopback one");
}

int hoist__doctor_network(hoist_doctor *doctor)
{
	struct hoist__fabric_facts facts;
	char more[32] = "";
	if (hoist__fabric_probe(&facts) < 0)
		return hoist__doctor_error(doctor, NAME,
					   "correct UCX's settings (HOIST_UCX_*, UCX_*)");
	bool old = facts.major == SAFE_MAJOR && facts.minor < SAFE_MINOR;
	if (facts.n_more > 0)
		(void)snprintf(more, sizeof more, " and %u more", facts.n_more);
	int err = hoist__doctor_yes(
		doctor, NAME, "UCX %u.%u.%u (%s)%s: %s%s", facts.major, facts.minor, facts.patch,
		facts.library,
		old ? ", 1.16 or newer survives more failures of peers, and waits for none" : "",
		facts.transports, more);
	if (err == 0)
		err = check_interfaces(doctor, &facts);
	if (err == 0)
		err = hoist__doctor_rdma(doctor, &facts, "", hoist__doctor_can_lock(SLOT_BYTES));
	return err;
}
