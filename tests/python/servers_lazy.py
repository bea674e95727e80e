# SPDX-License-Identifier: MIT
"""hoist.lazy: views of tensors in a file read nothing; what is used is read, and no more than a view's box."""

import copy
import os
import pickle
import random
import tempfile
import unittest
from unittest import mock

import torch

import hoist
import hoist.torch
from hoist.lazy import Lazy, Source, box_of


class Elsewhere(torch.Tensor):
    """A tensor that says that it is on another device; its memory, `inner`, is on the host."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: self.where)

    @staticmethod
    def __new__(cls, inner, device):
        ret = torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype,
                                                  storage_offset=inner.storage_offset())
        ret.inner, ret.where = inner, torch.device(device)
        return ret

    def __init__(self, inner, device):
        pass

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if any(issubclass(kind, Lazy) for kind in types):
            return NotImplemented
        made = func(*(one.inner if isinstance(one, cls) else one for one in args), **(kwargs or {}))
        return args[0] if made is args[0].inner else cls(made, args[0].device)


def bits(tensor):
    """The elements' bytes in C order."""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
    return flat.view(torch.uint8).tolist()


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        torch.manual_seed(5)
        self.tensors = {"cube": torch.randn(16, 12, 8), "half": torch.randn(300, 7).bfloat16(),
                        "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4),
                        "fp8": torch.randn(6, 32).to(torch.float8_e4m3fn),
                        "flags": torch.randint(0, 2, (40,), dtype=torch.bool)}
        path = os.path.join(folder.name, "t.safetensors")
        hoist.torch.save_file(self.tensors, path)
        self.reports = []
        self.checkpoint = hoist.open(path)
        self.source = Source(self.checkpoint, self.reports.append)
        self.lazy = {name: self.source.lazy(name) for name in self.tensors}

    def read_bytes(self):
        ret = sum(report["bytes"] for report in self.reports)
        self.reports.clear()
        return ret


class Views(Base):
    def check(self, view, most=1.0):
        """The view has the elements that it has of a tensor in memory, and reads at most `most` times
        their bytes."""
        for name in ("cube", "half"):
            with self.subTest(name=name):
                wanted = view(self.tensors[name])
                got = view(self.lazy[name])
                self.assertIsInstance(got, Lazy)
                self.assertEqual(self.read_bytes(), 0)
                self.assertEqual((got.shape, got.stride(), got.dtype), (wanted.shape, wanted.stride(), wanted.dtype))
                self.assertTrue(torch.equal(got.clone(), wanted))
                self.assertLessEqual(self.read_bytes(), most * wanted.numel() * wanted.element_size())

    def test_what_servers_slice_is_read_alone(self):
        self.check(lambda t: t.narrow(0, 3, 5))
        self.check(lambda t: t.narrow(1, 2, 4))
        self.check(lambda t: t[2])
        self.check(lambda t: t[1:9, 3:5])
        self.check(lambda t: t[..., -1:])
        self.check(lambda t: t.chunk(4, dim=0)[2])
        self.check(lambda t: t.split([1, 2, 4], dim=1)[1] if t.shape[1] == 7 else t.split(3, dim=1)[2])
        self.check(lambda t: t.unbind(0)[7])
        self.check(lambda t: t.transpose(0, 1)[2:4])
        self.check(lambda t: t.unsqueeze(0).narrow(1, 1, 2).squeeze(0))
        self.check(lambda t: t.data.detach()[4:6])

    def test_a_view_as_another_type_of_that_size_is_read_alone(self):
        same = {4: torch.int32, 2: torch.int16}
        self.check(lambda t: t.view(same[t.element_size()])[2:5])
        self.check(lambda t: t[1:9, 3:5].view(same[t.element_size()]))
        self.assertNotIsInstance(self.lazy["fp8"].view(torch.int16), Lazy)  # of fewer elements: read
        self.assertEqual(bits(self.lazy["fp8"].view(torch.int16)), bits(self.tensors["fp8"]))

    def test_views_of_other_dimensions_are_right(self):
        self.check(lambda t: t.reshape(2, -1, *t.shape[1:])[1])
        self.check(lambda t: t.flatten()[10:40], most=4)
        self.check(lambda t: t.reshape(t.shape[0], -1)[3:5, 1:6], most=20)
        self.check(lambda t: t[::3, ::2], most=6)
        self.check(lambda t: t[:3].expand(2, *t[:3].shape))

    def test_any_chain_of_views_is_right(self):
        """Seeded: random slices, selections, transpositions, foldings and unfoldings."""
        seed = int(os.environ.get("HOIST_TEST_SEED") or random.randrange(2**31))
        rng = random.Random(seed)
        for number in range(400):
            name = rng.choice(["cube", "half", "fp8", "flags"])
            lazy, real = self.lazy[name], self.tensors[name]
            for _ in range(rng.randrange(6)):
                lazy, real = self.step(rng, lazy, real)
            self.assertEqual(bits(lazy.clone()), bits(real), f"HOIST_TEST_SEED={seed}: chain {number} of {name}")

    @staticmethod
    def step(rng, lazy, real):
        """Both after the same view."""
        if real.ndim == 0:
            return lazy.unsqueeze(0), real.unsqueeze(0)
        axis, kind = rng.randrange(real.ndim), rng.randrange(5)
        if kind == 0 and real.shape[axis] > 0:
            at = rng.randrange(real.shape[axis])
            return lazy.select(axis, at), real.select(axis, at)
        if kind == 1:
            return lazy.transpose(0, axis), real.transpose(0, axis)
        if kind == 2 and real.is_contiguous():
            return lazy.view(-1), real.view(-1)
        if kind == 3 and real.is_contiguous() and real.shape[0] % 2 == 0 and real.shape[0] > 0:
            return lazy.unflatten(0, (2, -1)), real.unflatten(0, (2, -1))
        begin = rng.randrange(real.shape[axis] + 1)
        index = [slice(None)] * axis + [slice(begin, rng.randrange(begin, real.shape[axis] + 1), rng.choice([1, 1, 2]))]
        return lazy[tuple(index)], real[tuple(index)]

    def test_the_box_of_a_view(self):
        self.assertEqual(box_of((4, 6), (2, 3), (6, 1), 14), ([(2, 4), (2, 5)], [(0, 1), (1, 1)], 0))
        self.assertEqual(box_of((4, 6), (4,), (6,), 5)[0], [(0, 4), (5, 6)])
        self.assertEqual(box_of((4, 6), (8,), (1,), 3)[0], [(0, 2), (0, 6)])  # ends in the next row


