/* SPDX-License-Identifier: MIT */
/* tools/whole.h - a text file that appears whole or not at all.
 *
 * A file at the path is replaced, and lends its rights, whatever the umask is; a symbolic link there
 * is replaced itself.
 * A folder, a device or a FIFO is refused.  Between the two calls there is no file of theirs: a
 * command that is killed meanwhile leaves nothing.
 */
#ifndef HOIST_TOOLS_WHOLE_H
#define HOIST_TOOLS_WHOLE_H

#include <stddef.h>

/* Makes a file beside @path, and removes it: before long work, to see that the file can be written.
 * @option: "--timeline", for the message.
 * Returns: STATUS_OK; STATUS_FAILED, with the message printed. */
int whole_check(const char *path, const char *option);

/* Writes @bytes bytes of @text.  Returns: as whole_check(). */
int whole_write(const char *path, const char *option, const char *text, size_t bytes);

#endif
