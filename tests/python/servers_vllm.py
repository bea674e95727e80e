# SPDX-License-Identifier: MIT
"""vLLM's --load-format hoist: in vLLM's engine on the CPU, and in its loader alone."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from importlib import metadata
from unittest import mock

import torch
from vllm.config import LoadConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.model_loader import default_loader, ep_weight_filter, get_model_loader, weight_utils

import hoist
import hoist.vllm
import hoist.vllm.loader
from servers_models import Folder, make_gptq, make_llama, make_moe

HERE = os.path.dirname(os.path.abspath(__file__))


class Engine(Folder):
    def loads(self, n_ranks, *settings, **options):
        """What servers_engine.py says of vLLM's own load, and of each of hoist's: the first settings' load, the reloads
        by the others, the reload by the first again.  Each gives the same parameters and tokens as vLLM's own load or
        reload, the reloads in the place of other weights."""
        formats = [("auto", {}), ("hoist", *settings)]
        with tempfile.TemporaryDirectory(dir="/tmp") as runtime:  # of the cache's holder: a short path
            environment = {**os.environ, "XDG_RUNTIME_DIR": runtime}
            run = subprocess.run([sys.executable, os.path.join(HERE, "servers_engine.py"), self.folder, str(n_ranks),
                                  json.dumps(options), json.dumps(formats)], capture_output=True, text=True,
                                 timeout=900, check=False, env=environment)
            subprocess.run([sys.executable, "-c", "import hoist; hoist.cache.drop()"], env=environment, check=False)
        said = [json.loads(line[7:]) for line in run.stdout.split("\n") if line.startswith("ENGINE ")]
        self.assertEqual(len(said), 2, (run.stdout + run.stderr)[-4000:])
        own, ret = said
        self.assertEqual(len(ret), len(settings) + 1)
        for number, one in enumerate(ret):
            with self.subTest(settings=one["settings"], number=number):
                wanted = own[min(number, 1)]
                self.assertEqual((one["tokens"], one["digests"]), (wanted["tokens"], wanted["digests"]))
                if number > 0:
                    self.assertNotEqual(one["spoilt"]["digests"], wanted["digests"])
                    self.assertTrue(one["spoilt"]["tokens"] != wanted["tokens"] or not wanted["tokens"])
                self.assertEqual(len(one["facts"]), n_ranks)
        self.assertEqual(own[0]["tokens"], own[1]["tokens"])
        self.assertEqual(len(own[0]["tokens"]), options.get("generate", True))
        return ret

    def check_read(self, said, way, least, most, rank=None):
        """The ranks together have read that part of the files, and each rank its one."""
        with self.subTest(way=way, settings=said["settings"]):
            self.assertEqual({facts["way"] for facts in said["facts"]}, {way})
            n_bytes = said["facts"][0]["file_bytes"]
            parts = [facts["read_bytes"] / n_bytes for facts in said["facts"]]
            self.assertGreaterEqual(sum(parts), least)
            self.assertLess(sum(parts), most)
            self.assertLess(max(parts), rank or most)

    def test_it_generates_the_same_tokens(self):
        """By each way, from files of both kinds."""
        make_llama(self.folder)
        others = os.path.join(self.folder, "others")
        os.mkdir(others)
        tensors = hoist.torch.load_file(self.folder, io="auto")
        torch.save(dict(list(tensors.items())[::2]), os.path.join(others, "pytorch_model-00001-of-00002.bin"))
        torch.save(dict(list(tensors.items())[1::2]), os.path.join(others, "pytorch_model-00002-of-00002.bin"))
        stream, slices, cached, again, mapped, bins, sliced_bins, last = self.loads(
            1, {}, {"way": "slices", "io": "cached"}, {"way": "cache"}, {"way": "cache"}, {"way": "map"},
            {"path": others, "io": "cached"}, {"path": others, "way": "slices"})
        for said, way in ((stream, "stream"), (slices, "slices"), (cached, "cache"), (bins, "stream"), (sliced_bins, "slices")):
            self.check_read(said, way, 1, 1.05)
        self.check_read(again, "cache", 0, 0.001)  # the image is there
        self.assertEqual((mapped["facts"][0]["way"], last["facts"][0]["way"]), ("map", "stream"))
        for said in (mapped, last):
            self.assertGreaterEqual(said["facts"][0]["read_bytes"] + said["facts"][0]["mapped_bytes"], said["facts"][0]["file_bytes"])

    def test_two_ranks(self):
        """A rank reads its part of Column-, Row-, QKV- and MergedColumnParallelLinear and VocabParallelEmbedding, or
        both share one read."""
        make_llama(self.folder)
        slices, shared, again = self.loads(2, {}, {"way": "group"})
        for said in (slices, again):
            self.check_read(said, "slices", 1, 1.2, 0.6)
        self.check_read(shared, "group", 1, 1.05)  # the files are of 1 MB, and read in blocks of 4 KiB

    def test_tied_weights(self):
        make_llama(self.folder, tie_word_embeddings=True)
        slices, streamed, shared, again = self.loads(2, {}, {"way": "stream"}, {"way": "group"})
        for said in (slices, again):
            self.check_read(said, "slices", 1, 1.2, 0.6)
        self.check_read(streamed, "stream", 2, 2.1, 1.05)
        self.check_read(shared, "group", 1, 1.05)

    def test_experts(self):
        """Each of two ranks has half of the experts, and reads no other, in a reload neither.  vLLM's CPU build dies where
        it shall generate with these, and a reload of its own leaves experts of another layout than its load."""
        make_moe(self.folder)
        slices, streamed, shared, again = self.loads(2, {}, {"way": "stream"}, {"way": "group"}, generate=False,
                                                     enable_expert_parallel=True, enable_ep_weight_filter=True)
        for said in (slices, again):
            self.check_read(said, "slices", 1, 1.15, 0.6)
        self.check_read(streamed, "stream", 1, 1.3, 0.65)
        self.check_read(shared, "group", 1, 1.05)
        for said in (slices, streamed, shared, again):
            self.assertEqual([facts["n_tensors"] for facts in said["facts"]], [21 + 24, 21 + 24])

    def test_a_quantised_model(self):
        """GPTQ's 4 bits, of which a rank takes parts of packed integers, their zeros and scales."""
        make_gptq(self.folder)
        slices, streamed, shared, again = self.loads(2, {}, {"way": "stream"}, {"way": "group"})
        for said in (slices, again):
            self.check_read(said, "slices", 1, 1.3, 0.65)
        self.check_read(streamed, "stream", 2, 2.1, 1.05)
        self.check_read(shared, "group", 1, 1.05)


