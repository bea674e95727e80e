#!/bin/sh
# SPDX-License-Identifier: MIT
# Includes point down only: each folder's and each room's of lib/, by layers.tsv.  A test in
# tests/FOLDER (tests/lib/ROOM) may open that folder or room, and what these may include.  A test
# elsewhere in tests/ is a user of the public interface and of the emulator's controls, unless
# layers.tsv has a row for its folder.  Quoted includes name their folder, so that they can be judged.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=${1:-$(cd "$here/../.." && pwd)}
table=$here/layers.tsv

if ! cd "$top"; then
	exit 1
fi
for folder in base net device numa alloc format io lib emulator cli tools examples bench tests include; do
	[ -d "$folder" ] || { echo "no folder $folder in $top" && exit 1; }
done

find include base net device numa alloc format io lib emulator cli tools examples bench tests -name '*.[ch]' -o -name '*.cpp' |
	LC_ALL=C sort |
	xargs awk -v table="$table" '
	BEGIN {
		while ((getline line < table) > 0) {
			if (line ~ /^#/)
				continue
			n = split(line, words, /[ \t]+/)
			known[words[1]] = 1
			may[words[1], words[1]] = 1
			for (i = 2; i <= n; i++) {
				if (words[i] ~ /\// && !(words[i] in known)) {
					print table ": " words[1] " names " words[i] ", which does not come before it"
					exit_status = 1
					exit 1
				}
				may[words[1], words[i]] = 1
			}
		}
		close(table)
		if (!("base" in known)) {
			print "cannot read " table
			exit_status = 1
			exit 1
		}
	}

	function complain(why) {
		print FILENAME ":" FNR ": " why
		bad++
	}

	# "lib/plan" of lib/plan/plan.h: a folder of lib/ that has a row.
	function room(path) {
		sub(/\/[^\/]*$/, "", path)
		return path
	}

	/^[ \t]*#[ \t]*include[ \t]*["<]/ {
		n_includes++
		split(FILENAME, parts, "/")
		from = parts[1]
		quoted = $0 ~ /include[ \t]*"/
		target = $0
		sub(/^[^"<]*["<]/, "", target)
		sub(/[">].*/, "", target)
		if (target == "config.h") {
			if (from == "include")
				complain("an installed header includes config.h")
			next
		}
		slash = index(target, "/")
		to = slash ? substr(target, 1, slash - 1) : ""
		if (!quoted) {
			# The system, or our public headers; never a folder of ours.
			if (to != "hoist" && (to in known))
				complain("<" target "> is one of our private headers; quote it")
			if (to != "hoist")
				next
		} else if (to == "") {
			complain("\"" target "\" does not say which folder it is in")
			next
		} else if (to != "hoist" && to != "tests" && !(to in known)) {
			complain("\"" target "\": the folder is not in layers.tsv")
			next
		}
		if (from == "tests") {
			if (to == "tests" || to == "hoist" || target == "emulator/control.h")
				next
			from = "tests/" parts[2]
			if (parts[2] in known)
				from = parts[2]
		}
		if (!((from, to) in may))
			complain(from "/ must not know " to "/ (\"" target "\")")
		path = FILENAME
		sub(/^tests\//, "", path)
		if (from == "lib" && to == "lib" && !((room(path), room(target)) in may))
			complain(room(FILENAME) "/ must not know " room(target) "/ (\"" target "\")")
	}

	END {
		if (exit_status)
			exit 1
		if (n_includes < 50) {
			print "only " n_includes + 0 " includes were found: is this the source tree?"
			exit 1
		}
		if (bad)
			exit 1
		print n_includes " includes, all of them point down"
	}'
