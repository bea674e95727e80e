/* SPDX-License-Identifier: MIT */
/* net/fabric.h - bulk bytes between processes by UCX (libucp.so.0), opened at run time.
 *
 * One fabric is one UCX worker: the process's end of all its transfers.  The caller learns the
 * address of a peer's worker by a way of its own (net/channel.h), connects, and sends.
 *
 *     sender                                      receiver
 *     hoist__fabric_send(peer, ticket, offset, bytes)
 *       --- active message: ticket, offset ---------> place(ticket, offset, n): where to, or NULL
 *       --- the bytes, eager or by rendezvous ------> arrived(ticket, offset, n, 0)
 *     sent(owner, 0)
 *
 * A ticket is a number that the receiver has given the sender beforehand.  The receiver takes bytes
 * only under tickets that it knows, to where it wants them: no message of hoist's can name an
 * address.  Bytes of other tickets are dropped, and their send ends with 0.  An `err` of 0 says
 * that nobody reads the bytes any more, not that the peer has them: the receiver says that in the
 * channel.
 *
 * Both members connect to each other before they give each other tickets.  UCX takes messages of
 * workers that it was not told to connect to, too, but `broken` does not tell of their failure.
 *
 * Messages of HOIST__FABRIC_RENDEZVOUS bytes and more go by UCX's rendezvous, without a copy in the
 * process.  Where all lanes of a peer are RDMA, the rendezvous is a one-sided GET by the receiver
 * into `arena`.
 *
 * Safety: the network is trusted.  UCX neither authenticates nor encrypts.  Its tcp transport
 * listens at a port of each device.  A program that reaches this port, and speaks UCX's protocol,
 * can write to any address of the process, whichever features were asked for: UCX's
 * uct_tcp_ep_handle_put_req() takes the address from the message.  HOIST_UCX_NET_DEVICES names the
 * devices, UCX_TCP_PORT_RANGE the ports, for a firewall's rules.  An address from a peer is
 * trusted, too, as UCX's reader of addresses checks little.  hoist__fabric_connect() refuses an
 * address that is too long, is of another version of UCX, or has other bytes than were packed.  A
 * member that forges the digest as well can mislead UCX: connect only to members that have proved
 * that they know the secret (net/channel.h).
 *
 * Process-wide: UCX reads UCX_ERROR_SIGNALS, UCX_MEM_EVENTS, UCX_MEMTYPE_CACHE, UCX_LOG_LEVEL and
 * UCX_LOG_FILE from the environment when it is loaded.  hoist sets those that the program has not
 * set ("", "n", "n", "fatal" and "stderr"), so that UCX installs no signal handlers and no memory
 * hooks, and does not print.  Once UCX is loaded, hoist takes them away again.  No other thread may
 * read or change the environment during the first hoist__fabric_open() or hoist__fabric_probe().
 * libucs.so.0 is loaded first, with RTLD_GLOBAL.  Signal handlers that UCX installs all the same
 * are put back.  The libraries are loaded once and never unloaded.  A program with raised
 * privileges (set-uid) does not load UCX, which obeys the environment.
 *
 * UCP's settings (TLS, NET_DEVICES, RNDV_SCHEME ...) are HOIST_UCX_* of the environment, or UCX_*
 * where there is no HOIST_UCX_*; those of a transport are UCX_* only.  Members of one machine use
 * tcp, and cma beside it: UCX does not use shared memory for connections whose failure it reports.
 * UCX_POSIX_ERROR_HANDLING=y changes that, and is not for use: transfers with a peer that died or
 * hangs then need not end (seen in UCX 1.13 and 1.22).
 *
 * A child of fork() must not touch a fabric.
 *
 * Failures of a peer (it died, it cannot be reached) come to `broken`, once; transfers with this
 * peer then end with an error.  A peer that died is noticed at once where its kernel closes a
 * connection (tcp), or after the timeout of RDMA hardware.  A peer that hangs is not noticed here:
 * the caller has heartbeats of its own, and calls hoist__fabric_disconnect().  Messages of a peer
 * that is disconnected may still come, until its side has noticed: the caller forgets its tickets
 * first.
 *
 * UCX's own heartbeats between endpoints are off (KEEPALIVE_INTERVAL): they crash while an endpoint
 * is being closed (seen in UCX 1.13 and 1.22).  UCX before 1.16 also crashes, or aborts the process
 * of either side, if an endpoint is closed while its peer lives and transfers are in flight.  So,
 * before 1.16, hoist__fabric_disconnect() lets transfers end, for 1 s at most, before it closes the
 * endpoint, unless the connection fails first.  With all versions, hoist__fabric_close() first lets
 * transfers end, for 2 s at most.  Before 1.16, it then lets UCX answer peers that have connected
 * within the last second, for 0.1 s at most.  UCX 1.22 crashes with UCX_TCP_TX_SEG_SIZE=64k, which
 * makes its tcp twice as fast, when an endpoint is closed amid transfers: UCX's own size stays.
 *
 * UCX before 1.16 may also abort where a write of bytes that it has not copied fails, because the
 * peer has died.  So hoist has such a UCX copy all that it sends (UCX_ZCOPY_THRESH=inf), unless the
 * program has set UCX_ZCOPY_THRESH or HOIST_UCX_ZCOPY_THRESH.
 *
 * UCX before 1.16 also aborts the process if a peer has connected first, has died, and this side
 * connects then (tcp_ep.c, uct_tcp_ep_connect()).  At once before hoist__fabric_connect(), the
 * caller calls hoist__fabric_progress(), so that UCX sees ends of connections, and looks whether
 * the peer lives: a death in the microseconds between is not covered.  An order of connecting would
 * not help: the second side aborts.  Nor does UCX_TCP_CONN_NB=y, which hoist sets for 1.16 and
 * newer: UCX 1.13 then aborts in other places.  So, before 1.16, hoist__fabric_connect() blocks for
 * 3 s where a firewall swallows the packets to the peer's port, and then fails: hoist sets
 * UCX_TCP_SYN_CNT=1.  A program's own value of either counts.
 *
 * Threads: one at a time.  Handlers are called from within hoist__fabric_progress(), _send(),
 * _disconnect() and _close(), and may call _send() but not _disconnect() or _close().
 */
