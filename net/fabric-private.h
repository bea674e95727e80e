/* SPDX-License-Identifier: MIT */
/* net/fabric-private.h - the structs of the fabric; private to net/fabric*.c.
 *
 * A message is UCX's active message HOIST__FABRIC_AM: the header, and the bytes.
 * No ucp_ep_flush_nbx(): UCX asks for a flush before the first use of a remote key, and active
 * messages have none.
 *
 * The address that members exchange:
 *
 *     [ 8 bytes "HOISTUCX" ][ u16 major ][ u16 minor ][ u32 bytes ][ u64 digest ][ UCX's address ]
 *
 * The version is UCX's.  The digest (FNV-1a, 64 bits) is of the address.  Numbers are
 * little-endian.
 *
 * UCX's tcp waits until it may write to a peer that has not answered its greeting, though it
 * writes nothing before the answer (uct_tcp_ep_check_tx_res(), WAITING_ACK; seen in UCX 1.13 to
 * 1.22).  Until then UCX's descriptor is readable all the time: while a peer hangs, or a firewall
 * swallows the answer.  So after some progresses that found nothing, the caller waits for `edges`,
 * which is readable once something has changed at UCX's descriptor since the last progress.
 */
#ifndef HOIST_NET_FABRIC_PRIVATE_H
#define HOIST_NET_FABRIC_PRIVATE_H

#include <stdbool.h>

#include "base/list.h"
#include "net/fabric.h"
#include "net/ucx.h"

#define HOIST__FABRIC_AM 7u
#define HOIST__FABRIC_MAGIC 0x48557831u

/* For how long hoist__fabric_close() lets transfers with peers that live come to their end, and
 * then waits for those that it has broken. */
#define HOIST__FABRIC_DRAIN_NS (UINT64_C(2) * 1000000000)
/* UCX before 1.16: connections younger than this may still have answers to send. */
#define HOIST__FABRIC_YOUNG_NS (UINT64_C(1) * 1000000000)
#define HOIST__FABRIC_QUIET_NS (UINT64_C(100) * 1000000)
#define HOIST__FABRIC_CLOSE_NS (UINT64_C(10) * 1000000000)
/* UCX before 1.16: for how long, at most, the endpoint of a disconnected peer stays open for
 * transfers. */
#define HOIST__FABRIC_LEAVE_NS (UINT64_C(1) * 1000000000)
/* The time after the last transfer in which UCX may still write bytes that it has copied. */
#define HOIST__FABRIC_WRITE_NS (UINT64_C(50) * 1000000)

struct hoist__fabric_header {
	uint32_t magic;
	uint32_t offset;
	uint64_t ticket;
};

struct hoist__fabric {
	struct hoist__fabric_options options;
	hoist__ucp_context context;
	hoist__ucp_worker worker;
	hoist__ucp_mem memory;
	void *address;
	size_t address_bytes;
	int fd;			      /* UCX's */
	int edges;		      /* an epoll of `fd`, edge-triggered */
	uint64_t met_at;	      /* opened, or connected to a peer, last */
	unsigned n_idle;	      /* progresses in a row that found nothing */
	bool closing;		      /* nothing is placed any more */
	struct hoist__list peers;     /* that the caller has */
	struct hoist__list draining;  /* disconnected; their endpoints wait for transfers */
	struct hoist__list stuck;     /* peers whose endpoints UCX would not close */
	struct hoist__list transfers; /* that UCX has */
	unsigned n_transfers;
	uint64_t still_at;  /* the last transfer ended */
	unsigned n_leaving; /* endpoints that wait in `draining`, or that UCX is closing */
};

/* A send or a place that UCX works on. */
struct hoist__transfer {
	struct hoist__list link;
	struct hoist__fabric *fabric;
	struct hoist__fabric_header header; /* UCX reads it until a send has ended */
	size_t bytes;
	bool is_send;
	void *owner; /* of a send */
};

/* Lives until UCX has closed the endpoint. */
struct hoist__fabric_peer {
	struct hoist__list link;
	struct hoist__fabric *fabric;
	hoist__ucp_ep ep;
	void *owner;
	bool broken;
	bool left;	  /* the caller has disconnected, */
	uint64_t left_at; /* at this time */
};

/* Makes a transfer that counts as in flight.  Returns: NULL if there is no memory. */
struct hoist__transfer *hoist__transfer_begin(struct hoist__fabric *fabric, bool is_send);

/* Forgets a transfer that UCX has not begun, or has ended. */
void hoist__transfer_forget(struct hoist__transfer *transfer);

/* Ends a transfer, and tells its handler. */
void hoist__transfer_end(struct hoist__transfer *transfer, int err);

/* The parameters of both kinds of transfers. */
hoist__ucp_request_param hoist__transfer_param(struct hoist__transfer *transfer);

/* Closes the endpoints of `draining` whose peer is broken or whose time is over, and all of them if
 * no transfer of any peer is or was in flight lately. */
void hoist__fabric_close_drained(struct hoist__fabric *fabric);

/* Makes the address that members exchange, from the worker's.  Returns: 0; -ENOMEM. */
int hoist__fabric_pack(struct hoist__fabric *fabric, const void *address, size_t bytes);

#endif
