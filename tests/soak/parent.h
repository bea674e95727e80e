/* SPDX-License-Identifier: MIT */
/* tests/soak/parent.h - what the parent of the soak does beside starting and killing: files, the
 * processes that are stuck and where, and the verdict. */
#ifndef HOIST_TESTS_SOAK_PARENT_H
#define HOIST_TESTS_SOAK_PARENT_H

#include "tests/soak/worker.h"

bool soak_is_watched(void); /* by a sanitizer */

void soak_make_files(void);
/* Drops the cache, and removes the folder with all that is in it. */
void soak_clean_up(void);

/* Kills the holder with SIGKILL.  Returns: there was one. */
bool soak_kill_holder(void);

/* Does any thread do one thing for longer than SOAK_STUCK_SECONDS?  Tells which, and where. */
bool soak_is_stuck(void);
void soak_show_slot(int slot);
void soak_show_counts(void);

/* The parent's deeds: how often each was done to them. */
struct soak_harm {
	unsigned kills;
	unsigned kills_in_saves;
	unsigned holder_kills;
	unsigned stops;
};

/* Returns: NULL, enough of each kind has been done; of what there is too little. */
const char *soak_lacks(const struct soak_harm *harm);

/* The processes that live long. */
unsigned soak_fewest_rests(void);

/* After the end, when nobody lives: no growth, files are whole, nothing is left but what may be. */
bool soak_judge(const struct soak_harm *harm);

#endif
