#!/bin/sh
# SPDX-License-Identifier: MIT
# In the scenarios of lib/'s rooms, every allocation of hoist's own and every driver call fails once:
# the part of the failure sweep that is for make check.  HOIST_TEST_SWEEP: see faults/sweep.c.
HOIST_TEST_FORM=check exec ./faults/sweep