class Loader(Folder):
    """The loader beside vLLM's own, without an engine."""

    def setUp(self):
        super().setUp()
        hoist.vllm.register()
        torch.manual_seed(2)
        self.tensors = {f"layers.{layer}.experts.{expert}.w1.weight": torch.randn(96, 256)
                        for layer in range(2) for expert in range(4)}
        self.tensors.update({f"layers.{layer}.experts.{expert}.w1.weight_scale": torch.randn(1)
                             for layer in range(2) for expert in range(4)})
        self.tensors.update({"q.weight": torch.randn(512, 256).to(torch.float8_e4m3fn), "q.scale": torch.tensor(0.5),
                             "qweight": torch.randint(-2**31, 2**31, (64, 300), dtype=torch.int32),
                             "zeros": torch.randint(0, 255, (700, 100), dtype=torch.uint8)})
        names = list(self.tensors)
        for number in range(3):
            hoist.torch.save_file({name: self.tensors[name] for name in names[number::3]},
                                  os.path.join(self.folder, f"model-0000{number}-of-3.safetensors"))

    @staticmethod
    def config(load_format, settings=None, **more):
        return LoadConfig(load_format=load_format, use_tqdm_on_load=False, model_loader_extra_config=settings or {}, **more)

    def loader(self, settings=None, load_format="hoist", **more):
        return get_model_loader(self.config(load_format, settings, **more))

    def given(self, loader):
        source = loader.Source(self.folder, None)
        return {name: tensor.clone() for name, tensor in loader._get_weights_iterator(source)}

    def all_of(self, loader, **more):
        """As a model gets them: with the facts."""
        model_config = mock.Mock(model=self.folder, revision=None)
        found = {name: tensor.clone() for name, tensor in
                 loader.get_all_weights(model_config, mock.Mock(spec=list(more), **more))}
        return found, hoist.vllm.report()

    @contextlib.contextmanager
    def runtime(self):
        """An own holder of the cache."""
        with tempfile.TemporaryDirectory(dir="/tmp") as runtime, mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": runtime}):
            yield
            hoist.cache.drop()

    def test_quantised_tensors_come_as_they_are(self):
        self.check_tensors(self.given(self.loader(load_format="auto")), self.tensors)
        with self.runtime():
            for settings in ({}, {"way": "slices"}, {"way": "map"}, {"way": "cache"}, {"window": "300K"}, {"io": "direct", "budget": "8M"}):
                with self.subTest(settings=settings):
                    found, facts = self.all_of(self.loader(settings))
                    self.check_tensors(found, self.tensors)
                    self.assertEqual(facts["n_tensors"], len(self.tensors))
                    self.assertAlmostEqual(sum(facts["stages"].values()) / 1e9, facts["seconds"], places=6)
                    self.assertIn("read_ns", facts["stages"])

    def test_what_will_be_read_is_said_first(self):
        with self.runtime(), self.assertLogs("vllm.hoist", "INFO") as log:
            for settings in ({"io": "direct"}, {"way": "cache"}):
                self.all_of(self.loader(settings))
        self.assertEqual(len(log.output), 4)
        self.assertRegex(log.output[0], r"hoist takes 0\.001 GB of 3 files by stream: 0\.001 direct, 0\.000 cached, 0\.000 ma")
        self.assertRegex(log.output[2], "hoist takes 3 files by cache: ")
        for number in (1, 3):
            self.assertRegex(log.output[number], r"hoist has read 0\.\d+ of 0\.\d+ GB, 20 tensors, by (stream|cache): ")

    def test_vllms_own_strategies(self):
        """hoist has ways of its own; torchao's is vLLM's, also in a reload, by another loader."""
        with self.assertLogs("vllm.hoist", "WARNING") as log:
            loader = self.loader(safetensors_load_strategy="eager")
            self.check_tensors(self.given(loader), self.tensors)
        self.assertEqual(len(log.output), 1)
        self.assertRegex(log.output[0], "--safetensors-load-strategy eager is without effect")
        config = self.config("hoist")
        serialized = mock.Mock(is_checkpoint_torchao_serialized=True)
        with mock.patch.multiple("vllm.model_executor.model_loader.default_loader", get_quant_config=lambda *_: serialized,
                                 torchao_version_at_least=lambda _: True), \
                mock.patch.object(hoist.vllm.loader.default_loader.DefaultModelLoader, "_get_weights_iterator",
                                  return_value=iter([("theirs", None)])), \
                mock.patch("hoist.vllm.loader.read", side_effect=AssertionError):
            model, model_config = mock.Mock(spec=["load_weights"]), mock.Mock(quantization="torchao", is_moe=False)
            model.load_weights.side_effect = list
            with set_current_vllm_config(VllmConfig()):
                get_model_loader(config).load_weights(model, model_config)
            self.assertEqual(config.safetensors_load_strategy, "torchao")

    def test_experts_of_other_ranks_are_not_read(self):
        own = self.loader(load_format="auto")
        own.local_expert_ids = {1, 3}
        wanted = self.given(own)
        self.assertLess(len(wanted), len(self.tensors))
        for way in ("stream", "slices"):
            loader = self.loader({"way": way})
            loader.local_expert_ids = {1, 3}
            with self.subTest(way=way):
                found, facts = self.all_of(loader)
                self.check_tensors(found, wanted)
                read = sum(tensor.nbytes for tensor in wanted.values())
                self.assertLess(read, 0.8 * facts["file_bytes"])
                self.assertLess(facts["read_bytes"], read + 3 * 8192 * len(wanted))

    def test_files_without_a_wanted_weight_are_not_read(self):
        files = hoist.open(os.path.join(self.folder, "model-00000-of-3.safetensors"))
        found, facts = self.all_of(self.loader(), is_unused_checkpoint_weight=lambda name: name in files)
        self.check_tensors(found, {name: tensor for name, tensor in self.tensors.items() if name not in files})
        self.assertEqual(facts["n_tensors"], len(found))

    def test_a_server_that_keeps_everything_gets_everything(self):
        """More than the window has room for: as a layer-by-layer reload may."""
        loader = self.loader({"window": "200K"})
        model_config = mock.Mock(model=self.folder, revision=None)
        self.check_tensors(dict(loader.get_all_weights(model_config, mock.Mock(spec=[]))), self.tensors)
        facts = hoist.vllm.report()
        self.assertGreater(facts["n_loads"], 3)
        self.assertGreaterEqual(facts["read_bytes"], sum(tensor.nbytes for tensor in self.tensors.values()))

    def test_wrong_settings_are_refused_with_the_right_ones(self):
        for settings, words in (({"windw": "1G"}, "no setting windw; it has way, window, group, device_direct, budget, io"),
                                ({"way": "fast"}, "way is one of stream, slices, map, cache"),
                                ({"window": "much"}, "much"), ({"window": 0}, "window"),
                                ({"io": "quick"}, "io is one of"), ({"io": "map"}, "io is auto"),
                                ({"way": "slices", "verify": True}, "verify needs whole"),
                                ({"verify": "no"}, "verify is true or false"), ({"depth": "x"}, "depth is a number"),
                                ({"way": "cache", "drop_cache": True}, "drop_cache"),
                                ({"way": "slices", "window": "1G"}, "a window belongs to the ways stream and group"),
                                ({"num_threads": 8}, "num_threads"), ({"budget": -1}, "budget|bytes|size")):
            with self.subTest(settings=settings), self.assertRaisesRegex(ValueError, words):
                self.loader(settings)
        with self.assertRaises(ValueError):
            self.loader({"enable_weights_track": True, "x": 1})
        self.assertIs(self.loader({"enable_weights_track": True}).enable_weights_track, True)

    def test_memory_is_bounded_and_given_back(self):
        def make(settings):
            loader = self.loader(settings)
            return loader, loader.Source(self.folder, None)
        self.check_memory(make)

    def test_vllm_finds_it_by_the_entry_point(self):
        points = [point for point in metadata.entry_points(group="vllm.general_plugins") if point.name == "hoist"]
        self.assertEqual([point.value for point in points], ["hoist.vllm:register"])
        program = ("from vllm.plugins import load_general_plugins as load; load()\n"
                   "from vllm.config import LoadConfig\n"
                   "from vllm.model_executor.model_loader import get_model_loader\n"
                   "print(type(get_model_loader(LoadConfig(load_format='hoist'))).__module__)")
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual(run.stdout.split()[-1:], ["hoist.vllm.loader"], run.stderr)


