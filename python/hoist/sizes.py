# SPDX-License-Identifier: MIT
"""Sizes in bytes, as numbers or as texts."""

import operator

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size(value):
    """The bytes that `value` means: an integer, or a text such as "256M", "2G" or "1.5GiB".

    Units are powers of 1024.  Raises ValueError for any other text, and for a negative number.
    """
    if not isinstance(value, str):
        n = operator.index(value)
        if n < 0:
            raise ValueError(f"{n} is no size: give 0 or more bytes")
        return n
    text = value.strip().upper()
    number = text.rstrip("KMGTIB")
    unit = text[len(number) :]
    if unit.endswith("IB") and len(unit) == 3:
        unit = unit[0]
    elif unit == "B":
        unit = ""
    try:
        n = float(number)
    except ValueError:
        n = -1.0
    if unit not in _UNITS or not 0 <= n < 2**63 or n != n:
        raise ValueError(f"{value!r} is no size: give a number of bytes, or one with K, M, G or T")
    return int(n * (1 << _UNITS[unit]))
