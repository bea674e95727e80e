/* SPDX-License-Identifier: MIT */
/* Descriptors of device memory and the resources that processes share, one by one, as a binding
 * uses them, and the calls that are refused.  On the stand-ins, and on the real driver where
 * there is one.  Exit: 0, 1, 77. */
#include "config.h"

#include "hoist/ipc.h"
#include "tests/support/lib-ipc.h"
#include "tests/support/pass-fd.h"

/* --- descriptors and resources, one by one, as in a binding --- */

struct letter {
	hoist_ipc_descriptor d;
	unsigned char uuid[16];
};

static void export_letters(void)
{
	hoist_memory *pools[2];
	hoist_buffer *buffers[2];
	for (int i = 0; i < 2; i++) {
		struct letter letter;
		int fd = -1;
		pools[i] = make_pool(HOIST_MEMORY_SHAREABLE);
		buffers[i] = make_from(pools[i]);
		write_pattern(buffers[i], (unsigned)i);
		OK(hoist_ipc_memory_uuid(pools[i], letter.uuid));
		OK(hoist_ipc_export(buffers[i], &letter.d, NULL));
		CHECK(memcmp(letter.d.memory, letter.uuid, 16) == 0);
		CHECK(write(peer, &letter, sizeof letter) == (ssize_t)sizeof letter);
		OK(hoist_ipc_export_memory(pools[i], &fd));
		CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
		CHECK(pass_fd(peer, fd));
		close(fd);
	}
	hear();
	for (int i = 0; i < 2; i++) {
		check_pattern(buffers[i], 20 + (unsigned)i);
		hoist_buffer_unref(buffers[i]);
		hoist_memory_unref(pools[i]);
	}
}

static void refuse_fds(int good, const struct letter *letter)
{
	hoist_memory *none = NULL;
	hoist_device *cpu = NULL;
	OK(hoist_device_open("cpu", &cpu));
	REFUSED(hoist_ipc_import_memory(device, -1, letter->uuid, &none), -EINVAL, "-1");
	int closed = dup(good);
	close(closed);
	CHECK(hoist_ipc_import_memory(device, closed, letter->uuid, &none) == -EBADF);
	REFUSED(hoist_ipc_import_memory(cpu, good, letter->uuid, &none), -EINVAL, "CPU");
	CHECK(hoist_ipc_import_memory(device, good, NULL, &none) == -EINVAL);
	CHECK(hoist_ipc_import_memory(NULL, good, letter->uuid, &none) == -EINVAL);
	int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK(hoist_ipc_import_memory(device, other, letter->uuid, &none) < 0);
	close(other);
	CHECK(none == NULL);
	hoist_device_unref(cpu);
}

/* proves: S2.17 S2.18 S2.19 S2.20 S2.22 V155 V156 V159 V160 */
static void import_letters(void)
{
	struct letter letters[2];
	hoist_memory *pools[2] = {NULL, NULL};
	hoist_memory *found = NULL;
	hoist_buffer *none = NULL;
	int fds[2];
	for (int i = 0; i < 2; i++) {
		CHECK(recv(peer, &letters[i], sizeof letters[i], MSG_WAITALL) ==
		      (ssize_t)sizeof letters[i]);
		fds[i] = take_fd(peer);
		CHECK(fds[i] >= 0);
	}
	const hoist_ipc_descriptor *d = &letters[0].d;
	/* The resource was never sent. */
	REFUSED(hoist_ipc_import(d, sizeof *d, -1, NULL, &none), -ENOENT, "was not found");
	CHECK(hoist_ipc_find_memory(letters[0].uuid, &found) == -ENOENT);
	refuse_fds(fds[0], &letters[0]);
	for (int i = 0; i < 2; i++) {
		unsigned char uuid[16];
		OK(hoist_ipc_import_memory(device, fds[i], letters[i].uuid, &pools[i]));
		CHECK(fcntl(fds[i], F_GETFD) >= 0); /* the descriptor stays the caller's */
		close(fds[i]);
		hoist_memory_info info = memory_info_of(pools[i]);
		CHECK(info.is_mapped && info.is_shareable);
		OK(hoist_ipc_memory_uuid(pools[i], uuid));
		CHECK(memcmp(uuid, letters[i].uuid, 16) == 0);
		OK(hoist_ipc_find_memory(uuid, &found));
		CHECK(found == pools[i]);
		hoist_memory_unref(found);
	}
	uintptr_t address = 0;
	REFUSED(hoist_memory_alloc(pools[0], 64, 0, &address), -ENOTSUP, "to another process");
	REFUSED(hoist_ipc_import(d, sizeof *d, -1, pools[1], &none), -EINVAL,
		"not the memory resource");
	/* Another's block under this one's name: the driver knows better. */
	hoist_ipc_descriptor swapped = letters[0].d;
	memcpy(swapped.memory, letters[1].uuid, 16);
	CHECK(hoist_ipc_import(&swapped, sizeof swapped, -1, NULL, &none) == -EREMOTEIO);
	CHECK(none == NULL);
	for (int i = 0; i < 2; i++) {
		hoist_buffer *twice[2];
		for (int k = 0; k < 2; k++)
			OK(hoist_ipc_import(&letters[i].d, sizeof letters[i].d, -1,
					    k == 0 ? pools[i] : NULL, &twice[k]));
		CHECK(hoist_buffer_address(twice[0]) == hoist_buffer_address(twice[1]));
		check_pattern(twice[0], (unsigned)i);
		hoist_buffer_unref(twice[0]);
		write_pattern(twice[1], 20 + (unsigned)i);
		hoist_memory_unref(pools[i]);
		check_pattern(twice[1], 20 + (unsigned)i); /* the buffer keeps the imported pool */
		hoist_buffer_unref(twice[1]);
	}
	CHECK(hoist_ipc_find_memory(letters[0].uuid, &found) == -ENOENT);
	tell();
}

