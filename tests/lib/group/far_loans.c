/* SPDX-License-Identifier: MIT */
/* Members of one machine that copy from each other's slots.  One of them stands still amid such a
 * copy until the givers have filled their slots anew, copies so slowly that it has to give slots
 * back before, gives none back, and is left out, or, without the files, loses a loan of a giver
 * that lives: each has the right bytes.  A member that waits for a lost cell can be cancelled, and
 * can fail.  The memory of a giver that dies is unmapped. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/far/far.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/child.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

enum { ENDED = 1, BORROWED = 2, ASKED_ANEW = 4, LEFT_OUT = 8, TAKEN_BACK = 16, GAVE_UP = 32 };
enum { N_RANKS = 3, N_TENSORS = 3, VICTIM = 1 };
static const size_t sizes[N_TENSORS] = {19000000, 70, 41000000};

static bool stands_still; /* the victim, amid its first copy from a borrowed slot */
static bool is_slow;
static bool gives_nothing_back; /* and does not end before the others */
static bool is_robbed;		/* the victim loses its first loans amid a copy */
static bool is_cancelled;	/* the robbed victim is cancelled */
static bool fails;		/* the robbed victim's load does */
static struct hoist_load *_Atomic robbed_load;
static bool giver_dies; /* amid the victim's first copy */
static unsigned self;	/* in a rank's process */
static atomic_uint n_copies;

/* Threads: any. */
static void mark(unsigned bits)
{
	(void)__atomic_fetch_or(&said->marks[self], bits, __ATOMIC_SEQ_CST);
}

/* Has each of the others marked the bit? */
static bool others_marked(unsigned bit)
{
	return (said->marks[0] & said->marks[2] & bit) != 0;
}

static _Atomic unsigned n_looks; /* of the far thread at its loans */

/* Until loans are taken back, the victim copies none by itself. */
WRAP(void, hoist__far_look_at_loans, (struct hoist__far * far, uint64_t now))
{
	atomic_fetch_add(&n_looks, 1);
	bool robbed = is_robbed && self == VICTIM;
	atomic_store(&robbed_load, robbed ? far->load : NULL);
	if (robbed && !others_marked(TAKEN_BACK))
		return;
	if (robbed && is_cancelled)
		hoist_load_cancel(far->load);
	else if (!robbed || !fails)
		__real_hoist__far_look_at_loans(far, now);
}

/* The thread that drives the load fails, while a copy waits for a lost cell. */
WRAP(int, hoist__engine_reap,
     (struct hoist__engine * engine, struct hoist__request **done, unsigned n, uint64_t timeout_ns))
{
	struct hoist_load *load = atomic_load(&robbed_load);
	if (fails && load != NULL && load->job.engine == engine && load->job.err == 0 &&
	    others_marked(TAKEN_BACK))
		hoist__job_fail(&load->job, hoist__fail(-EIO, "a failure of the test's"));
	return __real_hoist__engine_reap(engine, done, n, timeout_ns);
}

WRAP(void, hoist__swarm_lost, (struct hoist__swarm * swarm, unsigned slot, uint64_t now))
{
	mark(ASKED_ANEW);
	__real_hoist__swarm_lost(swarm, slot, now);
}

/* The victim copies: each giver takes back what it lends to it. */
WRAP(bool, hoist__far_keeps_lent,
     (const struct hoist__far *far, const struct hoist__far_peer *peer, uint64_t now))
{
	if (is_robbed && self != VICTIM && (said->marks[VICTIM] & BORROWED) != 0 &&
	    (said->marks[self] & TAKEN_BACK) == 0) {
		for (unsigned i = 0; i < far->n_slots; i++)
			(void)atomic_fetch_add(&far->board->editions[i], 1);
		mark(TAKEN_BACK);
	}
	return __real_hoist__far_keeps_lent(far, peer, now);
}

/* Once more before it ends, a giver fills all slots, with other bytes. */
WRAP(void, hoist__far_arena_end, (struct hoist__far * far, bool stays))
{
	for (unsigned i = 0; stands_still && self != VICTIM && i < far->n_slots; i++) {
		hoist__far_refill(far, i);
		memset(hoist__far_slot(far, i), 0xaa, HOIST__CELL_BYTES);
	}
	__real_hoist__far_arena_end(far, stays);
}

WRAP(int, hoist__channel_send,
     (struct hoist__channel * channel, uint16_t kind, const void *bytes, size_t n))
{
	if (gives_nothing_back && self == VICTIM && kind == HOIST__WIRE_TOOK)
		return 0;
	return __real_hoist__channel_send(channel, kind, bytes, n);
}

