/* SPDX-License-Identifier: MIT */
/* Draws where the time of a load went.
 * The contract is in tools/timeline.h. */
#include "config.h"

#include "tools/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "tools/stages.h"
#include "tools/whole.h"

#define OPTION "--timeline"

/* Pixels.  The bands lie between LEFT and LEFT + WIDTH. */
#define LEFT 80
#define WIDTH 1200
#define RIGHT 40
#define WAITS_TOP 72
#define WAITS_HEIGHT 20
#define BYTES_TOP 104
#define BYTES_HEIGHT 80
#define LANES_TOP 200

/* Bounds for all lanes together. */
#define MOST_BARS 6000.0
#define MOST_CELLS 40000.0

/* A bar covers so much of a cell at least: a chunk that was mapped takes no time. */
#define TRACE 1e-6

/* States of a band: the stages of the load, and behind them those of a chunk. */
enum { READING = N_STAGES, FULL, COPYING, N_STATES };

static const struct {
	const char *name; /* NULL: that of the stage */
	const char *colour;
} states[N_STATES] = {
	[HOIST_STAGE_WORK] = {NULL, "#ffffff"},	    [HOIST_STAGE_PLAN] = {NULL, "#c7c7c7"},
	[HOIST_STAGE_ALLOCATE] = {NULL, "#8c8c8c"}, [HOIST_STAGE_CALLER] = {NULL, "#e377c2"},
	[HOIST_STAGE_READ] = {NULL, "#4878cf"},	    [HOIST_STAGE_CONVERT] = {NULL, "#e8a33d"},
	[HOIST_STAGE_COPY] = {NULL, "#5aa469"},	    [HOIST_STAGE_PAGES] = {NULL, "#9467bd"},
	[HOIST_STAGE_GROUP] = {NULL, "#17becf"},    [HOIST_STAGE_BUDGET] = {NULL, "#d62728"},
	[READING] = {"reading", "#4878cf"},	    [FULL] = {"full", "#e8a33d"},
	[COPYING] = {"copying", "#5aa469"},
};

struct picture {
	FILE *out;
	hoist_load_interval *items; /* the chunks, lane by lane; then the waits */
	size_t n;
	size_t n_chunks;
	size_t n_lost;
	size_t n_lanes;
	double height; /* of a lane */
	double cell;   /* pixels that are drawn as one, */
	double wide;   /* and of the shortest bar that has a tooltip */
	double least;  /* a cell of which no more than this is covered stays empty */
	uint64_t ns;   /* from the left to the right */
	double (*cells)[N_STATES];
};

/* --- text --- */

/* Writes @text, which may come from a file's name, so that no reader of XML refuses it. */
static void put_escaped(FILE *out, const char *text)
{
	while (*text != '\0') {
		uint32_t code;
		size_t n = utf8_length(text, &code);
		if (code == '<' || code == '>' || code == '&' || code == '"')
			(void)fprintf(out, "&#%u;", (unsigned)code);
		else if (n == 0 || code < ' ' || code == 0x7f || code == 0xfffe || code == 0xffff)
			(void)fputc('?', out);
		else
			(void)fwrite(text, 1, n, out);
		text += n > 0 ? n : 1;
	}
}

static double x_of(const struct picture *p, uint64_t ns)
{
	return LEFT + WIDTH * ((double)ns / (double)p->ns);
}

static double ms_of(uint64_t ns)
{
	return (double)ns / 1e6;
}

static const struct stage *stage_of(unsigned number)
{
	const struct stage *stage = stages;
	while ((unsigned)stage->stage != number)
		stage++;
	return stage;
}

static const char *name_of(unsigned state)
{
	return state < N_STAGES ? stage_of(state)->word : states[state].name;
}

/* --- what was recorded --- */

