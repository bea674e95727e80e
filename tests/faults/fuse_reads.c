/* SPDX-License-Identifier: MIT */
/* Loads from a file system that reads badly: less than was asked for, interrupted, failing at each
 * place, without direct reads, with sizes that are not so.  Each load gives every byte or an error
 * that names file and cause, leaves nothing behind, and the next one of the healthy file is right.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/faults/fuse-model.h"

/* Counts, since the last figure, of the faults that loads met, and of the results of these loads.
 */
static struct {
	unsigned n_injected;   /* errors and refusals */
	unsigned n_short;      /* answers of less than was asked for */
	unsigned n_given_up;   /* calls, for a signal */
	unsigned n_right;      /* loads: every byte is there */
	unsigned n_errors;     /* an error that names the file */
	unsigned n_bus_errors; /* SIGBUS where a map is touched: no call that could say so */
} seen;
static unsigned n_signals;

/* An error names the file; which, where there are several, is not known here. */
static bool names_file(const struct model *model, const char *text)
{
	char stem[64];
	(void)snprintf(stem, sizeof stem, "%.*s", (int)strcspn(model->name, "."), model->name);
	char *at = strstr(text, ffs_folder);
	return at != NULL && strstr(at, stem) != NULL;
}

static void fail(const char *what, const struct model *model, const struct way *way,
		 const struct model_result *result)
{
	fprintf(stderr, "%s: %s, %s: %d \"%s\"\n", what, model->name, way->name, result->err,
		result->text);
	exit(1);
}

/* Whether a load may also have got through. */
enum may { MUST_PASS, MAY_FAIL, MUST_FAIL };

static struct model_result check(const char *what, const struct model *model, const struct way *way,
				 enum may may, int err)
{
	uint64_t faults = atomic_load(&faultfs->n_faults), shorts = atomic_load(&faultfs->n_short);
	struct model_result result = model_load(model, way);
	faults = atomic_load(&faultfs->n_faults) - faults;
	shorts = atomic_load(&faultfs->n_short) - shorts;
	bool failed = result.err != 0, met = faults + shorts > 0;
	if ((failed && may == MUST_PASS) || (!failed && may == MUST_FAIL) || result.err == -EILSEQ)
		fail(what, model, way, &result);
	if (failed && result.touched
		    ? way->flags != 0 || way->io < HOIST_IO_MAP
		    : failed && (result.err != err || !names_file(model, result.text)))
		fail(what, model, way, &result);
	if (failed && !met)
		fail("an error of nothing", model, way, &result);
	seen.n_injected += (unsigned)faults;
	seen.n_short += (unsigned)shorts;
	seen.n_right += met && !failed;
	seen.n_errors += failed && !result.touched;
	seen.n_bus_errors += failed && result.touched;
	model_check_nothing_left();
	return result;
}

/* Returns: the form has no time for the model loaded in this way. */
static bool skips(unsigned model, unsigned way)
{
	return !model_has_way(&ways[way]) || (!model_long_form && model != way % n_models);
}

/* --- everything is well --- */

static void all_is_well(void)
{
	for (unsigned m = 0; m < n_models; m++)
		for (unsigned w = 0; w < n_ways; w++)
			if (model_has_way(&ways[w]))
				model_check_healthy(&models[m], &ways[w]);
}

/* --- less than was asked for --- */

/* Answers were short not only to what opens a file, but to what loads it. */
static void check_short(const char *what, const struct model *model, const struct way *way)
{
	struct model_result result = check(what, model, way, MUST_PASS, 0);
	if (result.n_short == 0)
		fail("no read was short", model, way, &result);
}

/* Only where the kernel keeps no pages: into those it writes zeros behind a short answer, as
 * libfuse's manual warns, and no reader of the pages could tell. */
static void short_reads(void)
{
	static const size_t most[] = {4096, 5000, 100000};
	for (unsigned m = 0; m < n_models; m++)
		for (unsigned w = 0; w < n_ways; w++)
			for (unsigned i = 0; i < 3; i++) {
				if (skips(m, w) || ways[w].io == HOIST_IO_MAP ||
				    (!model_long_form && i != w % 3))
					continue;
				ffs_heal();
				faultfs->short_read = most[i];
				faultfs->direct_io = true;
				check_short("short reads, no page cache", &models[m], &ways[w]);
			}
	ffs_heal();
}

