/* SPDX-License-Identifier: MIT */
/* cli/interrupt.h - Ctrl-C and SIGTERM: finish cleanly, then die of them.
 *
 * The first signal only sets a flag, which the loops of a command check.  A second signal of the
 * same kind ends the process at once, as if there were no handler.  A command that was stopped
 * frees everything and says so.  Then main() lets the signal kill the process, so that the shell
 * knows why it ended.
 */
#ifndef HOIST_CLI_INTERRUPT_H
#define HOIST_CLI_INTERRUPT_H

/* Notices signals from now on.  Signals that the caller ignores (nohup) stay ignored. */
void interrupt_watch(void);

/* Returns the signal that came, or 0. */
int interrupted(void);

/* Dies of that signal; returns only if none came. */
void interrupt_die(void);

#endif
