/* SPDX-License-Identifier: MIT */
/* Device memory that two processes share, by handles and by pools.  Exporter and importer are
 * children of a process that never opens a driver.  On the stand-ins; on the real driver where
 * there is one.  Exit: 0, 1, 77. */
#include "config.h"

#include <fcntl.h>

#include "tests/device/ipc-sides.h"
#include "tests/support/under-tsan.h"

/* --- plain allocations --- */

static void send_plain(uintptr_t address)
{
	struct message message;
	uintptr_t base = 0;
	size_t bytes = 0;
	memset(&message, 0, sizeof message);
	OK(hoist__dev_allocation(dev, address, &base, &bytes));
	CHECK(base <= address && address + BYTES <= base + bytes);
	OK(hoist__dev_ipc_export(dev, base, &message.handle));
	message.offset = address - base;
	tell(&message, sizeof message);
}

static void export_plain(void)
{
	uintptr_t small[3];
	uintptr_t address = 0;
	uintptr_t other = 0;
	size_t bytes = 0;
	/* Neighbours whose pages it shares. */
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(small); i++)
		OK(hoist__dev_mem_alloc(dev, 512, &small[i]));
	OK(hoist__dev_mem_alloc(dev, 2 * BYTES, &address));
	OK(hoist__dev_mem_alloc(dev, BYTES, &other));
	write_pattern(address + 300, 1);
	write_pattern(other, 7);
	send_plain(address + 300);
	hear_done(); /* the importer has written */
	check_pattern(address + 300, 2);
	check_pattern(other, 7);
	/* Exporting again, and what was allocated since. */
	OK(hoist__dev_mem_free(dev, other, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &other));
	write_pattern(other, 3);
	send_plain(other);
	hear_done();
	check_pattern(other, 4);
	CHECK(hoist__dev_allocation(dev, 4096, &address, &bytes) == -EINVAL);
	OK(hoist__dev_mem_free(dev, other, BYTES));
	OK(hoist__dev_allocation(dev, small[2] + 100, &other, &bytes));
	CHECK(other <= small[2] && bytes >= 512);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(small); i++)
		OK(hoist__dev_mem_free(dev, small[i], 512));
	OK(hoist__dev_mem_free(dev, address, 2 * BYTES));
}

static uintptr_t open_plain(size_t *offset)
{
	struct message message;
	uintptr_t base = 0;
	uintptr_t found = 0;
	size_t bytes = 0;
	hear(&message, sizeof message);
	OK(hoist__dev_ipc_open(dev, &message.handle, &base));
	OK(hoist__dev_allocation(dev, base + message.offset, &found, &bytes));
	CHECK(found == base && bytes >= message.offset + BYTES);
	*offset = message.offset;
	return base;
}

static void import_plain(void)
{
	size_t offset = 0;
	uintptr_t own = 0;
	OK(hoist__dev_mem_alloc(dev, BYTES, &own));
	uintptr_t base = open_plain(&offset);
	check_pattern(base + offset, 1);
	/* Between allocations of two processes, both ways. */
	copy(HOIST__COPY_DEVICE_TO_DEVICE, own, base + offset);
	check_pattern(own, 1);
	write_pattern(own, 2);
	copy(HOIST__COPY_DEVICE_TO_DEVICE, base + offset, own);
	OK(hoist__dev_ipc_close(dev, base));
	tell_done();
	base = open_plain(&offset);
	check_pattern(base + offset, 3);
	write_pattern(base + offset, 4);
	OK(hoist__dev_ipc_close(dev, base));
	OK(hoist__dev_mem_free(dev, own, BYTES));
	tell_done();
}

/* --- pools --- */

static void send_block(struct hoist__dev_pool *pool, uintptr_t address)
{
	struct message message;
	memset(&message, 0, sizeof message);
	OK(hoist__dev_pool_export_block(pool, address, &message.handle));
	tell(&message, sizeof message);
}

