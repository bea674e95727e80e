#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist doctor and devices: valid JSON, a remedy beside each no, emulated called so.
. "${srcdir:-.}/tools/support.sh"

names='file system
direct reads
page cache
io_uring
memory
locked memory
transparent pages
huge page pool
numa
cuda'

# remedies - each 'no' has one, no 'yes' has.
remedies() {
	i=0
	while ok=$(json "?checks.$i.ok" <"$out" 2>/dev/null); do
		remedy=$(json "?checks.$i.remedy" <"$out")
		name=$(json "?checks.$i.name" <"$out")
		case $ok:$remedy in
		true: | false:?*) ;;
		*) fail "$name: ok is $ok, the remedy '$remedy'" ;;
		esac
		[ -n "$(json "?checks.$i.detail" <"$out")" ] || fail "$name has no detail"
		i=$((i + 1))
	done
	[ $i -ge 10 ] || fail "only $i checks"
}

HOIST_CUDA_LIBRARY=$work/absent.so
export HOIST_CUDA_LIBRARY
for path in "$work" /dev/shm; do
	[ -d $path ] || continue
	run 0 doctor --json $path
	json s:checks.*.name b:checks.*.ok s:checks.*.detail s:checks.*.remedy <"$out" ||
		fail "doctor --json $path"
	i=0
	echo "$names" | while read -r name; do
		json "=$name:checks.$i.name" <"$out" || fail "check $i is not '$name'"
		i=$((i + 1))
	done || exit 1
	remedies
	json =false:checks.9.ok <"$out" || fail "cuda without a library is ok"
done
run 0 doctor
grep -Eq '^cuda +no +' "$out" || fail "no line about cuda"
grep -q 'HOIST_CUDA_LIBRARY' "$out" || fail "no remedy"
grep -Eq '^across machines +(yes +UCX [1-9]|no +UCX: no library: libuc)' "$out" || fail "no line about UCX"
if grep -Eq '^across machines +yes' "$out"; then
	grep -Eq '^network +(yes|no) +UCX has (a|no) way to other machines' "$out" || fail "no line about interfaces"
	grep -Eq '^RDMA +(yes|no) ' "$out" || fail "no line about RDMA"
	UCX_NET_DEVICES=lo hoist doctor >"$out" || fail "the doctor with the loopback interface alone"
	grep -Eq '^network +no .*loopback' "$out" || fail "a way beside the loopback interface"
fi

: >"$work/file"
run 0 doctor "$work/file"
grep -q '^recommended  *-    .*/file has no file of 32 MiB or more' "$out" ||
	fail "why nothing is recommended is not said"
run 0 doctor --json "$work/file"
json '=:recommend.text' s:recommend.skipped =auto:recommend.io =0:recommend.bytes <"$out" ||
	fail "what is skipped in JSON"

# A short probe says how to read: of a file, or of the largest one in a folder.
mkcheckpoint --bytes 48M "$work/model"
for path in "$work/model/model.safetensors" "$work/model"; do
	run 0 doctor --json "$path"
	json s:recommend.text '=:recommend.skipped' s:recommend.io i:recommend.chunk_bytes \
		i:recommend.depth r:recommend.direct_gb_per_s r:recommend.cached_gb_per_s \
		r:recommend.hot_gb_per_s b:recommend.huge_pages r:recommend.huge_gain \
		i:recommend.bytes <"$out" || fail "the recommendation for $path"
	bytes=$(json '?recommend.bytes' <"$out")
	[ "$bytes" -gt 0 ] && [ "$bytes" -le 268435456 ] || fail "the probe read $bytes bytes"
done
run 0 doctor "$work/model"
grep -Eq '^recommended +io (auto|cached)[,:] .*GB/s' "$out" || fail "no recommendation in words"

# A folder that takes no new file and has none.
if [ -d /proc/self/fdinfo ]; then
	run 0 doctor --json /proc/self/fdinfo
	remedies
fi

run 0 devices
grep -q '^cpu ' "$out" || fail "the CPU is not listed"
grep -q '^no cuda device: .*HOIST_CUDA_LIBRARY' "$out" || fail "why there is no CUDA is not said"
unset HOIST_CUDA_LIBRARY

HOIST_EMULATE=cuda:2,hip:1
export HOIST_EMULATE
run 0 devices
[ "$(grep -c '(emulated)$' "$out")" -eq 3 ] || fail "three emulated devices are not marked"
grep -q '^cuda devices by .*libhoist-emulated-cuda.so (HOIST_EMULATE asks for it)$' "$out" ||
	fail "the library and why are not named"
run 0 devices --json
json a:devices s:devices.*.spec s:devices.*.api s:devices.*.architecture \
	i:devices.*.total_memory n:devices.*.free_memory i:devices.*.numa_node \
	b:devices.*.emulated s:devices.*.library s:devices.*.library_reason =cpu:devices.0.spec =false:devices.0.emulated \
	=cuda:1:devices.2.spec =cuda:devices.2.api =true:devices.2.emulated \
	=hip:0:devices.3.spec =true:devices.3.emulated <"$out" || fail "devices --json"
run 0 doctor --json "$work"
json =cuda:checks.9.name =true:checks.9.ok =cuda:1:checks.11.name =true:checks.11.ok \
	=hip:0:checks.13.name =true:checks.13.ok <"$out" || fail "emulated devices in doctor"
remedies
run 0 doctor "$work"
[ "$(grep -c '(emulated)' "$out")" -eq 5 ] || fail "doctor does not call emulated what is"

# A device that does not work is a finding, not a failure.
HOIST_EMULATE_FAIL=cuMemHostRegister:1+
export HOIST_EMULATE_FAIL
run 0 doctor --json "$work"
json =cuda:0:checks.10.name =false:checks.10.ok =true:checks.13.ok <"$out" ||
	fail "a device that cannot pin memory"
remedies
