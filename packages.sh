# SPDX-License-Identifier: MIT
# The Debian packages that hoist is built and tested with, and how quickstart and
# check install what is missing of them.  Sourced, not run.

# To build: a compiler, the autotools, the five libraries.
packages_build="gcc libc6-dev make autoconf automake libtool pkg-config
	liburing-dev libnuma-dev libjansson-dev libxxhash-dev libsodium-dev"

# To test (./check): the unit test library, C++ for one test of the headers, jemalloc for
# comparisons, HIP's and UCX's headers to check our tables of their functions against, Valgrind with
# the symbols that it needs of the C library, a file system in user space, filters of
# system calls, Python with NumPy and what builds packages for it.
packages_test="libcriterion-dev g++ libjemalloc-dev libamdhip64-dev libucx-dev valgrind libc6-dbg
	libfuse3-dev fuse3 libseccomp-dev
	python3-dev python3-numpy python3-setuptools python3-wheel python3-pip python3-venv"

# For some steps of ./check all: the second compiler and its fuzzer, a virtual machine and
# what its disks and first memory are made with, networks of namespaces, xz for the tarball, Doxygen for the reference,
# torch, anyio and trio for the Python package, mypy for its stubs, Sphinx and numpydoc for its pages.
packages_all="clang libclang-rt-dev qemu-system-x86 busybox-static cpio e2fsprogs iproute2 xfsprogs
	xz-utils doxygen python3-torch python3-anyio python3-trio mypy python3-sphinx python3-numpydoc"

# For ./check deb: what makes packages for Debian and for RPM, and images; xz for the tarball.
packages_deb="dpkg-dev debhelper fakeroot lintian rpm buildah xz-utils"

# packages_missing NAME... - those that are not installed, one line.
packages_missing() {
	for package; do
		case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
		installed) ;;
		*) printf '%s ' "$package" ;;
		esac
	done
}

# packages_need WHY NAME... - installs what is missing; exits with what to do about
# it where that cannot be done.
packages_need() {
	why=$1
	shift
	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		echo "This is no Debian or Ubuntu system, so nothing is installed for you. $why needs"
		echo "what these Debian packages hold:" "$@"
		return 0
	fi
	missing=$(packages_missing "$@")
	[ -n "$missing" ] || return 0

	as_root=
	if [ "$(id -u)" -ne 0 ]; then
		as_root="sudo"
		[ -t 0 ] || as_root="sudo -n" # nobody is there to type a password
		if ! command -v sudo >/dev/null; then
			packages_give_up "you are not root, and there is no sudo" "$missing"
		fi
	fi
	echo "Installing with apt${as_root:+, through sudo}: $missing"
	apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=2"
	log=$(mktemp)
	# A failing update matters only if the install then fails: the lists may be good.
	# shellcheck disable=SC2086
	$apt update >"$log" 2>&1 </dev/null || echo "(apt-get update failed; trying with the lists at hand)"
	# shellcheck disable=SC2086
	if ! $apt install -y --no-install-recommends $missing >>"$log" 2>&1 </dev/null; then
		grep -E '^(E|W|Err|sudo):?' "$log" | tail -n 8 >&2 || tail -n 8 "$log" >&2
		rm -f "$log"
		packages_give_up "apt-get failed (above); offline, or no such package in its sources?" "$missing"
	fi
	rm -f "$log"
	missing=$(packages_missing "$@")
	[ -z "$missing" ] || packages_give_up "apt-get ended well without them" "$missing"
}

# packages_give_up REASON NAMES
packages_give_up() {
	echo "error: these packages are missing and could not be installed: $2" >&2
	echo "  why:    $1" >&2
	echo "  remedy: as root, run   apt-get update && apt-get install -y --no-install-recommends $2" >&2
	echo "          and then this script again" >&2
	exit 1
}
