#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""servers.py SERVER FOLDER - the time from a server's call to a model with its weights: hoist beside the server's own loaders.

SERVER is vllm or transformers; FOLDER holds a model of one of the server's kinds.  Run it by the
interpreter of `./check servers`:

    build/check-servers/venv/bin/python bench/servers.py vllm FOLDER

Of vLLM, the call fills a model that was made before the clock starts; of transformers, it makes it, too.
All loads are in one process, on the CPU, after one of each that is not counted; a round has each
loader once, in an order that rotates.  Figures are medians of seconds.  Hot: the files are in the page
cache.  Cold: they are dropped from it (posix_fadvise) before each load.  "touched": with a sum over
each page of the model, as what is mapped is read only then.
"""
import argparse
import contextlib
import gc
import glob
import os
import statistics
import time

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def vllm_loaders(folder):
    """{name: a call that gives a loaded model}"""
    import torch
    from fastsafetensors import SingleGroup
    from fastsafetensors.parallel_loader import ParallelLoader
    from vllm.config import LoadConfig, set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.plugins import load_general_plugins

    class Fast(DefaultModelLoader):
        """fastsafetensors to host memory: vLLM's own way of it needs a GPU."""

        def _get_weights_iterator(self, source):
            files = sorted(self._prepare_weights(source.model_or_path, None, None, True, None)[1])
            loader = ParallelLoader(pg=SingleGroup(), hf_weights_files=files, device="cpu", nogds=True,
                                    use_tqdm_on_load=False)
            yield from loader.iterate_weights()
            loader.close()

    load_general_plugins()
    config = EngineArgs(model=folder, skip_tokenizer_init=True, enforce_eager=True, max_model_len=64,
                        ).create_engine_config()
    context = set_current_vllm_config(config)
    context.__enter__()
    init_distributed_environment(1, 0, f"file:///tmp/servers-{os.getpid()}", 0, backend="gloo")
    ensure_model_parallel_initialized(1, 1)

    def call(make=None, **options):
        config.compilation_config.static_forward_context.clear()  # of the model before
        config.load_config = LoadConfig(use_tqdm_on_load=False, **options)
        loader = (make or get_model_loader)(config.load_config)
        model = loader.create_model(config, config.model_config)
        return model, lambda: loader.load_weights(model, config.model_config)
    torch.set_grad_enabled(False)
    torch.set_default_dtype(config.model_config.dtype)
    own = {"vLLM": {}, "vLLM, 8 threads": {"model_loader_extra_config": {"enable_multithread_load": True}},
           "vLLM, eager": {"safetensors_load_strategy": "eager"},
           "fastsafetensors": {"make": Fast}}
    own.update({f"hoist, {way}": {"load_format": "hoist", "model_loader_extra_config": {"way": way}}
                for way in ("stream", "slices", "map")})
    return {name: (lambda options=options: call(**options)) for name, options in own.items()}


def transformers_loaders(folder):
    """{name: a call that gives a loaded model}"""
    import torch
    import transformers
    import hoist.safetensors
    import hoist.transformers
    from fastsafetensors import fastsafe_open
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])

    def fast():
        files = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
        with fastsafe_open(files, nogds=True, device="cpu") as file:
            state = {name: file.get_tensor(name).clone() for name in file.keys()}
        return kind.from_pretrained(None, config=config, state_dict=state, dtype=torch.bfloat16)

    def replaced():
        with hoist.safetensors.replacing():
            return kind.from_pretrained(folder, dtype=torch.bfloat16)
    return {"transformers": lambda: kind.from_pretrained(folder, dtype=torch.bfloat16),
            "fastsafetensors": fast,
            "hoist": lambda: hoist.transformers.from_pretrained(kind, folder, dtype=torch.bfloat16),
            "hoist, safe_open": replaced}


def drop(folder):
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(folder):
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def touch(model):
    """Every byte of the model is there: what was mapped is read."""
    return sum(float(one.view(-1)[::1024].sum()) for one in model.parameters())


def measure(call, folder, cold, prepared):
    """(seconds to the weights, seconds with every page touched, model)"""
    gc.collect()
    drop(folder) if cold else warm(folder)
    made, fill = call() if prepared else (None, call)
    began = time.perf_counter()
    model = fill() if made is None else (fill(), made)[1]
    seconds = time.perf_counter() - began
    touch(model)
    touched = time.perf_counter() - began
    return seconds, touched, model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=("vllm", "transformers"))
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    makers = {"vllm": vllm_loaders, "transformers": transformers_loaders}
    calls = makers[arguments.server](arguments.folder)
    found, sums = {name: [] for name in calls if not arguments.only or name in arguments.only}, {}
    for number in range(arguments.rounds + 1):
        names = list(found)
        for name in names[number % len(names):] + names[:number % len(names)]:
            with contextlib.redirect_stdout(None):
                *result, model = measure(calls[name], arguments.folder, arguments.cold,
                                         arguments.server == "vllm")
            sums[name] = touch(model)
            del model
            if number > 0:
                found[name].append(result)
    if len(set(sums.values())) != 1:
        raise SystemExit(f"loaders differ: {sums}")
    print("cold" if arguments.cold else "hot", arguments.server)
    for name, results in found.items():
        seconds, touched = (statistics.median(column) for column in zip(*results))
        print(f"{name:20} {seconds:7.3f} s  touched {touched:7.3f} s")


if __name__ == "__main__":
    main()