static void reads_of_a_byte(void)
{
	struct model tiny = {
		.format = "npy", .name = "tiny.npy", .n_tensors = 1, .n = {150}, .seed = 77};
	CHECK(model_save(&tiny, NULL) == 0);
	for (unsigned w = 0; w < n_ways; w++) {
		if (!model_has_way(&ways[w]) || ways[w].io == HOIST_IO_MAP)
			continue;
		ffs_heal();
		faultfs->short_read = 1;
		faultfs->direct_io = true;
		check_short("one byte at a time", &tiny, &ways[w]);
	}
	ffs_heal();
	CHECK(unlink(model_path(&tiny)) == 0);
}

/* --- again, and again --- */

static void storms(void)
{
	static const int errors[] = {EINTR, EAGAIN};
	for (unsigned w = 0; w < n_ways; w++)
		for (unsigned e = 0; e < 2; e++)
			for (uint64_t from = 1; from <= 9; from += model_long_form ? 1 : 4) {
				const struct model *model = &models[(w + from) % n_models];
				if (!model_has_way(&ways[w]))
					continue;
				ffs_heal();
				faultfs->direct_io = model_random(2) == 0;
				faultfs->ops[FFS_READ] = (struct ffs_fault){from, 40, errors[e]};
				/* A touched page has no caller that could ask again. */
				bool touch = ways[w].io == HOIST_IO_MAP;
				check(e == 0 ? "EINTR" : "EAGAIN", model, &ways[w],
				      touch ? MAY_FAIL : MUST_PASS, -EIO);
			}
	ffs_heal();
}

/* Linux itself repeats a ring's direct read that ended with EAGAIN, so that nobody else sees the
 * error: only a cancel ends such a load. */
static void cancel_it(const struct way *way)
{
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	hoist_load_options o;
	model_options(way, &o);
	ffs_heal();
	CHECK(hoist_checkpoint_open(model_path(&models[0]), 0, &checkpoint) == 0);
	faultfs->ops[FFS_READ] = (struct ffs_fault){1, UINT64_MAX, EAGAIN};
	CHECK(hoist_load_start(checkpoint, &o, &load) == 0);
	usleep(50000);
	hoist_load_cancel(load);
	int err = hoist_load_wait(load);
	CHECK(err == -ECANCELED || err == -EIO);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	model_check_nothing_left();
}

/* It never stops: that is an error, and not a load that has no end. */
static void endless_storms(void)
{
	static const int errors[] = {EINTR, EAGAIN};
	for (unsigned w = 0; w < n_ways; w++)
		for (unsigned e = 0; e < 2; e++) {
			if (!model_has_way(&ways[w]))
				continue;
			if (e == 1 && ways[w].engine == HOIST_ENGINE_URING) {
				cancel_it(&ways[w]);
				continue;
			}
			ffs_heal();
			/* It may be read at once. */
			faultfs->ops[FFS_READ] = (struct ffs_fault){4, UINT64_MAX, errors[e]};
			check(e == 0 ? "EINTR for ever" : "EAGAIN for ever", &models[0], &ways[w],
			      MUST_FAIL, -EIO);
		}
	ffs_heal();
	/* Opening is the same. */
	for (unsigned e = 0; e < 2; e++) {
		faultfs->ops[FFS_READ] = (struct ffs_fault){1, UINT64_MAX, errors[e]};
		check("never readable", &models[1], &ways[0], MUST_FAIL, -EIO);
		ffs_heal();
	}
}

static void count_signal(int number)
{
	(void)number;
	n_signals++;
}

/* How many calls the kernel has wanted back. */
static uint64_t interrupted(enum ffs_op op)
{
	return atomic_load(&faultfs->n_interrupted[op]);
}

/* Loads until a call of kind @op was given up for a signal. */
static void interrupt(const struct model *model, const struct way *way, enum ffs_op op)
{
	const struct itimerval often = {{0, 5300}, {0, 1700}}, never = {{0, 0}, {0, 0}};
	uint64_t before = interrupted(op);
	for (unsigned i = 0; interrupted(op) == before; i++) {
		if (i % 100 == 99)
			fprintf(stderr, "no signal came yet into %s, call %d\n", way->name,
				(int)op);
		ffs_heal();
		faultfs->direct_io = true;
		faultfs->delay_us[op] = 1000;
		setitimer(ITIMER_REAL, &often, NULL);
		struct model_result result = model_load(model, way);
		setitimer(ITIMER_REAL, &never, NULL);
		ffs_heal();
		/* A touched page has no caller that could ask again. */
		bool touch = result.touched && way->io == HOIST_IO_MAP && way->flags == 0;
		if (result.err != 0 && !touch)
			fail("signals", model, way, &result);
		model_check_nothing_left();
		seen.n_right += !touch;
		seen.n_bus_errors += touch;
	}
	seen.n_given_up += (unsigned)(interrupted(op) - before);
}

