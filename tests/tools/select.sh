#!/bin/sh
# SPDX-License-Identifier: MIT
# --tensor and --exclude mean the same tensors to every command that takes them.
. "${srcdir:-.}/tools/support.sh"
XDG_RUNTIME_DIR=$work/run
export XDG_RUNTIME_DIR
mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 99
trap 'hoist cache drop --all >/dev/null 2>&1; rm -rf "$work"' EXIT

# Names like globs: one tensor is called as a glob that matches another.
write_safetensors "$work/m.safetensors" '{
	"a.0":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
	"a.1":{"dtype":"U8","shape":[5],"data_offsets":[3,8]},
	"a.[0]":{"dtype":"U8","shape":[7],"data_offsets":[8,15]},
	"b":{"dtype":"U8","shape":[11],"data_offsets":[15,26]}}' 26

# names OPTION... - what ls, digest, load, explain, cp and load --cache take by these options.
names() {
	run 0 ls "$@" "$work/m.safetensors"
	awk 'NR > 1 && !NF { exit } NR > 1 { print $1 }' "$out" >"$work/names"
	bytes=$(awk 'NR > 1 && !NF { exit } NR > 1 { n += $4 } END { print n + 0 }' "$out")
	run 0 ls --json "$@" "$work/m.safetensors"
	n=$(grep -o '"offset"' "$out" | wc -l)
	[ "$n" -eq "$(wc -l <"$work/names")" ] || fail "ls $*: the table and JSON differ"
	run 0 digest "$@" "$work/m.safetensors"
	awk '{ print $2 }' "$out" | cmp -s - "$work/names" || fail "digest $*: other tensors than ls"
	run 0 load --json "$@" "$work/m.safetensors"
	json "=$n:tensors" "=$bytes:bytes" <"$out" || fail "load $*: other tensors than ls"
	run 0 load --cache --json "$@" "$work/m.safetensors"
	json "=$n:tensors" "=$bytes:bytes" <"$out" || fail "load --cache $*: other tensors than ls"
	run 0 explain --json "$@" "$work/m.safetensors"
	json "=$n:plan.tensors" "=$bytes:plan.bytes" <"$out" || fail "explain $*: other tensors than ls"
	run 0 cp "$@" "$work/m.safetensors" "$work/copy.safetensors"
	run 0 digest "$work/copy.safetensors"
	awk '{ print $2 }' "$out" | cmp -s - "$work/names" || fail "cp $*: other tensors than ls"
	tr '\n' ' ' <"$work/names"
}

while IFS='|' read -r options wanted; do
	# shellcheck disable=SC2086
	set -f && set -- $options && set +f
	names "$@" >"$work/got" || exit 1
	got=$(cat "$work/got")
	[ "$got" = "$wanted" ] || fail "hoist ls $options: '$got', not '$wanted'"
done <<'END'
|a.0 a.1 a.[0] b 
--tensor a.*|a.0 a.1 a.[0] 
--tensor a.[0]|a.[0] 
--exclude a.[0]|a.0 a.1 b 
--tensor a.? --exclude a.1|a.0 
--exclude a.1 --tensor a.? --tensor b|a.0 b 
--exclude *0* --exclude b|a.1 
--tensor b --tensor b|b 
END

# A text that matches nothing, and nothing that is left.
for command in ls load explain digest 'load --cache'; do
	# shellcheck disable=SC2086
	for option in --tensor --exclude; do
		run 1 $command $option b $option 'c*' "$work/m.safetensors"
		one_line 'no tensor that matches "c*"'
		no_output
	done
	# shellcheck disable=SC2086
	run 1 $command --tensor b --exclude '*' "$work/m.safetensors"
	one_line '--exclude takes every tensor'
done
run 1 cp --exclude '*' "$work/m.safetensors" "$work/none.safetensors"
one_line '--exclude takes every tensor'
[ ! -e "$work/none.safetensors" ] || fail "a file after all"
for command in 'cat a b' 'cache add a' 'doctor' 'devices'; do
	# shellcheck disable=SC2086
	run 2 ${command%% *} --exclude a ${command#* }
	one_line 'there is no option --exclude'
done

# 100,000 tensors: as many looks at names, not as many squared.
write_safetensors "$work/many.safetensors" "{$(awk 'BEGIN {
	for (i = 0; i < 100000; i++)
		printf "%s\"layers.%06d.w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", (i > 0 ? "," : ""), i
}')}" 0
(
	ulimit -t 10
	run 0 load --json --exclude 'layers.09999[0-9].w' "$work/many.safetensors"
	json =99990:tensors <"$out" || fail "of 100,000 tensors: $(json '?tensors' <"$out")"
	run 0 cp --json --exclude layers.000000.w --rename 's/layers\.0*([0-9])/l\1/' \
		"$work/many.safetensors" "$work/fewer.safetensors"
	json =99999:tensors <"$out" || fail "not as many copied"
) || exit 1
exit 0
