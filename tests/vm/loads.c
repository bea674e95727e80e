/* SPDX-License-Identifier: MIT */
/* Whose memory and whose processors loads, saves, images and groups use, on a machine of four
 * nodes: the disk is on node 1, cuda:0 on node 2.  The linker (--wrap) sends each call that
 * populates memory through this program, which notes the node of the processor that it runs on, and
 * then asks the kernel for the node of each page.
 *
 *   vm_loads      a disk of node 1 at $TMPDIR */
#include "config.h"

#include <fcntl.h>
#include <hoist/group.h>
#include <hoist/hoist.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/memory/device-memory.h"
#include "tests/support/lib-cache.h"
#include "tests/support/load-support.h"
#include "tests/support/save-support.h"
#include "tests/support/wrap.h"
#include "tests/vm/nodes.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define N_NODES 4
#define N_TENSORS 5
#define TENSOR_BYTES                                                                               \
	(((size_t)7 << 20) + 12345) /* all: images of 32 MiB and more come as they are filled */
#define DEVICE_NODE 2
#define ANY (-1)

/* --- who populates, and where --- */

static _Atomic size_t populated[N_NODES][N_NODES]; /* pages: by processors of .. on node .. */

static unsigned node_here(void)
{
	unsigned cpu = 0;
	unsigned node = 0;
	OK(syscall(SYS_getcpu, &cpu, &node, NULL));
	CHECK(node < N_NODES);
	return node;
}

WRAP(int, madvise, (void *address, size_t bytes, int advice))
{
	unsigned by = node_here();
	int err = __real_madvise(address, bytes, advice);
	if (err != 0 || bytes == 0 || (advice != MADV_POPULATE_WRITE && advice != MADV_COLLAPSE))
		return err;
	struct spread spread = spread_of((uintptr_t)address, bytes);
	for (int on = 0; on < N_NODES; on++)
		populated[by][on] += spread.on[on];
	return 0;
}

static void forget(void)
{
	memset(populated, 0, sizeof populated);
}

static void print_populated(const char *key, const char *what)
{
	printf("figure: loads.%s %s:", key, what);
	for (int by = 0; by < N_NODES; by++)
		for (int on = 0; on < N_NODES; on++)
			if (populated[by][on] > 0)
				printf(" %zu pages on node %d by processors of node %d;",
				       populated[by][on], on, by);
	printf(" that is all\n");
	(void)fflush(stdout);
}

/* Processors of @by (ANY) populated pages of @on, @least bytes or more, and no others any. */
static void check_populated(const char *key, const char *what, int by, int on, size_t least)
{
	size_t right = 0;
	size_t all = 0;
	print_populated(key, what);
	for (int b = 0; b < N_NODES; b++)
		for (int o = 0; o < N_NODES; o++) {
			all += populated[b][o];
			right += (by == ANY || b == by) && o == on ? populated[b][o] : 0;
		}
	CHECK(right == all && right * 4096 >= least);
}

/* --- the world --- */

static const char *checkpoint_path(void)
{
	return support_path("m.safetensors");
}

