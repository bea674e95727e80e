/* SPDX-License-Identifier: MIT */
/* base/log.c - the debug log.
 * The contract is in base/log.h. */
#include "config.h"

#include "base/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/limit.h"

_Atomic unsigned hoist__log_mask;

static const char *const module_names[] = {
#define X(name) #name,
	HOIST__LOG_MODULES(X)
#undef X
};

static const char module_words[] =
#define X(name) #name ", "
	HOIST__LOG_MODULES(X)
#undef X
		"and all, with commas between them";

static unsigned module_bit(const char *word, size_t length)
{
	for (unsigned m = 0; m < HOIST__LOG_COUNT; m++)
		if (strlen(module_names[m]) == length && memcmp(module_names[m], word, length) == 0)
			return 1u << m;
	if (length == 3 && memcmp(word, "all", 3) == 0)
		return (1u << HOIST__LOG_COUNT) - 1u;
	return 0;
}

/* Names in the log come from files.  No byte of them may move a terminal's cursor or begin a line.
 * (U+0080 to U+009F are 0xc2 and one more byte.) */
static void silence(char *line, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)line[i];
		bool high = c >= 0x80 && c < 0xa0 && i > 0 && line[i - 1] == '\xc2';
		if (c < 0x20 || c == 0x7f || high)
			line[i] = '?';
	}
}

__attribute__((format(printf, 2, 0))) static void write_line(const char *name, const char *format,
							     va_list args)
{
	char line[1024];
	uint64_t now = hoist__now_ns();
	int n = snprintf(line, sizeof line, "hoist[%s] %llu.%06llu ", name,
			 (unsigned long long)(now / HOIST__NS_PER_S),
			 (unsigned long long)(now % HOIST__NS_PER_S / 1000));
	size_t used = n < 0 ? 0 : (size_t)n;
	n = vsnprintf(line + used, sizeof line - used - 1, format, args);
	used += n < 0 ? 0 : (size_t)n;
	if (used > sizeof line - 2)
		used = sizeof line - 2;
	silence(line, used);
	line[used++] = '\n';
	/* A log line that cannot be written is lost: no caller could be told. */
	if (hoist__write(STDERR_FILENO, line, used) < 0)
		return;
}

void hoist__log_write(enum hoist__log_module module, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	write_line(module_names[module], format, args);
	va_end(args);
}

/* --- the modules that log --- */

static void HOIST__PRINTF(1, 2) complain(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	write_line("debug", format, args);
	va_end(args);
}

unsigned hoist__log_init(void)
{
	unsigned mask = 1u << 31;
	const char *unknown = NULL;
	const char *list = secure_getenv("HOIST_DEBUG");
	while (list != NULL && *list != '\0') {
		size_t length = strcspn(list, ",");
		unsigned bits = module_bit(list, length);
		if (bits == 0 && length > 0 && unknown == NULL)
			unknown = list;
		mask |= bits;
		list += length + (list[length] == ',');
	}
	bool first = atomic_exchange_explicit(&hoist__log_mask, mask, memory_order_relaxed) == 0;
	if (first && unknown != NULL)
		complain("HOIST_DEBUG: there is no module \"%.*s\"; there are %s",
			 (int)hoist__min_u64(strcspn(unknown, ","), 60), unknown, module_words);
	return mask;
}