static void export_pool(void)
{
	struct hoist__dev_pool *pools[2];
	uintptr_t blocks[2];
	for (int i = 0; i < 2; i++) {
		int fd = -1;
		OK(hoist__dev_pool_create_shareable(dev, 0, &pools[i]));
		OK(hoist__dev_pool_export(pools[i], &fd));
		CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
		CHECK(pass_fd(peer, fd));
		close(fd);
		OK(hoist__dev_pool_alloc(pools[i], BYTES, stream, &blocks[i]));
		write_pattern(blocks[i], (unsigned)i);
		send_block(pools[i], blocks[i]);
	}
	hear_done();
	for (int i = 0; i < 2; i++) {
		check_pattern(blocks[i], 10 + (unsigned)i);
		OK(hoist__dev_pool_free(pools[i], blocks[i], stream));
		OK(hoist__dev_stream_synchronize(stream));
		hoist__dev_pool_destroy(pools[i]);
	}
}

static void import_pool(void)
{
	struct hoist__dev_pool *pools[2];
	uintptr_t blocks[2];
	struct message messages[2];
	uintptr_t none = 0;
	for (int i = 0; i < 2; i++) {
		int fd = take_fd(peer);
		CHECK(fd >= 0);
		OK(hoist__dev_pool_import(dev, fd, &pools[i]));
		close(fd);
		hear(&messages[i], sizeof messages[i]);
		OK(hoist__dev_pool_import_block(pools[i], &messages[i].handle, &blocks[i]));
		check_pattern(blocks[i], (unsigned)i);
	}
	/* Another pool's block is refused, and an imported pool allocates none. */
	CHECK(hoist__dev_pool_import_block(pools[0], &messages[1].handle, &none) == -EREMOTEIO);
	CHECK(hoist__dev_pool_alloc(pools[0], 4096, stream, &none) < 0);
	CHECK(none == 0);
	for (int i = 0; i < 2; i++) {
		write_pattern(blocks[i], 10 + (unsigned)i);
		/* Either call frees another process's block. */
		if (i == 0) {
			OK(hoist__dev_mem_free(dev, blocks[i], BYTES));
		} else {
			OK(hoist__dev_pool_free(pools[i], blocks[i], stream));
			OK(hoist__dev_stream_synchronize(stream));
		}
		hoist__dev_pool_destroy(pools[i]);
	}
	tell_done();
}

/* --- an exporter that does not wait --- */

static void export_and_end(void)
{
	uintptr_t address = 0;
	OK(hoist__dev_mem_alloc(dev, BYTES, &address));
	write_pattern(address, 5);
	send_plain(address);
	hear_done();
	OK(hoist__dev_mem_free(dev, address, BYTES));
	tell_done();
}

static void import_ended(void)
{
	char end = 0;
	size_t offset = 0;
	uintptr_t base = open_plain(&offset);
	check_pattern(base + offset, 5);
	tell_done();
	hear_done();
	write_pattern(base + offset, 6); /* it is there, whatever it is */
	CHECK(recv(peer, &end, 1, 0) == 0);
	check_pattern(base + offset, 6);
	OK(hoist__dev_ipc_close(dev, base));
}

/* --- refusals; the exporter only stays alive --- */

static void export_for_refusals(void)
{
	struct hoist__ipc_handle handle;
	struct hoist__dev_pool *pool = NULL;
	uintptr_t address = 0;
	uintptr_t pooled = 0;
	uintptr_t none = 0;
	int fd = -1;
	OK(hoist__dev_mem_alloc(dev, BYTES, &address));
	OK(hoist__dev_pool_create_shareable(dev, 0, &pool));
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &pooled));
	OK(hoist__dev_stream_synchronize(stream));
	CHECK(hoist__dev_ipc_export(dev, pooled, &handle) == -ENOTSUP);
	CHECK(strstr(hoist__error_text(), "no plain allocation") != NULL);
	OK(hoist__dev_ipc_export(dev, address, &handle));
	CHECK(hoist__dev_ipc_open(dev, &handle, &none) == -EREMOTEIO); /* by the exporter */
	CHECK(none == 0);
	send_plain(address);
	send_block(pool, pooled);
	OK(hoist__dev_pool_export(pool, &fd));
	CHECK(pass_fd(peer, fd));
	close(fd);
	hear_done();
	OK(hoist__dev_pool_free(pool, pooled, stream));
	OK(hoist__dev_stream_synchronize(stream));
	hoist__dev_pool_destroy(pool);
	OK(hoist__dev_mem_free(dev, address, BYTES));
}