/* Signals whose handler restarts nothing come into the calls that the program's thread makes
 * itself: opening, asking, and reads past the page cache (those into it Linux does not let be
 * interrupted).  The file system gives these up, and does nothing else wrong.  The library's own
 * threads take no signals, but a thread that waits for them is interrupted. */
static void signals(void)
{
	static const enum ffs_op calls[] = {FFS_READ, FFS_LOOKUP, FFS_GETATTR, FFS_OPEN};
	struct sigaction action = {.sa_handler = count_signal}, before;
	CHECK(sigaction(SIGALRM, &action, &before) == 0);
	for (unsigned w = 0; w < n_ways; w++)
		for (unsigned i = 0; i < 4; i++)
			if (model_has_way(&ways[w]) &&
			    (model_long_form || i == 0 || w % 3 == i - 1))
				interrupt(&models[w % n_models], &ways[w], calls[i]);
	CHECK(sigaction(SIGALRM, &before, NULL) == 0);
}

/* Without a signal: each kind of call says now and then that there was one. */
static void each_call_says_eintr(void)
{
	for (unsigned w = 0; w < n_ways; w++) {
		if (!model_has_way(&ways[w]))
			continue;
		ffs_heal();
		for (unsigned op = 0; op < FFS_N_OPS; op++)
			faultfs->ops[op] = (struct ffs_fault){1 + op % 2, 3, EINTR};
		bool touch = ways[w].io == HOIST_IO_MAP;
		uint64_t faults = atomic_load(&faultfs->n_faults);
		check("each call says EINTR", &models[w % n_models], &ways[w],
		      touch ? MAY_FAIL : MUST_PASS, -EIO);
		CHECK(atomic_load(&faultfs->n_faults) > faults);
	}
	ffs_heal();
}

/* --- errors at each place --- */

static void sweep_one(const struct model *model, const struct way *way, int err, bool lasts,
		      unsigned step)
{
	for (uint64_t at = 1;; at += 1 + model_random(step)) {
		ffs_heal();
		faultfs->direct_io = lasts && model_random(3) == 0;
		faultfs->ops[FFS_READ] = (struct ffs_fault){at, lasts ? UINT64_MAX : 1, err};
		uint64_t before = atomic_load(&faultfs->n_faults);
		/* One that passes may be read again, directly or by the kernel. */
		check("EIO", model, way, MAY_FAIL, -EIO);
		bool struck = atomic_load(&faultfs->n_faults) > before;
		if (!struck)
			break;
		CHECK(at < 10000);
	}
	ffs_heal();
	model_check_healthy(model, way);
}

static void sweeps(void)
{
	for (unsigned m = 0; m < n_models; m++)
		for (unsigned w = 0; w < n_ways; w++) {
			if (skips(m, w))
				continue;
			sweep_one(&models[m], &ways[w], EIO, true, model_long_form ? 1 : 4);
			sweep_one(&models[m], &ways[w], EIO, false, model_long_form ? 1 : 6);
		}
}

/* A fault that lasts, and that a load meets, is an error. */
static void nothing_can_be_read(void)
{
	for (unsigned w = 0; w < n_ways; w++) {
		if (!model_has_way(&ways[w]))
			continue;
		ffs_heal();
		faultfs->ops[FFS_READ] = (struct ffs_fault){2, UINT64_MAX, EIO};
		check("nothing more can be read", &models[0], &ways[w], MUST_FAIL, -EIO);
	}
	ffs_heal();
}

/* --- direct reads that are refused --- */

static void refusals(void)
{
	for (unsigned m = 0; m < n_models; m++)
		for (unsigned w = 0; w < n_ways; w++)
			for (unsigned how = 0; how < 2; how++) {
				if (skips(m, w))
					continue;
				ffs_heal();
				faultfs->refuse_direct_open = how == 0;
				faultfs->refuse_direct_read = how == 1;
				unsigned before = seen.n_injected;
				struct model_result result = check("O_DIRECT refused", &models[m],
								   &ways[w], MUST_PASS, 0);
				CHECK(result.report.direct_bytes == 0);
				if (ways[w].io == HOIST_IO_DIRECT && seen.n_injected == before)
					fail("nothing was refused", &models[m], &ways[w], &result);
			}
	ffs_heal();
}

