#!/bin/sh
# SPDX-License-Identifier: MIT
# The README can be believed: the commands and files that it names exist.  users/c-programmer.sh
# compiles and runs its C programs, users/python-user.sh its Python.
set -u
src=${abs_top_srcdir:?}
build=${abs_top_builddir:?}
readme=$src/README.md
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# "    $ hoist VERB ...", perhaps with something before hoist.
verbs=$(sed -n 's/^    \$ \(.* \)\{0,1\}hoist \([a-z]*\) .*/\2/p; s/^    \$ \(.* \)\{0,1\}hoist \([a-z]*\)$/\2/p' "$readme" | LC_ALL=C sort -u)
for verb in $verbs; do
	if ! "$build/tools/hoist" "$verb" --help >"$work/help" 2>&1; then
		echo "README.md shows \`hoist $verb\`, which does not exist"
		status=1
	fi
done
for verb in doctor devices ls load explain cat digest cp cache bench; do
	case " $(echo $verbs) " in
	*" $verb "*) ;;
	*)
		echo "README.md shows no example of \`hoist $verb\`"
		status=1
		;;
	esac
done

# `./name` at the top, and links to files.
for file in $(grep -o '\./[a-z]*\b' "$readme"; grep -o '](\([^):#]*\))' "$readme" | sed 's/^](//; s/)$//'); do
	if [ ! -e "$src/$file" ]; then
		echo "README.md names $file, which is not there"
		status=1
	fi
done
[ $status -ne 0 ] || echo "verbs:" $verbs
exit $status
