# SPDX-License-Identifier: MIT
"""Loads a model as one rank of SGLang's does, for servers_sglang.py: a program, since a rank is a process.

    servers_sglang_rank.py FOLDER RANK N_RANKS RENDEZVOUS [SETTINGS, ...]

SETTINGS: of --model-loader-extra-config, the server's own in the last place.  Prints a line of JSON for each:
the digest of the parameters that the model has then, and the facts of hoist's load.  The last line is of
update_weights_from_disk, after other weights than the checkpoint's.

All of SGLang here is its own: plug-ins, configuration, groups over gloo, the model, its layers and weight
loaders, loader.load_model() and WeightUpdater.  No engine runs, as this needs SGLang's kernels.
"""

import hashlib
import json
import os
import sys

# A GPU's library, which SGLang would otherwise use for groups on the CPU, too.
os.environ["SGLANG_NCCL_SO_PATH"] = "/there/is/none"

import torch  # pylint: disable=wrong-import-position


def digest(model):
    """A digest of all parameters."""
    ret = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        ret.update(name.encode())
        ret.update(parameter.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return ret.hexdigest()


def say(model):
    """The line for the model as it is now."""
    import hoist.sglang
    print("\nSGLANG " + json.dumps({"digest": digest(model), "facts": hoist.sglang.report()}), flush=True)


def start(folder, rank, n_ranks, rendezvous, settings):
    """What SGLang's scheduler does before it loads.  Returns: the model's configuration."""
    from sglang.srt.plugins import load_plugins
    load_plugins()
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import parallel_state
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs
    arguments = ServerArgs(model_path=folder, device="cpu", tp_size=n_ranks, skip_tokenizer_init=True,
                           model_loader_extra_config=json.dumps(settings))
    arguments.resolve_once()
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank))
    parallel_state.init_distributed_environment(world_size=n_ranks, rank=rank, local_rank=rank, backend="gloo",
                                                distributed_init_method=rendezvous)
    parallel_state.initialize_model_parallel(backend="gloo")
    return ModelConfig.from_server_args(arguments)


def main():
    folder, rank, n_ranks, rendezvous = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    every = json.loads(sys.argv[5])
    model_config = start(folder, rank, n_ranks, rendezvous, every[-1])
    from sglang.srt.configs.device_config import DeviceConfig
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
    from sglang.srt.model_loader.loader import get_model_loader
    for settings in every:
        loader = get_model_loader(LoadConfig(model_loader_extra_config=settings), model_config)
        model = loader.load_model(model_config=model_config, device_config=DeviceConfig("cpu"))
        say(model)
    for parameter in model.parameters():
        parameter.data.mul_(-0.5)
    spoilt = digest(model)
    updater = WeightUpdater(tp_rank=rank, device="cpu", gpu_id=rank, model_config=model_config,
                            custom_weight_loaders={}, get_model=lambda: model, get_model_runner=None,
                            update_model_fields=lambda *_, **__: None, recapture_cuda_graph=lambda: None)
    done, text = updater.update_weights_from_disk(folder, "auto")
    assert done and digest(model) != spoilt, text
    say(model)


if __name__ == "__main__":
    main()