#ifndef HOIST_NET_FABRIC_H
#define HOIST_NET_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__FABRIC_RENDEZVOUS ((size_t)64 << 10)
#define HOIST__FABRIC_ADDRESS_MOST 16384u /* bytes of an address */

struct hoist__fabric;
struct hoist__fabric_peer;

struct hoist__fabric_handlers {
	/* Where @bytes of @ticket, which begin @offset bytes behind its beginning, go: @bytes of
	 * the arena.  NULL: the bytes are dropped.  A hostile peer chooses all three numbers.  Each
	 * place gets its `arrived`. */
	void *(*place)(void *context, uint64_t ticket, uint32_t offset, size_t bytes);
	/* Bytes for which `place` gave a place are there (@err 0), or will never be written any
	 * more: -ECONNRESET, -ECANCELED and the like. */
	void (*arrived)(void *context, uint64_t ticket, uint32_t offset, size_t bytes, int err);
	/* The bytes of a send are not read any more: 0, or they did not all arrive. */
	void (*sent)(void *context, void *owner, int err);
	/* The peer's connection has failed.  hoist__fabric_disconnect() is still to be called. */
	void (*broken)(void *context, void *peer_owner, int err);
};

struct hoist__fabric_options {
	struct hoist__fabric_handlers handlers;
	void *context;
	/* Memory of the host that sends come from and places lie in; registered once.  Outlives the
	 * fabric. */
	void *arena;
	size_t arena_bytes;
	const char *transports; /* UCX_TLS; NULL: as the environment, or UCX, has it */
};

/* Returns: 0; -ENOSYS (no libucp.so.0, or one that lacks a function; the text names which, and the
 * package); -EPERM (a program with raised privileges); -EAGAIN (no thread, or not 256 MiB of
 * addresses: UCX would end the process); -ENODEV (UCX has no transport, or none of
 * @transports); -EMSGSIZE (an address of more than HOIST__FABRIC_ADDRESS_MOST bytes); -EMFILE;
 * -ENOMEM; other errors of UCX, as errno values. */
