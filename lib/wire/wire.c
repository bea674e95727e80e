/* SPDX-License-Identifier: MIT */
/* The messages of members and visitors to each other.
 * The contract is in lib/wire/wire.h. */
#include "config.h"

#include "lib/wire/wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "lib/swarm/swarm.h"

#define MOST_ERRNO 4095 /* the kernel's MAX_ERRNO */

/* --- fields: one list for both directions --- */

/* Bytes that are written or read. */
struct cursor {
	unsigned char *to; /* NULL: reading */
	const unsigned char *from;
	size_t left;
	bool bad;
};

/* Moves the bytes, and the cursor. */
static void bytes_of(struct cursor *c, void *value, size_t bytes)
{
	if (c->bad || c->left < bytes) {
		c->bad = true;
		return;
	}
	if (bytes == 0)
		return;
	if (c->to != NULL) {
		memcpy(c->to, value, bytes);
		c->to += bytes;
	} else {
		memset(value, 0, bytes);
		memcpy(value, c->from, bytes);
		c->from += bytes;
	}
	c->left -= bytes;
}

static void field(struct cursor *c, uint64_t *value, unsigned bytes)
{
	uint64_t little = c->to != NULL ? htole64(*value) : 0;
	bytes_of(c, &little, bytes);
	*value = le64toh(little);
}

static void field32(struct cursor *c, uint32_t *value)
{
	uint64_t wide = *value;
	field(c, &wide, sizeof *value);
	*value = (uint32_t)wide;
}

static void flag(struct cursor *c, bool *value)
{
	uint64_t wide = *value;
	field(c, &wide, 1);
	c->bad = c->bad || wide > 1;
	*value = wide == 1;
}

/* A text without control characters, of less than its array's bytes. */
static void text(struct cursor *c, char value[static HOIST__WIRE_REASON])
{
	uint64_t n = c->to == NULL ? 0 : strnlen(value, HOIST__WIRE_REASON - 1);
	field(c, &n, 2);
	if (n >= HOIST__WIRE_REASON) {
		c->bad = true;
		return;
	}
	bytes_of(c, value, n);
	for (uint64_t i = 0; i < n && c->to == NULL && !c->bad; i++)
		if ((unsigned char)value[i] < ' ' || value[i] == 0x7f)
			value[i] = '?';
}

/* The rest of the payload. */
static void rest(struct cursor *c, const unsigned char **value, size_t *n)
{
	if (c->to == NULL) {
		*value = c->from;
		*n = c->bad ? 0 : c->left;
		c->from += *n;
		c->left -= *n;
	} else if (c->bad || c->left < *n) {
		c->bad = true;
	} else {
		memcpy(c->to, *value, *n);
		c->to += *n;
		c->left -= *n;
	}
}

static void identity(struct cursor *c, struct hoist__wire_message *m)
{
	for (unsigned i = 0; i < HOIST__CHECKPOINT_IDENTITY; i++)
		field(c, &m->identity[i], 8);
}

static void hello(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->id, 8);
	identity(c, m);
	field(c, &m->n_cells, 8);
	field(c, &m->n_patterns, 8);
	field32(c, &m->rank);
	field32(c, &m->port);
	field(c, &m->place.machine, 8);
	field32(c, &m->place.process);
	field32(c, &m->place.descriptor);
	field(c, &m->place.inode, 8);
	flag(c, &m->flag);
	text(c, m->text);
	rest(c, &m->bytes, &m->n_bytes);
	c->bad = c->bad || m->id == 0 || m->n_cells > HOIST__WIRE_MOST_CELLS ||
		 m->n_patterns > m->n_cells || m->n_patterns > HOIST__WANTS_PATTERNS ||
		 m->port > UINT16_MAX || m->n_bytes > HOIST__FABRIC_ADDRESS_MOST;
}

/* Numbers of @each bytes, 2 or 8: from the host's order to little-endian, or back. */
static void reorder(void *numbers, size_t n_bytes, size_t each)
{
	unsigned char *at = numbers;
	for (unsigned char *end = at + n_bytes; at < end; at += each) {
		uint64_t wide;
		uint16_t narrow;
		if (each == sizeof narrow) {
			memcpy(&narrow, at, sizeof narrow);
			narrow = htole16(narrow);
			memcpy(at, &narrow, sizeof narrow);
		} else {
			memcpy(&wide, at, sizeof wide);
			wide = htole64(wide);
			memcpy(at, &wide, sizeof wide);
		}
	}
}

