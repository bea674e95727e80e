# SPDX-License-Identifier: MIT
"""Builds libhoist into the Python package: the library, its headers, the command, the stand-in drivers.

HOIST_BUILD=FOLDER in the environment takes the library from a folder where hoist was configured and
made already, in place of building it.
"""

import os
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TOP = os.path.dirname(os.path.abspath(__file__))
NEEDED = "gcc libc6-dev make autoconf automake libtool pkg-config liburing-dev libnuma-dev " \
         "libjansson-dev libxxhash-dev python3-dev"


def version():
    with open(os.path.join(TOP, "configure.ac"), encoding="utf-8") as file:
        return re.search(r"AC_INIT\(\[hoist\], \[([^]]+)\]", file.read()).group(1)


def run(command, folder):
    try:
        subprocess.run(command, cwd=folder, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"hoist: {' '.join(command[:2])} failed ({error}).  Building hoist needs these Debian "
                 f"packages, or what they hold: {NEEDED}")


def make_library(folder):
    """Configures and makes hoist in `folder`, if that was not done."""
    if not os.path.exists(os.path.join(TOP, "configure")):
        run(["autoreconf", "-fi"], TOP)
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, "Makefile")):
        run([os.path.join(TOP, "configure"), "-q", "--without-criterion"], folder)
    run(["make", "-s", f"-j{os.cpu_count() or 1}"], folder)


def install(build, stage):
    """Installs what was built under `stage`.  Returns: the folder that has lib, include and bin."""
    shutil.rmtree(stage, ignore_errors=True)
    run(["make", "-s", "install", f"DESTDIR={stage}"], build)
    for folder, _, files in os.walk(stage):
        if "libhoist.so.0" in files:
            return os.path.dirname(folder)
    sys.exit(f"hoist: `make install` in {build} has installed no libhoist.so.0")


class BuildWithLibrary(build_ext):
    """Builds the library, then the extension over it, and puts both in the package."""

    def build_extension(self, ext):
        given = os.environ.get("HOIST_BUILD")
        temp = os.path.abspath(self.build_temp)
        build = os.path.abspath(given) if given else os.path.join(temp, "libhoist")
        if not given:
            make_library(build)
        stage = install(build, os.path.join(temp, "stage"))
        ext.include_dirs.append(os.path.join(stage, "include"))
        ext.library_dirs.append(os.path.join(stage, "lib"))
        super().build_extension(ext)
        self.add_library(stage, os.path.dirname(os.path.abspath(self.get_ext_fullpath(ext.name))))

    @staticmethod
    def add_library(stage, package):
        """Wheels have no symbolic links: the library is there once, by the name that programs load."""
        lib = os.path.join(package, "lib")
        for folder in ("lib", "include", "bin"):
            shutil.rmtree(os.path.join(package, folder), ignore_errors=True)
        os.makedirs(os.path.join(lib, "hoist"))
        shutil.copy(os.path.join(stage, "lib", "libhoist.so.0"), lib)
        for name in os.listdir(os.path.join(stage, "lib", "hoist")):
            if name.endswith(".so"):
                shutil.copy(os.path.join(stage, "lib", "hoist", name), os.path.join(lib, "hoist"))
        shutil.copytree(os.path.join(stage, "include"), os.path.join(package, "include"))
        shutil.copytree(os.path.join(stage, "bin"), os.path.join(package, "bin"))


SOURCES = "module convert device buffer index exchange checkpoint load".split()
SOURCES += "stream flag accelerators fields copies wrap mmap layout layout-views memory".split()

setup(
    version=version(),
    packages=["hoist", "hoist.core", "hoist.driver"],
    package_dir={"hoist": "python/hoist"},
    package_data={"hoist": ["py.typed", "*.pyi"]},
    ext_modules=[Extension(
        "hoist._hoist",
        sources=[f"python/src/{name}.c" for name in SOURCES],
        depends=["python/src/module.h", "python/src/layout.h"],
        define_macros=[("Py_LIMITED_API", "0x030b0000")],
        py_limited_api=True,
        libraries=["hoist"],
        extra_compile_args=["-std=gnu11", "-fvisibility=hidden"],
        extra_link_args=["-Wl,-rpath,$ORIGIN/lib"],
    )],
    cmdclass={"build_ext": BuildWithLibrary},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    zip_safe=False,
)
