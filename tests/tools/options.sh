#!/bin/sh
# SPDX-License-Identifier: MIT
# One table of options: tools/options.c, --help and the manual pages have the same options of each
# command.  No option is ignored in silence: one that changes nothing is refused by its name.
. "${srcdir:-.}/tools/support.sh"
doc=${abs_top_srcdir:?}/doc
# Hundreds of calls: without libtool's script around the command.
if [ -x "$abs_top_builddir/tools/.libs/hoist" ]; then
	HOIST=$abs_top_builddir/tools/.libs/hoist
	LD_LIBRARY_PATH=$abs_top_builddir/lib/.libs
	export LD_LIBRARY_PATH
fi
XDG_RUNTIME_DIR=$work/run
HOIST_EMULATE=cuda:2
export XDG_RUNTIME_DIR HOIST_EMULATE
mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 99
trap 'hoist cache drop --all >/dev/null 2>&1; rm -rf "$work"' EXIT
commands=$(hoist --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -v '^hoist$')
sed -n 's/^	{OPTION_[A-Z_]*, "\([a-z-]*\)",.*/\1/p' "$abs_top_srcdir/tools/options.c" | sort -u >"$work/table"
[ "$(wc -l <"$work/table")" -ge 50 ] || fail "few options in tools/options.c: $(cat "$work/table")"

# helped COMMAND - the options of its --help.
helped() {
	hoist "$1" --help | sed -n 's/^  --\([a-z-]*\) .*/\1/p' | sort
}

# synopsis COMMAND WHAT - the options that the synopses of all pages give; WHAT: "cache list" has its
# own, "-" is the command without a word, "" is all of it.
synopsis() {
	awk -v command="$1" -v what="$2" '
		/^\.Sh / { inside = $2 == "SYNOPSIS" }
		/^\.(Sh|Nm)/ { here = 0 }
		{ sub(/^\./, "") }
		inside && $1 == "Cm" && $2 == command {
			here = what == "" || (what == "-" && NF == 2) || index($0 " ", " " what " ")
		}
		here && /loading options/ { print "device\nengine\nio\nbudget\nfollow-links\nskip-unsupported" }
		here {
			for (i = 1; i < NF; i++)
				if ($i == "Fl" && $(i + 1) ~ /^-[a-z]/)
					print substr($(i + 1), 2)
		}' "$doc"/hoist*.1 | sort -u
}

# The options of each command: --help and the synopses.
for command in $commands; do
	helped "$command" >"$work/helped"
	cat "$work/helped" >>"$work/used"
	{
		synopsis "$command" ""
		echo help
		[ "$command" != explain ] || synopsis load "" |
			grep -vxE 'verify|cache|into|verbose|group|rank|group-timeout|timeline'
	} | sort -u >"$work/wanted"
	diff "$work/wanted" "$work/helped" || fail "the synopsis (<) and --help (>) of $command differ"
done
sort -u "$work/used" | diff "$work/table" - || fail "tools/options.c (<) and the --help of all commands (>) differ"

# Each is explained in the command's page or in hoist(1), and the pages explain no other.
n=0
for command in $commands; do
	grep -q "^\.It Cm $command" "$doc/hoist.1" || fail "hoist(1) has no command $command"
	page=$doc/hoist-$command.1
	[ -f "$page" ] || page=$doc/hoist.1
	for option in $(helped "$command"); do
		n=$((n + 1))
		cat "$doc/hoist.1" "$page" | grep -q -e "^\.It.* Fl -$option\( \|\$\)" ||
			fail "no page explains hoist $command --$option"
	done
done
[ $n -ge 80 ] || fail "only $n options were found"
grep -h '^\.It' "$doc"/hoist*.1 | tr ' ' '\n' | sed -n 's/^-\([a-z][a-z-]*\)$/\1/p' | sort -u |
	comm -23 - "$work/table" | grep . && fail "(above) explained in a page, and in no table"
sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESC/s/^\.Cm \([a-z]*\).*/\1/p' "$doc/hoist.1" | sort -u >"$work/wanted"
printf '%s\n' $commands help | sort | diff "$work/wanted" - || fail "the commands of hoist(1) (<) and --help (>) differ"

# refused STATUS OPTION ARGUMENT... - hoist names the option, and prints nothing else.
n=0
refused() {
	status=$1 option=$2
	shift 2
	run "$status" "$@"
	no_output
	one_line "$option"
	n=$((n + 1))
}

# Options of other commands.  One that is an abbreviation lacks its value.
for command in $commands; do
	helped "$command" | comm -23 "$work/table" - >"$work/others"
	while read -r option; do
		refused 2 "--$option" "$command" "--$option"
	done <"$work/others"
done
[ $n -ge 300 ] || fail "only $n options of other commands were refused"