/* Pieces of wants: @each bytes for each of `n`.  They are in the host's order before they are
 * packed, and in little-endian until hoist__wire_wanting_take(). */
static void piece(struct cursor *c, struct hoist__wire_message *m, size_t each, uint32_t most)
{
	field(c, &m->at, 8);
	field32(c, &m->n);
	rest(c, &m->bytes, &m->n_bytes);
	c->bad = c->bad || m->n == 0 || m->n > most || m->n_bytes != m->n * each;
	if (c->to != NULL && !c->bad)
		reorder(c->to - m->n_bytes, m->n_bytes, each < 8 ? each : 8);
}

static void roster(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->id, 8);
	field32(c, &m->rank);
	field(c, &m->cell, 8);
	flag(c, &m->flag);
	text(c, m->text);
	c->bad = c->bad || m->id == 0;
}

static void ask(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->ticket, 8);
	field(c, &m->cell, 8);
	flag(c, &m->flag);
	flag(c, &m->lend);
	for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
		field(c, &m->blocks[w], 8);
}

static void offer(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->ticket, 8);
	field(c, &m->digest.low, 8);
	field(c, &m->digest.high, 8);
	field(c, &m->id, 8);
	c->bad = c->bad || m->id == 0;
}

static void lend(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->ticket, 8);
	field32(c, &m->n);
	field(c, &m->at, 8);
	field(c, &m->id, 8);
	c->bad = c->bad || m->id == 0 || m->n >= HOIST__SWARM_SLOTS;
}

static void file(struct cursor *c, struct hoist__wire_message *m)
{
	field32(c, &m->n);
	field(c, &m->done, 8);
	field(c, &m->digest.low, 8);
	field(c, &m->digest.high, 8);
	text(c, m->text);
}

static void bytes(struct cursor *c, struct hoist__wire_message *m)
{
	field32(c, &m->n);
	field(c, &m->at, 8);
	rest(c, &m->bytes, &m->n_bytes);
}

static void tour_end(struct cursor *c, struct hoist__wire_message *m)
{
	identity(c, m);
	text(c, m->text);
}

static void visit(struct cursor *c, struct hoist__wire_message *m)
{
	text(c, m->text);
}

static void wants(struct cursor *c, struct hoist__wire_message *m)
{
	piece(c, m, sizeof(uint16_t), HOIST__WIRE_MOST_KINDS);
}

static void patterns(struct cursor *c, struct hoist__wire_message *m)
{
	piece(c, m, sizeof m->blocks, HOIST__WIRE_MOST_PATTERNS);
}

static void ready(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->cell, 8);
}

static void counts(struct cursor *c, struct hoist__wire_message *m)
{
	for (unsigned i = 0; i < sizeof m->counts / sizeof m->counts[0]; i++)
		field(c, &m->counts[i], 8);
}

static void beat(struct cursor *c, struct hoist__wire_message *m)
{
	uint64_t from = m->share.from;
	field(c, &m->done, 8);
	flag(c, &m->begun);
	counts(c, m);
	field(c, &m->share.rate, 8);
	field(c, &from, 8);
	field32(c, &m->share.weight);
	m->share.from = (size_t)from;
	c->bad = c->bad || m->share.weight == 0 || m->share.weight > HOIST__SWARM_FULL ||
		 from > HOIST__WIRE_MOST_CELLS;
}

static void member(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->id, 8);
	field32(c, &m->rank);
	field32(c, &m->n_ranks);
	field(c, &m->done, 8);
	field(c, &m->n_cells, 8);
	flag(c, &m->begun);
	flag(c, &m->flag);
	counts(c, m);
	text(c, m->text);
	c->bad = c->bad || m->n_cells > HOIST__WIRE_MOST_CELLS || m->done > m->n_cells;
}

static void ticket(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->ticket, 8);
}

static void refuse(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->ticket, 8);
	text(c, m->text);
}

static void warn(struct cursor *c, struct hoist__wire_message *m)
{
	field(c, &m->id, 8);
	flag(c, &m->flag);
}

