#!/bin/sh
# SPDX-License-Identifier: MIT
# hoist load --timeline: the picture is XML, has a lane for each slot or read that was used, and
# appears whole or not at all.
. "${srcdir:-.}/tools/support.sh"
HOIST_EMULATE=cuda:2
XDG_RUNTIME_DIR=$work/run
export HOIST_EMULATE XDG_RUNTIME_DIR
mkdir -m 700 "$XDG_RUNTIME_DIR" || exit 99
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read XML"; exit 77; }

name='a<b> & "c"'
mkcheckpoint --bytes 9M --dtypes all "$work/$name"
mkdir "$work/to" || exit 99
svg=$work/to/load.svg

cat >"$work/look.py" <<'PYTHON'
# look.py FILE TEXT - prints the number of lanes, and the number of slots among them; TEXT is in the
# heading.
import sys
from xml.etree import ElementTree

root = ElementTree.parse(sys.argv[1]).getroot()
svg = "{http://www.w3.org/2000/svg}"
assert root.tag == svg + "svg", root.tag
texts = [text.text for text in root.iter(svg + "text")]
assert sys.argv[2] in texts[0], texts[0]
assert "waits" in texts and any(text.endswith(" ms") for text in texts), texts
lanes = root.findall(f".//{svg}g[@class='lane']")
assert len(root.findall(f"{svg}g[@class='waits']")) == 1
left, right = 80.0, 1280.0
for lane in lanes:
    end = left - 0.01
    for bar in lane.findall(svg + "rect"):
        assert float(bar.get("x")) >= end - 0.01, (bar.attrib, end)
        end = float(bar.get("x")) + float(bar.get("width"))
        assert end <= right + 0.1, bar.attrib
        assert " ms" in bar.find(svg + "title").text
    assert lane.find(svg + "path") is not None or lane.find(svg + "rect") is not None
slots = [lane for lane in lanes if lane.find(svg + "title").text.startswith("slot ")]
print(len(lanes), len(slots))
PYTHON

# drawn TEXT ARGUMENT... - loads, and sets $lanes and $slots to the numbers in the picture.
drawn() {
	text=$1
	shift
	rm -f "$svg"
	run 0 load --timeline "$svg" "$@" "$work/$name"
	python3 "$work/look.py" "$svg" "$text" >"$work/looked" || fail "the picture of: $*"
	read -r lanes slots <"$work/looked"
	[ "$(ls -A "$work/to")" = load.svg ] || fail "more than the picture is left: $(ls -A "$work/to")"
}

# To a device: as many lanes as slots were used, which is what was in use at most.
drawn "$name to cuda:0 (emulated): " --device cuda:0 --chunk 64K --budget 320K --json
json =true:emulated <"$out" || fail "the report beside a timeline"
used=$(($(json '?staging_peak_bytes' <"$out") / 65536))
[ "$lanes" -eq "$used" ] && [ "$slots" -eq "$used" ] && [ "$used" -ge 2 ] ||
	fail "$lanes lanes, $slots of them slots, and $used slots were used"

# To the host, reads; converted, slots; a map has no chunks.
drawn " to cpu: " --io cached
[ "$lanes" -ge 1 ] && [ "$slots" -lt "$lanes" ] || fail "to the host: $slots slots of $lanes lanes"
drawn " to cpu: " --dtype bf16 --io direct
[ "$slots" -ge 1 ] || fail "converted: no slot"
drawn "no chunk was read" --io map
[ "$lanes" -eq 0 ] || fail "a map has $lanes lanes"
drawn " to cuda:0 " --target cuda:0 --target cuda:1
[ "$slots" -ge 1 ] || fail "two targets: no slot"
drawn " to cuda:0 " --device cuda:0 --stream --window 2M --budget 128K
[ "$slots" -eq 2 ] || fail "through a window: $slots slots"
drawn " to cuda:0 " --device cuda:0 --into --verify
[ "$slots" -ge 1 ] || fail "in place: no slot"
drawn " to cpu: " --io adaptive
drawn " to cuda:0 " --device cuda:0 --group shm:timeline-$$ --rank 0/1
[ "$slots" -ge 1 ] || fail "in a group: no slot"

# Thousands of short bars are drawn together.
drawn " to cuda:0 " --device cuda:0 --chunk 4K --depth 512
[ "$(wc -c <"$svg")" -lt 1000000 ] || fail "the picture has $(wc -c <"$svg") bytes"

# No checkpoint is opened if the file cannot be made.
for path in "$work/none/load.svg" "$work/to" "$work/to/" /dev/null; do
	run 1 load --timeline "$path" "$work/no-model"
	no_output
	one_line "hoist: --timeline $path: "
done
run 1 load --timeline "$work/none/load.svg" "$work/no-model"
one_line 'give a file in a folder that can be written'
long=$(printf '%0251d.svg' 0)
run 0 load --timeline "$work/to/$long" "$work/$name"
rm "$work/to/$long" || fail "a name of 255 bytes"
run 1 load --timeline "$work/to/0$long" "$work/no-model"
one_line 'the name is too long; give a shorter one'
run 2 load --timeline '' "$work/$name"
one_line 'it must be the name of a file'
run 2 load --timeline "$svg" --cache "$work/$name"
one_line 'with --cache a load maps an image, and no chunk moves: leave out --cache, or --timeline'

# A load that fails leaves the old file, as does a picture that finds no room.
rm -f "$svg"
echo old >"$svg"
run 1 load --timeline "$svg" --check-digests "$work/$name"
[ "$(ls -A "$work/to") $(cat "$svg")" = "load.svg old" ] || fail "a load that failed: $(ls -A "$work/to")"
(
	ulimit -f 1
	run 1 load --timeline "$svg" --json "$work/$name"
) || exit 1
one_line "--timeline $svg: writing it: "
[ "$(ls -A "$work/to") $(cat "$svg")" = "load.svg old" ] || fail "a full disk: $(ls -A "$work/to")"

# The umask bounds the rights of a new file; a file that is replaced lends its own; a link is replaced.
for mask in 022 077; do
	rm -f "$svg"
	umask $mask
	run 0 load --timeline "$svg" "$work/$name"
	[ "$(stat -c %a "$svg")" -eq $((mask == 022 ? 644 : 600)) ] || fail "umask $mask: $(stat -c %a "$svg")"
done
umask 022
run 0 load --timeline "$svg" "$work/$name"
[ "$(stat -c %a "$svg")" -eq 600 ] || fail "the rights of the old file are gone"
chmod 664 "$svg"
run 0 load --timeline "$svg" "$work/$name"
[ "$(stat -c %a "$svg")" -eq 664 ] || fail "the umask took rights of the old file: $(stat -c %a "$svg")"
ln -sf other "$svg"
echo other >"$work/to/other"
run 0 load --timeline "$svg" "$work/$name"
[ ! -L "$svg" ] && [ "$(cat "$work/to/other")" = other ] || fail "a link was followed"
