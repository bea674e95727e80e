#!/bin/sh
# SPDX-License-Identifier: MIT
# A failure gives exit status 1 and one line that names it.
. "${srcdir:-.}/tools/support.sh"

failing() {
	text=$1
	shift
	run 1 "$@"
	no_output
	one_line "$text"
}

mkcheckpoint --tiny "$work/tiny"
for command in ls load digest doctor; do
	failing "$work/absent" $command "$work/absent"
done
failing "$work/absent" cat "$work/absent" t
failing "$work/absent" ls --json "$work/absent"
mkdir "$work/folder"
failing "$work/folder" load "$work/folder"

# Malformed: the file is named.
printf 'not a checkpoint' >"$work/bad.safetensors"
for command in ls load digest; do
	failing bad.safetensors $command "$work/bad.safetensors"
done
write_safetensors "$work/short.safetensors" \
	'{"t":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}' 8
failing short.safetensors load "$work/short.safetensors"
: >"$work/empty.safetensors"
failing empty.safetensors ls "$work/empty.safetensors"

# Links out of the folder are followed only on request, but for those of Hugging Face's cache.
model=$work/models--o--n
mkdir "$work/blobs" "$work/snapshot" "$model" "$model/snapshots" "$model/snapshots/0123abcd"
mv "$work/tiny/"* "$work/blobs"
for file in "$work/blobs/"*; do
	ln -s "../blobs/${file##*/}" "$work/snapshot/"
done
failing follow-links ls "$work/snapshot"
failing follow-links load "$work/snapshot"
run 0 ls --follow-links "$work/snapshot"
run 0 load --follow-links --verify "$work/snapshot"
mv "$work/blobs" "$model/blobs"
for file in "$model/blobs/"*; do
	ln -s "../../blobs/${file##*/}" "$model/snapshots/0123abcd/"
done
run 0 ls "$model/snapshots/0123abcd"
run 0 load --verify "$model/snapshots/0123abcd"
mkdir "$model/refs" && printf 0123abcd >"$model/refs/main"
run 0 ls "$model"
HF_HUB_CACHE=$work
export HF_HUB_CACHE
run 0 load --verify hf://o/n
run 0 load --verify hf://o/n@0123abcd
failing 0123abcd load hf://o/n@v2
failing HF_HUB_CACHE digest hf://o/m
failing hf://ORG/NAME ls hf://o/n/m
unset HF_HUB_CACHE
mv "$model/blobs" "$work/blobs"
mv "$work/blobs/"* "$work/tiny"

failing nothing_like_it load --tensor 'nothing_like_it*' "$work/tiny"
failing absent.weight cat "$work/tiny" absent.weight
one_line 'hoist ls'
failing cpu load --device banana "$work/tiny"
failing 1 load --device cpu:7 "$work/tiny"
HOIST_CUDA_LIBRARY=$work/absent.so
export HOIST_CUDA_LIBRARY
failing HOIST_CUDA_LIBRARY load --device cuda:0 "$work/tiny"
unset HOIST_CUDA_LIBRARY
HOIST_EMULATE=cuda:1
HOIST_EMULATE_MEMORY=64K
export HOIST_EMULATE HOIST_EMULATE_MEMORY
mkcheckpoint --bytes 1M "$work/larger"
failing cuda load --device cuda:0 "$work/larger"
unset HOIST_EMULATE_MEMORY
failing 2 load --device cuda:2 "$work/tiny"
failing budget load --device cuda:0 --budget 1 "$work/larger"
HOIST_EMULATE_MEMORY=lots
export HOIST_EMULATE_MEMORY
failing 'HOIST_EMULATE_MEMORY=lots' load --device cuda:0 "$work/tiny"
one_line 'check the HOIST_EMULATE'
unset HOIST_EMULATE_MEMORY
HOIST_EMULATE_FAIL=cuMemcpyDtoHAsync:1
export HOIST_EMULATE_FAIL
failing cu digest --device cuda:0 "$work/tiny"
unset HOIST_EMULATE HOIST_EMULATE_FAIL

# A shortage that its owner can end comes with the remedy.
mkcheckpoint --bytes 4K --tensors 24 --shards 24 "$work/shards"
(
	ulimit -n 20
	failing 'ulimit -n' load "$work/shards"
	failing 'ulimit -n' ls "$work/shards"
) || exit 1

# A message stays one line and harmless, whatever the path holds.
failing 'x\ny\x1b[2J' ls "$(printf '%s/x\ny\033[2J' "$work")"

# Not allowed to read.
chmod 000 "$work/tiny/model.safetensors"
if [ "$(id -u)" -ne 0 ]; then
	failing model.safetensors ls "$work/tiny/model.safetensors"
elif setpriv --reuid=65534 --clear-groups --bounding-set=-all true 2>/dev/null &&
	chmod 755 "$work" && setpriv --reuid=65534 --clear-groups \
	test -x "$work" -a -x "$HOIST" 2>/dev/null; then
	setpriv --reuid=65534 --clear-groups "$HOIST" ls "$work/tiny/model.safetensors" \
		>"$out" 2>"$err"
	[ $? -eq 1 ] || fail "a file that may not be read"
	no_output
	one_line model.safetensors
fi
chmod 644 "$work/tiny/model.safetensors"

# A full disk is noticed, also when only the last write shows it.
if [ -c /dev/full ]; then
	mkcheckpoint --bytes 1M --tensors 2000 "$work/many"
	for arguments in '--help' 'help load' '--version' 'devices' 'devices --json' \
		"ls $work/tiny" "ls --json $work/tiny" "ls $work/many" "ls --json $work/many" \
		"load $work/tiny" "load --json $work/tiny" "digest $work/tiny" \
		"digest $work/many" "digest --json $work/many" "doctor $work" \
		"doctor --json $work" "cat $work/tiny lm_head.weight"; do
		# shellcheck disable=SC2086
		hoist $arguments >/dev/full 2>"$err"
		[ $? -eq 1 ] || fail "hoist $arguments >/dev/full: exit status is not 1"
		one_line 'No space left on device'
	done
	# Nothing is written, so nothing fails; and a closed stdout is an error.
	hoist ls "$work/many" >&- 2>"$err"
	[ $? -eq 1 ] || fail "a closed stdout is not noticed"
fi

# A reader that goes away ends it quietly.
mkcheckpoint --bytes 20M --tensors 3 "$work/large"
for arguments in "ls $work/many" "digest $work/many" "cat $work/large lm_head.weight"; do
	# shellcheck disable=SC2086
	{
		hoist $arguments 2>"$err"
		echo $? >"$work/status"
	} | head -c 1 >/dev/null
	[ "$(cat "$work/status")" -eq 1 ] || fail "hoist $arguments | head: $(cat "$work/status")"
	[ ! -s "$err" ] || fail "a reader that went away gave a message"
done
