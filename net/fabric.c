/* SPDX-License-Identifier: MIT */
/* net/fabric.c - the worker: it opens, receives, progresses and closes.
 * The contract is in net/fabric.h. */
#include "config.h"

#include "net/fabric.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/fabric-private.h"

/* Rounds of one hoist__fabric_progress(), so that busy peers do not keep the caller. */
#define MOST_ROUNDS 1000
/* After so many progresses that found nothing, the caller waits for a change (fabric-private.h). */
#define MOST_IDLE 4u

/* --- transfers --- */

struct hoist__transfer *hoist__transfer_begin(struct hoist__fabric *fabric, bool is_send)
{
	struct hoist__transfer *transfer = calloc(1, sizeof *transfer);
	if (transfer == NULL)
		return NULL;
	transfer->fabric = fabric;
	transfer->is_send = is_send;
	hoist__list_push_back(&fabric->transfers, &transfer->link);
	fabric->n_transfers++;
	return transfer;
}

void hoist__transfer_forget(struct hoist__transfer *transfer)
{
	struct hoist__fabric *fabric = transfer->fabric;
	hoist__list_remove(&transfer->link);
	if (--fabric->n_transfers == 0)
		fabric->still_at = hoist__now_ns();
	free(transfer);
}

void hoist__transfer_end(struct hoist__transfer *transfer, int err)
{
	const struct hoist__fabric_options *options = &transfer->fabric->options;
	const struct hoist__transfer ended = *transfer;
	hoist__transfer_forget(transfer);
	if (ended.is_send)
		options->handlers.sent(options->context, ended.owner, err);
	else
		options->handlers.arrived(options->context, ended.header.ticket,
					  ended.header.offset, ended.bytes, err);
}

hoist__ucp_request_param hoist__transfer_param(struct hoist__transfer *transfer)
{
	return (hoist__ucp_request_param){
		.op_attr_mask = HOIST__UCP_OP_CALLBACK | HOIST__UCP_OP_USER_DATA |
				HOIST__UCP_OP_MEMORY_TYPE | HOIST__UCP_OP_MEMH,
		.user_data = transfer,
		.memory_type = HOIST__UCS_MEMORY_HOST,
		.memh = transfer->fabric->memory,
	};
}

/* --- messages that come --- */

static bool in_arena(const struct hoist__fabric *fabric, const void *place, size_t bytes)
{
	uintptr_t offset = (uintptr_t)place - (uintptr_t)fabric->options.arena;
	return offset <= fabric->options.arena_bytes &&
	       bytes <= fabric->options.arena_bytes - offset;
}

static void on_received(void *request, hoist__ucs_status status, size_t bytes, void *user_data)
{
	struct hoist__transfer *transfer = user_data;
	hoist__ucx.ucp_request_free(request);
	int err = status < 0 ? hoist__ucx_error(status) : 0;
	if (err == 0 && bytes != transfer->bytes)
		err = -EMSGSIZE;
	hoist__transfer_end(transfer, err);
}

/* Lets UCX bring the bytes of a rendezvous.  The answer is the active message handler's: an error
 * tells UCX to drop the bytes, and to end the sender's send with it. */
static hoist__ucs_status fetch(struct hoist__fabric *fabric,
			       const struct hoist__fabric_header *header, void *place, void *data,
			       size_t bytes)
{
	struct hoist__transfer *transfer = hoist__transfer_begin(fabric, false);
	if (transfer == NULL) {
		fabric->options.handlers.arrived(fabric->options.context, header->ticket,
						 header->offset, bytes, -ENOMEM);
		return HOIST__UCS_ERR_NO_MEMORY;
	}
	transfer->header = *header;
	transfer->bytes = bytes;
	hoist__ucp_request_param param = hoist__transfer_param(transfer);
	param.cb.recv_am = on_received;
	hoist__ucs_status_ptr answer =
		hoist__ucx.ucp_am_recv_data_nbx(fabric->worker, data, place, bytes, &param);
	if (hoist__ucx_is_error(answer)) {
		hoist__ucs_status status = hoist__ucx_status(answer);
		hoist__transfer_end(transfer, hoist__ucx_error(status));
		return status;
	}
	if (answer == NULL)
		hoist__transfer_end(transfer, 0);
	return HOIST__UCS_INPROGRESS;
}

/* UCX calls this for each message that comes, from whomever.  HOIST__UCS_OK drops the bytes of a
 * rendezvous that was not begun, and the sender's send ends well. */
