/* SPDX-License-Identifier: MIT */
/* Scenarios: buffers that one process gives to another.  Any call of either fails. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hoist/ipc.h"
#include "tests/support/load-support.h"

/* --- IPC: two children of a process that opens nothing --- */

#define N_EXCHANGES 3
#define ANY_TIME 20000

enum side { EXPORTER, IMPORTER };

static const char *pair_api; /* NULL: host memory */
static bool pair_pool;	     /* of a driver's pool */

static void meet(int times)
{
	(void)atomic_fetch_add(&sweep->arrived, 1);
	while (atomic_load(&sweep->arrived) < 2 * times)
		(void)usleep(50);
}

static int make(hoist_device *device, hoist_buffer **ret)
{
	int64_t shape[2];
	int rank = sweep_shape(0, shape);
	if (!pair_pool)
		return hoist_buffer_create(device, HOIST_U8, rank, shape,
					   pair_api == NULL ? HOIST_BUFFER_SHAREABLE : 0, ret);
	const hoist_memory_options o = {.size = sizeof o,
					.kind = HOIST_MEMORY_DRIVER_POOL,
					.flags = HOIST_MEMORY_SHAREABLE,
					.device = device};
	hoist_memory *memory = NULL;
	int err = hoist_memory_create(&o, &memory);
	STEP(err, hoist_buffer_create_from(memory, NULL, HOIST_U8, rank, shape, 0, ret));
	hoist_memory_unref(memory);
	return err;
}

static int give(int socket, hoist_device *device, hoist_buffer **ret)
{
	static unsigned char bytes[SWEEP_MOST_BYTES];
	sweep_fill(0, 0, bytes);
	int err = make(device, ret);
	STEP(err, hoist_buffer_copy_in(*ret, bytes, sweep_bytes(0)));
	STEP(err, hoist_ipc_send(socket, *ret, ANY_TIME));
	return err;
}

static int take(int socket, hoist_buffer **ret)
{
	int err = hoist_ipc_receive(socket, ANY_TIME, ret);
	if (err != 0 && *ret != NULL)
		sweep_wrong("what could not be received is given");
	return err == 0 ? sweep_compare(*ret, 0, 0) : err;
}

/* A side that fails closes its end of the socket, so that the other side does not wait. */
static int exchange(enum side side, int socket, int times)
{
	char name[16];
	hoist_device *device = NULL;
	hoist_buffer *buffer = NULL;
	(void)snprintf(name, sizeof name, "%s%s", pair_api != NULL ? pair_api : "cpu",
		       pair_api != NULL ? ":0" : "");
	int err = hoist_device_open(name, &device);
	STEP(err, side == EXPORTER ? give(socket, device, &buffer) : take(socket, &buffer));
	if (side == IMPORTER)
		hoist_buffer_unref(buffer);
	(void)close(socket);
	meet(times); /* the importer's is gone */
	if (side == EXPORTER)
		hoist_buffer_unref(buffer);
	hoist_device_unref(device);
	return err;
}

static char spec[64]; /* what of the driver's is to fail; "": nothing */

static void stop_driver(void)
{
	(void)unsetenv("HOIST_EMULATE_FAIL");
	if (pair_api == NULL || support_control(pair_api, "hoist_emulator_fail") == NULL)
		return;
	struct hoist_emulator_counters counters = support_counters(pair_api);
	if (counters.injected_failures > 0)
		atomic_store(&sweep->struck, true);
	if (spec[0] != '\0' && (long)counters.calls > atomic_load(&sweep->seen))
		atomic_store(&sweep->seen, (long)counters.calls);
	support_fail(pair_api, NULL);
	support_reset(pair_api);
}

static void failing_exchange(enum side side, int socket, int times, bool fails)
{
	sweep_forget_text();
	meet(times);
	sweep_resume(fails);
	if (fails && spec[0] != '\0' && support_control(pair_api, "hoist_emulator_fail") != NULL) {
		support_reset(pair_api);
		support_fail(pair_api, spec);
	}
	int err = exchange(side, socket, times + 1);
	meet(times + 2);
	(void)sweep_pause();
	stop_driver();
	sweep_check_text(err);
	atomic_store(&sweep->side_err[side], err);
}

