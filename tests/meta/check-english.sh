#!/bin/sh
# SPDX-License-Identifier: MIT
# A sentence of a comment names its subject: none begins with "What" or "Of" ("What is not
# populated ..."; "Of the slots, ...").
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=${1:-$(cd "$here/../.." && pwd)}
folders=${2:-include base net device numa alloc format io lib emulator cli bench tools examples tests}

if ! cd "$top"; then
	exit 1
fi
# shellcheck disable=SC2086
find $folders -name '*.[ch]' | LC_ALL=C sort | xargs awk -v least=$([ $# -lt 2 ] && echo 200 || echo 1) '
	# One comment, its lines joined: each sentence that begins with one of the words.
	function judge(text, line,    sentence, n, sentences, i) {
		gsub(/[ \t]+/, " ", text)
		sub(/^[ -]+/, "", text)
		# "lib/x.c - what it does": the summary is a sentence, too.
		gsub(/\.[ch] - /, ". ", text)
		n = split(text, sentences, /[.!?:;]+ +/)
		for (i = 1; i <= n; i++) {
			sentence = sentences[i]
			sub(/^[ (*-]+/, "", sentence)
			if (sentence ~ /^(What|Of) /) {
				print file ":" line ": \"" substr(sentence, 1, 60) "\": name the subject"
				bad++
			}
		}
	}
	FNR == 1 {
		file = FILENAME
		inside = 0
		n_files++
	}
	{
		rest = $0
		while (rest != "") {
			if (!inside) {
				at = index(rest, "/*")
				if (at == 0)
					break
				rest = substr(rest, at + 2)
				inside = 1
				text = ""
				first = FNR
			}
			end = index(rest, "*/")
			if (end == 0) {
				sub(/^[ \t]*\*/, "", rest)
				text = text " " rest
				break
			}
			piece = substr(rest, 1, end - 1)
			sub(/^[ \t]*\*/, "", piece)
			judge(text " " piece, first)
			inside = 0
			rest = substr(rest, end + 2)
		}
	}
	END {
		if (n_files < least) {
			print "only " n_files + 0 " files were found: is this the source tree?"
			exit 1
		}
		if (bad) {
			print bad " sentences"
			exit 1
		}
		print n_files " files: each sentence has its subject"
	}'
