#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist load --group tcp://...: processes load together over loopback, each byte once; a rank that does
# not belong to the group, or is ended, leaves the others whole.
. "${srcdir:-.}/tools/support.sh"

# An address of this test's own, so that its ports are free.
host=127.77.$(($$ / 250 % 250 + 1)).$(($$ % 250 + 1))
door=tcp://$host:7117
unset HOIST_GROUP_SECRET HOIST_GROUP_SECRET_FILE HOIST_GROUP_PORT MASTER_ADDR
unset RANK WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
unset SLURM_PROCID SLURM_NTASKS SLURM_STEP_NODELIST SLURM_JOB_NODELIST
XDG_RUNTIME_DIR=$work # the place of the user's own secret
export XDG_RUNTIME_DIR
chmod 700 "$work"

mkcheckpoint --bytes 24M --shards 2 "$work/model"
mkcheckpoint --bytes 24M --shards 2 --seed 2 "$work/other"

# rank NAME-OF-OUTPUT ARGUMENT... - one rank, in the background; $! is the command's own process.
rank() {
	to=$1
	shift
	"$HOIST" load "$@" >"$work/$to" 2>"$work/$to.err" </dev/null &
}

# ended PID CODE NAME-OF-OUTPUT - that rank has ended so.
ended() {
	wait "$1"
	status=$?
	cp "$work/$3.err" "$err"
	[ "$status" -eq "$2" ] || fail "rank $3: exit status $status, not $2"
}

# until_said NAME-OF-OUTPUT TEXT PID - waits until that rank has logged the text.
until_said() {
	until grep -q "$2" "$work/$1.err"; do
		kill -0 "$3" || {
			cp "$work/$1.err" "$err"
			fail "rank $1 has ended before it said: $2"
		}
		sleep 0.05
	done
}

# until_waits GROUP PID - waits until the group's status, in $work/status, shows that rank.
until_waits() {
	until hoist group status --json "$1" >"$work/status" 2>/dev/null; do
		kill -0 "$2" || fail "a rank that waits for another has ended"
	done
	grep -q '"has_files": true' "$work/status" || fail "status: $(cat "$work/status")"
}

