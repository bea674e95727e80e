#!/bin/sh
# SPDX-License-Identifier: MIT
# In the place of faults/fuse_*, where they could not be built.
echo "skipped: faults/fuse_*: there was no libfuse3 when this was configured (Debian: libfuse3-dev)"
exit 77