static void wait_for_others(unsigned bit)
{
	for (uint64_t until = 0; !others_marked(bit);)
		CHECK(patience(&until));
}

static bool is_borrowed(struct hoist__far *far, size_t file, uint64_t offset)
{
	pthread_mutex_lock(&far->lock);
	int slot = hoist__swarm_slot_of(far->swarm, hoist__cells_at(&far->cells, file, offset));
	bool borrowed = slot >= 0 && far->slots[slot].loan.bytes != NULL;
	pthread_mutex_unlock(&far->lock);
	return borrowed;
}

/* Has the giver left; is its memory unmapped? */
static void state_of(struct hoist__far *far, const struct hoist__far_memory *memory, bool *left,
		     bool *unmapped)
{
	pthread_mutex_lock(&far->lock);
	*left = memory->left;
	*unmapped = memory->shared == NULL;
	pthread_mutex_unlock(&far->lock);
}

static const struct hoist__far_memory *memory_of(struct hoist__far *far, size_t file,
						 uint64_t offset)
{
	pthread_mutex_lock(&far->lock);
	int slot = hoist__swarm_slot_of(far->swarm, hoist__cells_at(&far->cells, file, offset));
	const struct hoist__far_memory *memory = slot >= 0 ? far->slots[slot].loan.memory : NULL;
	pthread_mutex_unlock(&far->lock);
	return memory;
}

static void kill_giver(const struct hoist__far *far, const struct hoist__far_memory *memory)
{
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		if (far->peers[i].memory == memory && memory != NULL)
			CHECK(kill((pid_t)far->peers[i].place.process, SIGKILL) == 0);
}

static __thread struct hoist__far *copies; /* the victim's thread that is amid its first copy */
static __thread const struct hoist__far_memory *copied;

/* The copy reads from the memory of a giver that has died and was dropped: it is mapped still.  A
 * compiler may copy a small struct by this function, too, under the lock. */
WRAP(void *, memcpy, (void *to, const void *from, size_t n))
{
	struct hoist__far *far = n > sizeof(struct hoist__far_loan) ? copies : NULL;
	copies = far != NULL ? NULL : copies;
	bool left = false;
	bool unmapped = false;
	if (far != NULL)
		kill_giver(far, copied);
	for (uint64_t until = 0; far != NULL && !left && !unmapped;) {
		CHECK(patience(&until));
		state_of(far, copied, &left, &unmapped);
	}
	/* The far thread looks more than once. */
	unsigned looks = atomic_load(&n_looks);
	for (uint64_t until = 0; far != NULL && atomic_load(&n_looks) < looks + 3;)
		CHECK(patience(&until));
	CHECK(!unmapped && (far == NULL || copied->shared != NULL));
	return __real_memcpy(to, from, n);
}

WRAP(int, hoist__far_copy,
     (struct hoist__far * far, size_t file, uint64_t offset, size_t n, unsigned char *to))
{
	if (is_borrowed(far, file, offset)) {
		mark(BORROWED);
		/* To this thread: another would stop the process later. */
		if (stands_still && self == VICTIM && atomic_fetch_add(&n_copies, 1) == 0)
			(void)raise(SIGSTOP);
		if (is_slow && self == VICTIM)
			(void)usleep(250000); /* longer than slots are borrowed */
		if (gives_nothing_back && self == VICTIM)
			wait_for_others(ENDED);
		if (is_robbed && self == VICTIM)
			wait_for_others(TAKEN_BACK);
		copied = memory_of(far, file, offset);
		if (giver_dies && self == VICTIM && copied != NULL &&
		    atomic_fetch_add(&n_copies, 1) == 0)
			copies = far;
	}
	bool unmapped = copies == NULL;
	int err = __real_hoist__far_copy(far, file, offset, n, to);
	for (uint64_t until = 0; !unmapped;) {
		bool left;
		CHECK(patience(&until));
		state_of(far, copied, &left, &unmapped);
	}
	/* Not as the others have left it out, which takes seconds. */
	mark(err < 0 && far->err == -ECANCELED ? GAVE_UP : 0);
	return err;
}

static void look(hoist_checkpoint *checkpoint, hoist_load *load)
{
	hoist_group_report report = {.size = sizeof report};
	support_compare(checkpoint, load);
	OK(hoist_group_get_report(load, &report));
	mark(strstr(report.note, "does not take") != NULL ? LEFT_OUT : 0);
}

