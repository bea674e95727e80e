# SPDX-License-Identifier: MIT
"""Loads in place that read changed tensors only: what is kept, what is read, and that both are right."""

import copy
import os
import pickle
import random
import tempfile
import unittest

import hoist
from hoist import held
import files

try:
    import torch
except ImportError:
    torch = None

SEED = int(os.environ.get("HOIST_TEST_SEED", random.randrange(1 << 30)))


def bits(value):
    flat = value.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def fresh(seed, dtype=None):
    """Tensors of a checkpoint: "a" and "b" of one shape, "c" of another, "e" empty, "i" of integers."""
    make = torch.Generator().manual_seed(seed)
    ret = {name: torch.randn(shape, generator=make)
           for name, shape in (("a", (6, 6)), ("b", (6, 6)), ("c", (300, 70)), ("e", (0, 3)))}
    ret["c"] = ret["c"].to(torch.bfloat16)
    ret["i"] = torch.randint(0, 1000, (2, 5), generator=make)
    if dtype is not None:
        ret = {n: t.to(dtype) if t.is_floating_point() else t for n, t in ret.items()}
    return ret


class Net(torch.nn.Module if torch is not None else object):
    def __init__(self):
        super().__init__()
        for name, value in fresh(0).items():
            if value.is_floating_point():
                setattr(self, name, torch.nn.Parameter(torch.zeros_like(value)))
            else:
                self.register_buffer(name, torch.zeros_like(value))


# --- what happens to module.a between two loads of one checkpoint: "a" must be read, and no other ---


def step(net):
    net.a.sum().backward()
    torch.optim.SGD([net.a], 1.0).step()


def add(net):
    with torch.no_grad():
        net.a.add_(1)


def write_to_a_row(net):
    with torch.no_grad():
        net.a[2].zero_()


def write_detached(net):
    net.a.detach().mul_(2)


def write_in_inference_mode(net):
    with torch.inference_mode():
        net.a.zero_()


def load_a_state(net):
    net.load_state_dict({"a": torch.ones(6, 6)}, strict=False)


def replace(net):
    net.a = torch.nn.Parameter(torch.ones(6, 6))


def replace_data(net):
    net.a.data = torch.ones(6, 6)


def transpose(net):
    net.a.data = net.a.data.t()


def take_away(net):
    net.a.data = torch.empty(0)
    net.a.data = torch.zeros(6, 6)


def convert(net):
    net.a.data = net.a.data.half()
    net.a.data = net.a.data.float()