/* --- sizes and payloads --- */

/* proves: S2.17 V154 */
static void import_wrong(void)
{
	hoist_ipc_descriptor d;
	hoist_buffer *none = NULL;
	char api[8];
	CHECK(recv(peer, &d, sizeof d, MSG_WAITALL) == (ssize_t)sizeof d);
	(void)snprintf(api, sizeof api, "%.4s", spec);
	if (api[3] == ':')
		api[3] = '\0';
	uint64_t before = lib_counters(api).calls;
	CHECK(hoist_ipc_import(&d, 8, -1, NULL, &none) == -EINVAL);
	CHECK(hoist_ipc_import(d.payload, sizeof d.payload, -1, NULL, &none) == -EINVAL);
	CHECK(hoist_ipc_import(NULL, sizeof d, -1, NULL, &none) == -EINVAL);
	CHECK(lib_counters(api).calls == before); /* no driver was asked */
	d.bytes *= 100000;
	REFUSED(hoist_ipc_import(&d, sizeof d, -1, NULL, &none), -EINVAL,
		"exceeds the mapped allocation extent");
	d.bytes /= 100000;
	memset(d.payload, 0x55, sizeof d.payload);
	REFUSED(hoist_ipc_import(&d, sizeof d, -1, NULL, &none), -EREMOTEIO, "must still have it");
	CHECK(none == NULL);
	CHECK(lib_counters(api).live_imports == 0);
	tell();
}

static void export_described(void)
{
	hoist_ipc_descriptor d;
	int fd = 7;
	hoist_buffer *buffer = make_numbers(device, 0);
	OK(hoist_ipc_export(buffer, &d, &fd));
	CHECK(fd == -1 && d.kind == HOIST_IPC_DEVICE && d.bytes == BYTES && d.pid == getpid());
	CHECK(write(peer, &d, sizeof d) == (ssize_t)sizeof d);
	hear();
	/* In the exporter, a descriptor gives an alias, but only if the buffer was exported. */
	hoist_buffer *own = NULL;
	OK(hoist_ipc_import(&d, sizeof d, -1, NULL, &own));
	CHECK(hoist_buffer_address(own) == hoist_buffer_address(buffer));
	CHECK(!info_of(own).is_mapped);
	hoist_buffer_unref(own);
	own = NULL;
	hoist_ipc_descriptor bad = d;
	bad.address += 512;
	CHECK(hoist_ipc_import(&bad, sizeof bad, -1, NULL, &own) == -EINVAL);
	bad = d;
	bad.payload[63] ^= 1;
	CHECK(hoist_ipc_import(&bad, sizeof bad, -1, NULL, &own) == -EINVAL);
	CHECK(own == NULL);
	hoist_buffer_unref(buffer);
}

