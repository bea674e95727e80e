/* SPDX-License-Identifier: MIT */
/* Ranks as children of fork.
 * The contract is in tests/lib/group/ranks.h. */
#include "config.h"

#include "tests/lib/group/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/child.h"
#include "tests/support/count.h"
#include "tests/support/free-port.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"

struct ranks_said *said;
static unsigned group_number;
static char group_name[64];
static bool are_far;

void ranks_use(bool far)
{
	are_far = far;
	ranks_next_group();
}

bool ranks_are_far(void)
{
	return are_far;
}

void ranks_begin(void)
{
	said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(said != MAP_FAILED);
	ranks_next_group();
}

static unsigned ucx; /* its version */

void ranks_begin_far(void)
{
	ucx = ucx_of_child();
	if (ucx == 0)
		exit(77);
	OK(unsetenv("HOIST_GROUP_SECRET"));
	OK(unsetenv("HOIST_GROUP_SECRET_FILE"));
	ranks_begin();
	ranks_use(true);
}

bool ranks_aborted(int status)
{
	return ucx < UCX_VERSION(1, 16) && status == 128 + SIGABRT;
}

void ranks_wait_for_mark(unsigned rank, unsigned marks)
{
	for (uint64_t until = 0; (said->marks[rank] & marks) == 0;)
		CHECK(patience(&until));
}

void ranks_next_group(void)
{
	memset(said, 0, sizeof *said);
	if (are_far)
		(void)snprintf(group_name, sizeof group_name, "tcp://127.0.0.1:%u/test",
			       free_port());
	else
		(void)snprintf(group_name, sizeof group_name, "shm:test-%d-%u", (int)getpid(),
			       group_number++);
}

hoist_group ranks_group(unsigned rank, unsigned n_ranks)
{
	/* So long that no slow machine misses a rank. */
	return (hoist_group){.size = sizeof(hoist_group),
			     .name = group_name,
			     .rank = rank,
			     .n_ranks = n_ranks,
			     .timeout_ns = UINT64_C(60000000000)};
}

struct hoist__address ranks_door(void)
{
	struct hoist__address door;
	char text[64];
	CHECK(sscanf(group_name, "tcp://%63[^/]", text) == 1);
	CHECK(hoist__address_find(text, false, &door, 1) == 1);
	return door;
}

void ranks_say(struct hoist__channel *channel, const struct hoist__wire_message *message)
{
	static unsigned char frame[HOIST__CHANNEL_MOST_BYTES];
	OK(hoist__channel_send(channel, (uint16_t)message->kind, frame,
			       hoist__wire_pack(message, frame)));
}

struct hoist__wire_message ranks_hear(struct hoist__channel *channel)
{
	struct hoist__frame frame;
	struct hoist__wire_message message;
	for (uint64_t until = 0; !hoist__channel_next(channel, &frame);) {
		CHECK(patience(&until));
		OK(hoist__channel_work(channel));
	}
	OK(hoist__wire_unpack(&frame, &message));
	return message;
}

pid_t ranks_start(unsigned rank, void (*rank_main)(unsigned rank))
{
	(void)fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		rank_main(rank);
		_exit(0);
	}
	return child;
}

void ranks_end(pid_t child, int killed)
{
	int status = child_status(child);
	CHECK(status == 0 || (killed && status == 128 + SIGKILL));
}

void ranks_run(unsigned n, void (*rank_main)(unsigned rank), unsigned killed)
{
	pid_t children[MOST_RANKS];
	for (unsigned r = 0; r < n; r++)
		children[r] = ranks_start(r, rank_main);
	for (unsigned r = 0; r < n; r++)
		ranks_end(children[r], (killed >> r & 1) != 0);
	ranks_left_nothing();
}

void ranks_left_nothing(void)
{
	CHECK(are_far || count_lines_with("/proc/net/unix", group_name + strlen("shm:")) == 0);
	CHECK(count_lines_with("/proc/self/maps", "memfd:") == 0);
}

void ranks_load_driven(const hoist_group *group, const char *path, const hoist_load_options *o,
		       int (*drive)(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank),
		       void (*look)(hoist_checkpoint *checkpoint, hoist_load *load, int err))
{
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load = NULL;
	hoist_load_report report = {.size = sizeof report};
	unsigned fds = count_entries("/proc/self/fd");
	int err = hoist_group_load(group, checkpoint, o, &load);
	if (err == 0)
		err = drive(checkpoint, load, group->rank);
	said->err[group->rank] = err;
	(void)snprintf(said->text[group->rank], sizeof said->text[0], "%.1000s",
		       err < 0 ? hoist_error() : "");
	if (err == 0) {
		OK(hoist_load_get_report(load, &report));
		said->read_bytes[group->rank] = report.direct_bytes + report.cached_bytes;
	}
	if (load != NULL)
		look(checkpoint, load, err);
	hoist_load_destroy(load);
	CHECK(count_entries("/proc/self/fd") == fds);
	CHECK(count_lines_with("/proc/self/maps", "memfd:") == 0);
	hoist_checkpoint_close(checkpoint);
}