class Another(unittest.TestCase):
    """A vLLM that hoist does not know goes on without it, as an entry point that raises would end vLLM."""

    def check_refused(self, words):
        with mock.patch("vllm.model_executor.model_loader.register_model_loader", create=True) as registered, \
                self.assertLogs("vllm.hoist", "WARNING") as log:
            hoist.vllm.register()
        self.assertEqual(registered.mock_calls, [])
        line, = log.output
        self.assertRegex(line, f"there is no load format hoist: {words}: hoist needs the vLLM .* written for, 0.32, ")

    def test_a_vllm_without_what_hoist_calls(self):
        for owner, name in ((default_loader.DefaultModelLoader, "_get_weights_iterator"),
                            (default_loader.DefaultModelLoader, "_init_ep_weight_filter"),
                            (default_loader, "DefaultModelLoader"), (weight_utils, "_natural_sort_key"),
                            (ep_weight_filter, "should_skip_weight")):
            known = vars(owner)[name]
            delattr(owner, name)
            try:
                with self.subTest(name=name):
                    self.check_refused(rf"vLLM 0\.\S+ has no vllm\.model_executor\.model_loader\.\S*{name}\S*")
            finally:
                setattr(owner, name, known)

    def test_no_vllm(self):
        with mock.patch.dict(sys.modules, {"vllm.model_executor.model_loader.ep_weight_filter": None}), \
                mock.patch.object(metadata, "version", side_effect=metadata.PackageNotFoundError):
            self.check_refused(r"vLLM, which is not installed, has no vllm\S+ep_weight_filter")

    def test_vllm_goes_on(self):
        program = ("from vllm.model_executor.model_loader import weight_utils; del weight_utils._natural_sort_key\n"
                   "from vllm.plugins import load_general_plugins as load; load()\n"
                   "from vllm.config import LoadConfig\n"
                   "from vllm.model_executor.model_loader import get_model_loader\n"
                   "print(type(get_model_loader(LoadConfig(load_format='auto'))).__name__)\n"
                   "get_model_loader(LoadConfig(load_format='hoist'))")
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        self.assertIn("DefaultModelLoader", run.stdout)
        self.assertRegex(run.stdout + run.stderr, "there is no load format hoist: vLLM 0.*_natural_sort_key: hoist needs")
        self.assertIn("Load format `hoist` is not supported", run.stderr)


class Imports(unittest.TestCase):
    def test_nothing_is_imported_before_it_is_used(self):
        program = ("import sys, hoist.vllm; hoist.vllm; "
                   "print(sorted({'torch', 'vllm', 'transformers', 'numpy'} & set(sys.modules)))")
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout.strip(), "[]")


if __name__ == "__main__":
    unittest.main()
