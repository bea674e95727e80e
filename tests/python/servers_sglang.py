# SPDX-License-Identifier: MIT
"""SGLang's --model-loader-extra-config '{"hoist": {}}': SGLang's real loader and hooks, from its wheel, without an engine.

Nothing of SGLang's has a stand-in, nor has anything that its loader imports: the wheel and what its loader
needs are installed, without the CUDA kernels (sglang-kernel, flashinfer, deep-gemm), which an engine needs.
"""

import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from importlib import metadata
from unittest import mock

import torch

import hoist
import hoist.sglang
from hoist.lazy import Lazy
from servers_models import Folder, make_llama

HERE = os.path.dirname(os.path.abspath(__file__))


def python(program):
    """What a program of its own says, all warnings left out."""
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True,
                          timeout=300, check=False)


class Ranks(Folder):
    """Models that SGLang makes and fills, in one process for each rank."""

    def loads(self, n_ranks, *settings):
        """What each rank says of each load, and of the update at the end."""
        runs = []
        for rank in range(n_ranks):
            runs.append(subprocess.Popen(
                [sys.executable, "-W", "ignore", os.path.join(HERE, "servers_sglang_rank.py"), self.folder, str(rank),
                 str(n_ranks), f"file://{self.folder}/rendezvous", json.dumps(settings)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        ret = []
        for run in runs:
            with run:
                text = run.communicate(timeout=600)[0]
            said = [json.loads(line[7:]) for line in text.split("\n") if line.startswith("SGLANG ")]
            self.assertEqual((run.returncode, len(said)), (0, len(settings) + 1), text[-4000:])
            ret.append(said)
        os.unlink(os.path.join(self.folder, "rendezvous"))
        return ret

    def test_a_model_has_the_same_parameters(self):
        make_llama(self.folder)
        (own, cold, slices, stream, updated), = self.loads(
            1, {"num_threads": 2}, {"hoist": {"io": "direct"}}, {"hoist": {"way": "slices"}}, {"hoist": {}})
        self.assertEqual(own["facts"], {})
        for said, way in ((cold, "stream"), (slices, "slices"), (stream, "stream"), (updated, "stream")):
            self.assertEqual((said["digest"], said["facts"]["way"]), (own["digest"], way))
            self.assertGreaterEqual(said["facts"]["read_bytes"], said["facts"]["file_bytes"])
            self.assertLess(said["facts"]["read_bytes"], 1.05 * said["facts"]["file_bytes"])

    def test_a_rank_of_two_reads_its_part(self):
        """Of QKV-, MergedColumn- and RowParallelLinear and VocabParallelEmbedding."""
        make_llama(self.folder)
        ranks = self.loads(2, {"num_threads": 2}, {"hoist": {}})
        self.assertNotEqual(ranks[0][0]["digest"], ranks[1][0]["digest"])
        for number in (1, 2):  # the load, the update
            for said in ranks:
                self.assertEqual((said[number]["digest"], said[number]["facts"]["way"]), (said[0]["digest"], "slices"))
                self.assertLess(said[number]["facts"]["read_bytes"], 0.65 * said[number]["facts"]["file_bytes"])
            self.assertGreaterEqual(sum(said[number]["facts"]["read_bytes"] for said in ranks),
                                    ranks[0][number]["facts"]["file_bytes"])

    def test_two_ranks_share_one_read(self):
        make_llama(self.folder)
        ranks = self.loads(2, {"num_threads": 2}, {"hoist": {"way": "group"}})
        for number in (1, 2):  # the load, the update
            for said in ranks:
                self.assertEqual((said[number]["digest"], said[number]["facts"]["way"]), (said[0]["digest"], "group"))
            n_bytes = ranks[0][number]["facts"]["file_bytes"]
            n_read = sum(said[number]["facts"]["read_bytes"] for said in ranks)
            self.assertGreaterEqual(n_read, n_bytes)
            self.assertLess(n_read, 1.05 * n_bytes)  # the files are of 1 MB, and read in blocks of 4 KiB


class Base(Folder):
    """SGLang's loader in this process, with the hooks that SGLang found and applied."""

    def setUp(self):
        super().setUp()
        from sglang.srt.plugins import load_plugins
        load_plugins()
        self.publish()

    def publish(self, **arguments):
        """The server's configuration, until the test ends."""
        from sglang.srt.runtime_context import get_context
        override = get_context().override_server_args(device="cpu", **arguments)
        override.install()
        self.addCleanup(override.restore)

    def ranks_of(self, n_ranks):
        """As if this process were the first of several."""
        from sglang.srt.runtime_context import get_parallel
        return get_parallel().override(tp_size=n_ranks, attn_tp_size=n_ranks, moe_tp_size=n_ranks)

    def loader(self, settings=None, **more):
        """SGLang's loader for hoist's settings; None: SGLang reads itself."""
        extra = {} if settings is None else {"hoist": settings}
        return self.loader_of(extra, **more)

    @staticmethod
    def loader_of(extra, **more):
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader.loader import get_model_loader
        return get_model_loader(LoadConfig(model_loader_extra_config=extra, **more))

    def source(self, loader, **more):
        config = types.SimpleNamespace(hf_config=types.SimpleNamespace(architectures=["LlamaForCausalLM"]))
        return loader.Source(self.folder, None, **{"model_config": config, **more})

    def given(self, loader, **named):
        source = self.source(loader, **{name: named.pop(name) for name in ("prefix", "model_config") if name in named})
        return {name: tensor.clone() for name, tensor in loader._get_weights_iterator(source, **named)}


class Loader(Base):
    def setUp(self):
        super().setUp()
        torch.manual_seed(2)
        self.tensors = {f"model.mtp.layers.{layer}.{part}.weight": torch.randn(96, 256)
                        for layer in range(3) for part in ("up", "down")}
        self.tensors.update({"q.weight": torch.randn(512, 256).to(torch.float8_e4m3fn), "q.scale": torch.tensor(0.5),
                             "qweight": torch.randint(-2**31, 2**31, (64, 300), dtype=torch.int32),
                             "half": torch.randn(32, 65536).bfloat16(),
                             "zeros": torch.randint(0, 255, (700, 100), dtype=torch.uint8)})
        names = list(self.tensors)
        for number in range(3):
            hoist.torch.save_file({name: self.tensors[name] for name in names[number::3]},
                                  os.path.join(self.folder, f"model-0000{number}-of-3.safetensors"))

    def test_tensors_are_those_of_sglangs_own(self):
        for own in ({}, {"enable_multithread_load": False}):
            self.check_tensors(self.given(self.loader_of(own)), self.tensors)
        with tempfile.TemporaryDirectory(dir="/tmp") as runtime, mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": runtime}):
            for settings in ({}, {"way": "slices"}, {"way": "map"}, {"way": "cache"}, {"window": "300K"},
                             {"io": "direct", "budget": "8M"}):
                for load_format in ("auto", "safetensors"):
                    with self.subTest(settings=settings, load_format=load_format):
                        self.check_tensors(self.given(self.loader(settings, load_format=load_format)), self.tensors)
                        self.assertEqual(hoist.sglang.report()["n_tensors"], len(self.tensors))
            hoist.cache.drop()

    def test_other_load_formats(self):
        """Each finds its files, or has its own settings beside, and goes on to the same reader."""
        for load_format, beside in (("layered", {}), ("flash_rl", {}), ("presharded", {"presharded_path": self.folder})):
            with self.subTest(load_format=load_format):
                self.check_tensors(self.given(self.loader_of({"hoist": {"way": "slices"}, **beside}, load_format=load_format)),
                           self.tensors)
                self.assertEqual(hoist.sglang.report()["way"], "slices")
        path = os.path.join(self.folder, "consolidated.safetensors")
        hoist.torch.save_file({"a": self.tensors["half"]}, path)
        self.check_tensors(self.given(self.loader({}, load_format="mistral")), {"a": self.tensors["half"]})

    def test_files_of_torch(self):
        wanted = {name: tensor for name, tensor in self.tensors.items() if tensor.dtype != torch.float8_e4m3fn}
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        torch.save(wanted, os.path.join(self.folder, "pytorch_model.bin"))
        self.check_tensors(self.given(self.loader()), wanted)
        for settings in ({}, {"way": "slices"}):
            self.check_tensors(self.given(self.loader(settings)), wanted)
        self.assertEqual(hoist.sglang.report()["way"], "slices")

    def test_prefixes_and_files_that_are_known_already(self):
        own, loader = self.loader(), self.loader({})
        self.check_tensors(self.given(loader, prefix="vision."), self.given(own, prefix="vision."))
        resolved, = loader.resolve_model_weights(
            types.SimpleNamespace(model_path=self.folder, revision=None, hf_config=self.source(loader).model_config.hf_config),
            None)
        with mock.patch.object(type(loader), "_prepare_weights", side_effect=AssertionError):
            self.check_tensors(self.given(loader, resolved_source=resolved, startup_prefetch_started=True), self.tensors)

    def test_layers_of_other_drafts_are_not_read(self):
        own = self.given(self.loader(draft_model_idx=1))
        self.assertIn("model.mtp.layers.0.up.weight", own)
        for way in ("stream", "slices"):
            with self.subTest(way=way):
                self.check_tensors(self.given(self.loader({"way": way}, draft_model_idx=1), prefix="x."),
                           {"x." + name: tensor for name, tensor in own.items()})
                facts = hoist.sglang.report()
                self.assertEqual(facts["n_tensors"], len(own))
                self.assertLess(facts["read_bytes"], facts["file_bytes"] - 3 * 96 * 256 * 4)

    def test_two_ranks_read_what_they_slice(self):
        with self.ranks_of(2):
            loader = self.loader({})
            dict(loader._get_weights_iterator(self.source(loader)))
            self.assertEqual(hoist.sglang.report()["way"], "slices")  # of files that the page cache lacks
            loader = self.loader({"way": "slices"})
            found = dict(loader._get_weights_iterator(self.source(loader)))
        self.assertIsInstance(found["half"], Lazy)
        before = hoist.sglang.report()
        self.assertEqual(before["way"], "slices")
        self.assertLess(before["read_bytes"], 0.01 * before["file_bytes"])  # the scale
        for part in (lambda one: one.narrow(0, 16, 16), lambda one: one.narrow(1, 0, 32768), lambda one: one[16:],
                     lambda one: one.narrow(0, 16, 16).narrow(1, 32768, 32768)):
            read = hoist.sglang.report()["read_bytes"]
            target = torch.empty_like(part(self.tensors["half"]))
            target.copy_(part(found["half"]))
            self.assertTrue(torch.equal(target, part(self.tensors["half"])))
            read = hoist.sglang.report()["read_bytes"] - read
            self.assertGreaterEqual(read, target.nbytes)
            self.assertLess(read, 1.3 * target.nbytes)  # rows are widened to blocks of the disk
        self.assertEqual(before["file_bytes"], sum(one.nbytes for one in self.tensors.values()))

    def test_adapters_are_read_whole(self):
        """SGLang keeps an adapter's tensors, and its source has no model.  Nor are they mapped."""
        with self.ranks_of(2):
            for settings in ({}, {"way": "slices"}, {"way": "map"}):
                loader = self.loader(settings)
                found = dict(loader._get_weights_iterator(self.source(loader, model_config=None)))
                self.assertFalse([name for name, tensor in found.items() if isinstance(tensor, Lazy)])
                self.check_tensors(found, self.tensors)
                self.assertEqual(hoist.sglang.report()["mapped_bytes"], 0)

    def test_without_the_setting_sglang_reads(self):
        self.check_tensors(self.given(self.loader({})), self.tensors)
        before = hoist.sglang.report()
        with mock.patch("hoist.sglang.hooks.read", side_effect=AssertionError):
            for loader in (self.loader(), self.loader_of({"num_threads": 2})):
                self.check_tensors(self.given(loader), self.tensors)
            self.assertEqual(hoist.sglang.report(), before)
            with self.assertRaises(AssertionError):
                self.given(self.loader({}))
        with self.assertRaisesRegex(ValueError, "Unexpected extra config keys.*windw"):
            self.loader_of({"windw": 1})

    def test_an_update_reads_as_the_server_was_told(self):
        """Its configuration of a load has no extra settings."""
        self.publish(model_loader_extra_config='{"hoist": {"way": "slices"}}')
        self.check_tensors(self.given(self.loader_of({})), self.tensors)
        self.assertEqual(hoist.sglang.report()["way"], "slices")
        for own in ({"num_threads": 2}, {"enable_multithread_load": False}):
            with mock.patch("hoist.sglang.hooks.read", side_effect=AssertionError):
                self.check_tensors(self.given(self.loader_of(own)), self.tensors)

    def test_flags_of_sglangs(self):
        from hoist.sglang import hooks
        self.publish(weight_loader_drop_cache_after_load=True, weight_loader_prefetch_checkpoints=True)
        with mock.patch("hoist.sglang.hooks.read", wraps=hooks.read) as read, \
                self.assertLogs("hoist.sglang.hooks", "INFO") as log:
            for settings in ({}, {"drop_cache": False}, {"way": "map"}):
                self.check_tensors(self.given(self.loader(settings)), self.tensors)
        self.assertEqual([call.args[2].load for call in read.call_args_list],
                         [{"drop_cache": True}, {"drop_cache": False}, {}])
        self.assertRegex(log.output[0], "weight-loader-prefetch-checkpoints is without effect")
        self.assertRegex(log.output[1], r"hoist takes 0\.005 GB of 3 files by stream: ")
        self.assertRegex(log.output[2], r"hoist has read 0\.\d+ of 0\.\d+ GB, 11 tensors, by stream")

    def test_wrong_settings_are_refused_with_the_right_ones(self):
        for settings, words in (({"windw": "1G"}, "no setting windw; it has way, window, group, device_direct, budget, io"),
                                ({"way": "fast"}, "way is one of stream, slices, map, cache"),
                                ({"window": 0}, "window"), ({"io": "map"}, "io is auto"),
                                ({"way": "slices", "verify": True}, "verify needs whole"),
                                ({"num_threads": 8}, "no setting num_threads"), (True, "a dict, not True"),
                                ({"budget": -1}, "budget|bytes|size")):
            with self.subTest(settings=settings), self.assertRaisesRegex(ValueError, words):
                self.loader(settings)
        for extra, words in (({"hoist": {}, "window": "2G"}, "^window: .*within its key"),
                             ({"hoist": {}, "num_threads": 8, "a": 1}, "^a, num_threads: ")):
            with self.subTest(extra=extra), self.assertRaisesRegex(ValueError, words):
                self.loader_of(extra)
        for load_format in ("fastsafetensors", "instanttensor", "npcache"):
            with self.subTest(load_format=load_format), self.assertRaisesRegex(ValueError, load_format + " is a reader"):
                self.loader({}, load_format=load_format)
        for load_format in ("gguf", "dummy"):  # whose loaders take no settings
            with self.subTest(load_format=load_format), self.assertRaisesRegex(ValueError, "(?i)not supported"):
                self.loader({}, load_format=load_format)

    def test_a_loader_that_keeps_everything_gets_everything(self):
        loader = self.loader({"window": "200K"})
        self.check_tensors(dict(loader._get_weights_iterator(self.source(loader))), self.tensors)
        self.assertGreater(hoist.sglang.report()["n_loads"], 3)


class Memory(Base):
    """Alone, as other tests' tensors are no part of it."""

    def test_memory_is_bounded_and_given_back(self):
        def make(settings):
            loader = self.loader(settings)
            return loader, self.source(loader)
        self.check_memory(make)


class Another(Base):
    def check_refused(self, words):
        """register() fails, and registers nothing."""
        from sglang.srt.plugins import HookRegistry
        with mock.patch.object(HookRegistry, "_hooks", collections.defaultdict(list)):
            with self.assertRaisesRegex(ImportError, words + r".*: hoist needs the SGLang .* 0\.5\.23"):
                hoist.sglang.register()
            self.assertFalse(HookRegistry._hooks)

    def test_an_sglang_without_plugins_is_refused(self):
        with mock.patch.dict(sys.modules, {"sglang.srt.plugins.hook_registry": None}):
            self.check_refused(r"^SGLang 0\.\S+ has no sglang\.srt\.plugins\.hook_registry")
            with mock.patch.object(metadata, "version", side_effect=metadata.PackageNotFoundError):
                self.check_refused("^SGLang, which is not installed, has no sglang")

    def test_an_sglang_without_what_hoist_calls_is_refused(self):
        from sglang.srt.model_loader import loader
        for owner, name in ((loader.DefaultModelLoader, "_get_weights_iterator"),
                            (loader.DefaultModelLoader, "_prepare_weights"),
                            (loader, "_validate_default_loader_extra_config"), (loader, "maybe_add_mtp_safetensors")):
            known = vars(owner)[name]
            delattr(owner, name)
            try:
                with self.subTest(name=name):
                    self.check_refused(rf"^SGLang 0\.\S+ has no sglang\.srt\.model_loader\.loader\.\S*{name}")
            finally:
                setattr(owner, name, known)


class Registration(unittest.TestCase):
    """In processes of their own, as SGLang's are."""

    def test_sglang_finds_it_by_the_entry_point(self):
        points = [point for point in metadata.entry_points(group="sglang.srt.plugins") if point.name == "hoist"]
        self.assertEqual([point.value for point in points], ["hoist.sglang:register"])
        run = python("from sglang.srt.plugins import load_plugins as load; load(); load()\n"
                     "from sglang.srt.model_loader import loader\n"
                     "print(hasattr(loader.DefaultModelLoader._get_weights_iterator, '__wrapped__'),\n"
                     "      hasattr(loader._validate_default_loader_extra_config, '__wrapped__'))")
        self.assertEqual(run.stdout.split(), ["True", "True"], run.stderr)

    def test_twice_is_once(self):
        run = python("import hoist.sglang\nhoist.sglang.register(); hoist.sglang.register()\n"
                     "from sglang.srt.plugins import HookRegistry, load_plugins\n"
                     "load_plugins(); hoist.sglang.register(); HookRegistry.apply_hooks()\n"
                     "from sglang.srt.model_loader import loader\n"
                     "for one in loader.DefaultModelLoader._get_weights_iterator, loader._validate_default_loader_extra_config:\n"
                     "    print(hasattr(one, '__wrapped__'), hasattr(one.__wrapped__, '__wrapped__'))")
        self.assertEqual(run.stdout.split(), ["True", "False"] * 2, run.stderr)

    def test_without_hooks_sglang_goes_on_and_refuses_the_key(self):
        run = python("from sglang.srt.model_loader import loader\ndel loader.maybe_add_mtp_safetensors\n"
                     "from sglang.srt.plugins import load_plugins\nload_plugins()\n"
                     "from sglang.srt.configs.load_config import LoadConfig\n"
                     "try:\n    loader.get_model_loader(LoadConfig(model_loader_extra_config={'hoist': {}}))\n"
                     "except ValueError as error:\n    print(error)")
        self.assertRegex(run.stdout, "Unexpected extra config keys.*hoist", run.stderr)
        self.assertRegex(run.stderr, r"no \S+\.maybe_add_mtp_safetensors: hoist needs the SGLang")

    def test_nothing_is_imported_before_it_is_used(self):
        run = python("import sys, hoist.sglang; hoist.sglang\n"
                     "print(sorted({'torch', 'sglang', 'transformers', 'numpy'} & set(sys.modules)))")
        self.assertEqual(run.stdout.strip(), "[]", run.stderr)


if __name__ == "__main__":
    unittest.main()