/* The other side of export_for_refusals(); the pool's descriptor. */
static int hear_offer(struct message *plain, struct message *block)
{
	hear(plain, sizeof *plain);
	hear(block, sizeof *block);
	int fd = take_fd(peer);
	CHECK(fd >= 0);
	return fd;
}

static void import_refused(void)
{
	struct message plain;
	struct message block;
	struct hoist__dev_pool *pool = NULL;
	uintptr_t base = 0;
	uintptr_t again = 0;
	int fd = hear_offer(&plain, &block);
	/* The stand-in knows which file it must be; the place and the size in it are the handle's
	 * word. */
	for (size_t i = 0; i < sizeof plain.handle; i++) {
		struct hoist__ipc_handle bad = plain.handle;
		bad.bytes[i] ^= 0x80;
		CHECK(hoist__dev_ipc_open(dev, &bad, &base) < 0 || i >= 32);
		if (base != 0)
			OK(hoist__dev_ipc_close(dev, base));
		base = 0;
	}
	CHECK(hoist__dev_ipc_open(dev, &block.handle, &base) == -EREMOTEIO);
	OK(hoist__dev_ipc_open(dev, &plain.handle, &base));
	OK(hoist__dev_ipc_open(dev, &plain.handle, &again));
	CHECK(base == again);
	OK(hoist__dev_ipc_close(dev, base));
	write_pattern(base, 1);
	OK(hoist__dev_ipc_close(dev, base));
	OK(hoist__dev_pool_import(dev, fd, &pool));
	OK(hoist__dev_pool_import_block(pool, &block.handle, &base));
	CHECK(hoist__dev_pool_import_block(pool, &block.handle, &again) == -EREMOTEIO);
	OK(hoist__dev_mem_free(dev, base, BYTES));
	hoist__dev_pool_destroy(pool);
	close(fd);
	CHECK(hoist__dev_pool_import(dev, -1, &pool) == -EBADF);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK(hoist__dev_pool_import(dev, fd, &pool) == -EREMOTEIO);
	close(fd);
	tell_done();
}

/* --- each driver call fails once --- */

static int import_once(const struct message *plain, const struct message *block, int fd)
{
	struct hoist__dev_pool *pool = NULL;
	uintptr_t base = 0;
	uintptr_t pooled = 0;
	uintptr_t found = 0;
	size_t bytes = 0;
	int err = hoist__dev_ipc_open(dev, &plain->handle, &base);
	if (err == 0)
		err = hoist__dev_allocation(dev, base, &found, &bytes);
	if (err == 0)
		err = hoist__dev_pool_import(dev, fd, &pool);
	if (err == 0)
		err = hoist__dev_pool_import_block(pool, &block->handle, &pooled);
	int closed = pooled != 0 ? hoist__dev_mem_free(dev, pooled, BYTES) : 0;
	hoist__dev_pool_destroy(pool);
	if (base != 0 && closed == 0)
		closed = hoist__dev_ipc_close(dev, base);
	else if (base != 0)
		(void)hoist__dev_ipc_close(dev, base);
	return err < 0 ? err : closed;
}