/* --- refusals in one process --- */

static void refuse_buffer(hoist_buffer *buffer, const char *words)
{
	hoist_ipc_descriptor d;
	int fd = -1;
	REFUSED(hoist_ipc_export(buffer, &d, &fd), -ENOTSUP, words);
	CHECK(fd == -1);
	hoist_buffer_unref(buffer);
}

/* proves: S2.15 V149 */
static void refuse_all(void)
{
	hoist_ipc_descriptor d;
	hoist_memory *pool = make_pool(0);
	hoist_memory *none = NULL;
	hoist_device *cpu = NULL;
	unsigned char uuid[16];
	int fd = -1;
	OK(hoist_device_open("cpu", &cpu));
	REFUSED(hoist_ipc_export_memory(pool, &fd), -ENOTSUP, "not IPC-enabled");
	REFUSED(hoist_ipc_memory_uuid(pool, uuid), -ENOTSUP, "not IPC-enabled");
	REFUSED(hoist_ipc_register_memory(pool, &none), -ENOTSUP, "not IPC-enabled");
	CHECK(hoist_ipc_export_memory(NULL, &fd) == -EINVAL);
	refuse_buffer(make_from(pool), "not IPC-enabled");
	refuse_buffer(make_numbers(cpu, 0), "HOIST_BUFFER_SHAREABLE");
	refuse_buffer(make_numbers(device, HOIST_BUFFER_PINNED), "pinned");
	CHECK(hoist_ipc_export(NULL, &d, &fd) == -EINVAL);
	hoist_buffer *closed = make_numbers(cpu, HOIST_BUFFER_SHAREABLE);
	REFUSED(hoist_ipc_export(closed, &d, NULL), -EINVAL, "file descriptor");
	OK(hoist_buffer_close(closed, NULL));
	CHECK(hoist_ipc_export(closed, &d, &fd) == -EBADF);
	hoist_buffer_unref(closed);
	CHECK(fd == -1 && none == NULL);
	CHECK(hoist_memory_create(
		      OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL,
			      .flags = HOIST_MEMORY_SHAREABLE | HOIST_MEMORY_CURRENT_POOL,
			      .device = device),
		      &none) == -EINVAL);
	CHECK(hoist_memory_create(OPTIONS(.flags = HOIST_MEMORY_SHAREABLE), &none) == -EINVAL);
	hoist_memory_unref(pool);
	hoist_device_unref(cpu);
}

/* A second registration gives the registered resource. */
static void register_own(void)
{
	hoist_memory *pool = make_pool(HOIST_MEMORY_SHAREABLE);
	hoist_memory *got = NULL;
	unsigned char uuid[16];
	int fd = -1;
	OK(hoist_ipc_memory_uuid(pool, uuid));
	CHECK(hoist_ipc_find_memory(uuid, &got) == -ENOENT);
	for (int i = 0; i < 2; i++) {
		OK(hoist_ipc_register_memory(pool, &got));
		CHECK(got == pool);
		hoist_memory_unref(got);
	}
	/* A child of fork has no registered resource. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		hoist_memory *none = NULL;
		CHECK(hoist_ipc_register_memory(pool, &none) == -ESTALE && none == NULL);
		CHECK(hoist_ipc_find_memory(uuid, &none) == -ENOENT);
		_exit(0);
	}
	CHECK(child_status(child) == 0);
	/* Its own descriptor, in the exporter: the same resource. */
	OK(hoist_ipc_export_memory(pool, &fd));
	OK(hoist_ipc_import_memory(device, fd, uuid, &got));
	CHECK(got == pool);
	hoist_memory_unref(got);
	close(fd);
	hoist_memory_unref(pool);
	CHECK(hoist_ipc_find_memory(uuid, &got) == -ENOENT);
}

static void nothing(void)
{
}

static void check_alone(void)
{
	refuse_all();
	register_own();
}

/* --- the program --- */

static void run_device(const char *on, bool emulated)
{
	run_pair(on, export_letters, import_letters);
	run_pair(on, check_alone, nothing);
	if (emulated)
		run_pair(on, export_described, import_wrong);
}

int main(void)
{
	if (why_not() != NULL) {
		printf("skipped: %s\n", why_not());
		return 77;
	}
	return run_devices(run_device);
}
