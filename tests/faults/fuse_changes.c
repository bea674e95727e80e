/* SPDX-License-Identifier: MIT */
/* Files that change while they are loaded, also behind the kernel's back, and reads that take as
 * long as another program likes.
 *
 * A file that is written to, or has another size, is an error of the load; never is something
 * handed out as loaded that is partly of one version and partly of another.  One that is replaced
 * by a rename is loaded as it was when it was opened.
 *
 * A read that the kernel has handed to a file system cannot be taken back unless that lets go of
 * it: hoist_load_cancel() returns at once, hoist_load_wait() and hoist_load_destroy() then wait for
 * such reads alone, as the memory is still theirs.  Nothing else waits for them: not other loads,
 * nor what the load reads of other files. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tests/faults/fuse-model.h"

/* Files changed under a load, by what was done to them, and what came of it. */
static struct kind {
	const char *name;
	unsigned n;
	unsigned n_errors; /* of the load, or of opening */
	unsigned n_old;	   /* all bytes are those from before */
	unsigned n_shown;  /* a map whose pages are the file's: its new bytes, or SIGBUS */
} kinds[] = {
	[FFS_GROW] = {.name = "grown"},
	[FFS_SHRINK] = {.name = "shrunk"},
	[FFS_REWRITE] = {.name = "rewritten"},
	[FFS_REPLACE] = {.name = "replaced"},
};
static unsigned n_stalls, n_unasked;

static void fail(const char *what, const struct model *model, const struct way *way,
		 const struct model_result *result)
{
	fprintf(stderr, "%s: %s, %s: %d \"%s\"\n", what, model->name, way->name, result->err,
		result->text);
	exit(1);
}

/* --- changes --- */

/* Each of its files is replaced by one that the kernel knows nothing of. */
static void restore(const struct model *model)
{
	ffs_heal();
	CHECK(model_save(model, NULL) == 0);
}

static void count(enum ffs_change change, int err)
{
	struct kind *kind = &kinds[change];
	bool shown = err == -EILSEQ || err == -EFAULT;
	kind->n++;
	kind->n_old += err == 0;
	kind->n_shown += shown;
	kind->n_errors += err < 0 && !shown;
}

/* Checks the result of a load that meets a change at its @at-th read. */
static void check_change(const struct model *model, const struct way *way, enum ffs_change change,
			 uint64_t at, double attr_timeout)
{
	bool populated = (way->flags & HOIST_LOAD_POPULATE) != 0;
	bool maps = way->io >= HOIST_IO_MAP && !populated;
	restore(model);
	faultfs->attr_timeout = attr_timeout;
	faultfs->keep_cache = model_random(2) == 0;
	faultfs->change_at = at;
	faultfs->change = change;
	unsigned opened = (unsigned)ffs_find(model->name);
	uint64_t before = atomic_load(&faultfs->n_faults);
	struct model_result result = model_load(model, way);
	bool changed = atomic_load(&faultfs->n_faults) > before;
	bool other = result.err == -EBADMSG || result.err == -ENODATA;
	bool shown = result.touched || result.err == -EILSEQ;
	bool fine = result.err == 0;
	if (changed) {
		/* A replaced one may be opened once it is another one; that has no header.
		 * Opening reads headers only: what is changed afterwards and not read is not looked
		 * at.  A map has no call that could say so, and its pages are the file's. */
		if (change == FFS_REPLACE)
			fine = fine || (other && !result.opened);
		else if (model->shard_bytes > 0 && faultfs->changed_node == opened)
			/* The library uses only the bytes that it has read of an index. */
			fine = fine || (other && !result.opened);
		else
			fine = other || (maps && (fine || shown));
		count(change, result.err);
	}
	if (!fine)
		fail(kinds[change].name, model, way, &result);
	if (other)
		CHECK(strstr(result.text, ffs_folder) != NULL);
	model_check_nothing_left();
}

static void changes(void)
{
	for (unsigned m = 0; m < n_models; m++)
		for (unsigned w = 0; w < n_ways; w++) {
			if (!model_has_way(&ways[w]) || (!model_long_form && m != w % n_models))
				continue;
			for (int c = FFS_GROW; c <= FFS_REPLACE; c++)
				for (unsigned i = 0; i < (model_long_form ? 3 : 1); i++)
					check_change(&models[m], &ways[w], (enum ffs_change)c,
						     2 + model_random(10),
						     model_random(2) == 0 ? 0 : 3600);
		}
	for (unsigned m = 0; m < n_models; m++)
		restore(&models[m]);
}

