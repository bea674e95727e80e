#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist completion: every command, option and value that --help names, for bash by asking the function
# that it defines; zsh and fish parse theirs.
. "${srcdir:-.}/tools/support.sh"

for shell in bash zsh fish; do
	run 0 completion $shell
	cp "$out" "$work/hoist.$shell"
done
run 2 completion tcsh
one_line 'bash, zsh and fish have one'
run 2 completion
one_line 'is missing'

# answers LINE - what bash offers at the end of the line, a line each.
cat >"$work/ask" <<'ASK'
. "$1"
COMP_LINE=$2 COMP_POINT=${#2} COMPREPLY=()
_hoist
printf '%s\n' "${COMPREPLY[@]}"
ASK
answers() {
	bash "$work/ask" "$work/hoist.bash" "$1"
}
# offers LINE WORD... - these answers, and no others.
offers() {
	line=$1
	shift
	answers "$line" >"$work/answers"
	printf '%s\n' "$@" | cmp -s - "$work/answers" || fail "\"$line\": $(cat "$work/answers")"
}

hoist --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -v '^hoist$' >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 12 ] || fail "commands: $(cat "$work/commands")"
n=0
while read -r command; do
	answers 'hoist ' | grep -qx "$command" || fail "$command is not offered"
	grep -q "'$command:" "$work/hoist.zsh" || fail "zsh does not know $command"
	hoist "$command" --help | sed -n 's/^  --\([a-z-]*\) .*/--\1/p' | sort >"$work/options"
	answers "hoist $command --" | sort | cmp -s - "$work/options" || fail "options of $command"
	while read -r option; do
		n=$((n + 1))
		name=${option#--}
		grep -q "seen_subcommand_from $command' -l $name " "$work/hoist.fish" ||
			fail "fish does not know $command $option"
		grep -q "^			'\*$option[=[]" "$work/hoist.zsh" || fail "zsh does not know $option"
		# Each value that is offered is taken.
		for value in $(answers "hoist $command $option "); do
			hoist "$command" "$option" "$value" --help >"$out" 2>"$err" ||
				fail "$command $option $value is offered: $(cat "$err")"
		done
	done <"$work/options"
done <"$work/commands"
[ $n -ge 80 ] || fail "only $n options were found"
[ "$(grep -c "seen_subcommand_from [a-z]*' -l " "$work/hoist.fish")" -eq $n ] || fail "fish offers others, too"
[ "$(grep -c "^			'\*--" "$work/hoist.zsh")" -eq $n ] || fail "zsh offers others, too"

offers 'hoist lo' load
offers 'hoist load --dev' --device
offers 'hoist load model --io a' auto adaptive
offers 'hoist load --io=d' direct
offers 'hoist cp --io ' auto direct cached
offers 'hoist load --device c' cpu cuda:0
offers 'hoist load --device cuda:' 0
offers 'hoist cache ' add list drop
offers 'hoist cache add ' ''
offers 'hoist load mod' ''
offers 'hoist bench load --svg ' ''
offers 'hoist help dig' digest
offers 'hoist completion z' zsh

# parses SHELL - the shell parses what was made for it.
parses() {
	if command -v "$1" >/dev/null; then
		"$1" -n "$work/hoist.$1" || fail "$1 does not parse its completion"
	else
		echo "$1 is not installed: its completion is not parsed"
	fi
}
parses bash
parses zsh
parses fish
exit 0
