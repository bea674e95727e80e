/* SPDX-License-Identifier: MIT */
/* cli/interrupt.h - Ctrl-C and SIGTERM: finish cleanly, then die of them.
 *
 * The first signal only sets a flag, which the loops of a command look at; a
 * second of the same kind ends the process at once, as if there were no handler.
 * A command that was stopped frees everything, says so, and main() then lets the
 * signal kill the process, so that the shell knows why it ended.
 */
#ifndef HOIST_CLI_INTERRUPT_H
#define HOIST_CLI_INTERRUPT_H

/* From now on signals are noticed.  Signals that the caller ignores (nohup) stay so. */
void interrupt_watch(void);

/* The signal that came, or 0. */
int interrupted(void);

/* Dies of that signal; returns only if none came. */
void interrupt_die(void);

#endif
