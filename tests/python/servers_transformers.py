# SPDX-License-Identifier: MIT
"""hoist.transformers, and hoist.safetensors.replacing() under transformers, diffusers and accelerate."""

import contextlib
import importlib
import os
import sys
import threading
import unittest
from unittest import mock

import safetensors.torch
import torch
import transformers
import transformers.modeling_utils

import hoist
import hoist.safetensors.torch
import hoist.transformers
from servers_models import Folder, make_llama, replace_files

TOKENS = torch.tensor([[1, 2, 3, 4, 5]])


def logits(model):
    with torch.no_grad():
        return model(TOKENS).logits


def quantise(folder):
    """The linear layers of make_llama()'s model as fp8 with a scale for each block."""
    tensors = hoist.torch.load_file(folder, io="auto")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        rows, columns = tensors[name].shape
        blocks = tensors[name].float().view(rows // 128, 128, columns // 128, 128)
        scales = blocks.abs().amax((1, 3)) / 448
        tensors[name] = (blocks / scales[:, None, :, None]).view(rows, columns).to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scales
    replace_files(folder, tensors, {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})


class Models(Folder):
    def setUp(self):
        super().setUp()
        transformers.logging.set_verbosity_error()
        make_llama(self.folder)
        self.kind = transformers.AutoModelForCausalLM
        self.own = self.kind.from_pretrained(self.folder)

    def check(self, model, own=None):
        """The model is transformers' own, bit for bit."""
        own = own or self.own
        self.assertIs(type(model), type(own))
        self.assertFalse(model.training)
        self.assertTrue(torch.equal(logits(model), logits(own)))
        wanted, got = own.state_dict(), model.state_dict()
        self.assertEqual(list(got), list(wanted))
        for name, tensor in wanted.items():
            self.assertEqual(got[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(got[name], tensor), name)
        self.assertEqual(model.generation_config.to_dict(), own.generation_config.to_dict())
        self.assertEqual(model.config.to_dict(), own.config.to_dict())
        self.assertEqual(model.name_or_path, own.name_or_path)


class FromPretrained(Models):
    def load(self, **options):
        """(the model, the tensors that hoist has loaded)"""
        import hoist.torch
        loaded, load_file = [], hoist.torch.load_file

        def spy(*given, **named):
            loaded.append(load_file(*given, **named))
            return loaded[-1]
        with mock.patch("hoist.torch.load_file", spy):
            model = hoist.transformers.from_pretrained(self.kind, self.folder, **options)
        self.assertEqual(len(loaded), 1)
        return model, loaded[0]

    def test_the_model_is_transformers_own(self):
        with self.assertLogs("hoist.transformers", "INFO") as log:
            self.check(self.load()[0])
        self.assertRegex(log.output[0], r"hoist has loaded or mapped 0\.003 GB, \d+ tensors, of /\S+ in \d+\.\d\d s$")
        self.check(hoist.transformers.from_pretrained(transformers.LlamaForCausalLM, self.folder))

    def test_parameters_share_the_memory_of_what_was_loaded(self):
        for load in (None, {"io": "auto"}, {"io": "direct", "budget": "8M"}):
            model, loaded = self.load(load=load)
            with self.subTest(load=load):
                self.assertEqual({one.data_ptr() for one in model.parameters()},
                                 {one.data_ptr() for one in loaded.values()})
                self.check(model)

    def test_another_dtype(self):
        own = self.kind.from_pretrained(self.folder, dtype=torch.float32)
        model, _ = self.load(dtype=torch.float32)
        self.assertIs(next(model.parameters()).dtype, torch.float32)
        self.check(model, own)

    def test_tied_weights(self):
        make_llama(self.folder, tie_word_embeddings=True)
        model, _ = self.load()
        self.assertIs(model.lm_head.weight, model.model.embed_tokens.weight)
        self.check(model, self.kind.from_pretrained(self.folder))

    def test_a_configuration_of_the_programs(self):
        config = transformers.AutoConfig.from_pretrained(self.folder)
        config.attn_implementation = config._attn_implementation = "eager"
        model, _ = self.load(config=config)
        self.assertEqual(model.config._attn_implementation, "eager")

    def test_without_a_file_for_generation(self):
        os.unlink(os.path.join(self.folder, "generation_config.json"))
        self.check(self.load()[0], self.kind.from_pretrained(self.folder))

    def test_a_name_in_hugging_faces_cache(self):
        revision = "0123456789abcdef0123456789abcdef01234567"
        hub = os.path.join(self.folder, "hub")
        snapshot = os.path.join(hub, "models--org--tiny", "snapshots", revision)
        os.makedirs(os.path.join(hub, "models--org--tiny", "refs"))
        os.makedirs(snapshot)
        with open(os.path.join(hub, "models--org--tiny", "refs", "main"), "w", encoding="ascii") as file:
            file.write(revision)
        for name in os.listdir(self.folder):
            if name != "hub":
                os.rename(os.path.join(self.folder, name), os.path.join(snapshot, name))
        program = ("import sys, torch, transformers, hoist.transformers\n"
                   "kind = transformers.AutoModelForCausalLM\n"
                   "a = hoist.transformers.from_pretrained(kind, 'org/tiny', revision='main')\n"
                   "b = kind.from_pretrained('org/tiny')\n"
                   "t = torch.tensor([[1, 2, 3]])\n"
                   "print(torch.equal(a(t).logits, b(t).logits), a.config.name_or_path)")
        import subprocess
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                             env={**os.environ, "HF_HUB_CACHE": hub, "HF_HUB_OFFLINE": "1"})
        self.assertEqual(run.stdout.split(), ["True", "org/tiny"], run.stderr[-2000:])

    def test_a_map_of_devices(self):
        for where in ("cpu", "auto", {"": "cpu"}):
            with self.subTest(where=where):
                self.check(self.load(device_map=where)[0])

    def test_a_quantised_checkpoint(self):
        """Of fp8, which transformers makes bf16 without a GPU; it refuses to quantise there."""
        quantise(self.folder)
        own = self.kind.from_pretrained(self.folder)
        self.assertFalse(torch.equal(logits(own), logits(self.own)))
        self.check(self.load()[0], own)
        with hoist.safetensors.replacing():
            self.check(self.kind.from_pretrained(self.folder), own)
        make_llama(self.folder)
        said = []
        for call in (self.kind.from_pretrained, lambda *given, **named: self.load(**named)):
            with self.assertRaises(RuntimeError) as caught:
                call(self.folder, quantization_config=transformers.FineGrainedFP8Config())
            said.append(str(caught.exception))
        self.assertRegex(said[0], "GPU")
        self.assertEqual(said[0], said[1])

    def test_options_that_it_lacks_are_refused(self):
        for options in ({"variant": "fp16"}, {"subfolder": "x"}, {"output_loading_info": True},
                        {"cache_dir": "x"}):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, next(iter(options))):
                hoist.transformers.from_pretrained(transformers.LlamaForCausalLM, self.folder, **options)

    def test_nothing_is_asked_of_the_network(self):
        with mock.patch("socket.socket.connect", side_effect=AssertionError("a connection")), \
                self.assertRaises(OSError):
            hoist.transformers.from_pretrained(transformers.LlamaForCausalLM, "no-one/has-this")

    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(ValueError, "no class for LlamaConfig.*replacing"):
            hoist.transformers.from_pretrained(transformers.AutoModelForSpeechSeq2Seq, self.folder)
        with self.assertRaises(TypeError):
            self.load(load={"speed": 11})
        os.truncate(os.path.join(self.folder, "model-00001-of-00004.safetensors"), 100)
        with self.assertRaises(hoist.Error):
            hoist.transformers.from_pretrained(self.kind, self.folder)