/* Drops the file from the page cache, which is on whatever node wrote it. */
static void make_cold(void)
{
	int fd = open(checkpoint_path(), O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	OK(fsync(fd));
	OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	(void)close(fd);
}

static cpu_set_t everywhere;

static void run_anywhere(void)
{
	OK(sched_setaffinity(0, sizeof everywhere, &everywhere));
}

/* Each proof has a process of its own, with pools that have nothing yet. */
static void in_child(void (*proof)(int), int argument)
{
	int status = 0;
	(void)fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		forget();
		proof(argument);
		(void)fflush(NULL);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(status == 0);
}

static void check_destination(hoist_load *load, int node, const char *what)
{
	for (size_t t = 0; t < N_TENSORS; t++) {
		hoist_buffer *buffer = NULL;
		OK(hoist_load_tensor(load, t, NULL, &buffer));
		check_on(hoist_buffer_address(buffer), hoist_buffer_bytes(buffer), node, what);
		hoist_buffer_unref(buffer);
	}
}

/* --- to the host --- */

static hoist_load *load_to_host(hoist_checkpoint **ret_checkpoint, hoist_memory *memory)
{
	hoist_load *load = NULL;
	make_cold();
	OK(hoist_checkpoint_open(checkpoint_path(), 0, ret_checkpoint));
	const hoist_load_options options = {
		.size = sizeof options, .io = HOIST_IO_DIRECT, .memory = memory};
	OK(hoist_load_start(*ret_checkpoint, &options, &load));
	OK(hoist_load_wait(load));
	CHECK(support_report(load).direct_bytes >= N_TENSORS * TENSOR_BYTES);
	return load;
}

/* A load without a wish stays on the caller's node. */
static void host_memory_is_near(int node)
{
	char key[32];
	hoist_checkpoint *checkpoint = NULL;
	(void)snprintf(key, sizeof key, "host.%d", node);
	run_on(node);
	hoist_load *load = load_to_host(&checkpoint, NULL);
	check_populated(key, "a load to the host, from that node", node, node,
			N_TENSORS * TENSOR_BYTES);
	check_destination(load, node, "a destination");
	support_compare(checkpoint, load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static hoist_memory *memory_on(int placement, int node)
{
	hoist_memory *memory = NULL;
	const hoist_memory_options options = {
		.size = sizeof options, .placement = placement, .nodes = &node, .n_nodes = 1};
	OK(hoist_memory_create(&options, &memory));
	return memory;
}

/* Memory of another node is populated by that node's processors, if the caller may use them. */
static void wished_memory_is_there(int node)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_memory *memory = memory_on(HOIST_PLACE_PREFER, node);
	hoist_load *load = load_to_host(&checkpoint, memory);
	check_populated("wished", "a load to memory that prefers a node", node, node,
			N_TENSORS * TENSOR_BYTES);
	check_destination(load, node, "a destination on a node that was asked for");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_memory_unref(memory);
}

/* So is bound memory, which its region's own threads populate, although the caller is bound to
 * processors elsewhere. */
static void bound_memory_is_there(int node)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_memory *memory = memory_on(HOIST_PLACE_BIND, node);
	run_on(3);
	hoist_load *load = load_to_host(&checkpoint, memory);
	check_populated("bound", "a load to memory bound to a node, by a caller of node 3", node,
			node, N_TENSORS * TENSOR_BYTES);
	check_destination(load, node, "a destination on a node that was asked for");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_memory_unref(memory);
}

/* --- to and from a device --- */

static hoist_device *device_of_node(void)
{
	hoist_device *device = NULL;
	hoist_device_info info = {.size = sizeof info};
	support_emulate("cuda:1");
	OK(hoist_device_open("cuda:0", &device));
	OK(hoist_device_get_info(device, &info));
	CHECK(info.numa_node == DEVICE_NODE);
	return device;
}

/* All memory of the device's staging pool is on its node. */
static void check_slots(hoist_device *device, const char *what)
{
	struct hoist__pool *pool = NULL;
	OK(hoist__device_staging_pool(device, &pool));
	struct spread spread = spread_of_regions(pool);
	check_spread(&spread, DEVICE_NODE, what);
}

static void slots_of_a_load(int from)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	run_on(from);
	hoist_device *device = device_of_node();
	make_cold();
	OK(hoist_checkpoint_open(checkpoint_path(), 0, &checkpoint));
	const hoist_load_options options = {
		.size = sizeof options, .device = device, .io = HOIST_IO_DIRECT};
	forget();
	OK(hoist_load_start(checkpoint, &options, &load));
	OK(hoist_load_wait(load));
	check_populated("device", "slots of a load to cuda:0, by a caller of node 3", DEVICE_NODE,
			DEVICE_NODE, support_report(load).staging_peak_bytes);
	check_slots(device, "staging slots of a load");
	support_compare(checkpoint, load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
}

static void slots_of_a_save(int from)
{
	const int64_t shape[] = {(int64_t)TENSOR_BYTES};
	hoist_save *save = NULL;
	hoist_buffer *buffer = NULL;
	run_on(from);
	hoist_device *device = device_of_node();
	OK(hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_ZERO, &buffer));
	OK(hoist_save_create(support_path("saved.safetensors"), NULL, &save));
	OK(hoist_save_add(save, "t", buffer));
	forget();
	OK(saved_run(save));
	check_populated("save", "slots of a save from cuda:0, by a caller of node 0", DEVICE_NODE,
			DEVICE_NODE, 1 << 20);
	check_slots(device, "staging slots of a save");
	hoist_buffer_unref(buffer);
	hoist_device_unref(device);
}

/* --- images --- */

static void an_image(int node)
{
	hoist_image *image = NULL;
	const hoist_cache_options options = {
		.size = sizeof options,
		.image_flags = HOIST_IMAGE_READ_ONLY,
		.placement = HOIST_PLACE_PREFER,
		.nodes = &node,
		.n_nodes = 1,
	};
	run_anywhere();
	make_cold();
	OK(hoist_cache_add(checkpoint_path(), &options, &image));
	check_populated("image", "an image that prefers a node", node, node,
			N_TENSORS * TENSOR_BYTES);
	for (size_t t = 0; t < N_TENSORS; t++) {
		hoist_buffer *buffer = NULL;
		unsigned char last = 0;
		OK(hoist_image_buffer(image, t, &buffer));
		size_t bytes = hoist_buffer_bytes(buffer);
		for (size_t i = 0; i < bytes; i += 4096)
			OK(hoist_buffer_read(buffer, i, &last, 1)); /* maps the page here, too */
		OK(hoist_buffer_read(buffer, bytes - 1, &last, 1));
		check_on(hoist_buffer_address(buffer), bytes, node, "an image");
		hoist_buffer_unref(buffer);
	}
	hoist_image_close(image);
	OK(hoist_cache_drop(NULL, NULL));
	cache_wait_for_end();
}