static void good_exchange(enum side side, int socket, int times, const char *when)
{
	int err = exchange(side, socket, times);
	if (err != 0)
		sweep_wrong("%s the %s gives %d (%s)", when,
			    side == EXPORTER ? "exporter" : "importer", err, hoist_error());
}

/* Memory that may be kept for the next time; the times are too few to see that it does not grow
 * with each.  The first user gives a stand-in's region its size. */
static void allow_some(struct sweep_counts *counts)
{
	counts->anonymous_kib += pair_api != NULL ? 8192 : 64;
	counts->blocks += 12;
}

/* The first exchange fails, if it is cold, else the second; the others work. */
static void run_side(enum side side, int sockets[N_EXCHANGES], bool fails)
{
	struct sweep_counts idle;
	int times = 1;
	const char *given = getenv("HOIST_EMULATE_FAIL");
	(void)snprintf(spec, sizeof spec, "%s", given != NULL ? given : "");
	if (!sweep->is_cold) {
		(void)unsetenv("HOIST_EMULATE_FAIL");
		good_exchange(side, sockets[0], times++, "first");
		(void)usleep(1000);
		sweep_count(&idle);
		idle.descriptors--; /* the next socket */
		allow_some(&idle);
	}
	failing_exchange(side, sockets[sweep->is_cold ? 0 : 1], times, fails);
	times += 3;
	if (!sweep->is_cold)
		sweep_compare_with(&idle, "afterwards");
	else
		good_exchange(side, sockets[1], times++, "the next time");
	good_exchange(side, sockets[2], times, "after that");
	if (!sweep->is_cold) {
		idle.descriptors--;
		sweep_compare_with(&idle, "after that");
	} else if (sweep->has_idle) {
		idle = sweep->side_idle[side];
		sweep_allow_library(&idle);
		sweep_compare_with(&idle, "after that");
	} else {
		(void)usleep(5000);
		sweep_count(&sweep->side_idle[side]);
		allow_some(&sweep->side_idle[side]);
	}
	exit(0);
}

static void await(const pid_t sides[2])
{
	for (int i = 0; i < 2; i++) {
		int status = 0;
		pid_t ended = waitpid(-1, &status, 0);
		if (status == 0)
			continue;
		sweep_wrong("the %s ended with status 0x%x",
			    ended == sides[0] ? "exporter" : "importer", (unsigned)status);
		(void)kill(sides[ended == sides[0]], SIGKILL);
	}
}

static int run_pair(const char *api, bool pool)
{
	int ends[N_EXCHANGES][2];
	pid_t sides[2];
	bool fails = sweep_pause();
	pair_api = api;
	pair_pool = pool;
	atomic_store(&sweep->arrived, 0);
	(void)fflush(stdout);
	for (int i = 0; i < N_EXCHANGES; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]) < 0)
			sweep_die("socketpair");
	for (int side = 0; side < 2; side++) {
		sides[side] = fork();
		if (sides[side] < 0)
			sweep_die("fork");
		if (sides[side] == 0) {
			int sockets[N_EXCHANGES];
			for (int i = 0; i < N_EXCHANGES; i++) {
				close(ends[i][!side]);
				sockets[i] = ends[i][side];
			}
			run_side((enum side)side, sockets, fails);
		}
	}
	for (int i = 0; i < N_EXCHANGES; i++) {
		close(ends[i][0]);
		close(ends[i][1]);
	}
	await(sides);
	int err = atomic_load(&sweep->side_err[EXPORTER]);
	return err != 0 ? err : atomic_load(&sweep->side_err[IMPORTER]);
}

static int ipc_host(void)
{
	return run_pair(NULL, false);
}

static int ipc_device(void)
{
	return run_pair("hip", false);
}

static int ipc_pool(void)
{
	return run_pair("cuda", true);
}

const struct sweep_scenario sweep_shares[] = {
	{.name = "ipc-host", .run = ipc_host, .has_texts = true},
	{.name = "ipc-hip", .api = "hip", .run = ipc_device, .has_texts = true},
	{.name = "ipc-cuda-pool", .api = "cuda", .run = ipc_pool, .has_texts = true},
	{.name = NULL},
};
