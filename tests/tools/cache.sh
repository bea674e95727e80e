#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist cache add, list, drop, and hoist load --cache, with a holder of the test's own.
. "${srcdir:-.}/tools/support.sh"
XDG_RUNTIME_DIR=$work/run
export XDG_RUNTIME_DIR
mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 99
trap 'hoist cache drop --all >/dev/null 2>&1; rm -rf "$work"' EXIT

mkcheckpoint --bytes 3M --tensors 7 "$work/model"
mkcheckpoint --bytes 1M --tensors 6 --shards 3 "$work/shards"
model=$work/model

# Nothing is there, and nothing is started to say so.
run 0 cache list
grep -qx '0 in 0 images' "$out" || fail "an empty list: $(cat "$out")"
run 0 cache list --json
grep -q '"images": \[\]' "$out" || fail "an empty list as JSON: $(cat "$out")"
run 1 cache drop "$model"
one_line 'is not in the cache'
run 0 cache drop --all
grep -qx 'dropped 0 images' "$out" || fail "dropping nothing: $(cat "$out")"
[ ! -e "$XDG_RUNTIME_DIR/hoist/holder" ] || fail "a holder was started"

# From the cache, which it is put into first.
run 0 load --cache --json "$model"
grep -q 'was not in it' "$out" || fail "the first load does not say that it was cached"
run 0 load --cache --json "$model"
[ "$(json '?engine' <"$out")" = cache ] || fail "the second load is not from the cache"
[ "$(json '?io_reason' <"$out")" = 'from the cache' ] || fail "the reason: $(cat "$out")"
[ "$(json '?tensors' <"$out")" = 7 ] || fail "the number of tensors"
[ "$(json '?mapped_bytes' <"$out")" = "$(json '?bytes' <"$out")" ] || fail "mapped bytes"
run 0 load --cache "$model"
grep -qx 'loaded 7 tensors, .* shared with the cache' "$out" || fail "$(cat "$out")"
run 0 load -v --cache "$model"
grep -q '^engine    cache' "$out" || fail "the engine: $(cat "$out")"
run 0 load --cache --json --tensor 'lm_head*' "$model"
[ "$(json '?tensors' <"$out")" = 1 ] || fail "one tensor of it"
run 1 load --cache --tensor 'nothing*' "$model"
one_line 'nothing*'

# A checkpoint that changes is cached again.
touch -d '2001-01-01 00:00:00' "$model/model.safetensors"
run 0 load --cache --json "$model"
grep -q 'had changed' "$out" || fail "a changed checkpoint was not cached again"

run 0 cache add "$work/shards"
grep -q "^cached    $work/shards" "$out" || fail "cache add: $(cat "$out")"
run 0 cache add --json --replace --pages small --node 0 --budget 1M "$work/shards"
[ "$(json '?pages' <"$out")" = small ] || fail "small pages: $(cat "$out")"
run 0 cache list
[ "$(wc -l <"$out")" -eq 4 ] || fail "the list: $(cat "$out")"
run 0 cache list --json
[ "$(json '?images.0.path' <"$out")" = "$(cd "$model" && pwd -P)" ] || fail "the first path"
[ "$(json '?images.1.tensors' <"$out")" = 6 ] || fail "tensors of the second"

# To an emulated device.
HOIST_EMULATE=cuda:1
export HOIST_EMULATE
if hoist devices | grep -q '^cuda:0'; then
	run 0 load --cache --json --device cuda:0 "$model"
	[ "$(json '?emulated' <"$out")" = true ] || fail "emulated"
	[ "$(json '?n_copies' <"$out")" = 7 ] || fail "copies"
fi
unset HOIST_EMULATE

run 2 load --cache --verify "$model"
one_line '--verify'
run 2 cache
one_line 'add|list|drop is missing'
run 2 cache add
one_line 'PATH is missing'
run 2 cache put "$model"
one_line 'add, list or drop'
run 2 cache list "$model"
one_line 'too many'
run 2 cache drop
one_line '--all'
run 2 cache drop --all "$model"
one_line '--all'
run 2 cache add --pages big "$model"
one_line 'huge, small or hugetlb'
run 2 cache add --node x "$model"
one_line 'a number from 0'
run 2 cache add --io map "$model"
one_line '--io'
run 1 cache add --replace --node 1023 "$model"
one_line 'NUMA node 1023'
run 1 cache add "$work/absent"
one_line "$work/absent"

# A folder that others can use is refused, with what to do.
chmod 755 "$XDG_RUNTIME_DIR/hoist"
run 1 cache list
one_line 'open to others (mode 0755); make the mode 0700'
chmod 700 "$XDG_RUNTIME_DIR/hoist"
if [ "$(id -u)" -eq 0 ] && chown 65534 "$XDG_RUNTIME_DIR/hoist" 2>/dev/null; then
	run 1 load --cache "$model"
	one_line 'belongs to user 65534, not to 0'
	chown 0 "$XDG_RUNTIME_DIR/hoist"
fi

run 0 cache drop "$model"
grep -qx 'dropped 1 image' "$out" || fail "drop: $(cat "$out")"
run 0 cache drop --all --json
[ "$(json '?dropped' <"$out")" = 1 ] || fail "drop --all: $(cat "$out")"
n=0
while [ -e "$XDG_RUNTIME_DIR/hoist" ] && [ $n -lt 100 ]; do
	sleep 0.2
	n=$((n + 1))
done
[ ! -e "$XDG_RUNTIME_DIR/hoist" ] || fail "the holder or its folder did not end with its last image"

# Its folder may be a file, or a link to elsewhere, which is not followed.
: >"$XDG_RUNTIME_DIR/hoist"
run 1 cache add "$model"
one_line "$XDG_RUNTIME_DIR/hoist is a link, or no folder; remove what lies there, or set XDG_RUNTIME_DIR"
rm "$XDG_RUNTIME_DIR/hoist"
mkdir -m 700 "$work/elsewhere"
ln -s "$work/elsewhere" "$XDG_RUNTIME_DIR/hoist"
run 1 cache list
one_line 'is a link'