int hoist__fabric_open(const struct hoist__fabric_options *options, struct hoist__fabric **ret);

/* The address of this worker, to be given to those that shall connect: at most
 * HOIST__FABRIC_ADDRESS_MOST bytes, valid as long as the fabric. */
void hoist__fabric_address(const struct hoist__fabric *fabric, const void **ret, size_t *ret_bytes);

/* Readable when there may be something to progress, once the fabric is armed.  Valid until the next
 * progress: later waits may be for another descriptor. */
int hoist__fabric_fd(const struct hoist__fabric *fabric);

/* Handles transfers until there is nothing more to handle; at most for a while if peers are busy:
 * then hoist__fabric_arm() says false. */
void hoist__fabric_progress(struct hoist__fabric *fabric);

/* True: the caller may sleep until the descriptor is readable.  False: progress first.  The last
 * progress may have brought the caller's bytes: the caller looks before the sleep. */
bool hoist__fabric_arm(struct hoist__fabric *fabric);

/* Begins to connect to the worker at @address, which another process has sent.
 * A peer that cannot be reached may come to `broken` only.
 * Returns: 0; -EBADMSG (no address of a worker); -EPROTONOSUPPORT (the peer's UCX has another
 * version: UCX does not promise that two versions understand each other); -EHOSTUNREACH (no
 * transport in common); -ENOMEM; other errors of UCX. */
int hoist__fabric_connect(struct hoist__fabric *fabric, const void *address, size_t bytes,
			  void *peer_owner, struct hoist__fabric_peer **ret);

/* Sends @bytes, at least 1, of the arena, which stay valid and unchanged until `sent` is called.
 * `sent` is called for each send that returned 0, also within this call.
 * Returns: 0; -ECONNRESET (also after `broken`); -ENOMEM; other errors of UCX. */
int hoist__fabric_send(struct hoist__fabric_peer *peer, uint64_t ticket, uint32_t offset,
		       const void *bytes, size_t n_bytes, void *owner);

/* Ends the connection.  `peer` is invalid afterwards.  Transfers with this peer end, well or with
 * an error, from within this or a later hoist__fabric_progress(): at once, or, before UCX 1.16,
 * within a second. */
void hoist__fabric_disconnect(struct hoist__fabric_peer *peer);

/* Sends and places that have not ended, of all peers, also of those that are disconnected. */
unsigned hoist__fabric_in_flight(const struct hoist__fabric *fabric);

/* Lets transfers come to their end, for 2 s at most (before UCX 1.16: 3 s); then breaks all
 * connections, sleeps until UCX has ended the transfers, for 10 s at most, and frees the worker.
 * Nothing is placed meanwhile.  Takes NULL.
 * Returns: true; false: some transfer did not end.  Then the fabric is abandoned: its handlers are
 * not called any more, but UCX may still read and write the arena, which must stay. */
bool hoist__fabric_close(struct hoist__fabric *fabric);

/* --- for reports and doctor --- */

struct hoist__fabric_facts {
	unsigned major;
	unsigned minor;
	unsigned patch;
	char library[256];     /* the path of libucp */
	char transports[4096]; /* "tcp/eth0 posix/memory ...": transport/device, in UCX's order */
	unsigned n_more;       /* that have no room there */
	bool rdma;	       /* one is RDMA */
	bool network;	       /* one reaches other machines */
};

/* Adds the transports and devices by which bytes go to the peer, "tcp/eth0 rc_mlx5/mlx5_0:1", to
 * @text, words that are not there yet.  UCX knows them once bytes have gone.  Not from a handler.
 * Returns: 0; -ENOMEM. */
int hoist__fabric_way(const struct hoist__fabric_peer *peer, char *text, size_t bytes);

/* Returns: as hoist__fabric_open(). */
int hoist__fabric_probe(struct hoist__fabric_facts *ret);

#endif
