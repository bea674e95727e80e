/* SPDX-License-Identifier: MIT */
/* The storage of a rank gives wrong bytes: the loads of others, which compare digests, fail, and
 * name the rank that read the bytes, be they from it or passed on.  Groups of one machine, and of
 * several where there is UCX. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/engine.h"
#include "lib/far/far.h"
#include "net/address.h"
#include "net/neighbour.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"
#include "tests/support/wrap.h"

enum { BAD = 1, N_TENSORS = 60, RELAYED = 1 << 16, PORT = RELAYED - 1 };
static const char path[] = "model.safetensors";

static unsigned self; /* in a rank's process */
static unsigned n_ranks;
static unsigned verifying; /* a bit for each rank */
static unsigned machines;  /* 1: all are neighbours */
static unsigned n_loads;   /* of groups */

/* --- a rank's storage, and its machine --- */

WRAP(int, hoist__engine_reap,
     (struct hoist__engine * engine, struct hoist__request **done, unsigned n, uint64_t timeout_ns))
{
	int got = __real_hoist__engine_reap(engine, done, n, timeout_ns);
	for (int i = 0; i < got; i++)
		if (self == BAD && done[i]->work == NULL && done[i]->result == 0)
			done[i]->address[done[i]->need / 2] ^= 1;
	return got;
}

WRAP(void, hoist__neighbour_describe,
     (const struct hoist__secret *secret, int fd, struct hoist__neighbour *ret))
{
	__real_hoist__neighbour_describe(secret, fd, ret);
	CHECK(ret->machine != 0);
	ret->machine += n_loads * MOST_RANKS + self % machines;
}

/* A member listens at its own address first. */
WRAP(int, hoist__address_listen,
     (const struct hoist__address *at, int *ret_fd, struct hoist__address *ret_at))
{
	int err = __real_hoist__address_listen(at, ret_fd, ret_at);
	if (err == 0 && said->marks[self] == 0)
		said->marks[self] = hoist__address_port(ret_at);
	return err;
}

/* How cells came that another member than their reader gave; 0: they did not. */
static enum hoist__wire_kind relayed[64];
static enum hoist__wire_kind awaited;

static void note(struct hoist__far *far, const struct hoist__far_peer *giver,
		 const struct hoist__wire_message *m)
{
	const struct hoist__far_slot *slot = hoist__far_slot_of_ticket(far, m->ticket);
	CHECK(slot == NULL || slot->job.cell < sizeof relayed / sizeof relayed[0]);
	if (slot != NULL)
		relayed[slot->job.cell] = m->id != giver->id ? m->kind : 0;
}

WRAP(void, hoist__far_offered,
     (struct hoist__far * far, const struct hoist__far_peer *peer,
      const struct hoist__wire_message *offer))
{
	note(far, peer, offer);
	__real_hoist__far_offered(far, peer, offer);
}

WRAP(void, hoist__far_borrow,
     (struct hoist__far * far, const struct hoist__far_peer *peer,
      const struct hoist__wire_message *lend))
{
	note(far, peer, lend);
	__real_hoist__far_borrow(far, peer, lend);
}

/* --- ranks --- */

/* Tensors of a quarter of a cell: one that lies around the middle of a cell lies in this alone. */
static void make_file(void)
{
	size_t sizes[N_TENSORS];
	for (size_t t = 0; t < N_TENSORS; t++)
		sizes[t] = HOIST__CELL_BYTES / 4;
	support_write(path, 0, N_TENSORS, sizes, 0);
	self = MOST_RANKS;
	support_keep_digests(path);
}

static bool verifies(unsigned rank)
{
	return (verifying >> rank & 1) != 0;
}

static void look(hoist_checkpoint *checkpoint, hoist_load *load, int err)
{
	const char *readers = strstr(said->text[self], "were read by ");
	const char *from = readers != NULL ? strchr(readers, '(') : NULL;
	unsigned long long begin;
	(void)checkpoint;
	(void)load;
	if (err == -EBADMSG && from != NULL && sscanf(from, "(%llu to", &begin) == 1 &&
	    awaited != 0 && relayed[begin / HOIST__CELL_BYTES] == awaited)
		said->marks[self] |= RELAYED;
}

