#!/bin/sh
# SPDX-License-Identifier: MIT
# In the place of fault_fuse_*, where they could not be built.
echo "skipped: fault_fuse_*: there was no libfuse3 when this was configured (Debian: libfuse3-dev)"
exit 77