# value OPTION - the option, with a value that it takes.
value() {
	case $1 in
	device | replica) echo "--$1=cuda:0" ;;
	engine) echo "--$1=threads" ;;
	io) echo "--$1=direct" ;;
	budget | chunk | window) echo "--$1=1M" ;;
	slice) echo "--$1=*:0:0..1" ;;
	dtype) echo "--$1=f16" ;;
	group) echo "--$1=shm:$$" ;;
	rank) echo "--$1=0/1" ;;
	runs | node | depth | group-timeout) echo "--$1=2" ;;
	target) echo "--$1=cpu" ;;
	order | work) echo "--$1=a" ;;
	map) echo "--$1=private" ;;
	pages) echo "--$1=small" ;;
	svg | timeline | to) echo "--$1=$work/$1" ;;
	*) echo "--$1" ;;
	esac
}

# Commands that do several things: each takes what its synopsis has.
while read -r command what; do
	name=${what:-the list}
	synopsis "$command" "${what:--}" >"$work/own"
	helped "$command" | comm -23 - "$work/own" | grep -vx help >"$work/others"
	while read -r option; do
		# shellcheck disable=SC2086
		refused 2 "$name takes no --$option" "$command" $what "$(value "$option")"
	done <"$work/others"
done <<'END'
cache add
cache list
cache drop
bench
bench alloc
bench replay
bench io
bench load
bench group
bench copy
END

# An image is the checkpoint as it is.
mkcheckpoint --bytes 1M --tensors 12 "$work/model"
synopsis load "" | grep -vxE 'device|tensor|exclude|engine|io|budget|follow-links|skip-unsupported|cache|verbose|json' >"$work/others"
while read -r option; do
	refused 2 "--$option" load --cache "$(value "$option")" "$work/model"
done <"$work/others"

# Options that others leave without an effect.  M: a folder with a checkpoint; F: a file that is not there.
while IFS='|' read -r status option line; do
	# shellcheck disable=SC2046
	set -f && set -- $(echo "$line" | sed "s|\<M\>|$work/model|g; s|\<F\>|$work/none|g") && set +f
	refused "$status" "$option" "$@"
done <<'END'
2|--tree|ls --tree --json M
2|--verbose|load -v --json M
2|--window|load --window 1M M
2|--map|load --map private M
2|--populate|load --io adaptive --populate M
2|--map|load --io map --map readonly --device cuda:0 M
2|--populate|load --io map --populate --target cpu --target cuda:0 M
2|--map|explain --io map --map readwrite --device cuda:0 M
2|--engine|load --io map --engine threads M
2|--engine|digest --io map --engine uring M
2|--engine|cat --io map --engine uring M lm_head.weight
2|--slice|digest --keep --slice *:0:0..1 M
2|--dtype|digest --keep --dtype f16 M
2|--chunk|explain --io map --chunk 1M M
2|--depth|load --io map --populate --depth 2 --target cpu M
2|--order|load --io map --order lm_head.weight M
2|--io map|load --cache --io map M
2|--io adaptive|load --cache --io adaptive M
2|--rank|load --rank 0/1 M
2|--group|load --group shm:a M
2|--group-timeout|load --group-timeout 3 M
2|--device|load --target cpu --device cpu M
2|--replica|load --target cuda:0 --replica cuda:1 M
2|--slice|load --target cpu --slice *:0:0..1 M
2|--verify|load --stream --verify M
2|--into|load --stream --into M
2|--verify|load --verify --dtype f16 M
2|--io map|load --into --io map M
1|cp --digest|load --check-digests M
1|"x*"|load --order x* M
1|"x*"|cp --slice x*:0:0..1 M F.safetensors
1|--rename|cp --rename s/nothing/z/ M F.safetensors
1|--metadata|cp --format gguf --metadata a=b M F.gguf
1|--shard-bytes|cp --shard-bytes 1M --tensor lm_head.weight M F.npy
1|--digest|cp --digest --tensor lm_head.weight M F.npy
2|--only-weights|cp --only-weights M F.safetensors
2|--verbose|cp -v --json M F.safetensors
2|--to|bench load --to F M
2|--devices|emulate --device cuda:0 true
2|--bars|bench copy --bars --json
2|many|help load M
2|many|help ls load
2|many|--version M
2|many|--help M
END
[ ! -e "$work/none.safetensors" ] && [ ! -e "$work/none.npy" ] && [ ! -e "$work/none.gguf" ] || fail "a copy was made"

# The place of an image that is there already.
run 0 cache add --pages small "$work/model"
run 0 cache add --pages small "$work/model"
refused 1 --pages cache add --pages huge "$work/model"
run 0 cache add --pages huge --replace "$work/model"
echo "$n options were refused"
