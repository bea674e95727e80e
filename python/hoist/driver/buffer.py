# SPDX-License-Identifier: MIT
"""Buffer as max.driver has it: hoist's Buffer with MAX's arguments, answers and refusals."""

import enum
import importlib
import sys
import typing

from .. import _hoist, errors
from .. import dtypes as _dtypes

_Base = _hoist.Buffer
_base_dtype = _Base.dtype.__get__


class Usage(enum.Flag):
    """What a buffer is for."""

    DEFAULT = 0
    STAGING = 1  # host memory that the device copies from and to directly
    UNTRACKED = 2  # without effect: hoist orders work by streams


class OutOfDeviceMemoryError(errors.OutOfMemoryError, ValueError):
    """A device's memory, or the limit of it, is exhausted.  MAX raises a ValueError."""


@typing.runtime_checkable
class DLPackArray(typing.Protocol):
    """An array that speaks DLPack."""

    def __dlpack__(self, **keywords):
        """A capsule."""

    def __dlpack_device__(self):
        """(device type, device id)."""


def _is_ndarray(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _megabytes(n):
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if n >= size:
            return f"{n / size:.4g}{unit}"
    return f"{n}B"


def _is_staging(pinned, usage):
    """Whether memory is pinned.  `pinned` may be a Usage: 26.7 has that in its place."""
    return bool((pinned | usage if isinstance(pinned, Usage) else usage) & Usage.STAGING) or \
        pinned is True


def _no_memory(error, dtype, shape, device):
    """MAX's exception for a device that has too little memory."""
    if device.is_host:
        return _same_failure(OutOfDeviceMemoryError(f"Memory allocation failed: {error}"), error)
    stats = device.stats
    n = dtype.size_in_bits
    for extent in [shape] if isinstance(shape, int) else shape:
        n *= extent
    return _same_failure(OutOfDeviceMemoryError(
        f"Memory manager cannot satisfy allocation: requested {_megabytes((n + 7) // 8)}, free "
        f"{_megabytes(stats['cached'])}, available "
        f"{_megabytes(max(0, stats['memory_limit'] - stats['limited']))}: {error}"), error)


def _same_failure(ret, error):
    ret.errno = error.errno
    ret.driver_error, ret.driver_api = error.driver_error, error.driver_api
    return ret


class Buffer(_Base):
    """Typed, shaped memory on a device.

    Three forms: Buffer(dtype, shape, device=None, pinned=False), with a stream in the device's place,
    and Buffer(array, device=None) over a NumPy array, which is aliased on the CPU and copied to other
    devices.

    Parameters
    ----------
    dtype : DType or numpy.ndarray
    shape : int or sequence of int
    device : Device or DeviceStream, optional
        None: the CPU.
    pinned : bool
        Host memory that the device copies from and to directly.
    stream : DeviceStream, optional
        In place of `device`.
    usage : Usage
        `Usage.STAGING` is 26.7's word for `pinned=True`.

    Raises
    ------
    ValueError
        The dtype or the shape is wrong.
    OverflowError
        The bytes do not fit in 64 bits.
    OutOfDeviceMemoryError
        The device has too little memory.
    """

    __slots__ = ()

    def __new__(cls, dtype=None, shape=None, device=None, pinned=False, *, stream=None,
                usage=Usage.DEFAULT):
        if _is_ndarray(dtype):
            return cls._of_array(dtype, shape if shape is not None else device)
        if _is_ndarray(shape) and dtype is None:
            return cls._of_array(shape, device)
        if isinstance(device, _hoist.Stream):
            device, stream = None, device
        dtype = _dtypes.of(dtype)
        return cls._make(dtype, shape, device, stream, _is_staging(pinned, usage))

    @classmethod
    def _make(cls, dtype, shape, device, stream, pinned, zero=False):
        try:
            return super().__new__(cls, dtype.hoist_name, shape, device, stream=stream,
                                   pinned=pinned, zero=zero)
        except errors.OutOfMemoryError as error:
            where = stream.device if stream is not None else _hoist.Device(device)
            if pinned and not where.is_host:
                raise
            raise _no_memory(error, dtype, shape, where) from error

    @classmethod
    def _of_array(cls, array, device):
        alias = cls._alias(array) if array.flags.c_contiguous else cls._alias(array.copy())
        return alias if device is None else alias.to(device)

    @classmethod
    def _alias(cls, array):
        """A buffer over a C-contiguous array's memory, read-only if the array is."""
        name = _dtypes.name_of_array(array)
        if name not in _dtypes._NATIVE:
            array = array.view(f"u{array.dtype.itemsize}")
        return cls.from_buffer(array, name)

    @staticmethod
    def zeros(shape, dtype, device=None, pinned=False, *, stream=None, usage=Usage.DEFAULT):
        """A buffer of zeros.  The shape comes first here.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : DType
        device : Device or DeviceStream, optional
        pinned : bool
        stream : DeviceStream, optional
        usage : Usage
            As the class.

        Returns
        -------
        Buffer

        Raises
        ------
        ValueError, OverflowError, OutOfDeviceMemoryError
            As the class.
        """
        if isinstance(device, _hoist.Stream):
            device, stream = None, device
        return Buffer._make(_dtypes.of(dtype), shape, device, stream,
                            _is_staging(pinned, usage), zero=True)

    @staticmethod
    def scalar(value, dtype, device=None):
        """A buffer of rank 0.

        Parameters
        ----------
        value : number
        dtype : DType
        device : Device, optional
            None: the CPU.

        Returns
        -------
        Buffer

        Raises
        ------
        OverflowError
            The dtype cannot hold the value.
        """
        ret = Buffer(dtype, ())
        ret[()] = value
        return ret if device is None else ret.to(device)

    # --- properties ---

    @property
    def dtype(self):
        """The DType."""
        return _dtypes._BY_NAME[_base_dtype(self)]

    rank = _Base.ndim
    num_elements = _Base.size
    pinned = _Base.is_pinned

    @property
    def element_size(self):
        """Bytes of one element."""
        return self.dtype.size_in_bytes

    @property
    def usage(self):
        """Usage.STAGING for pinned memory."""
        return Usage.STAGING if self.is_pinned else Usage.DEFAULT

    def _aligned(self, alignment=None):
        return self.is_aligned(self.dtype.align if alignment is None else alignment)

    # --- elements ---

    def __setitem__(self, index, value):
        """Stores one element: an integer for each axis.  bf16 is cut off, not rounded."""
        self._set(index, value, _base_dtype(self) == "bf16")

    # --- copies and views ---

    def contiguous(self):
        """A contiguous copy, on the CPU whatever the buffer's device is."""
        return Buffer._of(_Base.copy(self, "cpu"))

    def copy(self, stream=None, device=None):
        """A deep copy, on the buffer's own device if neither a stream nor a device is given.

        Parameters
        ----------
        stream : DeviceStream, optional
            The copy is queued there.
        device : Device, optional

        Returns
        -------
        Buffer

        Raises
        ------
        OutOfMemoryError, DeviceError
            The copy failed.
        """
        if isinstance(stream, _hoist.Device):
            stream, device = None, stream
        if isinstance(device, _hoist.Stream):
            stream, device = device, None
        return Buffer._of(_Base.copy(self, device, stream=stream))

    def to(self, target):
        """The buffer on a device or a stream, or on each of a list of them.

        The buffer itself where it is there already; on another stream of its device a buffer over the
        same memory; else a copy.

        Parameters
        ----------
        target : Device, DeviceStream, or list of these

        Returns
        -------
        Buffer or list of Buffer

        Raises
        ------
        OutOfMemoryError, DeviceError
            The copy failed.
        """
        if isinstance(target, (list, tuple)):
            return [self.to(one) for one in target]
        ret = _Base.to(self, target)
        if ret is self:
            return self
        if isinstance(target, _hoist.Stream) and target.device is self.device:
            return type(self)._of(ret, isinstance(self, DevicePinnedBuffer))
        return Buffer._of(ret)

    def view(self, dtype, shape=None):
        """The same bytes as another dtype.

        Parameters
        ----------
        dtype : DType
        shape : sequence of int, optional
            None: the last axis shrinks or grows.

        Returns
        -------
        Buffer

        Raises
        ------
        ValueError
            The bytes are no whole number of elements, or not as many as the shape's.
        IndexError
            Rank 0, without a shape.
        """
        name = _dtypes.of(dtype).hoist_name
        if shape is None and self.rank == 0:
            raise IndexError("a buffer of rank 0 has no last axis; give a shape, too")
        if shape is None:
            return _Base.view(self, name)
        ret = _Base.view(self, name, shape)
        if ret.nbytes != self.nbytes:
            raise ValueError(f"the shape {ret.shape} of {name} has {ret.nbytes} bytes, the buffer "
                             f"{self.nbytes}")
        return ret

    def inplace_copy_from(self, src):
        """Copies the elements of another buffer; both must be contiguous, with one dtype and count.

        Between accelerators, and memory that is pinned for them, the copy is queued on this buffer's
        stream, behind the work on the other's; else it is done when the call returns.

        Parameters
        ----------
        src : Buffer

        Raises
        ------
        ValueError
            A buffer is not contiguous; dtypes or counts differ.
        """
        if src is self:
            return
        stream = None
        if not self.is_host and not src.is_host:
            stream = self.stream
            if src.stream is not stream:
                stream.wait_for(src.stream)
        self.copy_from(src, stream=stream, contiguous=True)

    @staticmethod
    def batch_inplace_copy_from(dsts, srcs):
        """As `hoist.driver.batch_inplace_copy()`, for destinations on one device.

        Parameters
        ----------
        dsts, srcs : iterable of Buffer

        Raises
        ------
        ValueError
            The destinations are on several devices; as `hoist.driver.batch_inplace_copy()`.
        """
        dsts = list(dsts)
        if any(dst.device is not dsts[0].device for dst in dsts):
            raise ValueError("the destinations of a batch are not all on the same device")
        batch_inplace_copy(dsts, srcs)

    # --- other libraries ---

    @staticmethod
    def from_numpy(arr):
        """A buffer over a NumPy array's memory; over a copy if it is read-only or has gaps.

        Parameters
        ----------
        arr : numpy.ndarray

        Returns
        -------
        Buffer

        Raises
        ------
        ValueError
            MAX lacks the dtype.
        """
        return Buffer.from_dlpack(arr if arr.flags.c_contiguous else arr.copy())

    @staticmethod
    def from_dlpack(array, *, copy=None):
        """A buffer over the memory of another library's array.

        A Buffer comes back itself, unless `copy` is true.

        Parameters
        ----------
        array : object
            With `__dlpack__`.
        copy : bool, optional
            For NumPy arrays and Buffers.  None: a NumPy array is copied if it is read-only.

        Returns
        -------
        Buffer

        Raises
        ------
        ValueError
            The array has gaps; `copy` is given for an array of another library.
        BufferError
            `copy` is False, and the NumPy array is read-only.
        """
        if isinstance(array, _Base):
            if copy:
                return Buffer._of(_Base.copy(array))
            return array if isinstance(array, Buffer) else Buffer._of(array)
        if _is_ndarray(array):
            return Buffer._from_ndarray(array, copy)
        is_contiguous = getattr(array, "is_contiguous", None)
        if callable(is_contiguous) and not is_contiguous():
            raise ValueError("the array is not contiguous; call its contiguous() first")
        if copy is not None:
            raise ValueError("copy= is for NumPy arrays and Buffers alone")
        if str(getattr(array, "dtype", None)) == "torch.bool":  # older releases do not export it
            bits = array.view(sys.modules["torch"].uint8)
            return super(Buffer, Buffer).from_dlpack(bits).view(_dtypes.DType.bool)
        return super(Buffer, Buffer).from_dlpack(array)

    @staticmethod
    def _from_ndarray(array, copy):
        flags = array.flags
        name = _dtypes._OF_ARRAYS.get(array.dtype)
        if copy is None and name in _dtypes._NATIVE and flags.c_contiguous and flags.writeable:
            return Buffer.from_buffer(array, name)
        if not flags.c_contiguous:
            raise ValueError("the array is not contiguous; numpy.ascontiguousarray() makes one")
        if array.dtype.kind == "c":
            raise TypeError(f"MAX has no complex types; hoist.from_dlpack() takes {array.dtype}")
        if not array.dtype.isnative or array.dtype.kind not in "biufV":
            raise BufferError(f"DLPack has no {array.dtype.str}; astype() makes an array of another type")
        if copy or (copy is None and not array.flags.writeable):
            array = array.copy()
        if not array.flags.writeable:
            raise BufferError("the array is read-only; copy=True, or no copy=, makes a copy of it")
        return Buffer._alias(array)

    def to_numpy(self):
        """A NumPy array over host or pinned memory; over a copy of other memory, or read-only.

        Types that NumPy lacks come as ml_dtypes' types, or, without that package, as their bits.
        """
        if self.is_host_accessible and _base_dtype(self) in _dtypes._NATIVE:
            numpy = sys.modules.get("numpy") or importlib.import_module("numpy")
            ret = numpy.asarray(self)
            return ret if ret.flags.writeable else ret.copy()
        from ..numpy import asarray  # pylint: disable=import-outside-toplevel
        here = self if self.is_host_accessible or self.nbytes == 0 else _Base.to(self, "cpu")
        base = _Base._of(here, isinstance(self, DevicePinnedBuffer))
        try:
            ret = asarray(base)
        except TypeError:
            bits = self.dtype.size_in_bits
            base = base if base.ndim else base.reshape((1,))
            ret = asarray(base.view("u16" if bits == 16 else "u8"))
            ret = ret if self.rank else ret[0:1].reshape(())
        return ret if ret.flags.writeable else ret.copy()

    @staticmethod
    def mmap(filename, dtype, shape, mode="copyonwrite", offset=0):
        """A buffer over a file, with the modes of numpy.memmap; "r" gives a copy in memory.

        Parameters
        ----------
        filename : str or os.PathLike
        dtype : DType
        shape : int or sequence of int
        mode : str
            As in `hoist.Buffer.mmap()`.
        offset : int
            Bytes from the start of the file.

        Returns
        -------
        Buffer

        Raises
        ------
        ValueError, OverflowError, OSError
            As `hoist.Buffer.mmap()`.
        """
        return super(Buffer, Buffer).mmap(filename, _dtypes.of(dtype).hoist_name, shape, mode,
                                          offset)

    # --- text ---

    def _described(self, values):
        text = self.describe(values)
        name = _base_dtype(self)
        at = text.rindex(f"dtype={name}")
        rest = f"dtype={self.dtype}" + text[at + len(name) + 6:text.rindex("device=")] + \
            f"device={self.device})"
        return text[len("hoist.Buffer("):at].replace("\n      ", "\n") + rest

    def __repr__(self):
        return "max.driver.Buffer(closed)" if self.closed else \
            "max.driver.Buffer(" + self._described(False)

    def __str__(self):
        return "Buffer(closed)" if self.closed else "Buffer(" + self._described(True)


class DevicePinnedBuffer(Buffer):
    """Host memory that is pinned for an accelerator, whose exports do not wait for its stream.

    Parameters
    ----------
    dtype : DType
    shape : int or sequence of int
    device : Device or DeviceStream
    stream : DeviceStream, optional
        In place of `device`.

    Raises
    ------
    ValueError
        The device is the CPU.
    """

    __slots__ = ()

    def __new__(cls, dtype, shape, device=None, *, stream=None):
        if isinstance(device, _hoist.Stream):
            device, stream = None, device
        return cls._pinned(dtype, shape, device, stream, False)

    @classmethod
    def _pinned(cls, dtype, shape, device, stream, zero):
        where = stream.device if stream is not None else _hoist.Device(device)
        if where.is_host:
            raise ValueError("DevicePinnedBuffer requires a non-host device")
        return cls._of(cls._make(_dtypes.of(dtype), shape, device, stream, True, zero), True)

    @staticmethod
    def zeros(shape, dtype, device=None, *, stream=None):
        """A pinned buffer of zeros.  The shape comes first here.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : DType
        device : Device or DeviceStream
        stream : DeviceStream, optional

        Returns
        -------
        DevicePinnedBuffer

        Raises
        ------
        ValueError
            The device is the CPU.
        """
        if isinstance(device, _hoist.Stream):
            device, stream = None, device
        return DevicePinnedBuffer._pinned(dtype, shape, device, stream, True)


def batch_inplace_copy(dsts, srcs):
    """Copies each source into its destination; all pairs are checked before a byte is written.

    Pairs of a buffer with itself, pairs without bytes and pairs that came before are skipped.

    Parameters
    ----------
    dsts, srcs : iterable of Buffer

    Raises
    ------
    ValueError
        The counts of buffers differ; a pair's dtypes or counts of elements differ.
    """
    _hoist.copy_batch(dsts, srcs)


def copy_pinned_to_destinations(source, destinations):
    """Copies a buffer of the host into each destination: inplace_copy_from().

    Pinned memory that ends meanwhile is not used again before the copies on all devices are done.

    Parameters
    ----------
    source : Buffer
        On the host.
    destinations : iterable of Buffer
        Of the source's dtype and count of elements; contiguous.

    Raises
    ------
    ValueError
        As `Buffer.inplace_copy_from`; the destinations before that one are written.
    """
    for destination in destinations:
        destination.inplace_copy_from(source)


def load_max_buffer(path):
    """The only buffer of a .max file, in memory of its own.

    Parameters
    ----------
    path : str or os.PathLike

    Returns
    -------
    Buffer

    Raises
    ------
    ValueError
        The file is malformed, or has several buffers.
    """
    return Buffer.load_max(path)
