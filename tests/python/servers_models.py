# SPDX-License-Identifier: MIT
"""What the tests of servers share: small models, and the process's memory."""

import gc
import json
import os
import shutil
import tempfile
import unittest

import torch

import hoist
import hoist.torch
from hoist.servers.reading import give_back


def make_llama(folder, **more):
    """A model of two layers with random weights, saved by transformers in several files."""
    import transformers
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=1024, max_position_embeddings=256, **more)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="1MB")


def make_moe(folder):
    """A model with eight experts in each of its two layers."""
    import transformers
    torch.manual_seed(1)
    config = transformers.Qwen3MoeConfig(
        hidden_size=256, moe_intermediate_size=256, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
        head_dim=32, num_experts=8, num_experts_per_tok=2, vocab_size=1024, max_position_embeddings=256)
    transformers.Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="2MB")


def make_gptq(folder):
    """A model as make_llama()'s, whose linear layers are quantised to 4 bits, as GPTQ does."""
    make_llama(folder)
    generator, group = torch.Generator().manual_seed(3), 64
    tensors = hoist.torch.load_file(folder, io="auto")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        n_out, n_in = tensors.pop(name).shape
        name = name.removesuffix("weight")
        bits = torch.iinfo(torch.int32)
        tensors[name + "qweight"] = torch.randint(bits.min, bits.max, (n_in // 8, n_out), generator=generator, dtype=torch.int32)
        tensors[name + "qzeros"] = torch.full((n_in // group, n_out // 8), 0x77777777, dtype=torch.int32)
        tensors[name + "scales"] = (torch.rand(n_in // group, n_out, generator=generator) / 100).to(torch.bfloat16)
        tensors[name + "g_idx"] = torch.arange(n_in, dtype=torch.int32) // group
    replace_files(folder, tensors, {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, "sym": True})


def replace_files(folder, tensors, quantised):
    """Other tensors in the place of a model's, and how they are quantised."""
    for path in os.listdir(folder):
        if path.startswith("model"):
            os.unlink(os.path.join(folder, path))
    hoist.torch.save_file(tensors, os.path.join(folder, "model.safetensors"))
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = quantised
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def anonymous():
    """Bytes of this process's memory that no file stands behind."""
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


class Folder(unittest.TestCase):
    """Tests with a folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check_tensors(self, found, wanted):
        """Both are {name: tensor}: the same names, types, shapes and bits."""
        self.assertEqual(set(found), set(wanted))
        for name, tensor in wanted.items():
            self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(torch.equal(found[name].reshape(-1).view(torch.uint8),
                                        tensor.reshape(-1).view(torch.uint8)), name)

    def check_memory(self, make):
        """Of a folder with 256 MiB, little is in memory at once, and nothing is left.

        `make(settings)` gives a server's loader, which lives on, and its source.
        """
        size = 256 << 20
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        path, tensor = self.folder + "/model.safetensors", torch.zeros(4 << 20, dtype=torch.uint8)
        for settings, most in (({"window": "32M", "budget": "16M"}, 48 << 20), ({"way": "slices", "budget": "16M"}, 32 << 20)):
            for n_tensors in (1, size >> 22):  # the first load imports modules, too
                hoist.torch.save_file({f"t{number}": tensor for number in range(n_tensors)}, path)
                gc.collect()
                give_back()  # what the save has kept
                before, peak = anonymous(), 0
                loader, source = make(settings)
                for _, found in loader._get_weights_iterator(source):
                    found.sum()
                    peak = max(peak, anonymous())
                    del found
                gc.collect()
            with self.subTest(settings=settings):
                self.assertGreater(peak - before, 4 << 20)  # hoist has not kept it from a load before
                self.assertLess(peak - before, most + (4 << 20))
                self.assertLess(anonymous() - before, 4 << 20)
