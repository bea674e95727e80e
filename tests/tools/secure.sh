#!/bin/sh
# SPDX-License-Identifier: MIT
# Files that the command writes are no more open than the umask; names in a checkpoint do nothing to
# a terminal, and open no file that is not one of the checkpoint; and the library is built so that
# less can be overwritten.
. "${srcdir:-.}/tools/support.sh"

# --- what is written ---

HOIST_EMULATE=cuda:1
HOIST_EMULATE_REPORT=$work/made/report
XDG_RUNTIME_DIR=$work/made/run
export HOIST_EMULATE HOIST_EMULATE_REPORT XDG_RUNTIME_DIR
mkcheckpoint --bytes 300K "$work/model"

plot=
! command -v gnuplot >/dev/null || plot=plot.svg

# write_all - every kind of file that the command makes.
write_all() {
	mkdir "$work/made" "$work/made/run" "$work/made/shards" "$work/made/bench"
	: >"$work/made/old.safetensors"
	chmod 666 "$work/made/old.safetensors"
	run 0 cp "$work/model" "$work/made/new.safetensors"
	run 0 cp "$work/model" "$work/made/old.safetensors"
	run 0 cp --shard-bytes 100K "$work/model" "$work/made/shards/model.safetensors"
	run 0 cp --format gguf "$work/model" "$work/made/new.gguf"
	run 0 load --device cuda:0 "$work/model"
	run 0 doctor "$work/made/bench"
	[ -z "$plot" ] || run 0 bench load --quick --svg "$work/made/$plot" "$work/model"
	run 0 cache add "$work/model"
	find "$work/made" ! -type l ! -path "$work/made" -printf '%m %y %p\n' >"$work/list"
	run 0 cache drop --all
	rm -rf "$work/made"
	for name in new.safetensors old.safetensors model.safetensors.index.json new.gguf report \
		$plot holder holder.lock; do
		grep -q "/$name$" "$work/list" || fail "$name was not made: $(cat "$work/list")"
	done
}

# none_but PATTERN - all lines of the list are such.
none_but() {
	! grep -Ev "$1" "$work/list" || fail "that is more open than umask $(umask)"
}

for mask in 077 027; do
	umask $mask
	write_all
	case $mask in
	077) none_but '^[0-7]00 ' ;;
	027) none_but '^[0-7][045]0 ' ;;
	esac
	files=$((${files-0} + $(wc -l <"$work/list")))
done
# The holder's folder is the user's alone in any case, and what is in it cannot be reached.
umask 0
write_all
grep -q '^700 d .*/run/hoist$' "$work/list" || fail "the holder's folder is open to others"
umask 022
unset HOIST_EMULATE HOIST_EMULATE_REPORT

# --- names ---

esc=$(printf '\033')
bell=$(printf '\007')
evil='a\\u001b[2J\\u0007b'
write_safetensors "$work/evil.safetensors" \
	'{"__metadata__":{"k'$evil'":"v'$evil'"},"'$evil'":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1
write_safetensors "$work/broken.safetensors" \
	'{"'$evil'":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}' 1
run 0 ls "$work/evil.safetensors"
grep -qF 'a\x1b[2J\x07b' "$out" || fail "the name is not what it should be"
mkdir "$work/named" || exit 99
cp "$work/evil.safetensors" "$work/named/x${esc}[2J$bell.safetensors"
printf '{"weight_map":{"a":"x\\u001b[2J\\u0007.bin"}}' >"$work/named/model.safetensors.index.json"
cp "$work/named/model.safetensors.index.json" "$work/index.json"
XDG_RUNTIME_DIR=$work
shown=0

# silent ... - whatever comes of that: no escape, no bell.
silent() {
	HOIST_DEBUG=all hoist "$@" >"$out" 2>"$err" </dev/null
	[ -s "$out" ] || [ -s "$err" ] || fail "hoist $*: it says nothing"
	! grep -q "[$esc$bell]" "$out" "$err" || fail "hoist $*: that would reach the terminal"
	shown=$((shown + 1))
}

for path in "$work/evil.safetensors" "$work/broken.safetensors" "$work/named" "$work/index.json" \
	"$work/named/x${esc}[2J$bell.safetensors" "$work/none${esc}[2J$bell"; do
	silent ls "$path"
	silent ls --json "$path"
	silent cat "$path" "no${esc}[2J$bell"
	silent load "$path"
	silent load "$path" "no${esc}[2J$bell*"
	silent cp "$path" "$work/to${esc}[2J$bell/x"
	silent cp "$path" "$work/to${esc}[2J$bell.safetensors"
	silent cache add "$path"
	silent cache list
	silent doctor "$path"
	silent bench load --quick "$path"
done
run 0 cache drop --all

# --- what is named ---