static hoist__ucs_status on_message(void *arg, const void *bytes_of_header, size_t header_bytes,
				    void *data, size_t bytes,
				    const struct hoist__ucp_am_recv_param *param)
{
	struct hoist__fabric *fabric = arg;
	struct hoist__fabric_header header;
	if (fabric->closing || header_bytes != sizeof header || bytes == 0)
		return HOIST__UCS_OK;
	memcpy(&header, bytes_of_header, sizeof header);
	if (le32toh(header.magic) != HOIST__FABRIC_MAGIC)
		return HOIST__UCS_OK;
	header.offset = le32toh(header.offset);
	header.ticket = le64toh(header.ticket);
	const struct hoist__fabric_options *options = &fabric->options;
	void *place =
		options->handlers.place(options->context, header.ticket, header.offset, bytes);
	if (place == NULL)
		return HOIST__UCS_OK;
	HOIST__ASSERT(in_arena(fabric, place, bytes));
	if ((param->recv_attr & HOIST__UCP_AM_RECV_RNDV) != 0)
		return fetch(fabric, &header, place, data, bytes);
	memcpy(place, data, bytes);
	options->handlers.arrived(options->context, header.ticket, header.offset, bytes, 0);
	return HOIST__UCS_OK;
}

/* --- opening and closing --- */

static int map_arena(struct hoist__fabric *fabric)
{
	const struct hoist__ucp_mem_params params = {
		.field_mask = HOIST__UCP_MEM_ADDRESS | HOIST__UCP_MEM_LENGTH | HOIST__UCP_MEM_TYPE,
		.address = fabric->options.arena,
		.length = fabric->options.arena_bytes,
		.memory_type = HOIST__UCS_MEMORY_HOST,
	};
	hoist__ucp_mem memory = NULL;
	hoist__ucs_status status = hoist__ucx.ucp_mem_map(fabric->context, &params, &memory);
	if (status < 0)
		return hoist__ucx_fail(status, "registering memory (see `ulimit -l`)");
	fabric->memory = memory;
	return 0;
}

/* Makes `edges`. */
static int watch_edges(struct hoist__fabric *fabric)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	fabric->edges = epoll_create1(EPOLL_CLOEXEC);
	if (fabric->edges < 0 || epoll_ctl(fabric->edges, EPOLL_CTL_ADD, fabric->fd, &event) < 0)
		return hoist__fail_errno(-errno, "watching UCX's descriptor");
	return 0;
}

static int make_worker(struct hoist__fabric *fabric)
{
	const struct hoist__ucp_worker_params params = {
		.field_mask = HOIST__UCP_WORKER_THREAD_MODE,
		.thread_mode = HOIST__UCS_THREAD_SINGLE,
	};
	const struct hoist__ucp_am_handler_param handler = {
		.field_mask = HOIST__UCP_AM_ID | HOIST__UCP_AM_FLAGS | HOIST__UCP_AM_CB |
			      HOIST__UCP_AM_ARG,
		.id = HOIST__FABRIC_AM,
		.flags = HOIST__UCP_AM_WHOLE,
		.cb = on_message,
		.arg = fabric,
	};
	hoist__ucp_worker worker = NULL;
	hoist__ucs_status status = hoist__ucx.ucp_worker_create(fabric->context, &params, &worker);
	if (status < 0)
		return hoist__ucx_fail(status, "making a worker");
	fabric->worker = worker;
	status = hoist__ucx.ucp_worker_set_am_recv_handler(worker, &handler);
	if (status < 0)
		return hoist__ucx_fail(status, "setting the handler of messages");
	status = hoist__ucx.ucp_worker_get_efd(worker, &fabric->fd);
	if (status < 0)
		return hoist__ucx_fail(status, "asking for the worker's descriptor");
	int err = watch_edges(fabric);
	if (err < 0)
		return err;
	hoist__ucp_address *address = NULL;
	size_t bytes = 0;
	status = hoist__ucx.ucp_worker_get_address(worker, &address, &bytes);
	if (status < 0)
		return hoist__ucx_fail(status, "asking for the worker's address");
	err = hoist__fabric_pack(fabric, address, bytes);
	hoist__ucx.ucp_worker_release_address(worker, address);
	return err;
}

/* Frees all that there is.  Pre: UCX has no transfer of ours. */
static void destroy(struct hoist__fabric *fabric)
{
	if (fabric->edges >= 0)
		(void)close(fabric->edges);
	if (fabric->worker != NULL)
		hoist__ucx.ucp_worker_destroy(fabric->worker);
	if (fabric->memory != NULL)
		(void)hoist__ucx.ucp_mem_unmap(fabric->context, fabric->memory);
	if (fabric->context != NULL)
		hoist__ucx.ucp_cleanup(fabric->context);
	for (struct hoist__list *link; (link = hoist__list_pop(&fabric->stuck)) != NULL;)
		free(HOIST__CONTAINER_OF(link, struct hoist__fabric_peer, link));
	free(fabric->address);
	free(fabric);
}

