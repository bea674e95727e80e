# SPDX-License-Identifier: MIT
"""Buffer as cuda.core has it: bytes of a memory resource, without dtype and shape."""

from .. import _hoist
from ..errors import ClosedError

_CPU, _CUDA, _CUDA_HOST, _ROCM, _ROCM_HOST, _MANAGED = 1, 2, 3, 10, 11, 13


class _End:
    """The call that gives a user's block back, with the stream that is named last."""

    def __init__(self, mr, ptr, size, stream):
        self.mr, self.ptr, self.size, self.stream = mr, ptr, size, stream

    def __call__(self):
        self.mr.deallocate(self.ptr, self.size, stream=self.stream)


class Buffer:
    """Bytes of a memory resource.

    A closed buffer has the handle and the size 0, and no resource; all else that it is asked is a
    ClosedError.  Buffers come from MemoryResource.allocate(), from_handle() and other processes; calling the
    class is a RuntimeError.  `with` closes the buffer.
    """

    __slots__ = ("_buffer", "_mr", "_owner", "_end", "_ptr", "__weakref__")

    def __init__(self, *_, **__):
        raise RuntimeError("a Buffer comes from MemoryResource.allocate() or Buffer.from_handle()")

    @classmethod
    def _make(cls, buffer, mr=None, owner=None, end=None, ptr=None):
        self = cls.__new__(cls)
        self._buffer, self._mr, self._owner, self._end = buffer, mr, owner, end
        self._ptr = buffer.address if ptr is None else ptr  # also of no bytes
        return self

    @classmethod
    def from_handle(cls, ptr, size, mr=None, owner=None, *, stream=None):
        """A Buffer over memory at an address.

        With `mr` the memory is given back by mr.deallocate(ptr, size, stream).  With neither `mr` nor
        `owner` the caller keeps the memory.

        Parameters
        ----------
        ptr : int
        size : int
            Bytes.
        mr : MemoryResource, optional
        owner : object, optional
            Kept until the buffer closes.
        stream : Stream, optional
            Orders the end of the memory; needs `mr`.

        Returns
        -------
        Buffer

        Raises
        ------
        ValueError
            Both `mr` and `owner` are given, or a stream without `mr`.
        """
        if mr is not None and owner is not None:
            raise ValueError("give mr or owner: memory has one owner")
        if stream is not None and mr is None:
            raise ValueError("a stream orders the end of a resource's memory: give mr, too")
        ptr = int(ptr)
        end = None if mr is None else _End(mr, ptr, size, stream)
        buffer = _hoist.Buffer.from_address(ptr, size, "u8", (size,), release=end)
        return cls._make(buffer, mr, owner, end, ptr)

    def close(self, stream=None):
        """Gives the memory back.  Closing again does nothing.

        Parameters
        ----------
        stream : Stream, optional
            Behind the work on this stream.
        """
        end = self._end
        if self._buffer.closed:
            return
        if end is not None:
            end.stream = end.stream if stream is None else stream
            self._buffer.close()
        else:
            self._buffer.close(stream)
        self._mr = self._owner = self._end = None

    def set_deallocation_stream(self, stream):
        """The memory goes back behind the work on a stream, whenever the buffer ends.

        Parameters
        ----------
        stream : Stream

        Raises
        ------
        RuntimeError
            The buffer is closed.
        TypeError
            `stream` is no stream.
        hoist.Error
            The stream cannot order this memory.
        """
        self._live()
        if stream is None:
            raise TypeError("set_deallocation_stream() needs a stream")
        end = self._end
        if end is not None:
            end.stream = stream
        else:
            self._buffer._free_on(stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- properties ---

    def _live(self):
        """What answers for the memory: the resource, else the buffer."""
        if self._buffer.closed:
            raise ClosedError("the buffer was closed: nothing is left of its memory")
        return self._mr or self._buffer

    @property
    def handle(self):
        """The address; 0: closed."""
        return 0 if self._buffer.closed else self._ptr

    def __int__(self):
        return self.handle

    @property
    def size(self):
        """Bytes; 0: closed."""
        return 0 if self._buffer.closed else self._buffer.nbytes

    nbytes = size

    @property
    def memory_resource(self):
        """The resource; None: the memory is another owner's, or the buffer is closed."""
        return self._mr

    @property
    def owner(self):
        """The object that from_handle() was told to keep."""
        return self._owner

    @property
    def is_closed(self):
        """True after close()."""
        return self._buffer.closed

    @property
    def is_mapped(self):
        """Whether the memory is another process's."""
        return self._buffer.is_mapped

    @property
    def is_device_accessible(self):
        """Whether an accelerator can access the memory."""
        return self._live().is_device_accessible

    @property
    def is_host_accessible(self):
        """Whether the CPU can access the memory."""
        return self._live().is_host_accessible

    @property
    def is_managed(self):
        """Whether the driver moves the memory."""
        return self._live().is_managed

    @property
    def device_id(self):
        """As the driver counts; -1: the CPU's memory."""
        return self._live().device_id

    def __eq__(self, other):
        if not isinstance(other, Buffer):
            return NotImplemented
        return (self.handle, self.size) == (other.handle, other.size)

    def __hash__(self):
        return hash((self.handle, self.size))

    def __repr__(self):
        return f"<hoist.core.Buffer: {self.size} bytes at {self.handle:#x}>"

    # --- copies ---

    def _same_size(self, other):
        self._live()
        other._live()
        if self.size != other.size:
            raise ValueError(f"the sizes differ: {self.size} and {other.size} bytes")

    def copy_to(self, dst=None, *, stream):
        """Queues a copy of this buffer.

        Parameters
        ----------
        dst : Buffer, optional
            None: a new buffer of the same resource.
        stream : Stream

        Returns
        -------
        Buffer
            The destination.

        Raises
        ------
        ValueError
            The sizes differ, or there is no resource for a new buffer.
        """
        self._live()
        if dst is None:
            mr = self._mr
            if mr is None:
                raise ValueError("the buffer has no memory resource: give dst")
            dst = mr.allocate(self.size, stream=stream)
        self._same_size(dst)
        dst._buffer.copy_from(self._buffer, stream=stream, nbytes=True)
        return dst

    def copy_from(self, src, *, stream):
        """Queues a copy into this buffer.

        Parameters
        ----------
        src : Buffer
        stream : Stream

        Raises
        ------
        ValueError
            The sizes differ.
        """
        self._same_size(src)
        self._buffer.copy_from(src._buffer, stream=stream, nbytes=True)

    def fill(self, value, width=None, *, stream):
        """Queues a fill with 1, 2 or 4 bytes that are repeated.

        Parameters
        ----------
        value : int or bytes
            0 to 255, or an object with Python's buffer protocol.
        width : {1, 2, 4}, optional
            `value` is an integer of so many bytes.
        stream : Stream

        Raises
        ------
        ValueError
            The size is no multiple of the bytes.
        OverflowError
            `value` is no byte.
        """
        self._live()
        if width is not None:
            if width not in (1, 2, 4) or not 0 <= value < 1 << 8 * width:
                raise ValueError(f"{value} in {width} bytes: give a width of 1, 2 or 4, and a value "
                                 "that fits")
            pattern = int(value).to_bytes(width, "little")
        elif isinstance(value, int):
            if not 0 <= value <= 255:
                raise OverflowError(f"{value} is no byte: 0 to 255")
            pattern = bytes([value])
        else:
            pattern = bytes(memoryview(value))
            if len(pattern) not in (1, 2, 4):
                raise ValueError(f"{len(pattern)} bytes to repeat; give 1, 2 or 4")
        if self.size % len(pattern):
            raise ValueError(f"the size, {self.size}, must be divisible by {len(pattern)}")
        if stream is not None and stream.device is not self._buffer.device:
            stream.synchronize()
            stream = None
        self._buffer.fill(pattern, stream=stream)

    # --- the buffer protocol, which cuda.core refuses, too ---

    def __buffer__(self, flags, /):
        raise NotImplementedError("a Buffer has no view of Python's buffer protocol: "
                                  "np.from_dlpack(buffer) gives an array of host memory")

    # --- DLPack ---

    def __dlpack_device__(self):
        on_device, on_host = self.is_device_accessible, self.is_host_accessible
        hip = self._buffer.device.api == "hip"
        if on_device and on_host:
            return (_MANAGED if self.is_managed else _ROCM_HOST if hip else _CUDA_HOST, 0)
        if on_device:
            return (_ROCM if hip else _CUDA, self.device_id)
        if on_host:
            return (_CPU, 0)
        raise BufferError("invalid buffer: neither the CPU nor a device can access the memory")

    def __dlpack__(self, *, stream=None, max_version=None, **request):
        """A capsule of int8, one axis.  `stream` has no effect: the consumer orders its work."""
        del stream
        self._live()
        if request.get("dl_device") is not None:
            raise BufferError("dl_device is not supported")
        if request.get("copy") is True:
            raise BufferError("copy=True is not supported; copy_to() makes a copy")
        if max_version is not None and (not isinstance(max_version, tuple) or
                                        len(max_version) != 2):
            raise BufferError("max_version is a tuple of two integers")
        self.__dlpack_device__()
        return self._buffer.view("i8").__dlpack__(
            max_version=max_version, stream=None if self._buffer.is_host else -1, **request)

    # --- other processes ---

    def get_ipc_descriptor(self):
        """The description of the buffer for another process.

        Raises RuntimeError if the resource is not IPC-enabled.
        """
        from .ipc import describe  # pylint: disable=import-outside-toplevel
        return describe(self)

    ipc_descriptor = property(get_ipc_descriptor)

    @classmethod
    def from_ipc_descriptor(cls, mr, ipc_buffer, stream=None):
        """The buffer of another process, in a resource that came from there.

        Parameters
        ----------
        mr : DeviceMemoryResource
        ipc_buffer : IPCBufferDescriptor
        stream : Stream, optional
            Has no effect.

        Returns
        -------
        Buffer

        Raises
        ------
        RuntimeError
            The resource is not IPC-enabled.
        TypeError, ValueError
            `ipc_buffer` is no descriptor, or a malformed one.
        hoist.Error
            The descriptor is another resource's.
        """
        from .ipc import from_descriptor  # pylint: disable=import-outside-toplevel
        del stream
        return from_descriptor(cls, mr, ipc_buffer)

    def __reduce__(self):
        return Buffer.from_ipc_descriptor, (self._mr, self.get_ipc_descriptor())
