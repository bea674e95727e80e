# SPDX-License-Identifier: MIT
"""hoist.core beside cuda.core: fixed calls of resources, processes and views, and the same answers.

The random calls are in peers_core.py, whose head says how both run on the stand-in for libcuda.
WANTED has the differences that are meant.
"""

import ctypes
import multiprocessing
import unittest

import peers_core
from peers_core import MISSING, attempt, differences

if MISSING is None:
    import numpy as np
    import cuda.core as theirs
    import hoist.core as ours

# The differences that are meant, by the call's path: the reason.
_POOLS = "hoist's memory of this kind is no pool of the driver's"
WANTED = {
    "attributes.pinned.is_mapped": _POOLS, "attributes.pinned.is_handle_owned": _POOLS,
    "attributes.pinned.names": _POOLS,
    "attributes.managed.is_ipc_enabled": _POOLS, "attributes.managed.is_mapped": _POOLS,
    "attributes.managed.is_handle_owned": _POOLS, "attributes.managed.names": _POOLS,
    "attributes.threshold": "a pool of hoist's keeps its memory until it ends or is trimmed",
    "attributes.set": "hoist sets what the driver lets be set; cuda.core 1.2 sets nothing",
    "graph_memory.outside": "a ValueError in hoist",
    "views.too large, exported": "hoist exports no elements that lie outside of the memory",
    "decorator.no array": "the vector V209 says RuntimeError, as older releases of cuda.core",
}


def child(own, mr, buffer, pipe):
    """Another process: the resource and the buffer have crossed; reads the bytes and writes others."""
    side = peers_core.our_side() if own else peers_core.their_side()
    pipe.send((mr.is_mapped, buffer.is_mapped, buffer.size, side.read(buffer)))
    buffer.fill(9, stream=side.stream)
    side.wait()
    pipe.send((attempt(lambda: mr.allocate(8, stream=side.stream)),
               attempt(lambda: buffer.memory_resource is mr)))
    buffer.close(side.stream)
    side.wait()