/* Between opening and loading, and nobody has told the kernel. */
static void changed_before_it_is_loaded(void)
{
	const struct model *model = &models[0];
	for (unsigned w = 0; w < n_ways; w++)
		for (int c = FFS_GROW; c <= FFS_REWRITE; c++) {
			hoist_checkpoint *checkpoint;
			hoist_load *load = NULL;
			hoist_load_options o;
			if (!model_has_way(&ways[w]))
				continue;
			restore(model);
			model_options(&ways[w], &o);
			faultfs->attr_timeout = 3600;
			bool read_only = ffs_read_only(true);
			CHECK(hoist_checkpoint_open(model_path(model), 0, &checkpoint) == 0);
			ffs_apply((unsigned)ffs_find(model->name), (enum ffs_change)c);
			int err = hoist_load_start(checkpoint, &o, &load);
			if (err == 0)
				err = hoist_load_wait(load);
			bool maps = ways[w].io >= HOIST_IO_MAP && ways[w].flags == 0;
			bool ended = err == 0;
			if (ended)
				err = model_compare(model, load);
			if (ended ? !maps : err != -EBADMSG && err != -ENODATA) {
				fprintf(stderr, "%s, change %d before: %d %s\n", ways[w].name, c,
					err, hoist_error());
				exit(1);
			}
			count((enum ffs_change)c, err);
			n_unasked += read_only;
			hoist_load_destroy(load);
			hoist_checkpoint_close(checkpoint);
			if (read_only)
				CHECK(ffs_read_only(false));
			model_check_nothing_left();
		}
	restore(model);
	printf("%u of them on a mount that is read-only\n", n_unasked);
}

/* --- stalls --- */

static hoist_load *start(const struct model *model, const struct way *way, unsigned flags,
			 hoist_checkpoint **checkpoint)
{
	hoist_load_options o;
	hoist_load *load;
	model_options(way, &o);
	o.flags |= flags;
	CHECK(hoist_checkpoint_open(model_path(model), 0, checkpoint) == 0);
	CHECK(hoist_load_start(*checkpoint, &o, &load) == 0);
	return load;
}

static void stall(const struct model *model)
{
	faultfs->stalled_node = (unsigned)ffs_find(model_file(model));
	atomic_store(&faultfs->stalled, true);
}

static void wait_until_stalled(void)
{
	while (atomic_load(&faultfs->n_stalled) == 0)
		usleep(500);
}

static void *let_go(void *argument)
{
	usleep(*(const unsigned *)argument);
	atomic_store(&faultfs->stalled, false);
	return NULL;
}

/* While one load hangs, all others, of either engine, of other files, go through; it can be
 * cancelled, and ends when the file system lets go, if not before. */
static void one_stalls(const struct way *way, bool uncached)
{
	hoist_checkpoint *checkpoint;
	ffs_heal();
	faultfs->direct_io = uncached;
	hoist_load_options o;
	hoist_load *load;
	model_options(way, &o);
	CHECK(hoist_checkpoint_open(model_path(&models[0]), 0, &checkpoint) == 0);
	stall(&models[0]);
	CHECK(hoist_load_start(checkpoint, &o, &load) == 0);
	wait_until_stalled();
	n_stalls++;
	for (unsigned w = 0; w < n_ways; w += model_long_form ? 1 : 3)
		if (model_has_way(&ways[w])) {
			struct model_result other = model_load(&models[1 + w % 3], &ways[w]);
			if (other.err != 0)
				fail("another's stall", &models[1 + w % 3], &ways[w], &other);
		}
	uint64_t done, total;
	hoist_load_progress(load, &done, &total);
	CHECK(done < total);
	hoist_load_cancel(load); /* waits for nobody: it would for ever */
	pthread_t thread;
	unsigned us = 50000;
	CHECK(pthread_create(&thread, NULL, let_go, &us) == 0);
	int err = hoist_load_wait(load);
	CHECK(err == -ECANCELED);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	CHECK(pthread_join(thread, NULL) == 0);
	model_check_healthy(&models[0], way);
}

