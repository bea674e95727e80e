# SPDX-License-Identifier: MIT
"""What the tests of servers share: small models, and the process's memory."""

import tempfile
import unittest

import torch


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
