#!/bin/sh
# SPDX-License-Identifier: MIT
# The manual pages name every key of the JSON that the commands print, and the examples of hoist(1) run.
. "${srcdir:-.}/tools/support.sh"
doc=${abs_top_srcdir:?}/doc
XDG_RUNTIME_DIR=$work/run
HOIST_EMULATE=cuda:2
export XDG_RUNTIME_DIR HOIST_EMULATE
mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 99
trap 'hoist cache drop --all >/dev/null 2>&1; rm -rf "$work"' EXIT
mkcheckpoint --bytes 3M --tensors 12 "$work/model"
n_keys=0

# words PAGE ITEM... - the words of the page's section on JSON: of the parts whose tags name an ITEM,
# and of all that belongs to no part.
words() {
	page=$1
	shift
	awk -v items=" $* " '
		/^\.Sh / { inside = $2 == "JSON"; named = 1; next }
		inside && /^\.It Cm / {
			n = split(substr($0, 8), tags, " , ")
			for (named = 0; n > 0; n--)
				named = named || index(items, " " tags[n] " ")
			next
		}
		inside && named' "$doc/$page" | tr -c 'a-z0-9_' '\n'
}

# keys COMMAND... - each key that the command prints is one of the words in $work/words.
keys() {
	run 0 "$@"
	grep -o '"[a-z0-9_]*":' "$out" | tr -d '":' | sort -u >"$work/keys"
	[ -s "$work/keys" ] || fail "hoist $*: no keys were found"
	unnamed=$(grep -vxFf "$work/words" "$work/keys")
	[ -z "$unnamed" ] || fail "no manual page names these keys of hoist $*:" $unnamed
	n_keys=$((n_keys + $(wc -l <"$work/keys")))
}

words hoist.1 ls >"$work/words"
keys ls --json "$work/model"
words hoist.1 load >"$work/words"
keys load --json "$work/model"
keys load --json --into "$work/model"
keys load --json --stream --window 1M "$work/model"
keys load --json --target cuda:0 --target cuda:1 "$work/model"
keys load --json --cache "$work/model"
words hoist.1 load explain >"$work/words"
keys explain --json --run "$work/model"
words hoist-doctor.1 >"$work/words"
keys doctor --json "$work"
words hoist.1 devices >"$work/words"
keys devices --json
words hoist.1 digest >"$work/words"
keys digest --json "$work/model"
words hoist-cp.1 >"$work/words"
keys cp --json "$work/model" "$work/copy"
words hoist-cache.1 add >"$work/words"
keys cache add --json "$work/model"
words hoist-cache.1 add list >"$work/words"
keys cache list --json
words hoist-cache.1 drop >"$work/words"
keys cache drop --json --all
words hoist.1 bench >"$work/words"
keys bench --json
words hoist.1 'bench alloc' 'bench replay' >"$work/words"
words hoist-bench.1 >>"$work/words"
keys bench alloc --quick --work region --json
keys bench load --quick --json "$work/model"
keys bench copy --quick --json
echo 'Thread,Time,Action,Pointer,Size,Stream
0,0,allocate,0x10,64,0
0,0,free,0x10,64,0' >"$work/trace"
keys bench replay --json "$work/trace"
[ "$n_keys" -ge 100 ] || fail "only $n_keys keys were found"
echo "$n_keys keys"

# Commands of the examples of hoist(1) that begin with hoist, on a small model.
cd "$work" || exit 99
awk '/^\.Sh / { inside = $2 == "EXAMPLES" }
	inside { sub(/^\.Dl /, ""); gsub(/\\-/, "-"); gsub(/gpu:0/, "cuda:0") }
	inside && /^(HOIST_EMULATE=[a-z:0-9,]* )?hoist load /' "$doc/hoist.1" >examples
n=0
while IFS= read -r example; do
	n=$((n + 1))
	eval "$example" >"$out" 2>"$err" </dev/null || fail "hoist(1) shows: $example"
	wait
done <examples
[ "$n" -ge 7 ] || fail "only $n examples were found in hoist(1)"
exit 0
