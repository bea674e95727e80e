# SPDX-License-Identifier: MIT
"""DType: the element types by the names and the numbers that MAX gives them."""

import enum

from . import _hoist


class DType(enum.Enum):
    """A type of elements.  The values are the bytes that .max files have."""

    bool = 1
    int8 = 135
    int16 = 137
    int32 = 139
    int64 = 141
    uint8 = 134
    uint16 = 136
    uint32 = 138
    uint64 = 140
    float16 = 79
    bfloat16 = 80
    float32 = 81
    float64 = 82
    float8_e8m0fnu = 73
    float8_e4m3fn = 75
    float8_e4m3fnuz = 76
    float8_e5m2 = 77
    float8_e5m2fnuz = 78
    float6_e2m3fn = 65
    float6_e3m2fn = 66
    float4_e2m1fn = 64

    __hash__ = enum.Enum.__hash__

    def __repr__(self):
        return self._name_

    def __eq__(self, other):
        """A DType equals its own name, too: `dtype == "float32"`."""
        return self is other or (isinstance(other, str) and other == self._name_)

    @property
    def hoist_name(self):
        """The name that hoist.Buffer has for the type: "f32"."""
        return _INFO[self._value_]["name"]

    @property
    def size_in_bits(self):
        """Bits of one element."""
        return _INFO[self._value_]["bits"]

    @property
    def size_in_bytes(self):
        """Bytes of one element; a part of a byte counts as a byte."""
        return (self.size_in_bits + 7) // 8

    @property
    def align(self):
        """The element's natural alignment in bytes."""
        return _INFO[self._value_]["align"]

    def is_integral(self):
        """Whether the elements are integers."""
        return self._value_ & 0x80 != 0

    def is_signed_integral(self):
        """Whether the elements are integers with a sign."""
        return self.is_integral() and self._value_ & 1 == 1

    def is_unsigned_integral(self):
        """Whether the elements are integers without a sign."""
        return self.is_integral() and self._value_ & 1 == 0

    def is_float(self):
        """Whether the elements are floats, of 4 bits or more."""
        return self._value_ & 0xC0 == 0x40

    def is_float8(self):
        """Whether the elements are floats of 8 bits."""
        return self.is_float() and self.size_in_bits == 8

    def is_half(self):
        """Whether the elements are floats of 16 bits."""
        return self in (DType.float16, DType.bfloat16)

    def to_numpy(self):
        """NumPy's dtype.

        Returns
        -------
        numpy.dtype

        Raises
        ------
        ValueError
            NumPy itself lacks the type.
        """
        import numpy  # pylint: disable=import-outside-toplevel
        if not _INFO[self._value_]["numpy_native"]:
            raise ValueError(f"NumPy has no {self._name_}")
        return numpy.dtype(_INFO[self._value_]["numpy"])

    @classmethod
    def from_numpy(cls, dtype):
        """The type that NumPy or ml_dtypes calls so.

        Parameters
        ----------
        dtype : numpy.dtype or what makes one

        Returns
        -------
        DType

        Raises
        ------
        ValueError
            There is none.
        """
        import numpy  # pylint: disable=import-outside-toplevel
        return of(numpy.dtype(dtype).name)


_INFO = {dtype._value_: _hoist.dtype_info(str(dtype)) for dtype in DType}
_BY_NAME = {_INFO[dtype._value_]["name"]: dtype for dtype in DType}
_NATIVE = frozenset(info["name"] for info in _INFO.values() if info["numpy_native"])
_OF_ARRAYS = {}  # NumPy's dtype: the DType's hoist_name


def of(dtype):
    """The DType of a DType, or of a name: "f32", "float32", "torch.float32", a NumPy dtype.

    Raises ValueError if there is none: DType has no complex types and no block types.
    """
    if dtype.__class__ is DType:
        return dtype
    found = _BY_NAME.get(dtype)
    if found is None:
        name = dtype.__name__ if isinstance(dtype, type) else str(dtype)
        found = _BY_NAME.get(_hoist.dtype_info(name)["name"])
    if found is None:
        raise ValueError(f"MAX has no dtype {dtype}; hoist.Buffer has")
    return found


def name_of_array(array):
    """The hoist_name of a NumPy array's elements; each dtype is looked up once."""
    name = _OF_ARRAYS.get(array.dtype)
    if name is None:
        name = _OF_ARRAYS[array.dtype] = of(array.dtype).hoist_name
    return name
