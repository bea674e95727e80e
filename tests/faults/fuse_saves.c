/* SPDX-License-Identifier: MIT */
/* Saves to a file system that writes badly: each of its calls fails in turn, it takes less than it
 * was given, it is full, it says only when a file is closed that it has lost it.  The file is the
 * old one or the new one, whole, nothing else is in the folder, and the error names the file. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tests/faults/fuse-model.h"

/* Saves that met a fault, and what became of them; those that went on behind a short write. */
static unsigned n_faults, n_errors, n_survived, n_went_on;

static struct model old = {
	.format = "safetensors", .name = "w.safetensors", .n_tensors = 3, .n = {150000, 1, 90001}};
static struct model new;

static const struct ffs_case {
	const char *name;
	enum ffs_op op;
	int err;
	bool lasts;
	bool refused; /* whenever it is met, the save fails */
	bool late;    /* when the new file has its name already */
} cases[] = {
	{"create EIO", FFS_CREATE, EIO, false, true, false},
	{"create EINTR", FFS_CREATE, EINTR, false, false, false},
	{"create ENOSPC", FFS_CREATE, ENOSPC, true, true, false},
	{"write EIO", FFS_WRITE, EIO, false, true, false},
	{"write EIO, for ever", FFS_WRITE, EIO, true, true, false},
	{"write ENOSPC", FFS_WRITE, ENOSPC, true, true, false},
	{"write EDQUOT", FFS_WRITE, EDQUOT, false, true, false},
	{"write EINTR", FFS_WRITE, EINTR, false, false, false},
	{"write EAGAIN", FFS_WRITE, EAGAIN, false, false, false},
	{"truncate EIO", FFS_TRUNCATE, EIO, false, true, false},
	{"truncate EINTR", FFS_TRUNCATE, EINTR, false, false, false},
	{"fallocate ENOSPC", FFS_FALLOCATE, ENOSPC, false, true, false},
	{"fallocate EDQUOT", FFS_FALLOCATE, EDQUOT, false, true, false},
	{"fallocate EOPNOTSUPP", FFS_FALLOCATE, EOPNOTSUPP, true, false, false},
	{"fsync EIO", FFS_FSYNC, EIO, false, true, false},
	{"fsync ENOSPC", FFS_FSYNC, ENOSPC, true, true, false},
	{"fsync of the folder EIO", FFS_FSYNCDIR, EIO, false, true, true},
	{"close EIO", FFS_FLUSH, EIO, false, true, false},
	{"close EDQUOT", FFS_FLUSH, EDQUOT, true, true, false},
	{"close EINTR", FFS_FLUSH, EINTR, false, false, false},
	{"rename EIO", FFS_RENAME, EIO, false, true, false},
	{"rename EACCES", FFS_RENAME, EACCES, true, true, false},
	{"lookup EIO", FFS_LOOKUP, EIO, false, false, false},
	{"lookup EINTR", FFS_LOOKUP, EINTR, false, false, false},
	{"attributes EIO", FFS_GETATTR, EIO, false, false, false},
	{"attributes EINTR", FFS_GETATTR, EINTR, false, false, false},
};

#define N_CASES (sizeof cases / sizeof cases[0])

static const struct way *const reader = &ways[4];

/* Is it this one, every byte? */
static bool is_there(const struct model *model)
{
	ffs_heal();
	return model_load(model, reader).err == 0;
}

static void fail(const char *what, uint64_t at, int err, const hoist_save_options *o)
{
	fprintf(stderr, "%s, number %llu, engine %d, io %d, flags %u: %d \"%s\"; %s\n", what,
		(unsigned long long)at, (int)o->engine, (int)o->io, o->flags, err, hoist_error(),
		is_there(&old)	 ? "the old one is there"
		: is_there(&new) ? "the new one is there"
				 : "neither is there");
	exit(1);
}

static void start_anew(void)
{
	ffs_heal();
	CHECK(model_save(&old, NULL) == 0);
}