int hoist__fabric_open(const struct hoist__fabric_options *options, struct hoist__fabric **ret)
{
	struct hoist__fabric *fabric = calloc(1, sizeof *fabric);
	if (fabric == NULL)
		return hoist__fail_nomem("a fabric", sizeof *fabric);
	fabric->options = *options;
	fabric->fd = fabric->edges = -1;
	fabric->met_at = hoist__now_ns();
	hoist__list_init(&fabric->peers);
	hoist__list_init(&fabric->draining);
	hoist__list_init(&fabric->stuck);
	hoist__list_init(&fabric->transfers);
	hoist__ucp_context context = NULL;
	int err = hoist__ucx_init(options->transports, &context);
	if (err == 0) {
		fabric->context = context;
		err = map_arena(fabric);
	}
	if (err == 0)
		err = make_worker(fabric);
	if (err < 0) {
		destroy(fabric);
		return err;
	}
	*ret = fabric;
	return 0;
}

static bool is_busy(const struct hoist__fabric *fabric)
{
	return fabric->n_transfers > 0 || fabric->n_leaving > 0;
}

/* Progresses until all has ended, for @ns at most. */
static void settle(struct hoist__fabric *fabric, uint64_t ns)
{
	uint64_t deadline = hoist__now_ns() + ns;
	hoist__fabric_progress(fabric);
	while (is_busy(fabric) && hoist__now_ns() < deadline) {
		struct pollfd entry = {.fd = hoist__fabric_fd(fabric), .events = POLLIN};
		if (hoist__fabric_arm(fabric))
			(void)poll(&entry, 1, 10);
		hoist__fabric_progress(fabric);
	}
}

/* UCX before 1.16 aborts the process if its worker is destroyed while it has to answer a peer that
 * has just connected ("got REP message", ucp_request.c; seen in 1.13): lets it answer. */
static void answer_young(struct hoist__fabric *fabric)
{
	uint64_t deadline = hoist__now_ns() + HOIST__FABRIC_QUIET_NS;
	bool quiet =
		fabric->worker == NULL || hoist__now_ns() - fabric->met_at > HOIST__FABRIC_YOUNG_NS;
	while (!quiet && hoist__ucx_before_1_16() && hoist__now_ns() < deadline) {
		struct pollfd entry = {.fd = hoist__fabric_fd(fabric), .events = POLLIN};
		quiet = hoist__fabric_arm(fabric) && poll(&entry, 1, 10) == 0;
		hoist__fabric_progress(fabric);
	}
}

bool hoist__fabric_close(struct hoist__fabric *fabric)
{
	if (fabric == NULL)
		return true;
	fabric->closing = true;
	settle(fabric, HOIST__FABRIC_DRAIN_NS);
	answer_young(fabric);
	while (!hoist__list_empty(&fabric->peers))
		hoist__fabric_disconnect(
			HOIST__CONTAINER_OF(fabric->peers.next, struct hoist__fabric_peer, link));
	settle(fabric, HOIST__FABRIC_CLOSE_NS);
	if (is_busy(fabric)) {
		hoist__log(io, "UCX: %u transfers and %u connections did not end; abandoned",
			   fabric->n_transfers, fabric->n_leaving);
		return false;
	}
	destroy(fabric);
	return true;
}

/* --- the loop --- */

void hoist__fabric_address(const struct hoist__fabric *fabric, const void **ret, size_t *ret_bytes)
{
	*ret = fabric->address;
	*ret_bytes = fabric->address_bytes;
}

int hoist__fabric_fd(const struct hoist__fabric *fabric)
{
	return fabric->n_idle < MOST_IDLE ? fabric->fd : fabric->edges;
}

void hoist__fabric_progress(struct hoist__fabric *fabric)
{
	struct epoll_event event;
	unsigned n = 0;
	bool changed = epoll_wait(fabric->edges, &event, 1, 0) > 0;
	while (n < MOST_ROUNDS && hoist__ucx.ucp_worker_progress(fabric->worker) > 0)
		n++;
	hoist__fabric_close_drained(fabric);
	if (changed || n > 0)
		fabric->n_idle = 0;
	else if (fabric->n_idle < MOST_IDLE)
		fabric->n_idle++;
}

bool hoist__fabric_arm(struct hoist__fabric *fabric)
{
	return hoist__ucx.ucp_worker_arm(fabric->worker) == HOIST__UCS_OK;
}

unsigned hoist__fabric_in_flight(const struct hoist__fabric *fabric)
{
	return fabric->n_transfers;
}
