# SPDX-License-Identifier: MIT
"""Views of other libraries' arrays, as cuda.core.utils has them."""

import functools

from .. import _hoist
from ..errors import UnsupportedError
from .buffer import Buffer

_Buffer = _hoist.Buffer
_CPU, _CUDA, _CUDA_HOST, _ROCM, _ROCM_HOST, _MANAGED = 1, 2, 3, 10, 11, 13


def _dlpack_stream(device_type, stream_ptr):
    """What a producer is told, for the stream that the caller of a view gave."""
    if device_type in (_CPU, _CUDA, _ROCM) and stream_ptr is None:
        raise BufferError("stream_ptr=None is ambiguous for this device; pass -1 to have no "
                          "synchronization, or the stream that will use the memory")
    if device_type == _CPU:
        if stream_ptr not in (-1, 0):
            raise BufferError("memory of the CPU has no stream; pass -1")
        return None
    return None if stream_ptr == 0 and device_type == _CUDA else stream_ptr


class _Producer:
    """An array whose `__dlpack__` is called with the stream that the caller of a view gave."""

    def __init__(self, array, stream):
        self._array, self._stream = array, stream

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **request):
        del stream  # the view's caller orders the work
        return self._array.__dlpack__(stream=self._stream, **request)


def _import_dlpack(array, stream_ptr):
    device_type = int(array.__dlpack_device__()[0])
    if device_type not in (_CPU, _CUDA, _CUDA_HOST, _ROCM, _ROCM_HOST, _MANAGED):
        raise BufferError(f"device not supported: type {device_type}")
    return _Buffer.from_dlpack(_Producer(array, _dlpack_stream(device_type, stream_ptr)))


def _import_array(array):
    """Host memory of an array: also read-only memory, which older DLPack cannot pass."""
    return _Buffer.from_buffer(array)


def _import_cai(array, stream_ptr):
    if stream_ptr is None:
        raise BufferError("stream_ptr=None is ambiguous for the CUDA Array Interface; pass -1 to "
                          "have no synchronization, or the stream that will use the memory")
    fields = array.__cuda_array_interface__
    if fields["version"] < 3:
        raise BufferError(f"version {fields['version']} of the CUDA Array Interface; 3 is needed")
    if fields.get("mask") is not None:
        raise BufferError("the array has a mask")
    stream = None
    if stream_ptr > 0:
        device = _Buffer.from_cuda_array_interface(array, sync=False).device
        stream = _hoist.Stream(device, stream_ptr)
    return _Buffer.from_cuda_array_interface(array, stream=stream, sync=stream_ptr != -1)


def _is_numpy(array):
    return hasattr(array, "__array_interface__") and not hasattr(array, "__cuda_array_interface__")