static void no_page_cache(void)
{
	for (unsigned m = 0; m < n_models; m++)
		for (unsigned w = 0; w < n_ways; w++) {
			if (skips(m, w))
				continue;
			ffs_heal();
			faultfs->direct_io = true;
			check("no page cache", &models[m], &ways[w], MUST_PASS, 0);
		}
	ffs_heal();
}

/* --- sizes that are not so --- */

static void wrong_sizes(void)
{
	for (unsigned w = 0; w < n_ways; w++) {
		const struct model *model = &models[w % n_models];
		if (!model_has_way(&ways[w]))
			continue;
		for (unsigned i = 0; i < 4; i++) {
			static const int64_t shifts[] = {-5000, 70000, -1, 0};
			ffs_heal();
			faultfs->size_shift = shifts[i];
			faultfs->size_zero = i == 3;
			faultfs->direct_io = model_random(2) == 0;
			struct model_result result = model_load(model, &ways[w]);
			/* The last byte, and what is behind it, may be nobody's. */
			bool must_fail = i == 0 || i == 3;
			if (result.err == -EILSEQ || (result.err == 0 && must_fail))
				fail("a wrong size", model, &ways[w], &result);
			if (result.err != 0 && !result.touched && !names_file(model, result.text))
				fail("a wrong size", model, &ways[w], &result);
			model_check_nothing_left();
		}
	}
	ffs_heal();
}

/* --- the file system is gone --- */

static void the_server_dies(void)
{
	hoist_checkpoint *checkpoint;
	hoist_load *load;
	hoist_load_options o;
	model_options(&ways[0], &o);
	CHECK(hoist_checkpoint_open(model_path(&models[0]), 0, &checkpoint) == 0);
	faultfs->stalled_node = (unsigned)ffs_find(models[0].name);
	atomic_store(&faultfs->stalled, true);
	CHECK(hoist_load_start(checkpoint, &o, &load) == 0);
	while (atomic_load(&faultfs->n_stalled) == 0)
		usleep(1000);
	ffs_kill();
	int err = hoist_load_wait(load);
	CHECK(err == -ENOTCONN || err == -ECONNABORTED);
	CHECK(strstr(hoist_error(), models[0].name) != NULL);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	CHECK(hoist_checkpoint_open(model_path(&models[0]), 0, &checkpoint) == -ENOTCONN);
	model_check_nothing_left();
}

static void say_storms(void)
{
	printf("figure: fuse.reads.storms %u answers of EINTR or EAGAIN, %u of less than was asked "
	       "for, %u calls given up for a signal: %u loads right, %u, where it never stopped, "
	       "ended with an error that names the file, %u with SIGBUS in a map\n",
	       seen.n_injected, seen.n_short, seen.n_given_up, seen.n_right, seen.n_errors,
	       seen.n_bus_errors);
	memset(&seen, 0, sizeof seen);
}

static void say_faults(void)
{
	printf("figure: fuse.reads.faults %u injected: %u loads right, %u ended with an error that "
	       "names the file, %u with SIGBUS in a map, nothing left behind\n",
	       seen.n_injected, seen.n_right, seen.n_errors, seen.n_bus_errors);
}

int main(void)
{
	support_emulate("cuda:1");
	ffs_mount();
	model_begin();
	model_save_all();
	model_part("all is well", ffs_heal, all_is_well);
	model_part("short reads", ffs_heal, short_reads);
	model_part("reads of a byte", ffs_heal, reads_of_a_byte);
	model_part("storms", ffs_heal, storms);
	model_part("endless storms", ffs_heal, endless_storms);
	model_part("signals", ffs_heal, signals);
	model_part("each call says EINTR", ffs_heal, each_call_says_eintr);
	CHECK(seen.n_injected > 1000 && seen.n_short > 0 && seen.n_given_up > 0 && n_signals > 0);
	say_storms();
	model_part("sweeps", ffs_heal, sweeps);
	model_part("nothing can be read", ffs_heal, nothing_can_be_read);
	model_part("refusals", ffs_heal, refusals);
	model_part("no page cache", ffs_heal, no_page_cache);
	model_part("wrong sizes", ffs_heal, wrong_sizes);
	model_part("the server dies", ffs_heal, the_server_dies);
	CHECK(seen.n_injected > 0 && seen.n_errors > 0 && seen.n_right > 0);
	say_faults();
	ffs_unmount();
	return 0;
}
