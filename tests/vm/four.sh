#!/bin/sh
# SPDX-License-Identifier: MIT
# Placement on a machine of four NUMA nodes: sets of them, and one that has no processor:
# vm/four-guest.sh, in a virtual machine.
set -eu
form=${HOIST_TEST_FORM:-long}
here=$(cd "$(dirname "$0")" && pwd)
echo "form=$form" | cat - "$here/four-guest.sh" >"$TMPDIR/script"
exec "$here/boot" --nodes 4 --memory 256 --limit 900 "${abs_top_builddir:?}" "$TMPDIR/script" vm/place vm/sets
