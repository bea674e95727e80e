/* SPDX-License-Identifier: MIT */
/* The figures of a sweep, as a table and as an image.  The contract is in io-sweep.h. */
#include "config.h"

#include "bench/io-sweep.h"

#include <stdio.h>
#include <string.h>

#include "bench/plot.h"
#include "cli/format.h"
#include "cli/fail.h"

const size_t sweep_blocks[SWEEP_N_BLOCKS] = {(size_t)256 << 10, (size_t)1 << 20, (size_t)2 << 20,
					     (size_t)4 << 20,	(size_t)8 << 20, (size_t)16 << 20};
const unsigned sweep_depths[SWEEP_N_DEPTHS] = {1, 4, 8, 16, 32, 64};
const char *const sweep_engines[SWEEP_N_ENGINES] = {"io_uring", "threads"};
const char *const sweep_ways[SWEEP_N_WAYS] = {"direct", "cached cold", "hot"};

double sweep_rate(const struct sweep_cell *cell)
{
	return samples_median(&cell->rates);
}

static double cpu_of(const struct sweep_cell *cell)
{
	return samples_median(&cell->cpu);
}

const struct sweep_cell *sweep_best(const struct sweep *sweep, int way, int *engine, int *block,
				    int *depth)
{
	const struct sweep_cell *best = NULL;
	for (int e = 0; e < SWEEP_N_ENGINES; e++) {
		for (int b = 0; b < SWEEP_N_BLOCKS; b++) {
			for (int d = 0; d < SWEEP_N_DEPTHS; d++) {
				const struct sweep_cell *cell = &sweep->cells[way][e][b][d];
				if (cell->rates.n == 0 ||
				    (best != NULL && sweep_rate(cell) <= sweep_rate(best)))
					continue;
				best = cell;
				*engine = e;
				*block = b;
				*depth = d;
			}
		}
	}
	return best;
}

const char *sweep_label(int way, int block, int depth, char *ret, size_t bytes)
{
	struct text size;
	(void)snprintf(ret, bytes, "%s, %s x %u", sweep_ways[way],
		       format_bytes(sweep_blocks[block], &size), sweep_depths[depth]);
	return ret;
}

static void print_grid(const struct sweep *sweep, int way, int engine)
{
	struct text size;
	(void)printf("%s, %s, GB/s\n", sweep_ways[way], sweep_engines[engine]);
	if (sweep->skipped[way][engine] != NULL) {
		(void)fputs("  not measured: ", stdout);
		print_escaped(stdout, sweep->skipped[way][engine]);
		(void)putchar('\n');
		return;
	}
	(void)printf("  %-8s", "depth");
	for (int d = 0; d < SWEEP_N_DEPTHS; d++)
		(void)printf(" %7u", sweep_depths[d]);
	(void)putchar('\n');
	for (int b = 0; b < SWEEP_N_BLOCKS; b++) {
		(void)printf("  %-8s", format_bytes(sweep_blocks[b], &size));
		for (int d = 0; d < SWEEP_N_DEPTHS; d++) {
			const struct sweep_cell *cell = &sweep->cells[way][engine][b][d];
			if (cell->rates.n > 0)
				(void)printf(" %7.2f", sweep_rate(cell) / 1e9);
			else
				(void)printf(" %7s", "-");
		}
		(void)putchar('\n');
	}
}

static void print_best(const struct sweep *sweep, int way)
{
	char label[64];
	int engine = 0;
	int block = 0;
	int depth = 0;
	const struct sweep_cell *best = sweep_best(sweep, way, &engine, &block, &depth);
	if (best == NULL)
		return;
	(void)printf("%-34s %7.2f GB/s  %.3f s of CPU time a GiB  (%s)\n",
		     sweep_label(way, block, depth, label, sizeof label), sweep_rate(best) / 1e9,
		     cpu_of(best), sweep_engines[engine]);
}

void sweep_print(const struct sweep *sweep)
{
	static const char *const names[] = {"hoist's own choice, cold", "hoist's own choice, hot"};
	for (int way = 0; way < SWEEP_N_WAYS; way++) {
		for (int engine = 0; engine < SWEEP_N_ENGINES; engine++)
			print_grid(sweep, way, engine);
	}
	(void)fputs("\nthe fastest\n", stdout);
	for (int way = 0; way < SWEEP_N_WAYS; way++)
		print_best(sweep, way);
	for (int i = 0; i < 2; i++) {
		if (sweep->own[i].rates.n > 0)
			(void)printf("%-34s %7.2f GB/s  %.3f s of CPU time a GiB\n", names[i],
				     sweep_rate(&sweep->own[i]) / 1e9, cpu_of(&sweep->own[i]));
	}
}

static void write_panel(FILE *out, const struct sweep *sweep, int way, int engine)
{
	struct text size;
	(void)fputs("$data << END\n", out);
	for (int d = 0; d < SWEEP_N_DEPTHS; d++) {
		(void)fprintf(out, "%u", sweep_depths[d]);
		for (int b = 0; b < SWEEP_N_BLOCKS; b++) {
			const struct sweep_cell *cell = &sweep->cells[way][engine][b][d];
			if (cell->rates.n > 0)
				(void)fprintf(out, " %g", sweep_rate(cell) / 1e9);
			else
				(void)fputs(" ?", out);
		}
		(void)fputc('\n', out);
	}
	(void)fprintf(out, "END\nset title '%s, %s: GB/s by reads in flight'\nplot",
		      sweep_ways[way], sweep_engines[engine]);
	for (int b = 0; b < SWEEP_N_BLOCKS; b++)
		(void)fprintf(out, "%s $data using 1:%d title '%s'", b > 0 ? "," : "", b + 2,
			      format_bytes(sweep_blocks[b], &size));
	(void)fputc('\n', out);
}

/* gnuplot refuses a panel without a figure. */
static bool has_figures(const struct sweep *sweep, int way, int engine)
{
	for (int b = 0; b < SWEEP_N_BLOCKS; b++) {
		for (int d = 0; d < SWEEP_N_DEPTHS; d++) {
			if (sweep->cells[way][engine][b][d].rates.n > 0)
				return true;
		}
	}
	return false;
}

static void write_script(FILE *out, const void *context)
{
	const struct sweep *sweep = context;
	(void)fprintf(out,
		      "set terminal svg size 1400,%d noenhanced font 'sans,12' background 'white'\n"
		      "set style data linespoints\n"
		      "set datafile missing '?'\n"
		      "set logscale x 2\n"
		      "set xtics (1,4,8,16,32,64)\n"
		      "set yrange [0:*]\n"
		      "set grid\n"
		      "set key outside right top\n"
		      "set multiplot layout %d,%d\n",
		      SWEEP_N_WAYS * 360, SWEEP_N_WAYS, SWEEP_N_ENGINES);
	for (int way = 0; way < SWEEP_N_WAYS; way++) {
		for (int engine = 0; engine < SWEEP_N_ENGINES; engine++) {
			if (has_figures(sweep, way, engine))
				write_panel(out, sweep, way, engine);
			else
				(void)fputs("set multiplot next\n", out);
		}
	}
}

int sweep_draw(const struct sweep *sweep, const char *path, int fd)
{
	return plot_run(write_script, sweep, path, fd);
}