static int drive(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank)
{
	(void)checkpoint;
	(void)rank;
	return hoist_load_wait(load);
}

static void rank_main(unsigned rank)
{
	const hoist_group group = ranks_group(rank, n_ranks);
	hoist_load_options o = {.size = sizeof o};
	self = rank;
	o.flags = verifies(rank) ? HOIST_LOAD_VERIFY : 0;
	ranks_load_driven(&group, path, &o, drive, look);
}

static unsigned n_named; /* loads that failed */

/* The text names this reader of the tensor, and no other. */
static void names(unsigned rank, const char *reader)
{
	char text[128];
	(void)snprintf(text, sizeof text, "were read by %s (", reader);
	const char *found = strstr(said->text[rank], text);
	check_at("rank %u of %u: %d, %s; it should have \"%s\"", rank, n_ranks, said->err[rank],
		 said->text[rank], text);
	CHECK(found != NULL && strstr(found, " and ") == NULL && strchr(found, ',') == NULL);
	n_named++;
}

/* Returns: have all failed that verify?  Where the machine keeps the reader from its work for
 * seconds, others read all by themselves. */
static bool load_together(void)
{
	char reader[64];
	bool failed = true;
	ranks_next_group();
	ranks_run(n_ranks, rank_main, 0);
	(void)snprintf(reader, sizeof reader, "the member at 127.0.0.1:%u",
		       said->marks[BAD] & PORT);
	for (unsigned r = 0; r < n_ranks; r++) {
		check_at("rank %u of %u: %d, %s", r, n_ranks, said->err[r], said->text[r]);
		CHECK(said->err[r] == 0 || (verifies(r) && said->err[r] == -EBADMSG));
		if (said->err[r] < 0)
			names(r, r == BAD ? "this member" : reader);
		failed = failed && (!verifies(r) || said->err[r] < 0);
	}
	return failed;
}

/* The numbers of machines set the order in which bytes are passed on: each load has others. */
static void load_until_named(unsigned n, unsigned by_machines, unsigned ranks)
{
	bool named = false;
	n_ranks = n;
	machines = by_machines;
	verifying = ranks;
	for (n_loads = 0; n_loads < 60 && !named; n_loads++)
		named = load_together() && (awaited == 0 || (said->marks[2] & RELAYED) != 0);
	printf("%u ranks on %u machines: %u loads\n", n, by_machines, n_loads);
	CHECK(named);
}

/* --- cases --- */

static void one_machine(void)
{
	n_ranks = 3;
	verifying = 7;
	ranks_next_group();
	ranks_run(n_ranks, rank_main, 0);
	for (unsigned r = 0; r < n_ranks; r++) {
		names(r, "rank 1");
		CHECK(said->err[r] == -EBADMSG || said->err[r] == -ECONNRESET);
	}
}

static void neighbours(void)
{
	load_until_named(3, 1, 1 << 0 | 1 << 2);
}

static void the_reader_itself(void)
{
	load_until_named(3, 1, 1 << BAD);
}

static void passed_on_by_network(void)
{
	awaited = HOIST__WIRE_OFFER;
	load_until_named(3, 3, 1 << 2);
}

static void passed_on_by_a_neighbour(void)
{
	awaited = HOIST__WIRE_LEND;
	load_until_named(4, 2, 1 << 2);
}

int main(void)
{
	ranks_begin();
	make_file();
	CASE(one_machine);
	if (ucx_of_child() != 0) {
		ranks_begin_far();
		CASE(neighbours);
		CASE(the_reader_itself);
		CASE(passed_on_by_network);
		CASE(passed_on_by_a_neighbour);
	}
	printf("figure: group.misread %u loads failed, and named the rank whose storage gave wrong "
	       "bytes\n",
	       n_named);
	support_cleanup();
	return 0;
}
