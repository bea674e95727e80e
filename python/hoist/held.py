# SPDX-License-Identifier: MIT
"""The program's memory that loads in place have filled: range of addresses -> a record of the filler's.

A load in place writes to memory, so the records of ranges that the load touches end when the load
starts.  Addresses of devices and of the host are one space here.  Two devices may use one address:
then a record ends too early, and its tensor is read once more.
"""

import bisect
import os
import threading


def range_of(buffer):
    """The addresses of a Buffer's elements, (begin, end); equal: there are none."""
    begin, size = buffer.address, buffer.nbytes
    if size == 0 or buffer.is_contiguous:
        return begin, begin + size
    item = -(-size // buffer.size)
    steps = [(extent - 1) * stride * item for extent, stride in zip(buffer.shape, buffer.strides)]
    return begin + sum(min(step, 0) for step in steps), begin + sum(max(step, 0) for step in steps) + item


class Held:
    """Records of ranges that do not overlap.  Any thread may call."""

    def __init__(self):
        self._lock = threading.Lock()
        self._begins = []  # in order
        self._records = {}  # {begin: (end, record)}

    def __len__(self):
        return len(self._begins)

    def _drop(self, begin, end):
        first = bisect.bisect_left(self._begins, begin)
        if first > 0 and self._records[self._begins[first - 1]][0] > begin:
            first -= 1
        last = bisect.bisect_left(self._begins, end, first)
        if first < last:
            for begin in self._begins[first:last]:
                del self._records[begin]
            del self._begins[first:last]

    def drop(self, ranges):
        """Ends the records of all ranges that overlap one of these, (begin, end)."""
        with self._lock:
            for begin, end in ranges:
                if begin < end:
                    self._drop(begin, end)

    def put(self, records):
        """Keeps records of ranges, (begin, end, record), each in place of those that overlap its range."""
        with self._lock:
            for begin, end, record in records:
                self._drop(begin, end)
                bisect.insort(self._begins, begin)
                self._records[begin] = end, record

    def find(self, begin):
        """The record of the range that begins there; None: there is none."""
        with self._lock:
            return self._records.get(begin, (None, None))[1]

    def prune(self, is_over):
        """Ends the records of which `is_over(record)` is true."""
        with self._lock:
            self._records = {begin: value for begin, value in self._records.items()
                             if not is_over(value[1])}
            self._begins = sorted(self._records)


    def renew(self):
        """Ends all records, in a child of fork: another thread may have held the lock, and been at work."""
        self.__init__()


HELD = Held()
os.register_at_fork(after_in_child=HELD.renew)


def forget(buffers):
    """Ends the records of the memory of Buffers, to which a load will write."""
    if HELD:
        HELD.drop(list(map(range_of, buffers)))
