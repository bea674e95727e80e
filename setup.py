# SPDX-License-Identifier: MIT
"""Builds libhoist into the Python package: the library, its headers, the command, the stand-in drivers.

What lies in the package, and is found from there wherever the package is installed:

   hoist/_hoist.abi3.so       the extension, for every CPython from 3.11 on; for a free-threaded one,
                              which has no stable ABI: _hoist.cpython-314t-*.so, for this release alone
   hoist/lib/libhoist.so.0    with liburing inside, where the machine has the archive liburing.a
   hoist/lib/hoist            the stand-in drivers
   hoist/lib/pkgconfig        hoist.pc, for programs in C that use this library
   hoist/include, hoist/bin   the headers, the command
   hoist/licenses             of the libraries that are inside, as Debian's packages have them

HOIST_BUILD=FOLDER in the environment takes the library from a folder where hoist was configured and
made already, in place of building it.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TOP = os.path.dirname(os.path.abspath(__file__))
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# The folders that the package needs: no tests, no examples.
FOLDERS = "SUBDIRS=base net device numa alloc format io lib emulator cli bench tools"
COMMANDS = {"make": "make", "pkg-config": "pkg-config"}
AUTOTOOLS = {"autoreconf": "autoconf", "automake": "automake", "libtoolize": "libtool"}
LIBRARIES = {"liburing": "liburing-dev", "numa": "libnuma-dev", "jansson": "libjansson-dev",
             "libxxhash": "libxxhash-dev", "libsodium": "libsodium-dev"}


def configured(pattern):
    """What the pattern finds in configure.ac, which is where versions are kept."""
    with open(os.path.join(TOP, "configure.ac"), encoding="utf-8") as file:
        return re.findall(pattern, file.read())


# --- what the machine lacks ---

def succeeds(*command):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                              check=False).returncode == 0
    except OSError:
        return False


def compiler():
    return os.environ.get("CC", "cc").split()


def includes(header):
    return succeeds(*compiler(), "-E", "-o", os.devnull, "-include", header, "-x", "c", os.devnull)


def missing():
    """The Debian packages that the build needs and this machine lacks, or equals of."""
    if shutil.which(compiler()[0]) is None:
        ret = ["gcc", "libc6-dev"]
    else:
        ret = [] if includes("stdio.h") else ["libc6-dev"]
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        ret.append("python3-dev")
    commands = dict(COMMANDS)
    if not os.path.exists(os.path.join(TOP, "configure")):
        commands.update(AUTOTOOLS)
    ret += [package for command, package in commands.items() if shutil.which(command) is None]
    for library in configured(r"PKG_CHECK_MODULES\(\[\w+\], \[([^]]+)\]\)"):
        if "pkg-config" in ret or not succeeds("pkg-config", "--exists", library):
            ret.append(LIBRARIES[library.split()[0]])
    return ret


def check_machine():
    lacks = " ".join(missing())
    if lacks:
        sys.exit("error: what builds hoist is not all there\n"
                 f"  missing: {lacks} (the names of Debian's packages; others will do that hold the same)\n"
                 f"  remedy:  as root, apt-get install -y --no-install-recommends {lacks}\n"
                 "           or install a wheel of hoist, which needs none of these")


# --- the library ---

def run(command, folder):
    try:
        subprocess.run(command, cwd=folder, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: building libhoist failed; what went wrong is above\n"
                 f"  command: {' '.join(command)} ({error})")


def archives():
    """Arguments of configure: libraries that are linked into hoist's, where they come as archives.

    libnuma, which the LGPL protects, stays a library of its own.
    """
    return [f"{variable}_LIBS=-l:{file}"
            for variable, file in (("URING", "liburing.a"), ("JANSSON", "libjansson.a"),
                                   ("XXHASH", "libxxhash.a"), ("SODIUM", "libsodium.a"))
            if succeeds(*compiler(), "-nostdlib", "-r", "-o", os.devnull, "-l:" + file)]


def make_library(folder):
    """Configures and makes hoist in `folder`, if that was not done."""
    check_machine()
    if not os.path.exists(os.path.join(TOP, "configure")):
        run(["autoreconf", "-fi"], TOP)
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, "config.status")):
        run([os.path.join(TOP, "configure"), "-q", "--without-criterion", *archives()], folder)
    run(["make", "-s", f"-j{os.cpu_count() or 1}", FOLDERS], folder)


def install(build, how, stage):
    """Installs what was built under `stage`.  Returns: the folder that has lib, include and bin."""
    shutil.rmtree(stage, ignore_errors=True)
    run(["make", "-s", how, FOLDERS, f"DESTDIR={stage}"], build)
    for folder, _, files in os.walk(stage):
        if "libhoist.so.0" in files:
            return os.path.dirname(folder)
    sys.exit(f"error: `make install` in {build} has installed no libhoist.so.0")


# For a folder that may lie anywhere.  A wheel has no symbolic links, so no libhoist.so.
PKG_CONFIG = """prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: hoist
Description: Moves model weights from storage to where they run
Version: {version}
Libs: -L${{libdir}} -l:libhoist.so.0
Cflags: -I${{includedir}}
"""


def fill_package(stage, package, version):
    """Wheels have no symbolic links: the library is there once, by the name that programs load."""
    lib = os.path.join(package, "lib")
    for folder in ("lib", "include", "bin", "licenses"):
        shutil.rmtree(os.path.join(package, folder), ignore_errors=True)
    for folder in ("lib/hoist", "lib/pkgconfig", "licenses"):
        os.makedirs(os.path.join(package, folder))
    shutil.copy(os.path.join(stage, "lib", "libhoist.so.0"), lib)
    for name in os.listdir(os.path.join(stage, "lib", "hoist")):
        if name.endswith(".so"):
            shutil.copy(os.path.join(stage, "lib", "hoist", name), os.path.join(lib, "hoist"))
    shutil.copytree(os.path.join(stage, "lib", "hoist", "drivers"),
                    os.path.join(lib, "hoist", "drivers"))
    with open(os.path.join(lib, "pkgconfig", "hoist.pc"), "w", encoding="utf-8") as file:
        file.write(PKG_CONFIG.format(version=version))
    shutil.copytree(os.path.join(stage, "include"), os.path.join(package, "include"))
    shutil.copytree(os.path.join(stage, "bin"), os.path.join(package, "bin"))
    for name in LIBRARIES.values():
        text = f"/usr/share/doc/{name}/copyright"
        if os.path.exists(text):
            shutil.copy(text, os.path.join(package, "licenses", name.replace("-dev", ".txt")))


# --- setuptools ---

class BuildWithLibrary(build_ext):
    """Builds the library, then the extension over it, and puts both in the package."""

    def get_ext_filename(self, fullname):
        """Not the interpreter's own suffix: that of 3.15 is one that older ones do not find."""
        if FREE_THREADED:
            return super().get_ext_filename(fullname)
        return os.path.join(*fullname.split(".")) + ".abi3.so"

    def build_extension(self, ext):
        if FREE_THREADED and sys.version_info < (3, 14):
            sys.exit("error: free-threaded CPython before 3.14 lacks functions that hoist needs\n"
                     "  remedy: a free-threaded CPython from 3.14 on, or this release with the GIL")
        given = os.environ.get("HOIST_BUILD")
        temp = os.path.abspath(self.build_temp)
        build = os.path.abspath(given) if given else os.path.join(temp, "libhoist")
        if not given:
            make_library(build)
        stage = install(build, "install" if given else "install-strip", os.path.join(temp, "stage"))
        ext.include_dirs.append(os.path.join(stage, "include"))
        ext.library_dirs.append(os.path.join(stage, "lib"))
        super().build_extension(ext)
        fill_package(stage, os.path.dirname(os.path.abspath(self.get_ext_fullpath(ext.name))),
                     self.distribution.get_version())