static void stalls(void)
{
	for (unsigned w = 0; w < n_ways; w++)
		for (int uncached = 0; uncached < 2; uncached++)
			if (model_has_way(&ways[w]) &&
			    (model_long_form || uncached == (int)(w % 2)) &&
			    (ways[w].io < HOIST_IO_MAP || (ways[w].flags != 0)))
				one_stalls(&ways[w], uncached != 0);
}

/* Two loads that one thread drives: the one that hangs takes nothing from the other. */
static void driven_by_one_thread(void)
{
	for (unsigned w = 0; w < n_ways; w++) {
		hoist_checkpoint *checkpoints[2];
		hoist_load *loads[2];
		hoist_load_options o;
		const struct way *way = &ways[w];
		if (!model_has_way(way) || way->io >= HOIST_IO_MAP)
			continue;
		ffs_heal();
		model_options(way, &o);
		o.flags |= HOIST_LOAD_CALLER_DRIVEN;
		o.chunk_bytes = 16384; /* many reads: they take all threads that there are */
		CHECK(hoist_checkpoint_open(model_path(&models[0]), 0, &checkpoints[0]) == 0);
		stall(&models[0]);
		CHECK(hoist_load_start(checkpoints[0], &o, &loads[0]) == 0);
		faultfs->stalls_all = true;
		for (int i = 0; i < 50; i++) /* a step that waited for it would not end */
			CHECK(hoist_load_step(loads[0], 1000000) == 0);
		loads[1] = start(&models[1], way, HOIST_LOAD_CALLER_DRIVEN, &checkpoints[1]);
		printf("%s: the other one goes on\n", way->name);
		fflush(stdout);
		int done = 0;
		while (done == 0) {
			CHECK(hoist_load_step(loads[0], 0) == 0);
			done = hoist_load_step(loads[1], 10000000);
		}
		CHECK(done == 1 && hoist_load_wait(loads[1]) == 0);
		CHECK(model_compare(&models[1], loads[1]) == 0);
		atomic_store(&faultfs->stalled, false);
		CHECK(hoist_load_wait(loads[0]) == 0);
		CHECK(model_compare(&models[0], loads[0]) == 0);
		for (int i = 0; i < 2; i++) {
			hoist_load_destroy(loads[i]);
			hoist_checkpoint_close(checkpoints[i]);
		}
		n_stalls++;
		model_check_nothing_left();
	}
}

static void say_changes(void)
{
	struct kind all = {.n = 0};
	for (int c = FFS_GROW; c <= FFS_REPLACE; c++) {
		const struct kind *kind = &kinds[c];
		printf("%s: %u files; %u an error, %u the old bytes, %u a map's\n", kind->name,
		       kind->n, kind->n_errors, kind->n_old, kind->n_shown);
		CHECK(kind->n > 0);
		CHECK(c == FFS_REPLACE ? kind->n_old > 0 : kind->n_errors > 0);
		all.n += kind->n;
		all.n_errors += kind->n_errors;
		all.n_old += kind->n_old;
		all.n_shown += kind->n_shown;
	}
	CHECK(all.n == all.n_errors + all.n_old + all.n_shown);
	printf("figure: fuse.changes %u files changed under a load (%u grown, %u shrunk, %u "
	       "rewritten, %u replaced): %u an error, %u the old bytes, %u a map that showed the "
	       "new ones or raised SIGBUS\n",
	       all.n, kinds[FFS_GROW].n, kinds[FFS_SHRINK].n, kinds[FFS_REWRITE].n,
	       kinds[FFS_REPLACE].n, all.n_errors, all.n_old, all.n_shown);
}

int main(void)
{
	support_emulate("cuda:1");
	ffs_mount();
	model_begin();
	model_save_all();
	model_quiet = true; /* maps show both versions */
	model_part("changes", ffs_heal, changes);
	model_part("changed before it is loaded", ffs_heal, changed_before_it_is_loaded);
	model_part("stalls", ffs_heal, stalls);
	model_part("driven by one thread", ffs_heal, driven_by_one_thread);
	say_changes();
	CHECK(n_stalls > 0);
	printf("figure: fuse.stalls %u reads without an end, cancelled or let go, beside others "
	       "that went on\n",
	       n_stalls);
	ffs_unmount();
	return 0;
}
