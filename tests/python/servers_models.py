# SPDX-License-Identifier: MIT
"""What the tests of servers share: small models, and the process's memory."""

import gc
import os
import shutil
import tempfile
import unittest

import torch

import hoist


def make_llama(folder, **more):
    """A model of two layers with random weights, saved by transformers in several files."""
    import transformers
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=1024, max_position_embeddings=256, **more)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="1MB")


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
        tensor = torch.zeros(4 << 20, dtype=torch.uint8)
        hoist.torch.save_file({f"t{number}": tensor for number in range(size >> 22)}, self.folder + "/model.safetensors")
        for settings in ({"window": "32M", "budget": "16M"}, {"way": "slices", "budget": "16M"}):
            for number in range(2):  # the first time imports modules, too
                gc.collect()
                before, peak = anonymous(), 0
                loader, source = make(settings)
                for _, tensor in loader._get_weights_iterator(source):
                    peak = max(peak, anonymous())
                    tensor.sum()
                del tensor
                gc.collect()
                if number == 1:
                    with self.subTest(settings=settings):
                        self.assertLess(peak - before, 80 << 20)
                        self.assertLess(anonymous() - before, 40 << 20)