class BuildFresh(build_py):
    """Without the modules that an earlier build has left and that are no more."""

    def run(self):
        shutil.rmtree(os.path.join(self.build_lib, "hoist"), ignore_errors=True)
        super().run()


class SourceArchive(sdist):
    """Of all that git tracks; of an unpacked archive, all that is there."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, self.sources())

    @staticmethod
    def sources():
        if os.path.exists(os.path.join(TOP, ".git")):
            text = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=TOP,
                                  check=True, capture_output=True, text=True).stdout
            return [name for name in text.split("\0") if name and os.path.exists(name)]
        ret = []
        for folder, folders, files in os.walk("."):
            if folder == ".":
                folders[:] = [f for f in folders if f not in ("build", "dist")
                              and not f.endswith(".egg-info")]
            ret += [os.path.join(folder, file)[2:] for file in files]
        return [name for name in ret if name != "PKG-INFO"]


setup(
    version=configured(r"AC_INIT\(\[hoist\], \[([^]]+)\]")[0],
    packages=find_packages("python", include=["hoist", "hoist.*"]),
    package_dir={"": "python"},
    package_data={"": ["py.typed", "*.pyi"]},
    ext_modules=[Extension(
        "hoist._hoist",
        sources=sorted(glob.glob("python/src/*.c")),
        depends=glob.glob("python/src/*.h"),
        define_macros=[] if FREE_THREADED else [("Py_LIMITED_API", "0x030b0000")],
        py_limited_api=not FREE_THREADED,
        libraries=["hoist"],
        extra_compile_args=["-std=gnu11", "-fvisibility=hidden"],
        extra_link_args=["-Wl,-rpath,$ORIGIN/lib"],
    )],
    cmdclass={"build_ext": BuildWithLibrary, "build_py": BuildFresh, "sdist": SourceArchive},
    options={"build": {"build_base": "build/python"},
             "bdist_wheel": {} if FREE_THREADED else {"py_limited_api": "cp311"}},
    zip_safe=False,
)