static void bye(struct cursor *c, struct hoist__wire_message *m)
{
	uint32_t err = (uint32_t)m->err;
	field32(c, &err);
	m->err = (int32_t)err;
	text(c, m->text);
	c->bad = c->bad || m->err > 0 || m->err < -MOST_ERRNO;
}

static void nothing(struct cursor *c, struct hoist__wire_message *m)
{
	(void)c;
	(void)m;
}

static void (*const fields_of[])(struct cursor *c, struct hoist__wire_message *m) = {
	[HOIST__WIRE_HELLO] = hello,	    [HOIST__WIRE_ROSTER] = roster,
	[HOIST__WIRE_ROSTER_END] = nothing, [HOIST__WIRE_WANTS] = wants,
	[HOIST__WIRE_PATTERNS] = patterns,  [HOIST__WIRE_READY] = ready,
	[HOIST__WIRE_BEAT] = beat,	    [HOIST__WIRE_ASK] = ask,
	[HOIST__WIRE_UNASK] = ticket,	    [HOIST__WIRE_REFUSE] = refuse,
	[HOIST__WIRE_OFFER] = offer,	    [HOIST__WIRE_LEND] = lend,
	[HOIST__WIRE_TOOK] = ticket,	    [HOIST__WIRE_WARN] = warn,
	[HOIST__WIRE_VISIT] = visit,	    [HOIST__WIRE_LOOK] = visit,
	[HOIST__WIRE_MEMBER] = member,	    [HOIST__WIRE_FILE] = file,
	[HOIST__WIRE_BYTES] = bytes,	    [HOIST__WIRE_DIGITS] = bytes,
	[HOIST__WIRE_TOUR_END] = tour_end,  [HOIST__WIRE_BYE] = bye,
};

static void fields(struct cursor *c, struct hoist__wire_message *m)
{
	if (m->kind >= sizeof fields_of / sizeof fields_of[0] || fields_of[m->kind] == NULL)
		c->bad = true;
	else
		fields_of[m->kind](c, m);
}

size_t hoist__wire_pack(const struct hoist__wire_message *message,
			unsigned char ret[static HOIST__CHANNEL_MOST_BYTES])
{
	struct hoist__wire_message m = *message;
	struct cursor c = {.to = ret, .left = HOIST__CHANNEL_MOST_BYTES};
	fields(&c, &m);
	HOIST__ASSERT(!c.bad);
	return HOIST__CHANNEL_MOST_BYTES - c.left;
}

int hoist__wire_unpack(const struct hoist__frame *frame, struct hoist__wire_message *ret)
{
	struct hoist__wire_message m = {.kind = frame->kind};
	struct cursor c = {.from = frame->bytes, .left = frame->n_bytes};
	fields(&c, &m);
	if (c.bad || c.left > 0)
		return hoist__fail(-EBADMSG,
				   "a member sent a message of kind %u and %zu bytes "
				   "that this version of hoist does not know",
				   frame->kind, frame->n_bytes);
	*ret = m;
	return 0;
}

/* --- wants, in pieces --- */

int hoist__wire_wanting_begin(struct hoist__wire_wanting *wanting,
			      const struct hoist__wire_message *hello)
{
	hoist__swarm_wants_fini(&wanting->wants);
	*wanting = (struct hoist__wire_wanting){.kinds_here = 0};
	return hoist__swarm_wants_begin(hello->n_cells, hello->n_patterns, &wanting->wants);
}

int hoist__wire_wanting_take(struct hoist__wire_wanting *wanting,
			     const struct hoist__wire_message *message)
{
	struct hoist__swarm_wants *wants = &wanting->wants;
	bool kinds = message->kind == HOIST__WIRE_WANTS;
	size_t *here = kinds ? &wanting->kinds_here : &wanting->patterns_here;
	size_t most = kinds ? wants->n_cells : wants->n_patterns;
	if (wants->kinds == NULL || message->at != *here || message->n > most - *here)
		return hoist__fail(-EBADMSG, "a member sent its wants out of order");
	void *to = kinds ? (void *)(wants->kinds + *here) : (void *)wants->patterns[*here];
	memcpy(to, message->bytes, message->n_bytes);
	reorder(to, message->n_bytes, kinds ? sizeof *wants->kinds : sizeof wants->patterns[0][0]);
	*here += message->n;
	return 0;
}