/* Lane by lane, and in the order of time. */
static int compare(const void *a, const void *b)
{
	const hoist_load_interval *x = a;
	const hoist_load_interval *y = b;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->kind != HOIST_INTERVAL_WAIT && x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static bool same_lane(const hoist_load_interval *a, const hoist_load_interval *b)
{
	return a->kind == b->kind && a->number == b->number;
}

static void measure(struct picture *p, const hoist_load_report *report)
{
	qsort(p->items, p->n, sizeof *p->items, compare);
	while (p->n_chunks < p->n && p->items[p->n_chunks].kind != HOIST_INTERVAL_WAIT)
		p->n_chunks++;
	for (size_t i = 0; i < p->n_chunks; i++)
		p->n_lanes += i == 0 || !same_lane(&p->items[i - 1], &p->items[i]);
	double lanes = p->n_lanes > 0 ? (double)p->n_lanes : 1;
	p->height = lanes <= 64 ? 10 : lanes < 320 ? 640 / lanes : 2;
	p->cell = 1;
	p->wide = 3;
	p->least = 0.5;
	p->ns = report->ns > 0 ? report->ns : 1;
}

static int collect(struct picture *p, const struct operation *op)
{
	if (hoist_load_n_intervals(op->load, &p->n, &p->n_lost) != 0)
		return fail_library();
	p->items = calloc(p->n + 1, sizeof *p->items);
	p->cells = calloc(WIDTH + 1, sizeof *p->cells);
	if (p->items == NULL || p->cells == NULL)
		return fail_memory();
	for (size_t i = 0; i < p->n; i++) {
		p->items[i].size = sizeof p->items[i];
		if (hoist_load_get_interval(op->load, i, &p->items[i]) != 0)
			return fail_library();
	}
	measure(p, &op->report);
	return STATUS_OK;
}

/* --- bands --- */

/* One state of an interval. */
struct bar {
	unsigned state;
	uint64_t begin_ns, end_ns;
	uint64_t bytes;
};

static unsigned bars_of(const hoist_load_interval *is, struct bar bars[3])
{
	if (is->kind == HOIST_INTERVAL_WAIT) {
		bars[0] = (struct bar){is->number, is->begin_ns, is->end_ns, 0};
		return 1;
	}
	bars[0] = (struct bar){READING, is->begin_ns, is->full_ns, is->bytes};
	bars[1] = (struct bar){FULL, is->full_ns, is->copy_ns, is->bytes};
	bars[2] = (struct bar){COPYING, is->copy_ns, is->end_ns, is->bytes};
	return 3;
}

static bool is_wide(const struct picture *p, const struct bar *bar)
{
	return x_of(p, bar->end_ns) - x_of(p, bar->begin_ns) >= p->wide;
}

/* Adds the parts of each cell that the bar covers. */
static void fill_cells(struct picture *p, const struct bar *bar)
{
	double from = (x_of(p, bar->begin_ns) - LEFT) / p->cell;
	double to = (x_of(p, bar->end_ns) - LEFT) / p->cell;
	p->cells[(size_t)from][bar->state] += TRACE;
	for (size_t c = (size_t)from; (double)c < to && c <= WIDTH; c++) {
		double begin = from > (double)c ? from : (double)c;
		double end = to < (double)c + 1 ? to : (double)c + 1;
		p->cells[c][bar->state] += end - begin;
	}
}

/* The state with the most time in the cell; N_STATES: the cell stays empty. */
static unsigned state_of(const struct picture *p, const double cell[N_STATES])
{
	unsigned most = 0;
	double sum = 0;
	for (unsigned s = 0; s < N_STATES; s++) {
		sum += cell[s];
		most = cell[s] > cell[most] ? s : most;
	}
	return sum > p->least ? most : N_STATES;
}

/* A path for each state, of a line for each run of its cells.  Empties the cells. */
static void draw_cells(struct picture *p, double top, double height)
{
	for (unsigned s = 0; s < N_STATES; s++) {
		bool any = false;
		for (size_t c = 0; c <= WIDTH;) {
			size_t end = c;
			while (end <= WIDTH && state_of(p, p->cells[end]) == s)
				end++;
			if (end > c && !any)
				(void)fprintf(p->out,
					      "<path stroke=\"%s\" stroke-width=\"%.4g\" d=\"",
					      states[s].colour, height);
			if (end > c)
				(void)fprintf(p->out, "M%.5g %.5gh%.4g", LEFT + (double)c * p->cell,
					      top + height / 2, (double)(end - c) * p->cell);
			any = any || end > c;
			c = end > c ? end : c + 1;
		}
		if (any)
			(void)fputs("\"/>\n", p->out);
	}
	memset(p->cells, 0, (WIDTH + 1) * sizeof *p->cells);
}

static void draw_bar(const struct picture *p, const struct bar *bar, double top, double height)
{
	struct text bytes;
	double x = x_of(p, bar->begin_ns);
	(void)fprintf(p->out,
		      "<rect x=\"%.6g\" y=\"%.5g\" width=\"%.5g\" height=\"%.4g\" fill=\"%s\">"
		      "<title>%s",
		      x, top, x_of(p, bar->end_ns) - x, height, states[bar->state].colour,
		      name_of(bar->state));
	if (bar->bytes > 0)
		(void)fprintf(p->out, " %s", format_bytes(bar->bytes, &bytes));
	(void)fprintf(p->out, ": %.3f to %.3f ms</title></rect>\n", ms_of(bar->begin_ns),
		      ms_of(bar->end_ns));
}

static void draw_band(struct picture *p, const hoist_load_interval *items, size_t n, double top,
		      double height)
{
	struct bar bars[3];
	for (size_t i = 0; i < n; i++)
		for (unsigned b = 0, n_bars = bars_of(&items[i], bars); b < n_bars; b++)
			if (!is_wide(p, &bars[b]))
				fill_cells(p, &bars[b]);
	draw_cells(p, top, height);
	for (size_t i = 0; i < n; i++)
		for (unsigned b = 0, n_bars = bars_of(&items[i], bars); b < n_bars; b++)
			if (is_wide(p, &bars[b]))
				draw_bar(p, &bars[b], top, height);
}

static double share(uint64_t ns, const struct picture *p)
{
	return 100 * (double)ns / (double)p->ns;
}

/* The lane's tooltip, beside its bars, is the sum. */
static void draw_lane(struct picture *p, const hoist_load_interval *items, size_t n, size_t lane)
{
	double top = LANES_TOP + (double)lane * p->height;
	const char *kind = items[0].kind == HOIST_INTERVAL_SLOT ? "slot" : "read";
	struct text text;
	struct bar bars[3];
	uint64_t times[N_STATES] = {0};
	uint64_t bytes = 0;
	for (size_t i = 0; i < n; i++) {
		bytes += items[i].bytes;
		for (unsigned b = 0, n_bars = bars_of(&items[i], bars); b < n_bars; b++)
			times[bars[b].state] += bars[b].end_ns - bars[b].begin_ns;
	}
	(void)fprintf(p->out,
		      "<g class=\"lane\"><title>%s %u: %zu chunk%s, %s; reading %.0f %%, full "
		      "%.0f %%, copying %.0f %% of the time</title>\n",
		      kind, items[0].number, n, n == 1 ? "" : "s", format_bytes(bytes, &text),
		      share(times[READING], p), share(times[FULL], p), share(times[COPYING], p));
	if (p->height >= 8)
		(void)fprintf(p->out,
			      "<text x=\"%d\" y=\"%.5g\" text-anchor=\"end\">%s %u</text>\n",
			      LEFT - 6, top + p->height - 1, kind, items[0].number);
	draw_band(p, items, n, top, p->height > 4 ? p->height - 1 : p->height);
	(void)fputs("</g>\n", p->out);
}

static void draw_lanes(struct picture *p)
{
	size_t lane = 0;
	double pixels = (double)p->n_lanes * WIDTH;
	p->least = 0;
	p->cell = pixels < MOST_CELLS ? 1 : pixels / MOST_CELLS;
	p->wide = pixels < 3 * MOST_BARS ? 3 : pixels / MOST_BARS;
	for (size_t i = 0; i < p->n_chunks;) {
		size_t end = i + 1;
		while (end < p->n_chunks && same_lane(&p->items[i], &p->items[end]))
			end++;
		draw_lane(p, &p->items[i], end - i, lane++);
		i = end;
	}
}

/* --- the rest of the picture --- */

/* The bytes that have arrived at each pixel's time. */
static void draw_bytes(struct picture *p, const hoist_load_report *report)
{
	uint64_t arrived[WIDTH + 1] = {0};
	struct text text;
	uint64_t sum = 0;
	for (size_t i = 0; i < p->n_chunks; i++) {
		double at = x_of(p, p->items[i].end_ns) - LEFT;
		arrived[at < WIDTH ? (size_t)at : WIDTH] += p->items[i].bytes;
	}
	(void)fprintf(p->out,
		      "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n"
		      "<polyline fill=\"none\" stroke=\"#222\" stroke-width=\"1.5\" points=\"",
		      LEFT - 6, BYTES_TOP + 8, format_bytes(report->bytes, &text));
	for (size_t i = 0; i <= WIDTH; i++) {
		sum += arrived[i];
		double part = report->bytes > 0 ? (double)sum / (double)report->bytes : 0;
		if (i == 0 || i == WIDTH || arrived[i] > 0 || arrived[i + 1] > 0)
			(void)fprintf(p->out, "%zu,%.4g ", LEFT + i,
				      BYTES_TOP + BYTES_HEIGHT * (1 - part));
	}
	(void)fputs("\"><title>bytes that have arrived</title></polyline>\n", p->out);
}

/* 1, 2 or 5 times a power of 10, twelve of which at most are in the picture. */
static double tick_of(double ms)
{
	double tick = 1e-6;
	for (int i = 0; tick * 12 < ms; i++)
		tick *= i % 3 == 1 ? 2.5 : 2;
	return tick;
}

static void draw_axis(const struct picture *p, double bottom)
{
	double all = ms_of(p->ns);
	double tick = tick_of(all);
	for (int i = 0; i * tick <= all; i++) {
		double x = LEFT + WIDTH * (i * tick / all);
		(void)fprintf(
			p->out,
			"<path stroke=\"#ddd\" d=\"M%.6g %dV%.5g\"/><text x=\"%.6g\" y=\"%.5g\" "
			"text-anchor=\"middle\">%.6g%s</text>\n",
			x, WAITS_TOP, bottom, x, bottom + 14, i * tick, i == 0 ? " ms" : "");
	}
}

static void draw_heading(const struct picture *p, const struct operation *op,
			 const struct args *args)
{
	const hoist_load_report *report = &op->report;
	struct text a, b, c;
	(void)fprintf(p->out, "<text x=\"%d\" y=\"20\" font-size=\"15\">", LEFT);
	put_escaped(p->out, args->operands[0]);
	(void)fprintf(p->out, " to %s%s: %s in %s, %s", report->device,
		      report->emulated ? " (emulated)" : "", format_bytes(report->bytes, &a),
		      format_seconds((double)report->ns / 1e9, &b),
		      format_rate(rate_of(report->bytes, (double)report->ns / 1e9), &c));
	if (p->n_lost > 0)
		(void)fprintf(p->out, "; %s later intervals were not kept",
			      format_count(p->n_lost, &a));
	if (p->n_lanes == 0)
		(void)fputs("; no chunk was read", p->out);
	(void)fputs("</text>\n", p->out);
}

static void draw_key(const struct picture *p, double x, double y, unsigned state)
{
	(void)fprintf(p->out,
		      "<rect x=\"%.5g\" y=\"%.5g\" width=\"10\" height=\"10\" fill=\"%s\" "
		      "stroke=\"#888\"/><text x=\"%.5g\" y=\"%.5g\">%s",
		      x, y - 9, states[state].colour, x + 14, y, name_of(state));
}

/* The stages that took time, with their shares; the states of a chunk. */
static void draw_legend(const struct picture *p, const hoist_load_report *report)
{
	double x = LEFT;
	for (size_t i = 0; i < N_STAGES; i++) {
		double percent = 1e11 * stage_seconds(report, &stages[i]) / (double)p->ns;
		if (percent < 0.5)
			continue;
		draw_key(p, x, 40, stages[i].stage);
		(void)fprintf(p->out, " %.0f %%</text>\n", percent);
		x += 120;
	}
	x = LEFT;
	for (unsigned s = READING; s < N_STATES; s++, x += 120) {
		draw_key(p, x, 60, s);
		(void)fputs("</text>\n", p->out);
	}
	(void)fprintf(p->out,
		      "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">waits</text>\n"
		      "<text x=\"%.5g\" y=\"60\">line: bytes that have arrived</text>\n",
		      LEFT - 6, WAITS_TOP + 14, x);
}

static void draw(struct picture *p, const struct operation *op, const struct args *args)
{
	double bottom = LANES_TOP + (double)p->n_lanes * p->height;
	(void)fprintf(p->out,
		      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		      "font-family=\"sans-serif\" font-size=\"10\">\n"
		      "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		      LEFT + WIDTH + RIGHT, bottom + 30);
	draw_heading(p, op, args);
	draw_legend(p, &op->report);
	draw_axis(p, bottom);
	(void)fprintf(p->out, "<g class=\"waits\"><title>what the load waited for</title>\n");
	draw_band(p, &p->items[p->n_chunks], p->n - p->n_chunks, WAITS_TOP, WAITS_HEIGHT);
	(void)fputs("</g>\n", p->out);
	draw_bytes(p, &op->report);
	draw_lanes(p);
	(void)fputs("</svg>\n", p->out);
}

int timeline_check(const char *path)
{
	return path == NULL ? STATUS_OK : whole_check(path, OPTION);
}

int timeline_draw(const struct operation *op, const struct args *args)
{
	struct picture p = {0};
	char *text = NULL;
	size_t bytes = 0;
	if (args->load.timeline == NULL)
		return STATUS_OK;
	int status = collect(&p, op);
	if (status == STATUS_OK && (p.out = open_memstream(&text, &bytes)) == NULL)
		status = fail_memory();
	if (status == STATUS_OK) {
		draw(&p, op, args);
		/* A lack of memory shows at the end. */
		bool whole = ferror(p.out) == 0;
		if (fclose(p.out) != 0 || !whole)
			status = fail_memory();
	}
	if (status == STATUS_OK)
		status = whole_write(args->load.timeline, OPTION, text, bytes);
	free(text);
	free(p.cells);
	free(p.items);
	return status;
}