class Uses(Base):
    def test_a_copy_into_a_tensor_is_a_read_into_it(self):
        """No memory beside the destination's, whose strides may be any."""
        for name, view, made in (
                ("half", lambda t: t.narrow(0, 100, 50), lambda: torch.zeros(50, 7, dtype=torch.bfloat16)),
                ("cube", lambda t: t.transpose(0, 1), lambda: torch.zeros(12, 16, 8)),
                ("cube", lambda t: t[:, 3].t(), lambda: torch.zeros(8, 16)),
                ("cube", lambda t: t[2:4], lambda: torch.zeros(2, 12, 16)[..., ::2])):
            array = made()
            calls = []
            self.source.part = lambda *given, calls=calls: calls.append(given)
            array.copy_(view(self.lazy[name]))
            self.assertTrue(torch.equal(array, view(self.tensors[name])))
            self.assertEqual(calls, [])

    def copies_elsewhere(self, device):
        """Parts of tensors, and what a copy of each into a tensor on the device has left there."""
        for name, view, made in (
                ("half", lambda t: t.narrow(0, 100, 50), lambda: torch.zeros(50, 7, dtype=torch.bfloat16)),
                ("cube", lambda t: t.transpose(0, 1), lambda: torch.zeros(12, 16, 8)),
                ("cube", lambda t: t[2:4], lambda: torch.zeros(2, 12, 16)[..., 1::2]),
                ("fp8", lambda t: t.view(torch.uint8)[1:3], lambda: torch.zeros(5, 32, dtype=torch.uint8)[2:4])):
            array = Elsewhere(made(), device)
            array.copy_(view(self.lazy[name]))
            yield view(self.tensors[name]), array

    def test_a_copy_to_a_gpu_is_a_read_into_it(self):
        """On an emulated one: torch has none, so Buffers stand for its tensors there."""
        def on_gpu(array):
            flat = hoist.Buffer("u8", (array.inner.untyped_storage().nbytes(),), "cuda:0", zero=True)
            made.append((flat, array))
            return hoist.Buffer.from_address(
                flat.address + array.storage_offset() * array.element_size(), flat.nbytes, hoist.torch.as_buffer(array.inner).dtype,
                tuple(array.shape), strides=array.stride(), device="cuda:0", owner=flat)
        made = []
        with mock.patch("hoist.lazy.as_buffer", on_gpu), mock.patch("torch.cuda.current_stream") as stream:
            for number, (wanted, array) in enumerate(self.copies_elsewhere("cuda:0"), 1):
                flat, part = made[-1]
                self.assertEqual((len(made), stream.return_value.synchronize.call_count), (number, number))
                self.assertFalse(array.inner.bool().any())
                array.inner.untyped_storage().copy_(torch.from_dlpack(flat.copy("cpu")).untyped_storage())
                self.assertEqual(bits(array.inner), bits(wanted))
                self.assertEqual(part.device, torch.device("cuda:0"))
        self.lazy = {name: Source(self.checkpoint, self.reports.append, device_direct=False).lazy(name) for name in self.tensors}
        with mock.patch("hoist.lazy.as_buffer", side_effect=AssertionError):
            for wanted, array in self.copies_elsewhere("cuda:0"):
                self.assertEqual(bits(array.inner), bits(wanted))

    def test_a_copy_to_a_device_that_hoist_lacks_is_torchs(self):
        for device in ("xpu:0", "hpu"):
            for wanted, array in self.copies_elsewhere(device):
                self.assertEqual(bits(array.inner), bits(wanted))

    def test_a_copy_that_changes_type_or_shape_is_torchs(self):
        array = torch.zeros(300, 7)
        array.copy_(self.lazy["half"])
        self.assertTrue(torch.equal(array, self.tensors["half"].float()))
        array = torch.zeros(5, 12, 8)
        array.copy_(self.lazy["cube"][3])
        self.assertTrue(torch.equal(array, self.tensors["cube"][3].expand(5, 12, 8)))
        with self.assertRaises(RuntimeError):
            torch.zeros(3, 3).copy_(self.lazy["cube"])

    def test_a_rehearsal_on_the_meta_device_reads_nothing(self):
        torch.empty(16, 12, 8, device="meta").copy_(self.lazy["cube"])
        self.assertEqual(self.read_bytes(), 0)
        with self.assertRaises(RuntimeError):
            torch.empty(3, 3, device="meta").copy_(self.lazy["cube"])

    def test_all_else_reads(self):
        lazy, real = self.lazy, self.tensors
        self.assertEqual(lazy["scalar"].item(), 2.5)
        self.assertEqual(float(lazy["scalar"]), 2.5)
        self.assertEqual(lazy["half"][:2].tolist(), real["half"][:2].tolist())
        self.assertEqual(lazy["cube"].numpy().tobytes(), real["cube"].numpy().tobytes())
        self.assertTrue(torch.equal(lazy["half"][torch.tensor([3, 1])], real["half"][torch.tensor([3, 1])]))
        self.assertTrue(torch.equal(torch.cat([lazy["half"], real["half"]]), real["half"].repeat(2, 1)))
        self.assertTrue(torch.equal(lazy["half"].float() @ lazy["half"].float().t(),
                                    real["half"].float() @ real["half"].float().t()))
        self.assertTrue(torch.equal(lazy["half"].view(torch.int16)[4], real["half"].view(torch.int16)[4]))
        self.assertEqual(lazy["empty"].clone().shape, (0, 4))
        self.assertTrue(torch.equal(torch.from_dlpack(lazy["cube"]), real["cube"]))
        for made in (pickle.loads(pickle.dumps(lazy["half"])), copy.deepcopy(lazy["half"])):
            self.assertIs(type(made), torch.Tensor)
            self.assertTrue(torch.equal(made, real["half"]))
        self.assertIn("'cube'", repr(lazy["cube"]))

    def test_what_is_written_stays_written_in_all_views(self):
        lazy, real = self.lazy["cube"], self.tensors["cube"].clone()
        before = lazy[0]
        lazy[:, 2].mul_(3)
        real[:, 2].mul_(3)
        lazy[5] = 7.0
        real[5] = 7.0
        self.assertTrue(torch.equal(lazy.clone(), real))
        self.assertTrue(torch.equal(before.clone(), real[0]))
        with open(self.checkpoint.files[0][0], "rb") as file:
            self.assertNotIn(real[5].numpy().tobytes(), file.read())

    def test_writes_by_odd_ways_stay(self):
        for name, write in (("a diagonal", lambda t: t[0].diagonal().zero_()),
                            ("other bits", lambda t: t.view(torch.int32)[1].zero_()),
                            ("out", lambda t: torch.add(torch.ones(t.shape), 1, out=t)),
                            ("a list", lambda t: torch._foreach_zero_([t])),
                            ("strides", lambda t: t[2:].as_strided((4, 3), (5, 1), 7).fill_(3))):
            with self.subTest(way=name):
                lazy = Source(self.checkpoint, self.reports.append).lazy("cube")
                real = self.tensors["cube"].clone()
                write(lazy)
                write(real)
                self.assertTrue(torch.equal(lazy.clone(), real))

    def test_strides_of_a_part_count_from_the_tensors_begin(self):
        lazy, real = self.lazy["cube"], self.tensors["cube"]
        for offset in (0, 3, 11):
            self.assertTrue(torch.equal(lazy[2:].as_strided((3, 4), (6, 1), offset).clone(),
                                        real[2:].as_strided((3, 4), (6, 1), offset)))

    def test_a_copy_is_apart_and_there_is_no_address(self):
        lazy, real = self.lazy["cube"], self.tensors["cube"]
        lazy[0].add_(1)
        copied = copy.deepcopy(lazy)
        lazy.zero_()
        self.assertTrue(torch.equal(copied[1:], real[1:]))
        for call in (lazy.data_ptr, lazy.share_memory_):
            self.assertRaisesRegex(RuntimeError, "clone", call)

    def test_types_that_torch_lacks_are_not_lazy(self):
        path = os.path.join(os.path.dirname(self.checkpoint.files[0][0]), "f4.safetensors")
        hoist.save({"f4": hoist.Buffer("f4_e2m1fn", (4, 8))}, path).wait()
        self.assertIsNone(Source(hoist.open(path), self.reports.append).lazy("f4"))


if __name__ == "__main__":
    unittest.main()