class Replacing(Models):
    @contextlib.contextmanager
    def counted(self):
        """Within replacing(), with a count of the files that hoist has opened."""
        opened, real = [], hoist.safetensors.safe_open.__init__

        def spy(this, filename, *given, **named):
            opened.append(filename)
            real(this, filename, *given, **named)
        with mock.patch.object(hoist.safetensors.safe_open, "__init__", spy), hoist.safetensors.replacing():
            yield opened

    def test_transformers(self):
        with self.counted() as opened:
            model = self.kind.from_pretrained(self.folder)
        self.assertEqual(len(set(map(str, opened))), 4)
        self.check(model)

    def test_accelerate(self):
        import accelerate
        with accelerate.init_empty_weights():
            model = self.kind.from_config(transformers.AutoConfig.from_pretrained(self.folder))
        with self.counted() as opened:
            accelerate.load_checkpoint_in_model(model, self.folder, dtype=torch.bfloat16,
                                                device_map={"": "cpu"})
        self.assertEqual(len(set(map(str, opened))), 4)
        for name, tensor in self.own.state_dict().items():
            self.assertTrue(torch.equal(model.state_dict()[name], tensor), name)

    def test_accelerate_dispatches(self):
        """A part is moved to the disk, and read there when it is used."""
        import accelerate
        with accelerate.init_empty_weights():
            model = self.kind.from_config(transformers.AutoConfig.from_pretrained(self.folder))
        places = {name: "cpu" for name in ("model.embed_tokens", "model.layers.0", "model.norm", "model.rotary_emb")}
        places.update({"model.layers.1": "disk", "lm_head": "disk"})
        with self.counted() as opened:
            model = accelerate.load_checkpoint_and_dispatch(model, self.folder, device_map=places, dtype=torch.bfloat16,
                                                            offload_folder=os.path.join(self.folder, "moved"))
        self.assertEqual(len(set(map(str, opened))), 4)
        self.assertTrue(model.lm_head.weight.is_meta)
        self.assertTrue(torch.equal(logits(model), logits(self.own)))

    def test_diffusers(self):
        """In one file and in several, also by several threads."""
        import diffusers
        torch.manual_seed(3)
        kind = diffusers.UNet2DModel
        made = kind(sample_size=16, block_out_channels=(32, 32), layers_per_block=1, norm_num_groups=8,
                    down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"))
        picture = torch.randn(1, 3, 16, 16)
        for n_files, size in ((1, "1GB"), (4, "200KB")):
            folder = os.path.join(self.folder, f"unet{n_files}")
            made.save_pretrained(folder, max_shard_size=size)
            own = kind.from_pretrained(folder)
            for parallel in (False, True):
                with self.subTest(n_files=n_files, parallel=parallel), self.counted() as opened, \
                        mock.patch("diffusers.models.modeling_utils.HF_ENABLE_PARALLEL_LOADING", parallel):
                    model = kind.from_pretrained(folder)
                    self.assertGreaterEqual(len(set(map(str, opened))), n_files)
                    self.check_tensors(model.state_dict(), own.state_dict())
                    with torch.no_grad():
                        self.assertTrue(torch.equal(model(picture, 3).sample, own(picture, 3).sample))

    @staticmethod
    def holders():
        """Where modules but hoist's have the package's functions, or hoist's."""
        known = {id(one): name for name, one in (
            ("theirs", safetensors.safe_open), ("theirs", safetensors.torch.load_file),
            ("ours", hoist.safetensors.safe_open), ("ours", hoist.safetensors.torch.load_file))}
        return {(name, key): known[id(value)] for name, module in list(sys.modules.items())
                if not name.startswith("hoist") for key, value in list(vars(module).items()) if id(value) in known}

    def test_all_is_as_before_after_the_block(self):
        theirs, before = safetensors.safe_open, self.holders()
        self.assertGreater(len(before), 4)
        with self.assertRaises(KeyError), hoist.safetensors.replacing():
            self.assertIs(transformers.modeling_utils.safe_open, hoist.safetensors.safe_open)
            with hoist.safetensors.replacing():
                pass
            self.assertIs(safetensors.safe_open, hoist.safetensors.safe_open)
            seen = []
            thread = threading.Thread(target=lambda: seen.append(safetensors.torch.load_file))
            thread.start()
            thread.join()
            self.assertIs(seen[0], hoist.safetensors.torch.load_file)
            raise KeyError
        self.assertIs(safetensors.safe_open, theirs)
        self.assertEqual(self.holders(), before)

    def test_modules_that_are_imported_within_the_block(self):
        with open(os.path.join(self.folder, "imports_safe_open.py"), "w", encoding="ascii") as file:
            file.write("from safetensors import safe_open\n")
        with mock.patch.object(sys, "path", [self.folder, *sys.path]), hoist.safetensors.replacing():
            module = importlib.import_module("imports_safe_open")
            self.assertIs(module.safe_open, hoist.safetensors.safe_open)
        self.addCleanup(sys.modules.pop, "imports_safe_open")
        self.assertIs(module.safe_open, safetensors.safe_open)

    def test_a_program_that_has_hoists_keeps_it(self):
        module = type(sys)("has_hoists")
        module.safe_open = hoist.safetensors.safe_open
        with mock.patch.dict(sys.modules, {"has_hoists": module}):
            with hoist.safetensors.replacing():
                pass
            self.assertIs(module.safe_open, hoist.safetensors.safe_open)


if __name__ == "__main__":
    unittest.main()