/* Returns: true if the fault was met. */
static bool check(const struct ffs_case *c, uint64_t at, const hoist_save_options *o)
{
	unsigned n_names = ffs_n_names();
	uint64_t before = atomic_load(&faultfs->n_faults);
	ffs_heal();
	faultfs->ops[c->op] = (struct ffs_fault){at, c->lasts ? UINT64_MAX : 1, c->err};
	int err = model_save(&new, o);
	bool met = atomic_load(&faultfs->n_faults) > before;
	char text[512];
	(void)snprintf(text, sizeof text, "%s", hoist_error());
	/* Closed once more after all has been asked for, and is there. */
	bool refused = c->refused && (c->op != FFS_FLUSH || at == 1);
	n_faults += met;
	n_errors += met && err < 0;
	n_survived += met && err == 0;
	if ((err < 0 && !met) || (met && refused && err == 0) ||
	    (err < 0 && err != -c->err && !(err == -EIO && c->err == EAGAIN)))
		fail(c->name, at, err, o);
	if (err < 0 && strstr(text, old.name) == NULL)
		fail("the file is not named", at, err, o);
	/* But renaming, of which nobody knows how far it got. */
	if (met && !c->refused && err < 0 && (c->err == EINTR || c->err == EAGAIN) &&
	    strstr(text, "its name") == NULL)
		fail("not done again", at, err, o);
	ffs_heal();
	if (ffs_n_names() != n_names)
		fail("something is left behind", at, err, o);
	bool is_new = is_there(&new);
	/* A fault while the file gets its name may strike before or after the file has the name. */
	if (err == 0 ? !is_new : !is_new && !is_there(&old))
		fail("not whole", at, err, o);
	if (err < 0 && is_new && !c->late && c->op != FFS_LOOKUP && c->op != FFS_GETATTR)
		fail("failed, but replaced", at, err, o);
	if (is_new)
		CHECK(model_save(&old, NULL) == 0);
	model_check_nothing_left();
	return met;
}

static void sweep(const struct ffs_case *c, const hoist_save_options *o)
{
	for (uint64_t at = 1; check(c, at, o); at++)
		CHECK(at < 1000);
}

static void each_call_fails(void)
{
	static const enum hoist_io ios[] = {HOIST_IO_AUTO, HOIST_IO_DIRECT, HOIST_IO_CACHED};
	unsigned turn = 0;
	for (size_t i = 0; i < N_CASES; i++)
		for (unsigned engine = HOIST_ENGINE_URING; engine <= HOIST_ENGINE_THREADS; engine++)
			for (unsigned io = 0; io < 3; io++) {
				const hoist_save_options o = {
					.size = sizeof o,
					.engine = (enum hoist_engine)engine,
					.io = ios[io],
					.flags = turn % 2 == 0 ? HOIST_SAVE_DIGEST : 0,
				};
				if (engine == HOIST_ENGINE_URING && !model_has_way(&ways[0]))
					continue;
				unsigned of = model_long_form ? 3 : 9;
				if (turn++ % of == i % of)
					sweep(&cases[i], &o);
			}
}

/* Nobody waits for the disk: what is lost is said when the file is closed, or never. */
static void not_synchronised(void)
{
	const struct ffs_case closing = {"close EIO", FFS_FLUSH, EIO, false, true, false};
	const hoist_save_options o = {.size = sizeof o, .flags = HOIST_SAVE_NO_SYNC};
	start_anew();
	CHECK(check(&closing, 1, &o));
}

/* True where a short answer stays a short answer.  Linux makes EIO of a short answer to a write if
 * Linux hands the write to the file system without waiting (a ring's write without page cache; a
 * direct write of either engine, unless the server wants no page cache anyway). */
static bool can_go_on(const hoist_save_options *o)
{
	bool direct = o->io != HOIST_IO_CACHED && !faultfs->refuse_direct_open &&
		      !faultfs->refuse_direct_read;
	if (o->engine == HOIST_ENGINE_URING)
		return !direct && !faultfs->direct_io;
	return !direct || faultfs->direct_io;
}

