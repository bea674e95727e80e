#!/bin/sh
# SPDX-License-Identifier: MIT
# A packager: the tarball holds every file that git tracks, configure says what is missing, each
# installed file has its place, and uninstalling leaves nothing.  `./check dist` builds and tests the
# tarball, `./check deb` makes packages of it.
. "${srcdir:-.}/users/support.sh"
src=${abs_top_srcdir:?}
build=$abs_top_builddir
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
version=$(sed -n 's/^AC_INIT(\[hoist\], \[\(.*\)\])$/\1/p' "$src/configure.ac")

# --- configure, and the tarball: of a tree of its own, as this one is busy being tested ---
mkdir tree
types 0 "cd tree && $src/configure -q --cache-file=$work/cache --prefix=/usr --disable-runpath --without-criterion"
sees "^hoist $version\$" '^  liburing +[0-9.]+$' '^  unit tests +no ' '^  prefix +/usr$'
types 0 "make -s -C tree/lib install-pkgconfigDATA DESTDIR=$home/data && cat data/usr/lib/pkgconfig/hoist.pc"
sees '^prefix=/usr$' "^Version: $version\$"
types 0 'make -s -C tree dist XZ_OPT=-1'
types 0 "tar -xf tree/hoist-$version.tar.xz && ls hoist-$version"
sees '^NEWS$' '^README\.md$' '^configure$' '^debian$'
types 0 "grep '^$version ' hoist-$version/NEWS && head -n 1 hoist-$version/debian/changelog"
sees "^$version \((20[0-9-]+|unreleased)\)\$" "^hoist \($version\) "
if [ ! -e "$src/.git" ] || ! command -v git >/dev/null; then
	echo "no git checkout, or no git: the tarball is not compared with the files that git tracks"
else
	git -c safe.directory='*' -C "$src" ls-files >"$work/listed" || fail "git ls-files"
	# Tracked, and not being removed just now.
	while read -r file; do
		[ ! -e "$src/$file" ] || echo "$file"
	done <"$work/listed" | LC_ALL=C sort >"$work/tracked"
	[ -s "$work/tracked" ] || fail "git tracks nothing"
	(cd "hoist-$version" && find . -type f -o -type l) | sed 's#^\./##' | LC_ALL=C sort |
		LC_ALL=C comm -23 "$work/tracked" - | grep . &&
		fail "(above) in git, but not in the tarball: add them to EXTRA_DIST or to a _SOURCES"
	echo "all $(wc -l <"$work/tracked") files that git tracks are in the tarball"
fi

# --- words that configure does not understand, and libraries that it does not find ---
types 1 "mkdir none && cd none && PKG_CONFIG_LIBDIR=/none ../hoist-$version/configure -q"
sees 'Package requirements \(liburing >= 2\.2\) were not met'
types 1 "cd none && ../hoist-$version/configure -q --prefix=usr"
sees 'expected an absolute directory name for --prefix: usr'

# --- installed under DESTDIR ---
installs "$home/root"
prefix=root$(sed -n 's/^S\["prefix"\]="\(.*\)"$/\1/p' "$build/config.status")
PKG_CONFIG_PATH=$(dirname "$(find "$home/root" -name hoist.pc)")
export PKG_CONFIG_PATH
lib=${PKG_CONFIG_PATH%/pkgconfig} lib=${lib#"$home/$prefix/"} # lib, lib64 or lib/x86_64-linux-gnu
types 0 "cd $prefix && find . ! -type d | sed 's|^./$lib/|./lib/|' | sort"
for place in bin/hoist lib/libhoist.so lib/libhoist.so.0 lib/hoist/libhoist-emulated-cuda.so \
	lib/hoist/drivers/libcuda.so.1 lib/cmake/hoist/hoistConfig.cmake include/hoist/hoist.h \
	share/man/man1/hoist.1 share/doc/hoist/NEWS; do
	grep -qx "./$place" "$work/screen" || fail "$place is not installed"
done
for header in "$src"/include/hoist/*.h; do
	grep -qx "./include/hoist/${header##*/}" "$work/screen" || fail "${header##*/} is not installed"
done
cat >"$work/places" <<'END'
bin/hoist
include/hoist/([a-z]+/)?[a-z-]+\.h
lib/cmake/hoist/hoistConfig(Version)?\.cmake
lib/hoist/drivers/lib(cuda|amdhip64)\.so[.0-9]*
lib/hoist/libhoist-emulated-(cuda|hip)\.(la|so)
lib/libhoist\.(a|la|so|so\.0|so\.0\.[0-9]+\.[0-9]+)
lib/pkgconfig/hoist\.pc
share/bash-completion/completions/hoist
share/doc/hoist/(NEWS|[A-Za-z]+\.md)
share/fish/vendor_completions\.d/hoist\.fish
share/man/man1/hoist(-[a-z]+)?\.1
share/zsh/site-functions/_hoist
END
sed 's|^\./||' "$work/screen" | grep -vxEf "$work/places" && fail "(above) installed, and in no place of hoist's"
types 0 'pkg-config --modversion hoist'
sees "^$version\$"
types 0 "LD_LIBRARY_PATH=$prefix/$lib $prefix/bin/hoist --version"
sees "^hoist $version\$"
types 0 "readelf -d $prefix/$lib/libhoist.so"
sees 'SONAME.*\[libhoist\.so\.0\]'
types 0 "make -s -C $build uninstall DESTDIR=$home/root"
types 0 'find root ! -type d'
[ ! -s "$out" ] || fail "uninstalling left the above"
types 0 "find $prefix -mindepth 1 -name '*hoist*'"
[ ! -s "$out" ] || fail "uninstalling left the above folders"
exit 0
