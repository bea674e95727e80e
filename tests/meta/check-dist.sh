#!/bin/sh
# SPDX-License-Identifier: MIT
# The tarball holds every file that git tracks.
set -u
src=${abs_top_srcdir:?}
build=${abs_top_builddir:?}
if [ ! -e "$src/.git" ]; then
	echo "not a git checkout"
	exit 77
fi
if ! command -v git >/dev/null; then
	echo "git is not installed"
	exit 77
fi
work=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

if ! git -c safe.directory='*' -C "$src" ls-files >"$work/listed"; then
	echo "git ls-files failed"
	exit 1
fi
# Tracked, and not being removed just now.
while read -r file; do
	[ ! -e "$src/$file" ] || echo "$file"
done <"$work/listed" | LC_ALL=C sort >"$work/tracked"
if [ ! -s "$work/tracked" ]; then
	echo "git tracks nothing yet"
	exit 77
fi

# A configured tree of its own: this one is busy being tested.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
mkdir "$work/build" && cd "$work/build" || exit 1
if ! "$src/configure" -q --cache-file="$work/cache" >"$work/log" 2>&1 ||
	! make -s distdir >>"$work/log" 2>&1; then
	tail -n 20 "$work/log"
	exit 1
fi
(cd hoist-*/ && find . -type f -o -type l) | sed 's#^\./##' | LC_ALL=C sort >"$work/packed"
if LC_ALL=C comm -23 "$work/tracked" "$work/packed" | grep .; then
	echo "(above) in git, but not in the tarball: add them to EXTRA_DIST or to a _SOURCES"
	exit 1
fi
echo "all $(wc -l <"$work/tracked") tracked files are in the tarball ($build was left alone)"
