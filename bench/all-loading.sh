#!/bin/sh
# SPDX-License-Identifier: MIT
# all-loading.sh BUILD FOLDER [PYTHON] - every benchmark of loading and saving, and one table of its bars.
#
# BUILD is the build folder; FOLDER, on the disk to be measured, gets some 9 GiB of checkpoints,
# which stay for the next time.  PYTHON is that of a virtual environment with the peers
# (peers.py says which); without it they are left out.  Where the package hoist is installed there, too,
# the package is measured (python.py, peers.py --python).  Needs fio, and as root it gets huge pages.
# Nothing else may run.  About a quarter of an hour; RUNS=N in the environment is how often each is measured;
# with QUICK=1 everything is small, and shows only that it works.
#
# What each program says lies in FOLDER/results, as text and JSON.
set -eu
[ $# -ge 2 ] || {
	sed -n 's/^# \(all-loading.sh .*\)/usage: \1/p' "$0" >&2
	exit 2
}
build=$(cd "$1" && pwd)
mkdir -p "$2/results"
folder=$(cd "$2" && pwd)
python=${3-}
here=$(cd "$(dirname "$0")" && pwd)
runs=${RUNS:-3}

# make NAME ARGUMENT... - a checkpoint, unless it is there.
make() {
	name=$1
	shift
	[ -e "$folder/$name/model.safetensors" ] ||
		"$build/tests/mkcheckpoint" --shards 1 "$@" "$folder/$name"
}
two=2G one=1G equal=2048000000 n=100000 tiny=1000000
if [ -n "${QUICK-}" ]; then
	folder=$folder/quick
	two=128M one=64M equal=20480000 n=1000 tiny=10000
	mkdir -p "$folder/results"
fi
make 2g --bytes $two
make 1g --bytes $one --seed 2
make many --bytes $equal --tensors $n --equal
make one --bytes $equal --tensors 1
make tiny --bytes $((tiny * 64)) --tensors $tiny --equal
make rows16k --bytes $one --tensors 8 --equal --columns 8192
make rows128k --bytes $one --tensors 8 --equal --columns 65536
sync

# measure NAME PROGRAM ARGUMENT... - one program; what fails is named, and the others go on.
failed=
measure() {
	name=$1
	shift
	echo "--- $name ($(date +%T))"
	if "$build/run" "$@" >"$folder/results/$name.json" 2>"$folder/results/$name.err"; then
		return 0
	fi
	failed="$failed $name"
	tail -n 3 "$folder/results/$name.err" >&2
}
rm -f "$folder"/results/*.json
model=model.safetensors
measure load "$build/bench/load" --runs "$runs" --json - "$folder/2g/$model"
measure many "$build/bench/many" --runs "$runs" --json - "$folder/many/$model" "$folder/one/$model" \
	"$folder/tiny/$model"
measure slice "$build/bench/slice" --runs "$runs" --json - "$folder/rows16k/$model" \
	"$folder/rows128k/$model"
measure save "$build/bench/save" --runs "$runs" --json - "$folder/2g/$model"
measure shared "$build/bench/shared" --runs "$runs" --json - "$folder/1g/$model" \
	"$folder/rows16k/$model"
measure attach "$build/bench/attach" --runs "$runs" --json - "$folder/2g/$model"
measure group hoist bench group --runs "$runs" --json "$folder/1g/$model"
[ -z "$python" ] || measure peers "$python" "$here/peers.py" --library \
	"$build/lib/.libs/libhoist.so" --runs "$runs" --json "$folder/2g/$model"
if [ -n "$python" ] && "$python" -c 'import hoist' 2>/dev/null; then
	measure python "$python" "$here/python.py" --runs "$runs" --json --many "$folder/many/$model" \
		--file "$folder/1g/$model"
	measure peers-python "$python" "$here/peers.py" --python --library \
		"$build/lib/.libs/libhoist.so" --runs "$runs" --json "$folder/1g/$model"
else
	echo "left out: the Python package, which is not installed for ${python:-a PYTHON}"
fi

python3 - "$folder"/results/*.json <<'END'
import json
import sys

print(f"{'work':48} {'what':42} {'value':>8}  bar")
for path in sys.argv[1:]:
    try:
        with open(path) as file:
            found = json.load(file)
    except ValueError:
        continue
    for row in found["rows"]:
        if row["bar"] is not None:
            print(f"{row['work']:48} {row['subject']:42} {row['value']:8.3f} {row['unit']}, "
                  f"{'at least' if row['more'] else 'at most'} {row['bar']:g}: "
                  f"{'met' if row['met'] else 'NOT MET'}")
    for item in found["missing"]:
        print(f"not measured: {item['subject']}: {item['reason']}")
END
[ -z "$failed" ] || {
	echo "not measured:$failed; $folder/results/NAME.err says why" >&2
	exit 1
}
