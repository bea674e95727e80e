/* SPDX-License-Identifier: MIT */
/* tools/args-emulate.h - the options of `hoist emulate`: each is a variable that the stand-in
 * drivers read (emulator/control.h), checked here so that a mistake is told before the command
 * runs. */
#ifndef HOIST_TOOLS_ARGS_EMULATE_H
#define HOIST_TOOLS_ARGS_EMULATE_H

#define N_EMULATE_OPTIONS 6

struct emulate_args {
	const char *values[N_EMULATE_OPTIONS]; /* by option; NULL: not given */
};

/* Takes the value of --@name, which stays the caller's.
 * Returns: NULL; or the words for what the value must be. */
const char *args_emulate_take(struct emulate_args *args, const char *name, const char *value);

/* Sets the variables of the options that were given; HOIST_EMULATE is set in any case.
 * Returns: 0; -ENOMEM. */
int args_emulate_export(const struct emulate_args *args);

#endif
