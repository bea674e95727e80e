/* SPDX-License-Identifier: MIT */
/* A buffer from a peer that may send anything: descriptors of any content, in pieces, with file
 * descriptors that are none of ours, or too many, or none.  A received buffer is used: its elements
 * lie in the memory that came. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/layout.h"
#include "hoist/buffer.h"
#include "hoist/ipc.h"
#include "lib/exchange/ipc.h"
#include "tests/fuzz/fuzz-support.h"
#include "tests/support/pass-fd.h"

#define MEMORY_BYTES 8192
#define MOST_FDS 20 /* more than are kept until they can be judged */

static int descriptor(uint64_t kind)
{
	int fd = kind == 0 ? open("/dev/null", O_RDWR | O_CLOEXEC)
			   : memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	HOLDS(fd >= 0);
	if (kind == 0)
		return fd;
	HOLDS(kind == 1 || ftruncate(fd, MEMORY_BYTES) == 0);
	HOLDS(kind == 2 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	HOLDS(kind != 3 || fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	return fd;
}

/* Mostly a buffer of the host in that memory; then some of its bytes are others. */
static void make_descriptor(struct fuzz_bytes *from, hoist_ipc_descriptor *d)
{
	*d = (hoist_ipc_descriptor){.version = HOIST_IPC_VERSION,
				    .size = sizeof *d,
				    .kind = HOIST_IPC_HOST,
				    .api = "cpu"};
	memcpy(d->magic, "hoistipc", sizeof d->magic);
	if (fuzz_below(from, 8) == 0)
		d->kind = (uint32_t)fuzz_below(from, 6);
	d->flags = (uint32_t)fuzz_below(from, 2);
	d->rank = (int32_t)fuzz_below(from, 6);
	d->dtype = (uint32_t)fuzz_below(from, HOIST_DTYPE_INVALID + 80);
	d->offset = fuzz_below(from, 4096);
	d->bytes = fuzz_below(from, 8192);
	d->first = fuzz_below(from, 4096);
	d->bit = fuzz_below(from, 8) == 0 ? (uint32_t)fuzz_below(from, 8) : 0;
	for (int i = 0; i < d->rank; i++) {
		d->shape[i] = (int64_t)fuzz_below(from, 64);
		d->strides[i] = (int64_t)fuzz_below(from, 256) - 64;
	}
	for (uint64_t n = fuzz_below(from, 4); n > 0; n--) {
		uint64_t at = fuzz_below(from, sizeof *d / 8) * 8;
		uint64_t value = fuzz_take(from, 8);
		memcpy((uint8_t *)d + at, &value, 8);
	}
}

static void send_all(int to, struct fuzz_bytes *from)
{
	uint8_t message[sizeof(hoist_ipc_descriptor) + 64] = {0};
	hoist_ipc_descriptor d;
	int fds[MOST_FDS];
	make_descriptor(from, &d);
	memcpy(message, &d, sizeof d);
	size_t n = fuzz_below(from, 16) == 0 ? fuzz_below(from, sizeof message) : sizeof d;
	size_t cut = fuzz_below(from, 8) == 0 ? fuzz_below(from, n + 1) : n;
	size_t n_fds = fuzz_below(from, 8) == 0 ? fuzz_below(from, MOST_FDS + 1) : 1;
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = descriptor(fuzz_below(from, 8) == 0 ? fuzz_below(from, 4) : 4);
	bool first = fuzz_below(from, 16) != 0; /* with the first bytes, as they should */
	if (cut > 0)
		HOLDS(pass_fds(to, message, cut, fds, first ? n_fds : 0));
	if (n > cut)
		HOLDS(pass_fds(to, message + cut, n - cut, fds, first ? 0 : n_fds));
	for (size_t i = 0; i < n_fds; i++)
		HOLDS(close(fds[i]) == 0);
}

/* The first and the last byte of its elements are there. */
static void use(hoist_buffer *buffer)
{
	hoist_buffer_info info = {.size = sizeof info};
	volatile uint8_t *data = hoist_buffer_data(buffer);
	int64_t low = 0;
	int64_t high = 0;
	HOLDS(hoist_buffer_get_info(buffer, &info) == 0);
	if (hoist_buffer_elements(buffer) == 0)
		return;
	HOLDS(data != NULL);
	if (hoist__layout_bounds(hoist_buffer_dtype(buffer), hoist_buffer_rank(buffer),
				 hoist_buffer_shape(buffer), hoist_buffer_strides(buffer), &low,
				 &high) < 0)
		return; /* blocks with strides, or bits that begin within a byte */
	HOLDS(high - low <= MEMORY_BYTES);
	(void)data[low];
	(void)data[high - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct fuzz_bytes from = {bytes, n};
	hoist_buffer *buffer = NULL;
	int ends[2];
	size_t n_fds = fuzz_n_fds();
	int type = fuzz_below(&from, 2) ? SOCK_STREAM : SOCK_SEQPACKET;
	HOLDS(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
	send_all(ends[0], &from);
	HOLDS(close(ends[0]) == 0);
	int err = hoist_ipc_receive(ends[1], 1000, &buffer);
	HOLDS((err == 0) == (buffer != NULL) && err != -ETIMEDOUT);
	if (err < 0)
		fuzz_check_text(hoist_error());
	else
		use(buffer);
	hoist_buffer_unref(buffer);
	HOLDS(close(ends[1]) == 0);
	HOLDS(fuzz_n_fds() == n_fds);
	fuzz_check_mappings("/memfd:");
	return 0;
}
