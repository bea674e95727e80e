/* SPDX-License-Identifier: MIT */
/* cli/format.h - formats figures and names for people.
 *
 * Sizes are binary (KiB, MiB, GiB).  Rates are decimal (GB/s = 10^9 bytes a second), as are those
 * of disks, buses and the JSON's gb_per_s.  Functions that fill a `struct text` return its
 * characters, so that a printf can contain the calls.
 */
#ifndef HOIST_CLI_FORMAT_H
#define HOIST_CLI_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct text {
	char chars[48];
};

const char *format_bytes(uint64_t bytes, struct text *ret);    /* "0", "512 B", "1.50 GiB" */
const char *format_rate(double bytes_per_s, struct text *ret); /* "1.93 GB/s" */
const char *format_seconds(double seconds, struct text *ret);  /* "3.1 ms", "2.41 s", "1:05:09" */
const char *format_count(uint64_t n, struct text *ret);	       /* "2,147,483,648" */

/* Bytes a second; 0 if no time passed. */
double rate_of(uint64_t bytes, double seconds);

/* Prints UTF-8 text that came from a file or a user.  Characters that could move the cursor, end
 * the line or hide other text are written as \n, \x1b or \u202e, and bytes that are not UTF-8 as
 * \xff. */
void print_escaped(FILE *out, const char *text);

/* Returns how many columns that takes, one for each character that is not escaped. */
size_t escaped_width(const char *text);

/* Returns the length of the UTF-8 character at @text: 1..4, or 0 for a byte that begins none. *code
 * is the character, or the byte. */
size_t utf8_length(const char *text, uint32_t *code);

/* Returns the part of @path behind its last '/'. */
const char *base_name(const char *path);

#endif
