/* SPDX-License-Identifier: MIT */
/* tools/timeline.h - `hoist load --timeline FILE`: a picture of where the time went, as SVG.
 *
 *     heading, legend
 *     waits    [ allocate ][ reads |copies|   reads   ]     a band: what the load waited for
 *     bytes            ___/---''                            arrived, of all
 *     slot 0   [reading |full| copying ][reading ...        a lane for each slot
 *     slot 1     [reading ...
 *     read 0   [reading ...                                 and for each of the reads that went
 *                                                           straight to host memory at one time
 *     ms       0         100        200
 *
 * Bars have a tooltip, their <title>.  Shorter bars are drawn together, without one: a cell of the
 * band has the state with the most time, if any chunk was there, or if the load waited for more than
 * half of the cell.  The more lanes there are, the wider are cells and the shortest bars with a
 * tooltip, so that the file stays below 1 MB or so.
 */
#ifndef HOIST_TOOLS_TIMELINE_H
#define HOIST_TOOLS_TIMELINE_H

#include "tools/operation.h"

/* Before a load: sees that the file can be written.  NULL: none is asked for.  Returns a STATUS_*.
 */
int timeline_check(const char *path);

/* After a load: writes the picture, if args->load.timeline asks for one.  Returns a STATUS_*. */
int timeline_draw(const struct operation *op, const struct args *args);

#endif
