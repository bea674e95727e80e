# SPDX-License-Identifier: MIT
"""What Buffer offers to other libraries and to Python's own functions; the extension calls it."""

import contextlib
import functools
import sys

from . import _hoist

# DLPack's codes of the types of one or two whole bytes that ml_dtypes has and NumPy lacks.
_ML_CODES = {"bfloat16": (4, 16), "float8_e3m4": (7, 8), "float8_e4m3": (8, 8),
             "float8_e4m3b11fnuz": (9, 8), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8),
             "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8)}


@functools.cache
def tell_numpy():
    """Registers ml_dtypes' types with NumPy's DLPack (2.5 and later), once: `np.from_dlpack()` takes
    bf16 and fp8 then, and arrays of these types are exported.

    Without ml_dtypes nothing is done, nor for a type that another package has registered.
    """
    import numpy  # pylint: disable=import-outside-toplevel
    register = getattr(getattr(numpy, "dtypes", None), "register_dlpack_dtype", None)
    if register is None:
        return
    try:
        import ml_dtypes  # pylint: disable=import-outside-toplevel
    except ImportError:
        return
    for name, code in _ML_CODES.items():
        if hasattr(ml_dtypes, name):
            with contextlib.suppress(ValueError):  # registered already, otherwise
                register(code, numpy.dtype(getattr(ml_dtypes, name)))


def of_ml_dtypes(array, cls, copy):
    """A Buffer over a NumPy array of one of ml_dtypes' types, which older releases of NumPy do not
    export; None: the object is no such array."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray) or array.dtype.name not in _ML_CODES:
        return None
    bits = array.view(f"u{array.dtype.itemsize}")
    ret = cls.from_buffer(bits, _hoist.dtype_from_numpy(array.dtype.name))
    return ret.copy() if copy else ret


def array_interface(buffer):
    """NumPy's array interface of a host buffer.

    Raises AttributeError where the interface has no words: a consumer then asks for `__array__`.
    """
    buffer = _base(buffer)
    info = _hoist.dtype_info(buffer.dtype)
    if not info["numpy_native"]:
        raise AttributeError(f"__array_interface__: NumPy has no {info['name']}")
    with _view(buffer) as view:
        if view is None:
            raise AttributeError("__array_interface__: the elements are in device memory")
        kind = {0: "b", 1: "i", 2: "u", 3: "f", 4: "c"}[info["kind"]]
        return {"version": 3, "typestr": f"{'|' if info['bits'] == 8 else '<'}{kind}{info['bits'] // 8}",
                "data": (buffer.address, view.readonly), "shape": view.shape,
                "strides": None if view.c_contiguous else view.strides}


class _view:
    """A memoryview, which took the memory and waited for the work; None of device memory."""

    def __init__(self, buffer):
        try:
            self._view = memoryview(buffer)
        except BufferError:
            if buffer.is_host_accessible:
                raise
            self._view = None

    def __enter__(self):
        return self._view

    def __exit__(self, *_):
        if self._view is not None:
            self._view.release()


def _base(buffer):
    return buffer if type(buffer) is _hoist.Buffer else _hoist.Buffer._of(buffer)


def array(buffer, dtype=None, copy=None):
    """`__array__`: an array over a host buffer's elements; ml_dtypes' types where NumPy has none."""
    from .numpy import asarray  # pylint: disable=import-outside-toplevel
    if not buffer.is_host_accessible and buffer.nbytes > 0:
        raise TypeError("the elements are in device memory; to(\"cpu\") copies them")
    ret = asarray(_base(buffer))
    if dtype is not None and ret.dtype != dtype:
        if copy is False:
            raise ValueError(f"a copy is needed to make {dtype} of {ret.dtype}")
        return ret.astype(dtype)
    return ret.copy() if copy else ret


def _restore(cls, dtype, shape, device, pinned, data):
    """Makes a buffer again from its pickle."""
    ret = _hoist.Buffer("u8", (len(memoryview(data).cast("B")),))
    ret.copy_from(_hoist.Buffer.from_buffer(memoryview(data).cast("B")))
    ret = ret.view(dtype, shape)
    if pinned:
        there = _hoist.Buffer(dtype, shape, device, pinned=True)
        there.copy_from(ret)
        ret = there
    else:
        ret = ret.to(device)
    return ret if cls is _hoist.Buffer else cls._of(ret)


def reduce(buffer, protocol):
    """`__reduce_ex__`: dtype, shape, device and elements; protocol 5 passes the bytes out of band.

    A pickled buffer is writable and contiguous when it comes back, on the device of the same spec.
    """
    base = _base(buffer)
    flat = base.to("cpu") if not base.is_pinned else base.copy("cpu")
    if not flat.is_contiguous:
        flat = flat.copy()
    if protocol >= 5 and base.size > 0 and flat.nbytes * 8 == flat.size * _hoist.dtype_info(
            flat.dtype)["bits"]:
        import pickle  # pylint: disable=import-outside-toplevel
        data = pickle.PickleBuffer(flat.view("u8", (flat.nbytes,)))
    else:
        data = flat.tobytes()
    return _restore, (type(buffer), base.dtype, base.shape, base.device.spec, base.is_pinned, data)


def deepcopy(buffer, memo):
    """`copy.deepcopy()`: a contiguous copy on the same device, pinned if the buffer is."""
    base = _base(buffer)
    if base.is_pinned:
        ret = _hoist.Buffer(base.dtype, base.shape, base.device, pinned=True)
        ret.copy_from(base)
    else:
        ret = base.copy()
    if type(buffer) is not _hoist.Buffer:
        ret = type(buffer)._of(ret)
    memo[id(buffer)] = ret
    return ret


def read_cai(obj):
    """The fields of an object's `__cuda_array_interface__`, as the extension reads them."""
    fields = obj.__cuda_array_interface__
    data, read_only = fields["data"]
    return (int(fields["version"]), fields["typestr"], int(data or 0), int(bool(read_only)),
            tuple(fields["shape"]), fields.get("strides"), int(fields.get("mask") is not None),
            fields.get("stream"))
