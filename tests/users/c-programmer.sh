#!/bin/sh
# SPDX-License-Identifier: MIT
# A C programmer with hoist installed: the program of README by pkg-config and by CMake, and wrong uses.
. "${srcdir:-.}/users/support.sh"
src=${abs_top_srcdir:?}
CC=${CC:-cc}
installs "$work/root"
pc=$(find "$work/root" -name hoist.pc)
lib=$(dirname "$(dirname "$pc")")
prefix=$(dirname "$lib")
mkcheckpoint --bytes 1M --tensors 12 model
PKG_CONFIG_PATH=$lib/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$work/root
LD_LIBRARY_PATH=$lib
export CC PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR LD_LIBRARY_PATH
types 0 'pkg-config --modversion hoist'
sees '^[0-9]+\.[0-9]+\.[0-9]+$'
version=$(cat "$out")

# --- the programs of README, each of which is one of the examples below its first line ---
awk '/^```c$/ { n++; open = 1; next } /^```/ { open = 0 } open { print > ("example" n ".c") }' "$src/README.md"
[ -s example1.c ] || fail "README.md has no C program"
for example in example*.c; do
	same=
	for file in "$src"/examples/*.c; do
		! tail -n +2 "$file" | cmp -s - "$example" || same=${file##*/}
	done
	[ -n "$same" ] || fail "a C program of README.md is in no file of examples/"
	mv "$example" "$same"
	types 0 "$CC -std=c11 -pedantic -Wall -Wextra -Werror $same \$(pkg-config --cflags --libs hoist) -o ${same%.c}"
done
grep -qF 'cc address.c $(pkg-config --cflags --libs hoist) -o address' "$src/README.md" || fail "README's line for cc"
types 0 'HOIST_EMULATE=cuda:1 ./address model lm_head.weight cuda:0'
sees '^lm_head\.weight: bf16, [0-9]+ bytes at 0x[0-9a-f]+ on cuda:0$'
types 0 './address model lm_head.weight cpu'
sees ' on cpu$'

# --- wrong uses ---
types 2 './address'
sees '^usage: \./address MODEL TENSOR'
types 1 './address modle lm_head.weight cpu'
sees '^checkpoint: .*modle: No such file or directory'
types 1 './address model lm_haed.weight cpu'
sees '^tensor: .*lm_haed\.weight'
types 1 './address model lm_head.weight cuda0'
sees '^device: "cuda0" names no device; say cpu, cuda:N, hip:N or gpu:N'
cat >wrong.c <<'END'
#include <stdio.h>
#include <hoist/hoist.h>

int main(void)
{
	hoist_device *device = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_load_options options = {0};
	if (hoist_device_open("cpu", &device) < 0 || hoist_checkpoint_open("model", 0, &checkpoint) < 0)
		return 2;
	options.device = device; /* and no size */
	if (hoist_load_start(checkpoint, &options, &load) < 0)
		puts(hoist_error());
	options.size = sizeof options;
	options.chunk_bytes = 1000;
	if (hoist_load_start(checkpoint, &options, &load) < 0)
		puts(hoist_error());
	if (hoist_load_start(NULL, &options, &load) < 0)
		puts(hoist_error());
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	return load != NULL;
}
END
types 0 "$CC wrong.c \$(pkg-config --cflags --libs hoist) -o wrong && ./wrong"
sees 'size field is 0; set that field to sizeof\(hoist_load_options\)' 'chunk_bytes.*4096' 'checkpoint.*NULL'
cat >older.c <<'END'
#include <hoist/hoist.h>
#if HOIST_VERSION_NUMBER < HOIST_VERSION_OF(99, 0, 0)
#error "hoist 99 is needed"
#endif
END
types 1 "$CC -c older.c \$(pkg-config --cflags hoist)"
sees 'hoist 99 is needed'
types 1 'pkg-config --print-errors "hoist >= 99"'
sees "'hoist >= 99'" "$version"

# --- CMake ---
if ! command -v cmake >/dev/null; then
	echo "cmake is not installed (Debian: cmake): find_package(hoist) is not tried"
	exit 0
fi
wants="${version%.*}"
grep -qF "find_package(hoist $wants REQUIRED)" "$src/README.md" || fail "README does not want $wants by CMake"

# project VERSION - a project that wants that version.
project() {
	rm -rf build
	cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(hoist $1 REQUIRED)
add_executable(address-cmake address.c)
target_link_libraries(address-cmake hoist::hoist)
if(TARGET hoist::hoist_static)
  add_executable(address-static address.c)
  target_link_libraries(address-static hoist::hoist_static)
endif()
END
}
for asked in "" "$wants" "$version"; do
	project "$asked"
	types 0 "cmake -B build -DCMAKE_PREFIX_PATH='$prefix'"
done
types 0 'cmake --build build && HOIST_EMULATE=cuda:1 build/address-cmake model lm_head.weight cuda:0'
sees ' on cuda:0$'
[ ! -e "$lib/libhoist.a" ] || types 0 'build/address-static model lm_head.weight cpu'
for asked in 0.0.9 0.1 0.99 1.0; do
	project $asked
	types 1 "cmake -B build -DCMAKE_PREFIX_PATH='$prefix'"
	sees "requested version \"$asked\"" "version: $version"
done