static void (*look_at)(hoist_checkpoint *checkpoint, hoist_load *load);

static int only_wait(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank)
{
	(void)checkpoint;
	(void)rank;
	return hoist_load_wait(load);
}

static void look_at_success(hoist_checkpoint *checkpoint, hoist_load *load, int err)
{
	if (err == 0 && look_at != NULL)
		look_at(checkpoint, load);
}

void ranks_load(const hoist_group *group, const char *path, const hoist_load_options *o,
		void (*look)(hoist_checkpoint *checkpoint, hoist_load *load))
{
	look_at = look;
	ranks_load_driven(group, path, o, only_wait, look_at_success);
}

/* Once in each program. */
static void put_random(bool *is_there, const char *name, const char *header, size_t n)
{
	uint64_t seed = 3;
	if (*is_there)
		return;
	unsigned char *bytes = malloc(n);
	CHECK(bytes != NULL);
	*is_there = true;
	random_fill(&seed, bytes, n);
	support_put_safetensors(name, header, bytes, n);
	free(bytes);
}

const char *ranks_big(void)
{
	static bool is_there;
	static const char header[] =
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[40000,1024],\"data_offsets\":[0,40960000]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[300,131072],\"data_offsets\":[40960000,"
		"80281600]},"
		"\"c\":{\"dtype\":\"U8\",\"shape\":[5000001],\"data_offsets\":[80281600,85281601]}"
		"}";
	put_random(&is_there, "big.safetensors", header, BIG_BYTES);
	return "big.safetensors";
}

const char *ranks_quarter(void)
{
	static bool is_there;
	static const char header[] =
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[10000,1024],\"data_offsets\":[0,10240000]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[75,131072],\"data_offsets\":[10240000,"
		"20070400]},"
		"\"c\":{\"dtype\":\"U8\",\"shape\":[1250001],\"data_offsets\":[20070400,21320401]}"
		"}";
	put_random(&is_there, "quarter.safetensors", header, 21320401);
	return "quarter.safetensors";
}

const char *ranks_floats(void)
{
	static bool is_there;
	static const char header[] =
		"{\"f\":{\"dtype\":\"F32\",\"shape\":[5000,1024],\"data_offsets\":[0,20480000]},"
		"\"g\":{\"dtype\":\"BF16\",\"shape\":[300,4096],\"data_offsets\":[20480000,"
		"22937600]},"
		"\"h\":{\"dtype\":\"F16\",\"shape\":[300001],\"data_offsets\":[22937600,23537602]}"
		"}";
	put_random(&is_there, "floats.safetensors", header, FLOATS_BYTES);
	return "floats.safetensors";
}

hoist_buffer *ranks_buffer(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape)
{
	hoist_buffer *buffer = NULL;
	hoist_device *cpu = support_device("cpu");
	OK(hoist_buffer_create(device != NULL ? device : cpu, dtype, rank, shape, 0, &buffer));
	OK(hoist_buffer_fill(buffer, "\xee", 1));
	hoist_device_unref(cpu);
	return buffer;
}

bool ranks_untouched(hoist_buffer *buffer)
{
	hoist_device *cpu = support_device("cpu");
	hoist_buffer *host = NULL;
	bool same = true;
	OK(hoist_buffer_to(buffer, cpu, &host));
	const unsigned char *bytes = (const unsigned char *)hoist_buffer_address(host);
	for (size_t i = 0; i < hoist_buffer_bytes(host); i++)
		same = same && bytes[i] == 0xee;
	hoist_buffer_unref(host);
	hoist_device_unref(cpu);
	return same;
}

bool ranks_is_whole(hoist_checkpoint *checkpoint, size_t tensor, hoist_buffer *buffer)
{
	hoist_tensor_info info = {.size = sizeof info};
	hoist_file_info file = {.size = sizeof file};
	OK(hoist_checkpoint_tensor(checkpoint, tensor, &info));
	OK(hoist_checkpoint_file(checkpoint, info.file, &file));
	unsigned char *bytes = malloc((size_t)info.bytes + 1);
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	CHECK(bytes != NULL && fd >= 0);
	CHECK(pread(fd, bytes, (size_t)info.bytes, (off_t)info.offset) == (ssize_t)info.bytes);
	bool same =
		memcmp(bytes, (const void *)hoist_buffer_address(buffer), (size_t)info.bytes) == 0;
	(void)close(fd);
	free(bytes);
	return same;
}
