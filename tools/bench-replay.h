/* SPDX-License-Identifier: MIT */
/* tools/bench-replay.h - `hoist bench replay FILE`: what programs did, done again. */
#ifndef HOIST_TOOLS_BENCH_REPLAY_H
#define HOIST_TOOLS_BENCH_REPLAY_H

#include "tools/args.h"

int bench_replay(const struct args *args); /* a STATUS_* */

#endif
