/* SPDX-License-Identifier: MIT */
/* Buffers of every kind that can be shared, sent to a sibling, which looks at each byte; either may
 * be killed meanwhile.
 *
 *     sender    connects                                 seed, tensor; the buffer       waits
 *     taker               says that it is there: 'h'                                'd'
 *
 * A taker that has said 'h' does nothing else before 'd', so that nobody waits in a circle. */
#include "config.h"

#include "hoist/ipc.h"
#include "tests/soak/worker.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LONG_MS 30000 /* siblings are stopped at times, and have one core of eight */

static int listener = -1;

static socklen_t address_of(int slot, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int n = snprintf(ret->sun_path + 1, sizeof ret->sun_path - 1, "hoist-soak-%d-%d",
			 (int)getppid(), slot);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Children of one that was killed may have its socket for a moment. */
void soak_listen(void)
{
	struct sockaddr_un address;
	socklen_t bytes = address_of(self.slot, &address);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(listener >= 0);
	for (int tries = 0; bind(listener, (const struct sockaddr *)&address, bytes) != 0;
	     tries++) {
		CHECK(errno == EADDRINUSE && tries < 1000);
		(void)usleep(10000);
	}
	OK(listen(listener, 4));
}

/* One byte within @ms.  Returns: it came, and is @what. */
static bool hear(int socket, char what, int ms)
{
	char byte = 0;
	struct pollfd ready = {.fd = socket, .events = POLLIN};
	return poll(&ready, 1, ms) == 1 && recv(socket, &byte, 1, MSG_DONTWAIT) == 1 &&
	       byte == what;
}

static bool has_gone(int socket)
{
	struct pollfd state = {.fd = socket, .events = POLLRDHUP};
	return poll(&state, 1, 1000) == 1 && (state.revents & (POLLHUP | POLLRDHUP)) != 0;
}

/* --- sending --- */

static hoist_buffer *make_shareable(const struct soak_model *model, size_t t)
{
	const struct soak_tensor *tensor = &model->tensors[t];
	hoist_buffer *buffer = NULL;
	unsigned char *bytes = malloc(tensor->bytes);
	CHECK(bytes != NULL);
	soak_fill(model, t, tensor->dtype, 0, tensor->elements, bytes);
	if (soak_chance(3))
		OK(hoist_buffer_create_from(soak_pools[POOL_DRIVER], NULL, tensor->dtype,
					    tensor->rank, tensor->shape, 0, &buffer));
	else if (soak_chance(2))
		OK(hoist_buffer_create(soak_devices[1 + soak_below(LIB_N_DEVICES - 1)],
				       tensor->dtype, tensor->rank, tensor->shape, 0, &buffer));
	else
		OK(hoist_buffer_create(soak_devices[CPU], tensor->dtype, tensor->rank,
				       tensor->shape, HOIST_BUFFER_SHAREABLE, &buffer));
	OK(hoist_buffer_copy_in(buffer, bytes, tensor->bytes));
	free(bytes);
	return buffer;
}

static void send_one(int socket)
{
	struct soak_model model;
	soak_model_make(soak_random(), &model);
	uint64_t t = soak_below(model.n);
	const uint64_t words[] = {model.seed, t};
	hoist_buffer *buffer = make_shareable(&model, t);
	bool sent = send(socket, words, sizeof words, MSG_NOSIGNAL) == sizeof words;
	int err = sent ? hoist_ipc_send(socket, buffer, LONG_MS) : -EPIPE;
	CHECK(err == 0 || err == -EPIPE || (err == -ECONNRESET && has_gone(socket)));
	/* It is this process's until the other one has done. */
	if (err != 0 || !hear(socket, 'd', LONG_MS)) {
		CHECK(has_gone(socket));
		soak_count(SOAK_N_no_taker, 1);
	}
	soak_check_whole(&model, t, buffer);
	hoist_buffer_unref(buffer);
}

void soak_send(void)
{
	struct sockaddr_un address;
	int to = (self.slot + 1 + (int)soak_below(SOAK_SLOTS - 1)) % SOAK_SLOTS;
	socklen_t bytes = address_of(to, &address);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(fd >= 0);
	if (connect(fd, (const struct sockaddr *)&address, bytes) == 0 && hear(fd, 'h', 1000))
		send_one(fd);
	else
		soak_count(SOAK_N_no_taker, 1);
	close(fd);
}

/* --- taking --- */

/* Returns: 0; what the failure is, of which the sender's end may be the reason. */
static int take_one(int socket)
{
	uint64_t words[2];
	struct soak_model model;
	hoist_buffer *buffer = NULL;
	struct pollfd ready = {.fd = socket, .events = POLLIN};
	if (send(socket, "h", 1, MSG_NOSIGNAL) != 1 || poll(&ready, 1, LONG_MS) != 1 ||
	    recv(socket, words, sizeof words, MSG_WAITALL) != (ssize_t)sizeof words)
		return -EPIPE;
	soak_model_make(words[0], &model);
	CHECK(words[1] < model.n);
	int err = hoist_ipc_receive(socket, LONG_MS, &buffer);
	if (err != 0)
		return err;
	const struct soak_tensor *tensor = &model.tensors[words[1]];
	struct soak_box box = soak_whole(tensor);
	/* Nobody knows the bytes of a device's memory once its owner has ended. */
	bool same = soak_is(&model, words[1], tensor->dtype, &box, buffer);
	CHECK(same || (!hoist_buffer_is_host(buffer) && has_gone(socket)));
	hoist_buffer_unref(buffer);
	soak_count(SOAK_N_taken, same);
	return send(socket, "d", 1, MSG_NOSIGNAL) == 1 && same ? 0 : -EPIPE;
}

void soak_take(void)
{
	struct pollfd ready = {.fd = listener, .events = POLLIN};
	if (poll(&ready, 1, 50) != 1)
		return;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	soak_begin(SOAK_take, soak_random());
	int err = take_one(fd);
	if (err != 0) {
		if (!has_gone(fd))
			(void)fprintf(stderr, "taking: %d\n", err);
		CHECK(has_gone(fd));
		soak_count(SOAK_N_torn, 1);
	}
	close(fd);
	soak_begin(SOAK_idle, soak_random());
}
