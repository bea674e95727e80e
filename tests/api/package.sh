#!/bin/sh
# SPDX-License-Identifier: MIT
# What is installed suits a program that finds hoist by pkg-config or by CMake: it compiles, loads a
# checkpoint to an emulated device, and gets the version that it asks for.
set -u
build=${abs_top_builddir:?}
src=${abs_top_srcdir:?}
if grep -q '^S\["HOIST_SANITIZE"\]="-f' "$build/config.status"; then
	echo "the library has a sanitizer, which a user's program would need, too"
	exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES

fail() {
	echo "FAIL: $*"
	exit 1
}

make -s -C "$build" install "DESTDIR=$work" >"$work/log" 2>&1 || { tail "$work/log"; fail "make install"; }
pc=$(find "$work" -name hoist.pc)
lib=$(dirname "$(dirname "$pc")")
prefix=$(dirname "$lib")
mkcheckpoint=$build/tests/mkcheckpoint
"$mkcheckpoint" --bytes 1M "$work/model" >/dev/null || fail "no sample"
HOIST_EMULATE=cuda:1
LD_LIBRARY_PATH=$lib
export HOIST_EMULATE LD_LIBRARY_PATH

# runs PROGRAM - it loads.
runs() {
	"$@" "$work/model" cuda:0 >"$work/out" 2>&1 || { cat "$work/out"; fail "$1"; }
	[ -s "$work/out" ] || fail "$1 says nothing"
}

export PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$work"
flags=$(pkg-config --cflags --libs hoist) || fail "pkg-config"
# shellcheck disable=SC2086
${CC:-cc} "$src/examples/load.c" $flags -o "$work/by-pc" || fail "a program by pkg-config"
runs "$work/by-pc"

for file in "$prefix/bin/hoist" "$lib/cmake/hoist/hoistConfig.cmake" "$prefix/share/man/man1/hoist.1"; do
	[ -s "$file" ] || fail "$file is not installed"
done
if ! command -v cmake >/dev/null; then
	echo "cmake is not installed (Debian: cmake): find_package(hoist) is not tried"
	exit 0
fi

# finds VERSION - CMake configures a program that wants that version.
finds() {
	rm -rf "$work/cmake"
	mkdir "$work/cmake"
	cat >"$work/cmake/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(hoist $1 REQUIRED CONFIG)
add_executable(shared $src/examples/load.c)
target_link_libraries(shared hoist::hoist)
if(TARGET hoist::hoist_static)
  add_executable(static $src/examples/load.c)
  target_link_libraries(static hoist::hoist_static)
endif()
CMAKE
	cmake -S "$work/cmake" -B "$work/cmake/build" "-DCMAKE_PREFIX_PATH=$prefix" \
		"-DCMAKE_C_COMPILER=${CC:-cc}" >"$work/log" 2>&1
}
version=$(pkg-config --modversion hoist)
for wanted in "" "${version%.*}" "$version"; do
	finds "$wanted" || { cat "$work/log"; fail "find_package(hoist $wanted)"; }
done
cmake --build "$work/cmake/build" >"$work/log" 2>&1 || { cat "$work/log"; fail "a program by CMake"; }
runs "$work/cmake/build/shared"
[ ! -e "$lib/libhoist.a" ] || runs "$work/cmake/build/static"
for wanted in 0.0.9 0.99 1.0 99; do
	! finds $wanted || fail "hoist $version suits a program that wants $wanted"
	grep -q 'version' "$work/log" || { cat "$work/log"; fail "it is not said why $wanted is refused"; }
done
exit 0