@_hoist.add_exchange_table
class StridedMemoryView:
    """Where an array's elements lie: address, shape, strides in elements, dtype, device.

    A view keeps the array.

    Parameters
    ----------
    obj : object, optional
        With `__dlpack__` or `__cuda_array_interface__`.
    stream_ptr : int, optional
        The stream that will use the memory: the producer's work is ordered before it; -1: no
        synchronization.

    Raises
    ------
    BufferError
        No stream was said; the device or the version is not supported.
    RuntimeError
        The object has neither DLPack nor the CUDA Array Interface.
    """

    __slots__ = ("_buffer", "_layout", "_dtype", "_object", "_readonly", "_lent")

    def __init__(self, obj=None, stream_ptr=None):
        self._buffer = self._layout = self._dtype = self._object = None
        self._lent = []
        self._readonly = False
        if obj is not None:
            self._import(obj, stream_ptr)

    def _import(self, obj, stream_ptr):
        if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
            if _is_numpy(obj) and int(obj.__dlpack_device__()[0]) == _CPU:
                _dlpack_stream(_CPU, stream_ptr)
                buffer = _import_array(obj)
            else:
                buffer = _import_dlpack(obj, stream_ptr)
        elif hasattr(obj, "__cuda_array_interface__"):
            buffer = _import_cai(obj, stream_ptr)
        else:
            raise RuntimeError("the object has neither DLPack nor the CUDA Array Interface")
        self._over(buffer, obj)

    def _over(self, buffer, obj):
        """This view, of all of a buffer that was imported from `obj`."""
        self._set(buffer, _layout_of(buffer), buffer.dtype, obj, buffer.is_read_only)
        return self

    def _set(self, buffer, layout, dtype, obj, readonly):
        self._buffer, self._layout, self._dtype, self._object = buffer, layout, dtype, obj
        self._readonly = readonly

    @classmethod
    def from_dlpack(cls, obj, stream_ptr=None):
        """A view of an array that speaks DLPack.

        Parameters
        ----------
        obj : object
        stream_ptr : int, optional
            As the class.

        Returns
        -------
        StridedMemoryView
        """
        return cls()._over(_import_dlpack(obj, stream_ptr), obj)

    @classmethod
    def from_array_interface(cls, obj):
        """A view of an array of the host.

        Parameters
        ----------
        obj : object
            With Python's buffer protocol.

        Returns
        -------
        StridedMemoryView
        """
        return cls()._over(_import_array(obj), obj)

    @classmethod
    def from_cuda_array_interface(cls, obj, stream_ptr=None):
        """A view of an array with the CUDA Array Interface.

        Parameters
        ----------
        obj : object
        stream_ptr : int, optional
            As the class.

        Returns
        -------
        StridedMemoryView
        """
        return cls()._over(_import_cai(obj, stream_ptr), obj)

    @classmethod
    def from_any_interface(cls, obj, stream_ptr=None):
        """A view by whichever interface the object has.

        Parameters
        ----------
        obj : object
        stream_ptr : int, optional
            As the class.

        Returns
        -------
        StridedMemoryView

        Raises
        ------
        BufferError
            The object has neither DLPack nor the CUDA Array Interface.
        """
        if not _has_interface(obj):
            raise BufferError(f"{type(obj).__name__} has neither DLPack nor the CUDA Array Interface")
        return cls(obj, stream_ptr)

    @classmethod
    def from_buffer(cls, buffer, shape, dtype=None, is_readonly=False, *, strides=None,
                    itemsize=None):
        """A view of a Buffer's bytes as items.

        Parameters
        ----------
        buffer : Buffer or hoist.Buffer
        shape : StridedLayout or sequence of int
            The layout, or its extents.
        dtype : str or dtype, optional
            Of the size of the layout's items.
        is_readonly : bool
        strides : sequence of int, optional
            With extents: in items; None: C order.
        itemsize : int, optional
            With extents: the bytes of an item, where the dtype does not say them.

        Returns
        -------
        StridedMemoryView

        Raises
        ------
        ValueError
            The items need more bytes than the buffer has, or the dtype has another size.
        """
        layout = _layout_from(shape, strides, itemsize, dtype)
        base = getattr(buffer, "_buffer", buffer)
        needed = layout.required_size_in_bytes()
        if needed > base.nbytes:
            raise ValueError(f"the layout needs at least {needed} bytes, got {base.nbytes}")
        _check_size(layout, dtype)
        ret = cls()
        ret._set(base, layout, dtype, buffer, is_readonly)
        return ret

    def view(self, layout=None, dtype=None):
        """The same memory with another layout or dtype; this object if both are None.

        Parameters
        ----------
        layout : StridedLayout, optional
        dtype : str or dtype, optional

        Returns
        -------
        StridedMemoryView

        Raises
        ------
        ValueError
            The dtype has another size than the layout's items.
        """
        if layout is None and dtype is None:
            return self
        layout = self._layout if layout is None else layout
        dtype = self._dtype if dtype is None else dtype
        _check_size(layout, dtype)
        ret = StridedMemoryView()
        ret._set(self._buffer, layout, dtype, self._object, self._readonly)
        return ret

    @property
    def layout(self):
        """The StridedLayout."""
        return self._layout

    @property
    def shape(self):
        """The extents."""
        return self._layout.shape

    @property
    def strides(self):
        """In elements; None: C order."""
        return self._layout.strides

    @property
    def size(self):
        """The number of elements."""
        return self._layout.volume

    @property
    def dtype(self):
        """NumPy's dtype, or hoist's name of a type that NumPy lacks; None: none was given."""
        if self._dtype is None:
            return None
        from ..numpy import _dtype_of  # pylint: disable=import-outside-toplevel
        try:
            return _dtype_of(str(self._dtype))
        except (TypeError, ValueError):
            return self._dtype

    @property
    def ptr(self):
        """The first element's address."""
        return self._buffer.address + self._layout.slice_offset_in_bytes

    def _source(self):
        """What says whose memory it is: for a Buffer of this package, its resource."""
        return self._object if isinstance(self._object, Buffer) else self._buffer

    @property
    def device_id(self):
        """As the driver counts; -1: the CPU's memory."""
        return self._source().device_id

    @property
    def is_device_accessible(self):
        """Whether an accelerator can access the memory."""
        return self._source().is_device_accessible

    @property
    def readonly(self):
        """Whether the memory must not be written to."""
        return self._readonly

    @property
    def exporting_obj(self):
        """The object that the view is of."""
        return self._object

    def _typed(self):
        if self._dtype is None:
            raise BufferError("the view has no dtype; view(dtype=...) gives it one")
        ret = self._buffer._with_layout(self._layout, str(self._dtype))
        return ret.read_only() if self._readonly else ret

    def _exchanged(self):
        """The Buffer that the exchange table reads, whose shape and strides are there as long as the view."""
        if not self._lent:
            self._lent.append(self._typed())
        return self._lent[0]  # one for all threads, which may have added several

    def __dlpack__(self, **request):
        """A capsule over the view's memory; the arguments are those of `hoist.Buffer.__dlpack__()`."""
        return self._typed().__dlpack__(**request)

    def __dlpack_device__(self):
        return self._buffer.__dlpack_device__()

    def copy_from(self, other, stream, allocator=None, blocking=None):
        """Copies the elements of another view.

        Parameters
        ----------
        other : StridedMemoryView
        stream : Stream
            The copy is queued there.
        allocator : MemoryResource, optional
            Has no effect.
        blocking : bool, optional
            Whether the call waits for the copy; None: it waits if the CPU can touch either memory.

        Raises
        ------
        BufferError
            A view has no dtype, or this one is read-only.
        ValueError
            The dtypes or the numbers of elements differ.
        """
        del allocator
        self._typed().copy_from(other._typed(), stream=stream)
        host = self._buffer.is_host_accessible or other._buffer.is_host_accessible
        if blocking or (blocking is None and host):
            stream.synchronize()

    def copy_to(self, other, stream, allocator=None, blocking=None):
        """As other.copy_from(self, ...).

        Parameters
        ----------
        other : StridedMemoryView
        stream : Stream
        allocator : MemoryResource, optional
        blocking : bool, optional
            As in `copy_from()`.
        """
        other.copy_from(self, stream, allocator, blocking)

    def __repr__(self):
        if self._layout is None:
            return "StridedMemoryView()"
        return (f"StridedMemoryView(ptr={self.ptr}, shape={self.shape}, strides={self.strides}, "
                f"dtype={self._dtype}, device_id={self.device_id}, is_device_accessible="
                f"{self.is_device_accessible}, readonly={self.readonly}, "
                f"exporting_obj={type(self._object).__name__})")


