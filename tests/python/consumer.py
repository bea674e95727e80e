# SPDX-License-Identifier: MIT
"""Another library: exchanging.c, a consumer of DLPack's exchange table in C, and a driver's own calls."""

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import unittest

import hoist

HERE = os.path.dirname(os.path.abspath(__file__))


@functools.cache
def library():
    """exchanging.c, as a ctypes.PyDLL."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise unittest.SkipTest("no C compiler")
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = os.path.join(folder.name, "exchanging.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path,
                    os.path.join(HERE, "exchanging.c")], check=True)
    ret = ctypes.PyDLL(path)
    ret.around.restype = ret.lend.restype = ctypes.py_object
    return ret


@functools.cache
def table_of(cls):
    """The exchange table of a class."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return ctypes.c_void_p(pointer(cls.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)


class Driver:
    """Memory of the first device, by the calls of a stand-in that hoist has loaded."""

    def __init__(self, spec):
        api = hoist.Device(spec).api
        folder = os.path.join(os.path.dirname(hoist.__file__), "lib", "hoist")
        self._library = ctypes.CDLL(os.path.join(folder, f"libhoist-emulated-{api}.so"), os.RTLD_NOLOAD)
        self._is_cuda = api == "cuda"
        if self._is_cuda:
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            self._call("cuCtxSetCurrent", context)
        else:
            self._call("hipSetDevice", 0)

    def _call(self, name, *arguments):
        err = getattr(self._library, name)(*arguments)
        assert err == 0, f"{name}: {err}"

    def allocate(self, n):
        ret = ctypes.c_void_p()
        self._call("cuMemAlloc_v2" if self._is_cuda else "hipMalloc", ctypes.byref(ret), ctypes.c_size_t(n))
        return ret.value

    def free(self, address):
        self._call("cuMemFree_v2" if self._is_cuda else "hipFree", ctypes.c_void_p(address))

    def _copy(self, to, source, n, kind):
        to, source, n = ctypes.c_void_p(to), ctypes.cast(source, ctypes.c_void_p), ctypes.c_size_t(n)
        if self._is_cuda:
            self._call(("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2")[kind - 1], to, source, n)
        else:
            self._call("hipMemcpyAsync", to, source, n, kind, None)
            self._call("hipDeviceSynchronize")

    def write(self, address, source, n):
        self._copy(address, source, n, 1)
        return 0

    def read(self, address, n):
        ret = ctypes.create_string_buffer(n)
        self._copy(ctypes.addressof(ret), address, n, 2)
        return ret.raw