static void import_failing(void)
{
	struct message plain;
	struct message block;
	int fd = hear_offer(&plain, &block);
	int n = 1;
	for (int failed = 1; failed && n < 100; n++) {
		char spec[32];
		(void)snprintf(spec, sizeof spec, "any:%d", n);
		OK(control.fail(spec));
		failed = import_once(&plain, &block, fd) < 0;
		/* A failure that none of our calls told: of what frees, or restores. */
		failed = failed || counters_of(&control).injected_failures == (uint64_t)n;
		OK(control.fail(NULL));
		CHECK(counters_of(&control).live_imports == 0);
	}
	CHECK(n > 6 && n < 100);
	close(fd);
	tell_done();
}

/* HIP's runtime makes every imported pool the first device's, so hoist refuses the others; CUDA's
 * driver takes the current one. */
static void import_on_second(void)
{
	struct hoist__dev *second = NULL;
	struct hoist__dev_pool *shared = NULL;
	struct hoist__dev_pool *imported = NULL;
	bool hip = hoist__dev_api(dev) == HOIST__API_HIP;
	int fd = -1;
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &second));
	OK(hoist__dev_pool_create_shareable(second, 0, &shared));
	OK(hoist__dev_pool_export(shared, &fd));
	CHECK(hoist__dev_pool_import(second, fd, &imported) == (hip ? -ENOTSUP : 0));
	CHECK(!hip || strstr(hoist__error_text(), "hip:0") != NULL);
	if (!hip)
		hoist__dev_pool_destroy(imported);
	close(fd);
	hoist__dev_pool_destroy(shared);
}

static void nothing(void)
{
}

/* An importer that goes on when its exporter has ended is for the stand-ins: drivers leave that
 * undefined. */
static const struct {
	void (*exporter)(void), (*importer)(void);
	bool on_real;
} pairs[] = {
	{export_plain, import_plain, true},	      {export_pool, import_pool, true},
	{export_and_end, import_ended, false},	      {export_for_refusals, import_refused, false},
	{export_for_refusals, import_failing, false}, {import_on_second, nothing, false},
};

static void run_all(enum hoist__api api, bool emulated)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(pairs); i++)
		if (emulated || pairs[i].on_real)
			run_pair(api, pairs[i].exporter, pairs[i].importer);
}

static bool has_real(enum hoist__api api)
{
	int status = -1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		int count = 0;
		_exit(hoist__dev_count(api, &count) == 0 ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status == 0;
}

static void check_cpu(void)
{
	struct hoist__ipc_handle handle;
	struct hoist__dev_pool *pool = NULL;
	uintptr_t address = 0;
	size_t bytes = 0;
	memset(&handle, 0, sizeof handle);
	OK(hoist__dev_get(HOIST__API_CPU, 0, &dev));
	CHECK(hoist__dev_ipc_export(dev, 4096, &handle) == -ENOTSUP);
	CHECK(hoist__dev_ipc_open(dev, &handle, &address) == -ENOTSUP);
	CHECK(hoist__dev_allocation(dev, 4096, &address, &bytes) == -ENOTSUP);
	CHECK(hoist__dev_pool_create_shareable(dev, 0, &pool) == -ENOTSUP);
}

int main(void)
{
	if (UNDER_TSAN) {
		printf("skipped: ThreadSanitizer cannot start threads in a child of fork\n");
		return 77;
	}
	int fd = memfd_create("probe", MFD_CLOEXEC);
	if (fd < 0) {
		printf("skipped: memfd_create() is forbidden here\n");
		return 77;
	}
	close(fd);
	unsetenv("HOIST_EMULATE");
	for (int api = HOIST__API_CUDA; api <= HOIST__API_HIP; api++)
		if (has_real((enum hoist__api)api))
			run_all((enum hoist__api)api, false);
	check_cpu();
	if (!have_stand_ins()) {
		printf("the stand-in drivers are not built\n");
		return 0;
	}
	setenv("HOIST_EMULATE", "cuda:2,hip:2", 1);
	run_all(HOIST__API_CUDA, true);
	run_all(HOIST__API_HIP, true);
	return 0;
}