def _view_over(buffer):
    """The view of a tensor that the exchange table was given."""
    return StridedMemoryView()._over(buffer, buffer)


def _check_size(layout, dtype):
    bits = None if dtype is None else _hoist.dtype_info(str(dtype))["bits"]
    if bits is not None and bits != 8 * layout.itemsize:
        raise ValueError(f"{dtype} has {bits} bits, the layout's items {layout.itemsize} bytes")


def _layout_of(buffer):
    bits = _hoist.dtype_info(buffer.dtype)["bits"]
    if bits % 8:
        raise ValueError(f"elements of {bits} bits are no whole bytes")
    # As older releases: C order has no strides of its own.
    strides = None if buffer.is_contiguous else buffer.strides
    return _hoist.StridedLayout(buffer.shape, strides, bits // 8)


def _layout_from(shape, strides, itemsize, dtype):
    """The layout of the arguments of from_buffer()."""
    if isinstance(shape, _hoist.StridedLayout):
        if strides is not None or itemsize is not None:
            raise ValueError("a StridedLayout has strides and an itemsize of its own")
        return shape
    if itemsize is None:
        if dtype is None:
            raise ValueError("give dtype or itemsize: the bytes of an item")
        itemsize = _hoist.dtype_info(str(dtype))["bits"] // 8
    return _hoist.StridedLayout(shape, strides, itemsize)


def _has_interface(obj):
    return (hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__")) or \
        hasattr(obj, "__cuda_array_interface__")


def copy_batch(stream, srcs, dsts, *, options=None):
    """Queues copies of several buffers, whose bytes must be as many in pairs.

    Parameters
    ----------
    stream : Stream
    srcs, dsts : sequence of Buffer
    options : None
        hoist has no options of copies.

    Raises
    ------
    TypeError
        A single Buffer is given, no stream, or what is no Buffer.
    ValueError
        The numbers of buffers or of bytes differ, or there are no buffers.
    UnsupportedError
        `options` are given.
    """
    if stream is None:
        raise TypeError("copy_batch() needs a stream")
    if isinstance(srcs, Buffer) or isinstance(dsts, Buffer):
        raise TypeError("copy_batch() takes sequences of Buffers; copy_to() copies one")
    if options is not None:
        raise UnsupportedError("hoist has no options of copies: leave out options, or copy one by one")
    srcs, dsts = list(srcs), list(dsts)
    if len(srcs) != len(dsts) or not srcs:
        raise ValueError(f"{len(srcs)} sources and {len(dsts)} destinations")
    for src, dst in zip(srcs, dsts):
        if not isinstance(src, Buffer) or not isinstance(dst, Buffer):
            raise TypeError("copy_batch() copies hoist.core's Buffers")
        dst._same_size(src)
    _hoist.copy_batch([dst._buffer for dst in dsts], [src._buffer for src in srcs], stream)


class _Argument:
    """An argument of a decorated function, which becomes a view once the stream is known."""

    def __init__(self, obj):
        if not _has_interface(obj):
            raise RuntimeError(f"{type(obj).__name__} has neither DLPack nor the CUDA Array "
                               "Interface")
        self._obj = obj

    def view(self, stream_ptr=None):
        """The StridedMemoryView."""
        return StridedMemoryView(self._obj, stream_ptr)


def args_viewable_as_strided_memory(arg_indices):
    """A decorator: positional arguments reach the function as objects with `view(stream_ptr)`.

    Parameters
    ----------
    arg_indices : sequence of int
        Their places.

    Returns
    -------
    callable

    Raises
    ------
    RuntimeError
        When the function is called: an object has no interface.
    """
    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **keywords):
            args = list(args)
            for index in arg_indices:
                args[index] = _Argument(args[index])
            return function(*args, **keywords)
        return wrapped
    return decorate
