#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist emulate: the command's variables, libraries, words and exit status; what is refused.
. "${srcdir:-.}/tools/support.sh"
[ -r "$HOIST_EMULATOR_DIR/drivers/libcuda.so.1" ] || {
	echo "the stand-in drivers are not built"
	exit 77
}

# The status is the command's, and so are the words behind its name.
run 7 emulate sh -c 'exit 7'
run 0 emulate --devices cuda:2 -- echo --devices -- x
[ "$(cat "$out")" = "--devices -- x" ] || fail "the command's words: $(cat "$out")"
run 127 emulate "$work/absent"
one_line "$work/absent"
echo true >"$work/unreadable"
run 126 emulate "$work/unreadable"
one_line 'ermission denied'

# Each option is the variable of its name; what the caller had set holds without the option.
shows() {
	wanted=$1
	shift
	run 0 emulate "$@" sh -c "echo \$HOIST_EMULATE \$HOIST_EMULATE_MEMORY \$HOIST_EMULATE_RATE \
\$HOIST_EMULATE_LATENCY \$HOIST_EMULATE_FAIL \$HOIST_EMULATE_REPORT"
	[ "$(cat "$out")" = "$wanted" ] || fail "emulate $*: $(cat "$out"), not $wanted"
}
shows 'cuda:1'
shows 'cuda:3,hip:2 1G 2G 5..9 cuInit:1 report' --devices cuda:3,hip:2 --memory 1G --rate 2G \
	--latency 5..9 --fail cuInit:1 --report report
HOIST_EMULATE=hip:2
export HOIST_EMULATE
shows 'hip:2'
shows 'cuda' --devices cuda
unset HOIST_EMULATE
run 0 emulate sh -c 'echo "$LD_LIBRARY_PATH"'
case $(cat "$out") in
*/drivers | */drivers:*) ;;
*) fail "the drivers' folder is not first: $(cat "$out")" ;;
esac
run 0 emulate sh -c 'yes | head -n 1'
[ ! -s "$err" ] || fail "the command ignores SIGPIPE"

# The vendors' names are the stand-ins that hoist itself uses, in the folder of the drivers.
for library in libcuda.so.1 libamdhip64.so.5 libamdhip64.so.6 libamdhip64.so.7; do
	[ -r "$HOIST_EMULATOR_DIR/drivers/$library" ] || fail "no $library"
done
run 0 emulate --devices cuda:2,hip:1 "$HOIST" devices
[ "$(grep -c 'mulated' "$out")" -ge 3 ] || fail "hoist devices under emulate: $(cat "$out")"

# A program that knows nothing of hoist opens the driver by the vendor's name.
opens=$HOIST_TEST_PROGRAMS/tools/opens
run 0 emulate --devices cuda:3 "$opens" libcuda.so.1 cu
[ "$(cat "$out")" = 3 ] || fail "libcuda.so.1 shows $(cat "$out") devices, not 3"
run 0 emulate --devices hip:2 "$opens" libamdhip64.so.6 hip
[ "$(cat "$out")" = 2 ] || fail "libamdhip64.so.6 shows $(cat "$out") devices, not 2"

wrong() {
	text=$1
	shift
	run 2 emulate "$@"
	no_output
	one_line "$text"
	one_line "--help\`"
}
wrong 'COMMAND' --devices cuda:2
for devices in '' cuda:65 cuda: metal cuda:1, cuda:x cudahip cuda:1x; do
	wrong 'as cuda:2' --devices "$devices" true
done
for bytes in '' x -1 1X 1GB; do
	wrong 'a number of bytes' --memory "$bytes" true
	wrong 'a number of bytes' --rate "$bytes" true
done
for latency in '' x 9..5 1.. 5..x; do
	wrong 'microseconds' --latency "$latency" true
done
