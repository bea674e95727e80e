/* SPDX-License-Identifier: MIT */
/* Descriptors with any wrong field, and the files that come with them. */
#include "config.h"

#include <stdarg.h>
#include <sys/syscall.h>

#include "hoist/ipc.h"
#include "tests/support/lib-ipc-message.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"

TestSuite(lib_ipc_descriptor, .init = set_up, .fini = tear_down);

/* --- files --- */

static int make_file(size_t bytes, int seals)
{
	int fd = memfd_create("theirs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void import_file(int fd, int code, const char *words)
{
	import_refused(&good, fd, code, words);
	close(fd);
}

Test(lib_ipc_descriptor, files_that_could_be_cut_off_are_refused)
{
	int disk = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int pipes[2];
	if (disk >= 0) {
		cr_assert_eq(ftruncate(disk, 1 << 20), 0);
		import_file(disk, -EBADMSG, "no memfd");
	}
	cr_assert_eq(pipe(pipes), 0);
	close(pipes[1]);
	import_file(pipes[0], -EBADMSG, "no memfd");
	import_file(open("/dev/zero", O_RDWR | O_CLOEXEC), -EBADMSG, "no memfd");
	import_file(make_file(8192, 0), -EBADMSG, "not sealed");
	import_file(make_file(8192, F_SEAL_GROW), -EBADMSG, "not sealed");
	import_file(make_file(0, F_SEAL_SHRINK), -EBADMSG, "no bytes");
	import_file(make_file(N - 1, F_SEAL_SHRINK), -EINVAL, "exceed");
}

Test(lib_ipc_descriptor, files_of_others_that_are_sound_are_taken)
{
	hoist_buffer *got = NULL;
	unsigned char byte = 1;
	int fd = make_file(N, F_SEAL_SHRINK); /* not whole pages */
	cr_assert_eq(pwrite(fd, "abc", 3, 0), 3);
	OK(hoist_ipc_import(&good, sizeof good, fd, NULL, &got));
	cr_expect_eq(memcmp(hoist_buffer_data(got), "abc", 3), 0);
	hoist_buffer_info info = info_of(got);
	cr_expect(info.is_mapped);
	hoist_buffer_unref(got);
	close(fd);
	/* Memory that nobody may write to is read-only, whatever the descriptor says. */
	fd = make_file(N, F_SEAL_SHRINK | F_SEAL_WRITE);
	OK(hoist_ipc_import(&good, sizeof good, fd, NULL, &got));
	cr_expect_eq(hoist_buffer_write(got, 0, &byte, 1), -EROFS);
	hoist_buffer_unref(got);
	close(fd);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}

/* --- files that change during an import --- */

static int cut_fd = -1; /* loses its second half right before its seals are asked for */

/* In front of the C library's. */
int fcntl(int fd, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	long argument = va_arg(rest, long);
	va_end(rest);
	if (command == F_GET_SEALS && fd == cut_fd) {
		cut_fd = -1;
		cr_assert_eq(ftruncate(fd, N / 2), 0);
		cr_assert_eq(syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	}
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

/* A peer that shortens and then seals the file in the middle of an import. */
Test(lib_ipc_descriptor, the_size_of_a_file_counts_once_it_is_sealed)
{
	cut_fd = make_file(N, F_SEAL_GROW);
	import_file(cut_fd, -EINVAL, "exceed the shared memory of 2500 bytes");
	cr_expect_eq(cut_fd, -1, "it was cut");
}

Test(lib_ipc_descriptor, descriptors_that_can_only_read_give_read_only_memory)
{
	hoist_buffer *got = NULL;
	unsigned char byte = 1;
	char path[64];
	int fd = make_file(N, F_SEAL_SHRINK);
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int reader = open(path, O_RDONLY | O_CLOEXEC);
	OK(hoist_ipc_import(&good, sizeof good, reader, NULL, &got));
	cr_expect_eq(hoist_buffer_write(got, 0, &byte, 1), -EROFS);
	OK(hoist_buffer_read(got, 0, &byte, 1));
	hoist_buffer_unref(got);
	close(reader);
	close(fd);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}

static bool is_writable(int fd)
{
	void *map = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	(void)munmap(map, N);
	return true;
}

/* Only the owner's freeze seals the file; read-only access of an importer does not. */
Test(lib_ipc_descriptor, memory_that_is_read_only_for_some_is_not_sealed)
{
	hoist_buffer *got = NULL;
	unsigned char byte = 1;
	hoist_ipc_descriptor d = good;
	int fd = make_file(N, F_SEAL_SHRINK);
	d.flags = HOIST_IPC_READ_ONLY;
	const int files[] = {good_fd, fd};
	for (int i = 0; i < 2; i++) {
		int passed = -1;
		OK(hoist_ipc_import(&d, sizeof d, files[i], NULL, &got));
		cr_expect_eq(hoist_buffer_write(got, 0, &byte, 1), -EROFS);
		OK(hoist_ipc_export(got, &d, &passed));
		cr_expect((d.flags & HOIST_IPC_READ_ONLY) != 0);
		cr_expect(is_writable(passed) && is_writable(files[i]));
		close(passed);
		hoist_buffer_unref(got);
	}
	close(fd);
	OK(hoist_buffer_freeze(buffer));
	OK(hoist_ipc_export(buffer, &d, &fd));
	cr_expect_not(is_writable(fd));
	cr_expect_not(is_writable(good_fd));
	close(fd);
}

/* --- descriptors --- */

struct change {
	const char *what;
	size_t at;
	size_t bytes;
	int64_t value;
	const char *words;
};

#define FIELD(field) offsetof(hoist_ipc_descriptor, field), sizeof good.field
static const struct change changes[] = {
	{"magic", 0, 1, 'x', "do not begin as one does"},
	{"version", FIELD(version), 2, "version 2"},
	{"size", FIELD(size), 100, "100 bytes"},
	{"kind 0", FIELD(kind), 0, "no kind"},
	{"kind 9", FIELD(kind), 9, "no kind"},
	{"a device's", FIELD(kind), HOIST_IPC_DEVICE, "memory of kind 2 of \"cpu\""},
	{"none", FIELD(kind), HOIST_IPC_EMPTY, "5000 elements in memory of kind 4"},
	{"flags", FIELD(flags), 2, "no flags"},
	{"api", offsetof(hoist_ipc_descriptor, api), 3, 0x787878, "no devices"},
	{"an api that a terminal acts on", offsetof(hoist_ipc_descriptor, api), 3, 0x9b1bff,
	 "\"?\\u001b?\""},
	{"api without an end", offsetof(hoist_ipc_descriptor, api), 8, 0x7878787878787878,
	 "no end"},
	{"rank", FIELD(rank), 65, "rank 65"},
	{"negative rank", FIELD(rank), -1, "rank -1"},
	{"dtype", FIELD(dtype), 9999, "no dtype"},
	{"bit", FIELD(bit), 4, "at bit 4"},
	{"large bit", FIELD(bit), 8, "at bit 8"},
	{"negative extent", offsetof(hoist_ipc_descriptor, shape), 8, -5, "no size"},
	{"large extent", offsetof(hoist_ipc_descriptor, shape), 8, INT64_MAX, "no size"},
	{"longer", offsetof(hoist_ipc_descriptor, shape), 8, N + 1, "leave its 5000 bytes"},
	{"no elements", offsetof(hoist_ipc_descriptor, shape), 8, 0, "0 elements"},
	{"stride", offsetof(hoist_ipc_descriptor, strides), 8, 2, "leave its 5000 bytes"},
	{"negative stride", offsetof(hoist_ipc_descriptor, strides), 8, -1, "leave"},
	{"large stride", offsetof(hoist_ipc_descriptor, strides), 8, INT64_MAX / 2, "63 bits"},
	{"least stride", offsetof(hoist_ipc_descriptor, strides), 8, INT64_MIN, "63 bits"},
	{"first", FIELD(first), 1, "leave"},
	{"first beyond", FIELD(first), N + 1, "the first element at 5001"},
	{"offset", FIELD(offset), -1, "bytes from 18446744073709551615"},
	{"bytes", FIELD(bytes), -1, "18446744073709551615 bytes"},
	{"few bytes", FIELD(bytes), N - 1, "leave its 4999 bytes"},
};

/* proves: S2.16 S2.17 V154 */
Test(lib_ipc_descriptor, each_field_of_a_descriptor_is_looked_at)
{
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		const struct change *c = &changes[i];
		hoist_ipc_descriptor bad = good;
		hoist_buffer *got = NULL;
		memcpy((char *)&bad + c->at, &c->value, c->bytes);
		cr_expect_eq(hoist_ipc_import(&bad, sizeof bad, good_fd, NULL, &got), -EBADMSG,
			     "%s: %s", c->what, hoist_error());
		cr_expect(strstr(hoist_error(), c->words) != NULL, "%s: \"%s\" lacks \"%s\"",
			  c->what, hoist_error(), c->words);
		cr_expect_null(got);
	}
	for (size_t n = 0; n < sizeof good; n += 97) {
		hoist_buffer *got = NULL;
		cr_expect_eq(hoist_ipc_import(&good, n, good_fd, NULL, &got), -EINVAL);
	}
	hoist_ipc_descriptor large = good;
	large.bytes = large.bytes * 100;
	import_refused(&large, good_fd, -EINVAL, "exceed the shared memory");
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}

/* Blocks of elements have their own rules. */
Test(lib_ipc_descriptor, block_types_come_in_whole_blocks)
{
	hoist_buffer *got = NULL;
	hoist_ipc_descriptor d;
	int fd = -1;
	hoist_buffer *view = make_view(buffer, 0, HOIST_Q8_0, 2, SHAPE(2, 64));
	OK(hoist_ipc_export(view, &d, &fd));
	cr_expect_eq(d.bytes, hoist_buffer_bytes(view));
	OK(hoist_ipc_import(&d, sizeof d, fd, NULL, &got));
	cr_expect_eq(hoist_buffer_dtype(got), HOIST_Q8_0);
	hoist_ipc_descriptor bad = d;
	bad.shape[1] = 63;
	import_refused(&bad, fd, -EBADMSG, "no size");
	bad = d;
	bad.strides[0] = 33;
	import_refused(&bad, fd, -EBADMSG, "whole blocks");
	bad = d;
	bad.strides[1] = 2;
	import_refused(&bad, fd, -EBADMSG, "whole blocks");
	bad = d;
	bad.strides[0] = 96;
	import_refused(&bad, fd, -EBADMSG, "leave");
	close(fd);
	hoist_buffer_unref(got);
	hoist_buffer_unref(view);
}

Test(lib_ipc_descriptor, sub_byte_views_begin_within_a_byte)
{
	hoist_buffer *got = NULL;
	hoist_ipc_descriptor d;
	int fd = -1;
	hoist_buffer *view = make_view(buffer, 10, HOIST_F4_E2M1FN, 1, SHAPE(100));
	const hoist_slice from_3[] = {HOIST_RANGE(3, 8)};
	hoist_buffer *part = make_slice(view, 1, from_3);
	OK(hoist_ipc_export(part, &d, &fd));
	cr_expect(d.offset == 11 && d.bit == 4 && d.bytes == 3 && d.first == 0);
	OK(hoist_ipc_import(&d, sizeof d, fd, NULL, &got));
	hoist_buffer_info info = info_of(got);
	cr_expect(info.bit_offset == 4 && hoist_buffer_shape(got)[0] == 5);
	d.bytes = 2;
	import_refused(&d, fd, -EBADMSG, "leave its 2 bytes");
	close(fd);
	hoist_buffer_unref(got);
	hoist_buffer_unref(part);
	hoist_buffer_unref(view);
}

/* --- anything at all --- */

static void touch_all(hoist_buffer *got)
{
	if (hoist_buffer_elements(got) > 100000)
		return; /* a stride of 0 makes them many */
	hoist_buffer *copy = make_copy(got, NULL);
	hoist_buffer_unref(copy);
}

/* A recorded message with some bytes changed: whatever is accepted can be read. */
Test(lib_ipc_descriptor, any_bytes_are_refused_or_make_a_buffer)
{
	uint64_t random = 4;
	unsigned taken = 0;
	for (int i = 0; i < 20000; i++) {
		hoist_ipc_descriptor d = good;
		hoist_buffer *got = NULL;
		unsigned n = 1 + (unsigned)(random_next(&random) % 3);
		/* Mostly where there is something, ranks included. */
		if (random_next(&random) % 4 == 0)
			d.rank = (int32_t)(random_next(&random) % 4);
		for (unsigned k = 0; k < n; k++) {
			size_t at = random_next(&random) % 8 < 6 ? random_next(&random) % 216
								 : random_next(&random) % sizeof d;
			((unsigned char *)&d)[at] = (unsigned char)random_next(&random);
		}
		int err = hoist_ipc_import(&d, sizeof d, good_fd, NULL, &got);
		cr_assert(err <= 0);
		if (err < 0)
			continue;
		taken++;
		touch_all(got);
		hoist_buffer_unref(got);
	}
	cr_expect(taken > 100, "%u were taken: the loop proves something", taken);
	cr_expect_eq(count_entries("/proc/self/fd"), n_open);
}
