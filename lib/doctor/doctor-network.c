/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-network.c - examines what carries bytes between machines.
 * The contract is in lib/doctor/doctor.h. */
#include "config.h"

#include "hoist/doctor.h"
#include "lib/doctor/doctor.h"
#include "net/fabric.h"

#define NAME "across machines"

/* Before this version a peer that is disconnected amid transfers aborts the process (net/fabric.h). */
#define SAFE_MAJOR 1
#define SAFE_MINOR 16

int hoist__doctor_network(hoist_doctor *doctor)
{
	struct hoist__fabric_facts facts;
	if (hoist__fabric_probe(&facts) < 0)
		return hoist__doctor_error(doctor, NAME,
					   "correct UCX's settings (HOIST_UCX_*, UCX_*)");
	bool old = facts.major == SAFE_MAJOR && facts.minor < SAFE_MINOR;
	return hoist__doctor_yes(doctor, NAME, "UCX %u.%u.%u (%s)%s: %s", facts.major, facts.minor,
				 facts.patch, facts.library,
				 old ? ", 1.16 or newer survives more failures of peers, and waits for none" : "",
				 facts.transports);
}