def write_by_hoist(net):
    """By another object over the memory, and another file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.safetensors")
        hoist.torch.save_file({"x": torch.ones(6, 6)}, path)
        hoist.load_all(path, into={"x": net.a.data})


def write_a_row_by_hoist(net):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.safetensors")
        hoist.torch.save_file({"x": torch.ones(2, 3)}, path)
        hoist.load_all(path, into={"x": net.a.detach().numpy()[3:5, 2:5]})


CHANGES = [step, add, write_to_a_row, write_detached, write_in_inference_mode, load_a_state, replace,
           replace_data, transpose, take_away, convert, write_by_hoist, write_a_row_by_hoist]


@unittest.skipIf(torch is None, "no torch")
class WithNet(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.net = self.known_net()

    def known_net(self):
        """A Net whose memory is known to hold a checkpoint that no test loads."""
        net = Net()
        hoist.torch.load_into(net, self.save(fresh(999), "other"), changed_only=True)
        return net

    def save(self, tensors, name="m", **options):
        path = os.path.join(self.folder, name + ".safetensors")
        hoist.torch.save_file(tensors, path, **{"digest": True, "sync": False, **options})
        return path

    def check(self, path, read, module=None, **options):
        """Loads what changed: `read` is read, no byte more, and all is as after a load of all."""
        module = self.net if module is None else module
        result = hoist.torch.load_into(module, path, changed_only=True, **options)
        with hoist.open(path) as checkpoint:
            state = module.state_dict() if isinstance(module, torch.nn.Module) else module
            places = {}
            for name, value in state.items():
                if value.numel() > 0:
                    places.setdefault(value.data_ptr(), name)
            self.assertEqual(set(places.values()) - set(result.kept), set(read))
            self.assertEqual(result.report["bytes"] if result.report else 0,
                             sum(checkpoint[name].nbytes for name in read))
        whole = {name: torch.zeros_like(state[name]) for name in places.values()}
        hoist.torch.load_into(whole, path, strict=False)
        for name, value in whole.items():
            self.assertEqual(bits(state[name]), bits(value), name)
        return result


class Refit(WithNet):

    def test_what_is_read(self):
        first = fresh(1)
        path = self.save(first)
        self.check(path, set("abci"))
        self.check(path, set())
        for name in "abci":
            path = self.save({**first, name: fresh(2)[name]})
            self.check(path, {name})
            self.check(path, set())
            first = hoist.torch.load_file(path, io="auto")
        hoist.torch.load_into(self.net, self.save(fresh(3), "other"))
        self.check(path, set("abci"))
        hoist.torch.load_into(self.net, self.save(fresh(3)))
        folder = os.path.join(self.folder, "shards")
        os.mkdir(folder)
        hoist.torch.save_file(fresh(3), folder, digest=True, shard_bytes="20K")
        self.check(folder, set())

    def test_parts(self):
        """A rank's memory has parts of the tensors."""
        first, second = fresh(1), fresh(2)
        path = self.save(first)
        mine = {"a": torch.zeros(6, 3), "b": torch.zeros(3, 2), "c": torch.zeros(100, 70), "i": torch.zeros(2, 5)}
        mine["i"] = mine["i"].to(torch.int64)
        slices = {"a": (1, 1, 2), "b": [(0, 0, 2), (1, slice(4, None))], "c*": (0, 2, 3)}

        def check(of, read):
            result = hoist.torch.load_into(mine, path, changed_only=True, strict=False, slices=slices)
            self.assertEqual(set(mine) - set(result.kept), set(read))
            for name, value in (("a", of["a"][:, 3:]), ("b", of["b"][:3, 4:]), ("c", of["c"][200:]), ("i", of["i"])):
                self.assertEqual(bits(mine[name].to(value.dtype)), bits(value), name)

        check(first, "abci")
        check(first, "")
        slices["a"] = (1, slice(3, 6))  # the same bytes, in other words, are read
        check(first, "a")
        path = self.save({**first, "c": second["c"]})
        check({**first, "c": second["c"]}, "c")
        with self.assertRaisesRegex(hoist.Error, "shape"):
            hoist.torch.load_into(mine, path, strict=False, slices={"a": (1, 0, 2)})
        with self.assertRaisesRegex(hoist.errors.InvalidError, "'d\\*'"):
            hoist.torch.load_into(mine, path, strict=False, slices={**slices, "d*": (0, 0, 2)})
        with self.assertRaisesRegex(TypeError, "slice of 'a'"):
            hoist.torch.load_into(mine, path, strict=False, slices={**slices, "a": 1})

    def test_a_change_of_memory(self):
        path = self.save(fresh(1))
        for change in CHANGES:
            with self.subTest(change=change.__name__):
                hoist.torch.load_into(self.net, path)
                change(self.net)
                self.check(path, {"a"})
                self.check(path, set())

    def test_other_storage_at_the_same_address(self):
        path = self.save(fresh(1))
        array = torch.zeros(6, 6).numpy()
        self.net.a.data = torch.from_numpy(array)
        self.check(path, set("abci"))
        self.net.a.data = torch.zeros(1)
        array[:] = 5
        self.net.a.data = torch.from_numpy(array)
        self.check(path, {"a"})

    def test_what_the_checkpoint_says(self):
        """Digests are of bytes: a dtype or shape of its own is another tensor."""
        first = fresh(1)
        hoist.torch.load_into(self.net, self.save(first))
        self.check(self.save(fresh(1, torch.bfloat16)), {"a", "b"})
        self.check(self.save(first), {"a", "b"})
        zeros = {**first, "a": torch.zeros(6, 6), "i": torch.zeros(2, 5, dtype=torch.int64)}
        self.check(self.save(zeros), {"a", "i"})
        self.check(self.save({**zeros, "c": first["c"].view(torch.float16)}), {"c"})  # the same bytes
        other = self.save({**zeros, "a": torch.zeros(4, 9)})
        with self.assertRaisesRegex(ValueError, '"a"'):
            hoist.torch.load_into(self.net, other, changed_only=True)
        # The content counts, not the name.
        hoist.torch.load_into(self.net, self.save(first))
        self.check(self.save({**first, "a": first["b"]}), {"a"})
        self.check(self.save({**first, "a": first["b"], "b": first["a"]}), {"b"})

    def test_conversions(self):
        self.net.half()
        first = fresh(1)
        self.check(self.save(first), set("abci"))
        self.check(self.save({**first, "b": fresh(2)["b"]}), {"b"})
        self.net.float()
        self.check(self.save(first), set("abc"))

    def test_objects(self):
        """Whose memory is known, and whose is not."""
        path = self.save(fresh(1))
        state = self.net.state_dict()
        self.check(path, set("abci"), state)
        self.check(path, set(), state)
        self.check(path, set("abci"))  # other objects: the parameters
        self.check(path, set("abci"), self.net.state_dict())  # and these are others at each call
        hoist.torch.load_into(self.net, path)
        self.net.b.detach().add_(1)
        view = {"a": self.net.a, "b": self.net.b}
        self.check(path, {"b"}, view, strict=False)
        for _ in range(30):  # each alias of the parameter has a count of its own, and perhaps the last one's place
            alias = {"a": self.net.a.data}
            result = hoist.torch.load_into(alias, path, strict=False, changed_only=True)
            self.assertEqual((result.kept, bits(self.net.a)), ([], bits(fresh(1)["a"])))
            del alias
            self.net.a.detach().add_(1)
        with torch.inference_mode():
            state = {name: torch.zeros_like(value) for name, value in self.net.state_dict().items()}
        for _ in range(2):
            self.check(path, set("abci"), state)

    def test_records_begin_with_the_first_call(self):
        """Until then, a load in place leaves no trace on tensors."""
        path, net, before = self.save(fresh(1)), Net(), len(held.HELD)
        for _ in range(2):
            hoist.torch.load_into(net, path)
        self.assertLessEqual(len(held.HELD), before)
        self.assertEqual(vars(net.a), {})
        self.check(path, set("abci"), net)
        add(net)
        hoist.torch.load_into(net, path)
        self.check(path, set(), net)

    def test_writes_that_torch_does_not_count(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        path = self.save(net.state_dict())
        statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
        self.check(path, set(net.state_dict()), net)
        for _ in range(2):
            self.check(path, statistics, net)
            with torch.no_grad():
                net(torch.rand(5, 3))
        hoist.torch.load_into(net, path)
        self.check(path, statistics, net)
        for other in (torch.jit.script(net), net.state_dict(keep_vars=True)):
            for _ in range(2):
                found = hoist.torch.load_into(other, path, changed_only=True)
                net(torch.rand(5, 3))
            self.assertFalse(statistics & set(found.kept))
            self.assertIn("0.weight", found.kept)
        path = self.save({"running_mean": torch.ones(3)})
        for _ in range(2):  # a module of which the checkpoint has nothing else
            result = hoist.torch.load_into(net[1], path, strict=False, changed_only=True)
            self.assertEqual((result.kept, result.report["bytes"]), ([], 12))

    def test_tensors_that_overlap_are_refused_as_ever(self):
        base = torch.zeros(8)
        both = {"a": base, "b": base[:4]}
        path = self.save({"a": torch.rand(8), "b": torch.rand(4)})
        for one in (both, {"b": both["b"]}, both):
            if len(one) == 2:
                with self.assertRaisesRegex(ValueError, "overlap"):
                    hoist.torch.load_into(one, path, changed_only=True)
            else:
                hoist.torch.load_into(one, path, strict=False, changed_only=True)

    def test_a_plan_ends_no_record(self):
        path = self.save(fresh(1))
        self.check(path, set("abci"))
        hoist.plan(path, into=dict(self.net.state_dict(keep_vars=True)))
        self.check(path, set())

    def test_options_are_checked_though_nothing_is_read(self):
        path = self.save(fresh(1))
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "tensors"):
                hoist.torch.load_into(self.net, path, changed_only=True, tensors=["a"])
            hoist.torch.load_into(self.net, path, changed_only=True)

    def test_copies_of_tensors(self):
        """They are others, and need no hoist to be read."""
        path = self.save(fresh(1))
        self.check(path, set("abci"))
        for make in (copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))):
            net = make(self.net)
            if make is copy.copy:
                net = {name: copy.copy(value) for name, value in net.state_dict(keep_vars=True).items()}
            self.assertNotIn(b"hoist.", pickle.dumps(self.net.a))
            self.check(path, set("abci"), net)
            hoist.torch.load_into(self.net, path)
            self.check(path, set())

    def test_tensors_that_are_swapped(self):
        if not hasattr(torch.utils, "swap_tensors"):
            self.skipTest(f"torch {torch.__version__} has no swap_tensors()")
        path = self.save(fresh(1))
        self.check(path, set("abci"))
        torch.utils.swap_tensors(self.net.a, self.net.b)
        self.check(path, {"a", "b"})
        torch.utils.swap_tensors(self.net.a, torch.nn.Parameter(torch.ones(6, 6)))
        self.check(path, {"a"})

    def test_tied(self):
        first = fresh(1)
        with self.subTest("one object"):
            self.net.b = self.net.a
            self.check(self.save(first), set("aci"))
            self.check(self.save(first), set())
            self.check(self.save({**first, "b": fresh(2)["b"]}), set())  # "a" stands for both, as ever
            self.check(self.save({**first, "a": fresh(2)["a"]}), {"a"})
            step(self.net)
            self.check(self.save({**first, "a": fresh(2)["a"]}), {"a"})
        with self.subTest("two objects, each with a count of its own"):
            self.net.b = torch.nn.Parameter(self.net.a.data)
            self.check(self.save(first), {"a"})
            self.net.b.detach().add_(1)
            self.check(self.save(first), {"a"})
            self.check(self.save(first), set())
        with self.subTest("which are loaded in turn"):
            one, two = {"a": self.net.a}, {"b": self.net.b}
            path = self.save(first)
            for _ in range(2):
                hoist.torch.load_into(one, path, strict=False, changed_only=True)
                self.assertEqual(bits(self.net.a), bits(first["a"]))
                hoist.torch.load_into(two, path, strict=False, changed_only=True)
                self.assertEqual(bits(self.net.a), bits(first["b"]))

    def test_parts_of_one_memory(self):
        first = {"q": torch.randn(4, 6), "k": torch.randn(2, 6), "v": torch.randn(2, 6)}
        fused = torch.zeros(8, 6)
        parts = {"q": fused[:4], "k": fused[4:6], "v": fused[6:]}
        self.check(self.save(first), set("qkv"), parts)
        # torch counts the writes to all parts together, but hoist's loads of one leave the others.
        self.check(self.save({**first, "k": torch.randn(2, 6)}), {"k"}, parts)
        self.check(self.save(first), {"k"}, parts)
        fused[7] = 3
        self.check(self.save(first), set("qkv"), parts)

    def test_by_bucket(self):
        first, second = fresh(1), {**fresh(2), "b": fresh(1)["b"]}
        hoist.torch.load_into(self.net, self.save(first))
        path, read = self.save(second), []
        parameters = self.net.state_dict(keep_vars=True)
        with hoist.open(path) as checkpoint:
            for bucket in (("a", "b"), ("c",), ("i", "e")):
                result = hoist.torch.load_into({name: parameters[name] for name in bucket}, checkpoint,
                                               strict=False, changed_only=True)
                read += [name for name in bucket if name not in result.kept]
        self.assertEqual(sorted(read), ["a", "c", "e", "i"])
        self.check(path, set())

    def test_failures(self):
        """What a load has begun to fill is read again; the rest is still known."""
        first, second = fresh(1), {**fresh(2), "a": fresh(1)["a"]}
        for damage, options in ((b"?", {"verify": True}), (None, {})):
            with self.subTest(damage=damage):
                hoist.torch.load_into(self.net, self.save(first))
                path = self.save(second)
                with hoist.open(path) as checkpoint:
                    if damage is None:
                        os.truncate(path, checkpoint["c"].offset + 9)
                    else:
                        with open(path, "r+b") as file:
                            file.seek(checkpoint["c"].offset + 9)
                            old = file.read(1)
                            file.seek(-1, 1)
                            file.write(bytes([old[0] ^ 4]))
                    with self.assertRaises(hoist.errors.FormatError) as caught:
                        hoist.torch.load_into(self.net, checkpoint, changed_only=True, **options)
                states = caught.exception.into_states[0]
                self.assertEqual(sorted(states), ["b", "c", "e", "i"])
                self.assertNotEqual(states["c"], "whole")
                self.check(self.save(second), set("bci"))

    def test_kept_digests(self):
        """Files without digests of their own, as other packages write them."""
        first = fresh(1)
        for values, read in (first, set("abci")), (dict(first, b=fresh(2)["b"]), {"b"}):
            path = self.save(values, digest=False)
            with hoist.open(path) as checkpoint:
                checkpoint.keep_digests()
            self.check(path, read)

    def test_without_digests(self):
        first = fresh(1)
        path = self.save(first, digest=False)
        before = bits(self.net.c)
        with self.assertRaisesRegex(hoist.errors.FormatError, "digest=True.*keep_digests"):
            hoist.torch.load_into(self.net, path, changed_only=True)
        self.assertEqual(bits(self.net.c), before)
        self.assertEqual(hoist.torch.load_into({}, path, strict=False, changed_only=True).kept, [])
        hoist.torch.load_into(self.net, path)
        self.check(self.save(first), set("abci"))
        # One file of two has digests.
        folder = os.path.join(self.folder, "two")
        os.mkdir(folder)
        for name, part, digest in (("1", "ab", True), ("2", "cie", False)):
            hoist.torch.save_file({n: first[n] for n in part}, os.path.join(folder, name + ".safetensors"),
                                  digest=digest)
        self.check(folder, set("ci"))
        with hoist.open(folder) as checkpoint:
            self.assertEqual([checkpoint.digest(n) is None for n in "abcie"], [False] * 2 + [True] * 3)
            self.assertRaises(KeyError, checkpoint.digest, "nothing")

    def test_digests_that_lie(self):
        """The writer is trusted: what is kept is not compared, what is read is, if asked for."""
        path = self.save(fresh(1))
        hoist.torch.load_into(self.net, path)
        with open(path, "r+b") as file, hoist.open(path) as checkpoint:
            file.seek(checkpoint["a"].offset)
            file.write(b"lies")
        result = hoist.torch.load_into(self.net, path, changed_only=True, verify=True)
        self.assertEqual(sorted(result.kept), ["a", "b", "c", "i"])
        self.net.a.detach().zero_()
        with self.assertRaisesRegex(hoist.errors.FormatError, '"a".*damaged'):
            hoist.torch.load_into(self.net, path, changed_only=True, verify=True)
        self.check(path, {"a"})

    def test_options(self):
        path = self.save({name: value for name, value in fresh(1).items() if name != "e"})
        del self.net.e
        hoist.torch.load_into(self.net, path)
        for options, kind, text in (({"group": "shm:a", "rank": "0/1"}, ValueError, "group"),
                                    ({"verfy": True}, TypeError, "verfy"), ({"io": "no"}, ValueError, "io")):
            with self.assertRaisesRegex(kind, text):
                hoist.torch.load_into(self.net, path, changed_only=True, **options)
        told = []
        result = hoist.torch.load_into(self.net, path, changed_only=True, order=["c"], budget="64M",
                                       progress=lambda *now: told.append(now))
        self.assertEqual((result.report, told), (None, []))
        add(self.net)
        self.check(path, {"a"}, order=["c", "*"], budget="64M", progress=lambda *now: told.append(now))
        self.assertTrue(told)

    def test_records_end_with_their_tensors(self):
        path = self.save(fresh(1))
        hoist.torch.load_into(self.net, path)
        before, others = len(held.HELD), []
        for _ in range(20):
            hoist.torch.load_into(Net(), path, changed_only=True)
            others.append(fresh(1))  # where the tensors of the Net were
        self.assertLessEqual(len(held.HELD), before + 8)


