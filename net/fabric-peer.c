/* SPDX-License-Identifier: MIT */
/* net/fabric-peer.c - peers: their addresses, endpoints and sends.
 * The contract is in net/fabric.h, and the form of an address in net/fabric-private.h. */
#include "config.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "net/fabric-private.h"
#include "net/fabric.h"

/* --- addresses --- */

static const unsigned char magic[8] = {'H', 'O', 'I', 'S', 'T', 'U', 'C', 'X'};

struct envelope {
	unsigned char magic[8];
	uint16_t major;
	uint16_t minor;
	uint32_t bytes;
	uint64_t digest;
};

static uint64_t digest_of(const unsigned char *bytes, size_t n_bytes)
{
	uint64_t digest = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < n_bytes; i++)
		digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
	return digest;
}

int hoist__fabric_pack(struct hoist__fabric *fabric, const void *address, size_t bytes)
{
	unsigned major, minor, patch;
	struct envelope envelope;
	size_t all = sizeof envelope + bytes;
	if (all > HOIST__FABRIC_ADDRESS_MOST)
		return hoist__fail(-EMSGSIZE,
				   "UCX: the worker's address has %zu bytes, more than %u; name "
				   "fewer devices in HOIST_UCX_NET_DEVICES",
				   all, HOIST__FABRIC_ADDRESS_MOST);
	unsigned char *packed = malloc(all);
	if (packed == NULL)
		return hoist__fail_nomem("the address of a worker", all);
	hoist__ucx.ucp_get_version(&major, &minor, &patch);
	memcpy(envelope.magic, magic, sizeof magic);
	envelope.major = htole16((uint16_t)major);
	envelope.minor = htole16((uint16_t)minor);
	envelope.bytes = htole32((uint32_t)bytes);
	envelope.digest = htole64(digest_of(address, bytes));
	memcpy(packed, &envelope, sizeof envelope);
	memcpy(packed + sizeof envelope, address, bytes);
	fabric->address = packed;
	fabric->address_bytes = all;
	return 0;
}

/* Checks all that can be checked before UCX reads the address. */
static int check_address(const unsigned char *address, size_t bytes)
{
	unsigned major, minor, patch;
	struct envelope envelope;
	if (bytes <= sizeof envelope || bytes > HOIST__FABRIC_ADDRESS_MOST)
		return hoist__fail(-EBADMSG, "UCX: no address of a worker: it has %zu bytes",
				   bytes);
	memcpy(&envelope, address, sizeof envelope);
	if (memcmp(envelope.magic, magic, sizeof magic) != 0)
		return hoist__fail(-EBADMSG, "UCX: no address of a worker: it begins otherwise");
	hoist__ucx.ucp_get_version(&major, &minor, &patch);
	if (le16toh(envelope.major) != major || le16toh(envelope.minor) != minor)
		return hoist__fail(-EPROTONOSUPPORT,
				   "UCX has version %u.%u there, and %u.%u here; install the same "
				   "version on all machines",
				   le16toh(envelope.major), le16toh(envelope.minor), major, minor);
	size_t rest = bytes - sizeof envelope;
	if (le32toh(envelope.bytes) != rest ||
	    le64toh(envelope.digest) != digest_of(address + sizeof envelope, rest))
		return hoist__fail(-EBADMSG,
				   "UCX: no address of a worker: %zu bytes are not those that "
				   "were sent",
				   bytes);
	return 0;
}

/* --- endpoints --- */

/* UCX calls this once, when the peer has failed; never after the endpoint is closed.  A caller that
 * has disconnected is not told. */
static void on_broken(void *arg, hoist__ucp_ep ep, hoist__ucs_status status)
{
	struct hoist__fabric_peer *peer = arg;
	bool told = peer->broken || peer->left;
	(void)ep;
	peer->broken = true;
	if (told)
		return;
	const struct hoist__fabric_options *options = &peer->fabric->options;
	options->handlers.broken(options->context, peer->owner, hoist__ucx_error(status));
}

int hoist__fabric_connect(struct hoist__fabric *fabric, const void *address, size_t bytes,
			  void *peer_owner, struct hoist__fabric_peer **ret)
{
	int err = check_address(address, bytes);
	if (err < 0)
		return err;
	/* A copy: UCX wants it aligned. */
	size_t rest = bytes - sizeof(struct envelope);
	void *copy = malloc(rest);
	struct hoist__fabric_peer *peer = calloc(1, sizeof *peer);
	if (copy == NULL || peer == NULL) {
		free(copy);
		free(peer);
		return hoist__fail_nomem("a peer", sizeof *peer + rest);
	}
	memcpy(copy, (const unsigned char *)address + sizeof(struct envelope), rest);
	*peer = (struct hoist__fabric_peer){.fabric = fabric, .owner = peer_owner};
	const struct hoist__ucp_ep_params params = {
		.field_mask =
			HOIST__UCP_EP_ADDRESS | HOIST__UCP_EP_ERR_MODE | HOIST__UCP_EP_ERR_HANDLER,
		.address = copy,
		.err_mode = HOIST__UCP_ERR_MODE_PEER,
		.err_handler = {.cb = on_broken, .arg = peer},
	};
	hoist__ucs_status status = hoist__ucx.ucp_ep_create(fabric->worker, &params, &peer->ep);
	free(copy);
	if (status < 0) {
		free(peer);
		err = hoist__ucx_fail(status,
				      "connecting (compare `hoist doctor` on both machines)");
		return err == -EINVAL ? -EIO : err; /* no argument is the caller's fault */
	}
	hoist__list_push_back(&fabric->peers, &peer->link);
	fabric->met_at = hoist__now_ns();
	*ret = peer;
	return 0;
}

