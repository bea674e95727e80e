/* SPDX-License-Identifier: MIT */
/* cli/progress.c - draws the line that shows a command's progress.
 * The contract is in cli/progress.h. */
#include "config.h"

#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/format.h"

#define FIRST_NS 200000000
#define EVERY_NS 100000000

static struct {
	const char *doing; /* "loading" */
	const char *held;  /* what holds the work back; NULL: the command does not say */
	bool watched;
	bool drawn; /* it is on the terminal now */
	uint64_t start_ns;
	uint64_t next_ns; /* it is not drawn again before */
} line;

static bool is_watched(void)
{
	const char *terminal = secure_getenv("TERM");
	return isatty(STDERR_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

void progress_begin(const char *doing)
{
	line.doing = doing;
	line.held = NULL;
	line.watched = is_watched();
	line.start_ns = clock_ns();
	line.next_ns = line.start_ns + FIRST_NS;
}

void progress_held(const char *held)
{
	line.held = held;
}

static int columns(void)
{
	struct winsize size;
	bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
	return known ? size.ws_col : 80;
}

static void draw_line(const char *text)
{
	(void)fprintf(stderr, "\r\033[K%.*s", columns() - 1, text);
	(void)fflush(stderr);
	line.drawn = true;
}

static void draw(uint64_t done, uint64_t total, double seconds)
{
	double rate = rate_of(done, seconds);
	struct text have, all, speed, left;
	char rest[64] = "";
	char text[256];
	if (done > 0 && done <= total)
		(void)snprintf(rest, sizeof rest, "  %s left",
			       format_seconds((double)(total - done) / rate, &left));
	(void)snprintf(text, sizeof text, "%s  %s of %s  %.0f %%  %s%s%s%s", line.doing,
		       format_bytes(done, &have), format_bytes(total, &all),
		       100.0 * (double)done / (double)total, format_rate(rate, &speed), rest,
		       line.held != NULL ? "  " : "", line.held != NULL ? line.held : "");
	draw_line(text);
}

bool progress_is_due(void)
{
	return line.watched && clock_ns() >= line.next_ns;
}

void progress_update(uint64_t done, uint64_t total)
{
	if (!progress_is_due() || total == 0)
		return;
	uint64_t now = clock_ns();
	line.next_ns = now + EVERY_NS;
	draw(done, total, (double)(now - line.start_ns) / 1e9);
}

void progress_steps(const char *what, const char *subject, size_t done, size_t total)
{
	char text[256];
	(void)snprintf(text, sizeof text, "measuring %s, %s   %zu of %zu", what, subject, done,
		       total);
	if (is_watched())
		draw_line(text);
}

void progress_end(void)
{
	if (line.drawn)
		(void)fputs("\r\033[K", stderr);
	line.drawn = false;
	line.watched = false;
}