static void one_less_than_given(const hoist_save_options *o, size_t most, unsigned how)
{
	start_anew();
	faultfs->short_write = most;
	faultfs->direct_io = (how & 1) != 0;
	faultfs->refuse_direct_open = (how & 2) != 0;
	faultfs->refuse_direct_read = (how & 4) != 0;
	bool must = can_go_on(o);
	uint64_t before = atomic_load(&faultfs->n_short);
	int err = model_save(&new, o);
	bool met = atomic_load(&faultfs->n_short) > before;
	if (err < 0 && strstr(hoist_error(), old.name) == NULL)
		fail("the file is not named", how, err, o);
	if (!met || (err != 0 && (must || err != -EIO)) || !is_there(err == 0 ? &new : &old))
		fail(met ? "short writes" : "no write was short", how, err, o);
	n_faults++;
	n_survived += err == 0;
	n_errors += err < 0;
	n_went_on += err == 0;
}

static void less_than_given(void)
{
	static const size_t most[] = {1 << 17, 4097, 30000};
	for (unsigned i = 0; i < 3; i++)
		for (unsigned engine = HOIST_ENGINE_URING; engine <= HOIST_ENGINE_THREADS; engine++)
			for (unsigned io = HOIST_IO_AUTO; io <= HOIST_IO_CACHED; io++) {
				const hoist_save_options o = {.size = sizeof o,
							      .engine = (enum hoist_engine)engine,
							      .io = (enum hoist_io)io};
				unsigned how = model_long_form ? 0 : (unsigned)model_random(8);
				unsigned end = model_long_form ? 8 : how + 1;
				if (engine == HOIST_ENGINE_URING && !model_has_way(&ways[0]))
					continue;
				for (; how < end; how++)
					one_less_than_given(&o, most[i], how);
			}
	CHECK(n_went_on > 0);
}

static void full(void)
{
	for (unsigned i = 0; i < (model_long_form ? 60u : 12u); i++) {
		const hoist_save_options o = {.size = sizeof o,
					      .engine = (enum hoist_engine)(i % 3),
					      .io = (enum hoist_io)(i / 3 % 3)};
		if (o.engine == HOIST_ENGINE_URING && !model_has_way(&ways[0]))
			continue;
		start_anew();
		unsigned n_names = ffs_n_names();
		faultfs->room = model_random(900000);
		if (i % 2 == 0)
			faultfs->ops[FFS_FALLOCATE] = (struct ffs_fault){1, UINT64_MAX, EOPNOTSUPP};
		int err = model_save(&new, &o);
		if (err != -ENOSPC || strstr(hoist_error(), old.name) == NULL)
			fail("full", i, err, &o);
		ffs_heal();
		CHECK(ffs_n_names() == n_names);
		if (!is_there(&old))
			fail("full", i, err, &o);
		n_faults++;
		n_errors++;
	}
}

/* Without links and without renames that replace nothing, there is no way to be sure: nothing is
 * replaced, and nothing stays. */
static void nothing_is_replaced(void)
{
	const hoist_save_options o = {.size = sizeof o, .flags = HOIST_SAVE_NO_REPLACE};
	start_anew();
	CHECK(model_save(&new, &o) == -EEXIST && is_there(&old));
	CHECK(unlink(model_path(&old)) == 0);
	unsigned n_names = ffs_n_names();
	int err = model_save(&new, &o);
	printf("NO_REPLACE without links: %d %s\n", err, hoist_error());
	CHECK(err == 0 ? is_there(&new) : strstr(hoist_error(), old.name) != NULL);
	CHECK(ffs_n_names() == n_names + (err == 0));
}

int main(void)
{
	support_emulate("cuda:1");
	ffs_mount();
	model_begin();
	model_save_all();
	model_quiet = true;
	old.seed = 3;
	new = old;
	new.seed = 4;
	model_part("each call fails", start_anew, each_call_fails);
	model_part("not synchronised", start_anew, not_synchronised);
	model_part("less than given", start_anew, less_than_given);
	model_part("full", start_anew, full);
	model_part("nothing is replaced", start_anew, nothing_is_replaced);
	CHECK(n_faults > 0 && n_errors > 0 && n_survived > 0);
	CHECK(n_faults == n_survived + n_errors);
	printf("figure: fuse.saves.faults %u saves met a fault: %u got through (%u of them behind "
	       "writes "
	       "that took less than they were given), %u ended with an error; the old file or the "
	       "new one whole after each\n",
	       n_faults, n_survived, n_went_on, n_errors);
	ffs_unmount();
	return 0;
}