static void leave(struct hoist__fabric_peer *peer)
{
	peer->fabric->n_leaving--;
	free(peer);
}

static void on_closed(void *request, hoist__ucs_status status, void *user_data)
{
	(void)status;
	hoist__ucx.ucp_request_free(request);
	leave(user_data);
}

static void close_endpoint(struct hoist__fabric_peer *peer)
{
	const hoist__ucp_request_param param = {
		.op_attr_mask =
			HOIST__UCP_OP_CALLBACK | HOIST__UCP_OP_USER_DATA | HOIST__UCP_OP_FLAGS,
		.flags = HOIST__UCP_EP_CLOSE_FORCE,
		.cb.send = on_closed,
		.user_data = peer,
	};
	hoist__list_remove(&peer->link);
	hoist__ucs_status_ptr answer = hoist__ucx.ucp_ep_close_nbx(peer->ep, &param);
	if (answer == NULL)
		leave(peer);
	/* An endpoint that cannot be closed ends with the worker, and knows the peer until then. */
	if (hoist__ucx_is_error(answer)) {
		peer->fabric->n_leaving--;
		hoist__list_push_back(&peer->fabric->stuck, &peer->link);
	}
}

/* UCX before 1.16 must not close an endpoint that has bytes to write.  Its tcp goes on writing
 * these bytes.  If the peer closes its own endpoint meanwhile, UCX frees the endpoint, and then
 * reads the freed memory (tcp_iface.c, uct_tcp_iface_handle_events()).  So transfers end first, and
 * the last bytes, which UCX has copied, have some time to be written.  Transfers with a peer that
 * hangs do not end, but such a peer does not close either. */
void hoist__fabric_close_drained(struct hoist__fabric *fabric)
{
	if (hoist__list_empty(&fabric->draining))
		return;
	uint64_t now = hoist__now_ns();
	bool written = fabric->n_transfers == 0 && now - fabric->still_at > HOIST__FABRIC_WRITE_NS;
	struct hoist__list *next;
	for (struct hoist__list *link = fabric->draining.next; link != &fabric->draining;
	     link = next) {
		struct hoist__fabric_peer *peer =
			HOIST__CONTAINER_OF(link, struct hoist__fabric_peer, link);
		next = link->next;
		if (peer->broken || written || now - peer->left_at > HOIST__FABRIC_LEAVE_NS)
			close_endpoint(peer);
	}
}

void hoist__fabric_disconnect(struct hoist__fabric_peer *peer)
{
	peer->left = true;
	peer->left_at = hoist__now_ns();
	peer->fabric->n_leaving++;
	if (hoist__ucx_before_1_16()) {
		hoist__list_remove(&peer->link);
		hoist__list_push_back(&peer->fabric->draining, &peer->link);
	} else {
		close_endpoint(peer);
	}
}

/* --- sends --- */

static void on_sent(void *request, hoist__ucs_status status, void *user_data)
{
	hoist__ucx.ucp_request_free(request);
	hoist__transfer_end(user_data, status < 0 ? hoist__ucx_error(status) : 0);
}

int hoist__fabric_send(struct hoist__fabric_peer *peer, uint64_t ticket, uint32_t offset,
		       const void *bytes, size_t n_bytes, void *owner)
{
	HOIST__ASSERT(n_bytes > 0);
	if (peer->broken)
		return hoist__fail(-ECONNRESET, "UCX: the connection to this peer has failed");
	struct hoist__transfer *transfer = hoist__transfer_begin(peer->fabric, true);
	if (transfer == NULL)
		return hoist__fail_nomem("a send", sizeof *transfer);
	transfer->header = (struct hoist__fabric_header){
		.magic = htole32(HOIST__FABRIC_MAGIC),
		.offset = htole32(offset),
		.ticket = htole64(ticket),
	};
	transfer->owner = owner;
	hoist__ucp_request_param param = hoist__transfer_param(transfer);
	param.cb.send = on_sent;
	if (n_bytes >= HOIST__FABRIC_RENDEZVOUS) {
		param.op_attr_mask |= HOIST__UCP_OP_FLAGS;
		param.flags = HOIST__UCP_AM_SEND_RNDV;
	}
	hoist__ucs_status_ptr answer =
		hoist__ucx.ucp_am_send_nbx(peer->ep, HOIST__FABRIC_AM, &transfer->header,
					   sizeof transfer->header, bytes, n_bytes, &param);
	if (hoist__ucx_is_error(answer)) {
		hoist__transfer_forget(transfer);
		return hoist__ucx_fail(hoist__ucx_status(answer), "sending");
	}
	if (answer == NULL)
		hoist__transfer_end(transfer, 0);
	return 0;
}