static void rank_main(unsigned rank)
{
	hoist_group group = ranks_group(rank, N_RANKS);
	hoist_load_options o = {.size = sizeof o};
	hoist_budget *budget = NULL;
	/* Few slots, so that members wait for each other. */
	OK(hoist_budget_create(72 << 20, &budget));
	o.budget = budget;
	self = rank;
	ranks_load(&group, "model.safetensors", &o, look);
	hoist_budget_unref(budget);
	check_at("rank %u: %s", rank, said->text[rank]);
	CHECK(said->err[rank] == 0);
	mark(ENDED);
}

static void a_member_stands_still_amid_a_copy(void)
{
	pid_t children[N_RANKS];
	int status;
	ranks_next_group();
	stands_still = true;
	for (unsigned r = 0; r < N_RANKS; r++)
		children[r] = ranks_start(r, rank_main);
	CHECK(waitpid(children[VICTIM], &status, WUNTRACED) == children[VICTIM] &&
	      WIFSTOPPED(status));
	for (unsigned r = 0; r < N_RANKS; r++)
		if (r != VICTIM)
			ranks_end(children[r], 0);
	CHECK((said->marks[VICTIM] & ENDED) == 0);
	CHECK(kill(children[VICTIM], SIGCONT) == 0);
	ranks_end(children[VICTIM], 0);
	CHECK((said->marks[VICTIM] & ASKED_ANEW) != 0);
	stands_still = false;
}

static void a_slow_member_gives_slots_back(void)
{
	ranks_next_group();
	is_slow = true;
	ranks_run(N_RANKS, rank_main, 0);
	CHECK((said->marks[VICTIM] & BORROWED) != 0);
	for (unsigned r = 0; r < N_RANKS; r++)
		CHECK((said->marks[r] & ASKED_ANEW) == 0);
	is_slow = false;
}

static void a_member_that_gives_nothing_back_is_left_out(void)
{
	ranks_next_group();
	gives_nothing_back = true;
	ranks_run(N_RANKS, rank_main, 0);
	CHECK(((said->marks[0] | said->marks[2]) & LEFT_OUT) != 0);
	CHECK((said->marks[VICTIM] & LEFT_OUT) == 0);
	gives_nothing_back = false;
}

/* The victim has no files.  Its givers live, and are members of its group all the time. */
static void robbed_rank(unsigned rank)
{
	const hoist_group group = ranks_group(rank, N_RANKS);
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	if (rank != VICTIM) {
		rank_main(rank);
		return;
	}
	self = rank;
	OK(hoist_group_open(&group, "/not/on/this/machine", 0, &checkpoint));
	OK(hoist_group_load(&group, checkpoint, NULL, &load));
	int err = hoist_load_wait(load);
	check_at("%s", hoist_error());
	CHECK(err == (is_cancelled ? -ECANCELED : fails ? -EIO : 0));
	hoist_checkpoint *files = support_open("model.safetensors");
	if (err == 0)
		support_compare(files, load);
	hoist_checkpoint_close(files);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void a_member_without_files_asks_anew(void)
{
	ranks_next_group();
	is_robbed = true;
	ranks_run(N_RANKS, robbed_rank, 0);
	CHECK((said->marks[VICTIM] & ASKED_ANEW) != 0);
	is_robbed = false;
}

static void the_memory_of_one_that_dies_is_unmapped(void)
{
	ranks_next_group();
	giver_dies = true;
	ranks_run(N_RANKS, rank_main, 1u << 0 | 1u << 2);
	CHECK((said->marks[VICTIM] & ENDED) != 0);
	CHECK((said->marks[0] & ENDED) != (said->marks[2] & ENDED));
	giver_dies = false;
}

/* A copy that waits for a lost cell does not keep a load that is cancelled, or fails. */
static void a_member_that_waits_is_cancelled(void)
{
	for (int i = 0; i < 2; i++) {
		ranks_next_group();
		is_robbed = true;
		is_cancelled = i == 0;
		fails = i == 1;
		ranks_run(N_RANKS, robbed_rank, 0);
		CHECK((said->marks[VICTIM] & GAVE_UP) != 0);
	}
	is_robbed = fails = false;
}

int main(void)
{
	ranks_begin_far();
	support_write("model.safetensors", 0, N_TENSORS, sizes, -1);
	CASE(a_member_stands_still_amid_a_copy);
	CASE(a_slow_member_gives_slots_back);
	CASE(a_member_that_gives_nothing_back_is_left_out);
	CASE(a_member_without_files_asks_anew);
	CASE(a_member_that_waits_is_cancelled);
	CASE(the_memory_of_one_that_dies_is_unmapped);
	printf("figure: group.far_loans 7 groups, with a member that stood still, was slow, kept "
	       "what it was lent, lost it, was cancelled or failed then, or died: every byte of "
	       "the others compared\n");
	support_cleanup();
	return 0;
}