# Without UCX, a rank reads all from storage, and says so.
mkdir "$work/none"
: >"$work/none/libucs.so.0"
: >"$work/none/libucp.so.0"
LD_LIBRARY_PATH=$work/none${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
	run 0 load --group "$door/none" --rank 0/2 --verify "$work/model"
grep -q '^group of 1: 24\..* from storage, 0 from members, 0 to members; .*UCX' "$out" ||
	fail "no word of UCX: $(cat "$out")"
LD_LIBRARY_PATH=$work/none${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
	run 0 load -v --group "$door/none" --rank 0/2 "$work/model"
grep -q '^group     of 1: ' "$out" || fail "-v has no line of the group"

# A checkpoint that lacks a file is broken, and not on another machine.
mkdir "$work/broken"
cp "$work/model/"*.index.json "$work/broken"
run 1 load --group "$door/broken" --rank 0/2 "$work/broken"
one_line "names a file that cannot be used"

# Names, ranks and secrets that are refused.
for name in tcp://a:1 "$door/" "$door/$(printf '%064d' 0)"; do
	run 1 load --group "$name" "$work/model"
	one_line "a group is tcp://HOST:PORT/NAME"
	no_output
done
for name in tcp://$host/a tcp://$host:99999/a; do
	run 1 load --group "$name" "$work/model"
	one_line port
	no_output
done
for name in dir:a "dir:$work/" "dir:$work/$(printf '%064d' 0)"; do
	run 1 load --group "$name" "$work/model"
	one_line "dir:FOLDER/NAME"
	no_output
done
run 1 load --group "dir:$work/absent/a" "$work/model"
one_line "No such file or directory; name a folder that all ranks see"
run 1 load --group udp://a:1/b --rank 0/2 "$work/model"
one_line 'tcp://host:port/name'
run 2 load --group "shm:$$" "$work/model"
one_line "add --rank"
run 2 load --group "shm:$$" --rank 0/65 "$work/model"
one_line "64 ranks at most"
run 2 load --group "$door/a" --rank 0/129 "$work/model"
one_line "128 at most"
run 2 load --group "$door/$(printf '%059d' 0)" --into "$work/model"
one_line "58 bytes at most"
run 1 load --group tcp://192.0.2.1:7117/a "$work/model"
one_line "HOIST_GROUP_SECRET"
HOIST_GROUP_SECRET=short run 1 load --group "$door/a" "$work/model"
one_line "HOIST_GROUP_SECRET has 5 bytes"
echo "a secret of the group's" >"$work/secret"
chmod 644 "$work/secret"
HOIST_GROUP_SECRET_FILE=$work/secret run 1 load --group "$door/a" "$work/model"
one_line "$work/secret"

# A launcher's variables: the rank, and the door.
RANK=2 WORLD_SIZE=2 run 1 load --group "$door/a" "$work/model"
one_line "RANK=2 and WORLD_SIZE=2"
OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2 run 1 load --group "$door/a" "$work/model"
one_line "OMPI_COMM_WORLD_RANK=x"
run 1 load --group tcp:///a "$work/model"
one_line "MASTER_ADDR"
MASTER_ADDR=$host HOIST_GROUP_PORT=0 run 1 load --group tcp:///a "$work/model"
one_line "HOIST_GROUP_PORT=0"
MASTER_ADDR=192.0.2.1 HOIST_GROUP_PORT=7118 run 1 load --group tcp:///a "$work/model"
one_line "192.0.2.1:7118"
MASTER_ADDR=2001:db8::1 run 1 load --group tcp:///a "$work/model"
one_line "[2001:db8::1]:7117"
SLURM_JOB_NODELIST='192.0.2.[12-17,3],a' run 1 load --group tcp:///a "$work/model"
one_line "192.0.2.12:7117"
SLURM_STEP_NODELIST='192.0.[2,4].[7-9],b' SLURM_JOB_NODELIST=c \
	run 1 load --group tcp:///a "$work/model"
one_line "192.0.2.7:7117"

hoist doctor | grep -q '^across machines  *yes' || {
	echo "skipped: this machine has no UCX"
	exit 77
}

# A rank without the files is shown them by one that has them; the group tells how far it is.
run 1 group status "$door/elsewhere"
one_line "$host:7117"
run 1 group status shm:x
one_line "cannot be looked at"
run 2 group stat "$door/elsewhere"
one_line "hoist group status GROUP"
rank there --group "$door/elsewhere" --rank 0/2 --json "$work/model"
there=$!
until_waits "$door/elsewhere" "$there"
grep -q '"rank": 0' "$work/status" && grep -q '"n_ranks": 2' "$work/status" &&
	grep -q '"begun": false' "$work/status" || fail "status: $(cat "$work/status")"
run 1 group status "$door/elsewher"
one_line '"elsewhere"'
rank nowhere --group "$door/elsewhere" --rank 1/2 --json "$work/absent/model"
ended $! 0 nowhere
ended "$there" 0 there
[ "$(json '?group.storage_bytes' <"$work/nowhere")" = 0 ] || fail "nowhere: $(cat "$work/nowhere")"
rank nowhere --group "$door/elsewhere" --rank 1/2 --group-timeout 1 "$work/absent/model"
ended $! 1 nowhere
one_line "$work/absent/model is not on this machine"

# At a folder, with a secret, a rank listens at all addresses; the status has one that can be reached.
mkdir "$work/folder"
HOIST_GROUP_SECRET='a secret of this test' && export HOIST_GROUP_SECRET
rank there --group "dir:$work/folder/a" --rank 0/2 "$work/model"
there=$!
until_waits "dir:$work/folder/a" "$there"
grep -q '"address": "[1-9[]' "$work/status" || fail "status: $(cat "$work/status")"
kill -9 "$there"
unset HOIST_GROUP_SECRET

# Three ranks, each with everything.  A machine that stops for seconds has ranks read for themselves,
# which they say: such a run is made once more.
tries=0
disturbed=yes
while [ $disturbed = yes ]; do
	disturbed=no
	tries=$((tries + 1))
	[ $tries -le 10 ] || fail "no run of ten was without a rank that was late"
	for r in 0 1 2; do
		rank $r --group "$door/a" --rank $r/3 --verify --json "$work/model"
		eval "pid$r=\$!"
	done
	sum=0
	for r in 0 1 2; do
		eval "ended \$pid$r 0 $r"
		json =true:verified i:group.refused i:group.received_bytes i:group.sent_bytes s:group.note \
			<"$work/$r" || fail "the report of rank $r"
		[ "$(json '?group.members' <"$work/$r")" = 3 ] &&
			[ "$(json '?group.late' <"$work/$r")" = 0 ] || disturbed=yes
		sum=$((sum + $(json '?group.storage_bytes' <"$work/$r")))
	done
done
bytes=$(json '?bytes' <"$work/0")
[ "$sum" -ge "$bytes" ] && [ "$sum" -le $((bytes + bytes / 50)) ] ||
	fail "the ranks read $sum bytes of $bytes"
hoist load --json "$work/model" | json o:group 2>/dev/null && fail "a load alone has a group"

# Without --rank: whoever comes; a launcher's ranks; twice, the second time into the same memory.
for r in 0 1 2; do
	rank $r --group "$door/a" --verify "$work/model"
	eval "pid$r=\$!"
done
for r in 0 1 2; do
	eval "ended \$pid$r 0 $r"
	grep -q '^group of [1-3]: .* from storage, .* from members, .* to members' "$work/$r" ||
		fail "the line of rank $r"
	! grep -q '^damage' "$work/$r" || fail "damage at rank $r"
	grep -q '^group of [1-3]: .* 0 from members, 0 to members' "$work/$r" ||
		grep -q '^by memory that members of this machine share$' "$work/$r" || fail "the way of rank $r"
done
SLURM_STEP_NODELIST=${host%.*}.[${host##*.}-254],b
export SLURM_STEP_NODELIST
for r in 0 1 2; do
	export SLURM_PROCID=$r SLURM_NTASKS=3
	rank $r --group tcp:///a --into --verify --json "$work/model"
	eval "pid$r=\$!"
done
for r in 0 1 2; do
	eval "ended \$pid$r 0 $r"
	json =true:verified r:fresh_seconds o:group <"$work/$r" || fail "the report of rank $r"
done
unset SLURM_STEP_NODELIST SLURM_PROCID SLURM_NTASKS

# At a folder.
mkdir "$work/door"
for r in 0 1 2; do
	rank $r --group "dir:$work/door/a" --rank $r/3 --verify --json "$work/model"
	eval "pid$r=\$!"
done
for r in 0 1 2; do
	eval "ended \$pid$r 0 $r"
	json =true:verified =3:group.members <"$work/$r" || fail "the report of rank $r: $(cat "$work/$r")"
done
rank there --group "dir:$work/door/b" --rank 0/2 --json "$work/model"
there=$!
until_waits "dir:$work/door/b" "$there"
rank nowhere --group "dir:$work/door/b" --rank 1/2 "$work/absent/model"
ended $! 0 nowhere
ended "$there" 0 there
grep -q '^group of 2: 0 from storage, 24\.' "$work/nowhere" && ! grep -q 'the disk reads' "$work/nowhere" ||
	fail "nowhere: $(cat "$work/nowhere")"
rmdir "$work/door" || fail "a rank has left its file"
run 1 group status "dir:$work/b"
one_line "no member of the group is in $work"

# Ranks that do not belong to the group.
rank 0 --group "$door/a" --rank 0/2 --group-timeout 600 "$work/model"
first=$!
socket=$(printf '%02X%02X4D7F:1BCD 00000000:0000 0A' ${host##*.} "$(echo "$host" | cut -d. -f3)")
until grep -q "$socket" /proc/net/tcp; do # it listens
	kill -0 $first || fail "the first rank has ended"
	sleep 0.05
done
HOIST_GROUP_SECRET="another, for the group" run 1 load --group "$door/a" --rank 1/2 "$work/model"
one_line "secret"
run 1 load --group "$door/a" --rank 1/2 "$work/other"
one_line "other files"
run 1 load --group "$door/b" --rank 1/2 --group-timeout 1 "$work/model"
one_line 'is the group "a"'
kill -TERM $first # as Ctrl-C, which a shell has its background processes ignore
wait $first
status=$?
[ $status -eq 143 ] || fail "the rank that waits: exit status $status"

# A rank that is ended while it loads: the others have all that they want.
for r in 0 1; do
	rank $r --group "$door/a" --rank $r/3 --verify "$work/model"
	eval "pid$r=\$!"
done
HOIST_EMULATE=cuda:1 HOIST_EMULATE_RATE=2M HOIST_DEBUG=load \
	rank 2 --device cuda:0 --group "$door/a" --rank 2/3 "$work/model"
until_said 2 "begins with 3 members" $!
kill -TERM $!
wait $!
status=$?
[ $status -eq 143 ] || fail "the rank that is ended: exit status $status"
for r in 0 1; do
	eval "ended \$pid$r 0 $r"
	grep -q '^verified' "$work/$r" || fail "rank $r has not verified its bytes"
done
exit 0