# index_of NAME - an index whose only shard is called that.
index_of() {
	printf '{"weight_map":{"t":"%s"}}' "$1" >"$work/model.safetensors.index.json"
}

refused=0
for name in ../model/x /dev/zero /etc/passwd a/../../b.safetensors .. . '' '/' 'evil.safetensors\u0000.x'; do
	index_of "$name"
	run 1 ls "$work/model.safetensors.index.json"
	refused=$((refused + 1))
done
mkfifo "$work/fifo.safetensors" || exit 99
ln -s /dev/zero "$work/zero.safetensors"
ln -s /proc/self/fd/0 "$work/magic.safetensors"
ln -s magic.safetensors "$work/twice.safetensors"
mkdir "$work/folder.safetensors"
for name in fifo zero magic twice folder; do
	index_of "$name.safetensors"
	timeout 60 "$HOIST" ls "$work/model.safetensors.index.json" >"$out" 2>"$err" <"$work/evil.safetensors"
	status=$?
	[ $status -eq 1 ] || fail "$name: exit status $status"
	refused=$((refused + 1))
done
for flags in '' --follow-links; do
	timeout 60 "$HOIST" ls $flags "$work/fifo.safetensors" >"$out" 2>"$err" </dev/null
	[ $? -eq 1 ] || fail "a FIFO is no checkpoint"
	timeout 60 "$HOIST" ls $flags /dev/zero >"$out" 2>"$err" </dev/null
	[ $? -eq 1 ] || fail "/dev/zero is no checkpoint"
done

# --- how it is built ---

library=$abs_top_builddir/lib/.libs/libhoist.so
if command -v readelf >/dev/null && [ -z "${HOIST_TEST_SANITIZERS-}" ]; then
	readelf -dW "$library" >"$out"
	grep -q 'BIND_NOW\|FLAGS_1.* NOW' "$out" || fail "symbols are bound lazily"
	! grep -E 'TEXTREL|RPATH|RUNPATH' "$out" || fail "that is in the library"
	readelf -lW "$library" >"$out"
	grep -q 'GNU_RELRO' "$out" || fail "nothing becomes read-only"
	grep 'GNU_STACK' "$out" | grep -q 'RW ' || fail "no word on the stack"
	! grep -q 'GNU_STACK.*RWE\|LOAD.*RWE' "$out" || fail "what can be written can be executed"
fi

# --- what is read of the environment ---

# code PATTERN - where that is in the library, the stand-ins and the command.
code() {
	grep -rnE "$1" base net device numa alloc format io lib emulator cli bench tools --include=*.c --include=*.h
}

# A set-uid program must not use getenv(3): no code does, and SECURITY.md has the names of the
# variables that are read, and no others.  Where a name is no literal, the tables that have the name
# are known.
if [ -d "${abs_top_srcdir-}/lib" ]; then
	cd "$abs_top_srcdir" || exit 99
	! code '(^|[^_[:alnum:]])getenv\(' || fail "getenv(3), not secure_getenv"
	code 'secure_getenv\(' | grep -vE 'secure_getenv\("' >"$work/by-table"
	tables='device/dl\.c:.*\(dl->variable\)|emulator/settings\.c:.*\(name\)|tools/launcher\.c:.*\(name\)'
	tables="$tables|net/ucx\.c:.*\(variables\[i\]\.name\) == NULL"
	! grep -vE "^($tables);" "$work/by-table" ||
		fail "a variable is read there by a name that is looked for nowhere here"
	[ "$(wc -l <"$work/by-table")" -eq 4 ] || fail "not four tables: $(cat "$work/by-table")"
	{
		code 'secure_getenv\("'
		grep -E '\.variable = "' device/*.c
		grep -E 'name = "HOIST_' emulator/settings.c
		grep -oE '\{"UCX_[A-Z_]+"' net/ucx.c
		grep -vE 'secure_getenv|STATUS_|fail' tools/launcher.c
		echo '"PATH"' # posix_spawnp(3)
		echo '"HOIST_UCX_" "UCX_"' # UCX itself
	} | grep -oE '"[A-Z][A-Z0-9_]*"' | tr -d '"' | sort -u >"$work/read"
	sed -n '/^## The environment/,/^## /s/^| \(`[^|]*\)|.*/\1/p' SECURITY.md |
		grep -oE '[A-Z][A-Z0-9_]*' | sort >"$work/told"
	diff "$work/read" "$work/told" || fail "SECURITY.md has other variables (>) than the code (<)"
fi
echo "figure: secure.umask $files files and folders of the command's, none more open than the umask"
echo "figure: secure.terminal $shown outputs with hostile names, no escape sequence in one"
echo "figure: secure.names $refused names in an index that lead elsewhere or to no file: refused"