class RandomRuns(WithNet):
    """A model and its file change at random; a model of what is known says what must be read."""

    def run_once(self, rng):
        tensors, known = fresh(rng.randrange(999)), {}
        for _ in range(12):
            for name in rng.sample("abci", rng.randrange(4)):
                tensors[name] = fresh(rng.randrange(999))[name]
            if rng.random() < 0.2:
                tensors["b"] = tensors["b"].to(rng.choice([torch.float16, torch.float32]))
            path = self.save(tensors, metadata={"format": "pt"})
            now = {name: (value.dtype, bits(value)) for name, value in tensors.items()}
            for name in rng.sample("abc", rng.randrange(3)):
                self.change(rng, name)
                known.pop(name, None)
            differ = {name for name in "abci" if known.get(name) != now[name]}
            if differ and rng.random() < 0.3:
                self.fail_to_load(path, rng.choice(sorted(differ)))
                known = {name: value for name, value in known.items() if name not in differ}
                self.save(tensors, metadata={"format": "pt"})
            self.check(path, differ, verify=rng.random() < 0.5)
            known = now

    def change(self, rng, name):
        value = getattr(self.net, name)
        kind = rng.randrange(4)
        if kind == 0:
            value.sum().backward()
            torch.optim.Adam([value], 0.1).step()
        elif kind == 1:
            setattr(self.net, name, torch.nn.Parameter(torch.rand(value.shape).to(value.dtype)))
        elif kind == 2:
            value.data = value.data.clone()
        else:
            value.detach()[0].zero_()

    def fail_to_load(self, path, name):
        with hoist.open(path) as checkpoint, open(path, "r+b") as file:
            file.seek(checkpoint[name].offset)
            old = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([old[0] ^ 1]))
            file.flush()
            with self.assertRaises(hoist.errors.FormatError):
                hoist.torch.load_into(self.net, checkpoint, changed_only=True, verify=True)

    def test_random(self):
        for seed in range(SEED, SEED + 25):
            with self.subTest(seed=seed):
                self.net = self.known_net()
                self.run_once(random.Random(seed))


if __name__ == "__main__":
    unittest.main()