class Calls:
    """The calls of one package.  Each gives a dict of answers, failures among them."""

    def __init__(self, side):
        self.side, self.module, self.stream = side, side.module, side.stream

    def attributes(self):
        """Of pools: names and what they say, with a buffer and after a change."""
        ret = {}
        for kind in ("own", "pinned", "managed"):
            mr = self.side.resources[kind]
            ret[kind] = {name: attempt(getattr, mr, name) for name in (
                "is_device_accessible", "is_host_accessible", "is_ipc_enabled", "is_mapped",
                "is_handle_owned", "device_id", "is_managed")}
            ret[kind]["names"] = attempt(lambda mr=mr: sorted(
                n for n in dir(mr.attributes) if not n.startswith("_")))
        mr = self.side.resources["own"]
        buffer = mr.allocate(4096, stream=self.stream)
        ret["used"] = attempt(lambda: mr.attributes.used_mem_current >= 4096)
        ret["threshold"] = attempt(lambda: mr.attributes.release_threshold)
        ret["reuse"] = attempt(lambda: mr.attributes.reuse_allow_opportunistic)
        ret["set"] = attempt(setattr, mr.attributes, "release_threshold", 1 << 16)
        ret["unknown"] = attempt(getattr, mr.attributes, "nothing")
        ret["peers"] = attempt(lambda: tuple(mr.peer_accessible_by))
        buffer.close(self.stream)
        return ret

    def graph_memory(self):
        """One resource for each device; its memory is for graphs alone."""
        cls = self.module.GraphMemoryResource
        mr = cls(self.side.device)
        return {"same": mr is cls(self.side.device),
                "properties": (mr.is_device_accessible, mr.is_host_accessible, mr.device_id),
                "names": sorted(n for n in dir(mr.attributes) if not n.startswith("_")),
                "high": attempt(lambda: mr.attributes.used_mem_high),
                "trim": attempt(mr.trim),
                "outside": attempt(lambda: mr.allocate(64, stream=self.stream))}

    def subclass(self):
        """A resource in Python: who calls deallocate, and with what."""
        class Own(self.module.MemoryResource):
            """Host memory."""
            def __init__(self):
                self.log, self.memory = [], {}

            def allocate(self, size, *, stream=None):
                memory = ctypes.create_string_buffer(size)
                self.memory[ctypes.addressof(memory)] = memory
                return self.module.Buffer.from_handle(ctypes.addressof(memory), size, mr=self)

            def deallocate(self, ptr, size, *, stream=None):
                self.log.append((size, int(ptr) in self.memory))
                del self.memory[int(ptr)]

            is_host_accessible = property(lambda self: True)
            is_device_accessible = property(lambda self: False)
            device_id = property(lambda self: -1)

        Own.module = self.module
        mr = Own()
        buffer = mr.allocate(10)
        ret = {"properties": (buffer.size, buffer.is_host_accessible, buffer.is_device_accessible,
                              buffer.device_id, buffer.memory_resource is mr),
               "view": attempt(lambda: np.from_dlpack(buffer).tolist())}
        buffer.close()
        ret["closed"] = (list(mr.log), buffer.memory_resource, int(buffer.handle))
        ret["again"] = attempt(buffer.close)
        buffer = mr.allocate(20)
        del buffer
        ret["dropped"] = list(mr.log)
        return ret

    def processes(self):
        """A pool that another process maps: the bytes, both ways."""
        module = self.module
        mr = module.DeviceMemoryResource(self.side.device, {"max_size": 1 << 20, "ipc_enabled": True})
        buffer = mr.allocate(64, stream=self.stream)
        buffer.fill(5, stream=self.stream)
        self.side.wait()
        ret = {"enabled": mr.is_ipc_enabled, "mapped": (mr.is_mapped, buffer.is_mapped),
               "handle": attempt(lambda: int(mr.allocation_handle) >= 0)}
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=child, args=(module is ours, mr, buffer, there))
        process.start()
        there.close()
        ret["there"] = attempt(here.recv)
        ret["end"] = attempt(here.recv)
        process.join(60)
        ret["exit"] = process.exitcode
        ret["bytes"] = self.side.read(buffer)[:4]
        return ret

    def views(self):
        """Other dtypes and layouts.  cuda.core 1.2 has no copies between views."""
        array = np.arange(12, dtype="f4").reshape(3, 4)
        view = self.side.view.from_any_interface(array, stream_ptr=-1)
        other = view.view(None, np.dtype("i4"))
        return {"as i4": (np.dtype(other.dtype).str, tuple(other.shape)),
                "as f8": attempt(view.view, None, np.dtype("f8")),
                "as 2 x 6": attempt(
                    lambda: np.from_dlpack(view.view(self.side.layout((2, 6), None, 4))).tolist()),
                "too large": attempt(lambda: view.view(self.side.layout((5, 6), None, 4)).size),
                "too large, exported": attempt(
                    lambda: repr(view.view(self.side.layout((5, 6), None, 4)).__dlpack__()).split(" at ")[0])}

    def decorator(self):
        """Arguments that become views."""
        decorate = (theirs.utils if self.module is theirs else ours.utils).args_viewable_as_strided_memory

        @decorate((0, 2))
        def function(a, b, c, d=1):
            return tuple(a.view(-1).shape), b, tuple(c.view(-1).shape), d

        array = np.zeros((2, 3))
        return {"all": function(array, 5, array.T, d=7),
                "missing": attempt(function, array),
                "no array": attempt(function, array, 1, 2),
                "name": function.__name__}


@unittest.skipIf(MISSING, MISSING)
class Core(unittest.TestCase):
    """The same calls on both sides."""

    @classmethod
    def setUpClass(cls):
        cls.sides = peers_core.their_side(), peers_core.our_side()

    def both(self, name):
        expected, got = (attempt(getattr(Calls(side), name)) for side in self.sides)
        found = differences(name, expected, got)
        self.assertEqual(sorted(path for path, _, _ in found if path in WANTED),
                         sorted(path for path in WANTED if path.startswith(name + ".")),
                         "differences that are wanted are gone")
        lines = [f"{path}: cuda.core {one!r}, hoist.core {other!r}"
                 for path, one, other in found if path not in WANTED]
        self.assertFalse(lines, "\n" + "\n".join(lines))


for _name in ("attributes", "graph_memory", "subclass", "processes", "views", "decorator"):
    setattr(Core, f"test_{_name}", lambda self, name=_name: self.both(name))


if __name__ == "__main__":
    unittest.main()