/* --- groups --- */

/* A rank's destination, and the slots that others copy from, are on the rank's node. */
static void a_rank(int rank)
{
	char key[32];
	char name[32];
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	(void)snprintf(name, sizeof name, "shm:loads-%d", (int)getppid());
	(void)snprintf(key, sizeof key, "rank.%d", rank);
	const hoist_group group = {
		.size = sizeof group, .name = name, .rank = (unsigned)rank, .n_ranks = N_NODES};
	run_on(rank);
	OK(hoist_checkpoint_open(checkpoint_path(), 0, &checkpoint));
	const hoist_load_options options = {.size = sizeof options};
	OK(hoist_group_load(&group, checkpoint, &options, &load));
	OK(hoist_load_wait(load));
	check_populated(key, "a rank of four on that node", rank, rank, N_TENSORS * TENSOR_BYTES);
	check_destination(load, rank, "a rank's destination");
	/* All ranks want all, and the disk is on node 1. */
	const hoist_load_report report = support_report(load);
	uint64_t read = report.direct_bytes + report.cached_bytes;
	printf("figure: loads.reads.%d a rank of four on that node: %d %% of the file were read by "
	       "this rank\n",
	       rank, (int)((100 * read + report.bytes / 2) / report.bytes));
	CHECK(rank == 1 ? read >= report.bytes : read == 0);
	support_compare(checkpoint, load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

/* A rank that may run everywhere is where its device is: the disk is on that node, too. */
static void a_rank_of_a_device(int rank)
{
	char name[40];
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	(void)snprintf(name, sizeof name, "shm:devices-%d", (int)getppid());
	const hoist_group group = {
		.size = sizeof group, .name = name, .rank = (unsigned)rank, .n_ranks = 2};
	OK(sched_setaffinity(0, sizeof everywhere, &everywhere));
	OK(hoist_checkpoint_open(checkpoint_path(), 0, &checkpoint));
	hoist_device *device = support_device(rank == 0 ? "cpu" : "cuda:0");
	const hoist_load_options options = {.size = sizeof options, .device = device};
	OK(hoist_group_load(&group, checkpoint, &options, &load));
	OK(hoist_load_wait(load));
	const hoist_load_report report = support_report(load);
	uint64_t read = report.direct_bytes + report.cached_bytes;
	printf("figure: loads.near.%d ranks on all nodes, the second with cuda:0, on whose node "
	       "the disk is: this one read %d %% of the file\n",
	       rank, (int)((100 * read + report.bytes / 2) / report.bytes));
	CHECK(rank == 1 ? read >= report.bytes : read == 0);
	support_compare(checkpoint, load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
}

static void ranks_are_near(int n_ranks)
{
	pid_t children[N_NODES];
	void (*const a_rank_of)(int rank) = n_ranks == 2 ? a_rank_of_a_device : a_rank;
	make_cold();
	for (int rank = 0; rank < n_ranks; rank++) {
		children[rank] = fork();
		CHECK(children[rank] >= 0);
		if (children[rank] == 0) {
			a_rank_of(rank);
			(void)fflush(NULL);
			_exit(0);
		}
	}
	for (int rank = 0; rank < n_ranks; rank++) {
		int status = 0;
		CHECK(waitpid(children[rank], &status, 0) == children[rank] && status == 0);
	}
}

int main(int argc, char **argv)
{
	size_t sizes[N_TENSORS];
	(void)cache_test_begin(argc, argv);
	CHECK(nodes_need(N_NODES) == N_NODES);
	OK(sched_getaffinity(0, sizeof everywhere, &everywhere));
	for (size_t t = 0; t < N_TENSORS; t++)
		sizes[t] = TENSOR_BYTES;
	support_write("m.safetensors", 0, N_TENSORS, sizes, 0);
	if (argc > 1 && strcmp(argv[1], "devices") == 0) {
		support_emulate("cuda:1");
		in_child(ranks_are_near, 2);
		support_cleanup();
		return 0;
	}
	for (int node = 0; node < N_NODES; node++)
		in_child(host_memory_is_near, node);
	in_child(wished_memory_is_there, 0);
	in_child(bound_memory_is_there, 1);
	in_child(slots_of_a_load, 3);
	in_child(slots_of_a_save, 0);
	in_child(an_image, 1);
	in_child(ranks_are_near, N_NODES);
	support_cleanup();
	return 0;
}
