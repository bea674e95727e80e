# SPDX-License-Identifier: MIT
"""Generates tokens with vLLM's engine, for servers_vllm.py: a program, since an engine has its process for itself.

    servers_engine.py FOLDER N_RANKS OPTIONS [["FORMAT", {SETTINGS}, {SETTINGS}, ...], ...]

OPTIONS: of the engine; "generate": false, as vLLM's CPU build cannot run all that it loads.  Prints a line of JSON
for each load format, which has of each of its settings, after a load, by the first ones, or a reload of other
weights, by the others and by the first ones again: the tokens, a digest of each rank's parameters, what each rank of
hoist's has read; of a reload, tokens and digests before it, too.  "path" of settings: a folder to reload.
"""

import hashlib
import json
import os
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1",
                  VLLM_CPU_OMP_THREADS_BIND="nobind", HF_HUB_OFFLINE="1")
if sys.argv[2] == "1":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"


def facts(worker):
    """What a worker's process has read, and the parameters that it has."""
    import torch
    import hoist.vllm
    digest = hashlib.sha256()
    for name, one in sorted(worker.get_model().named_parameters()):
        digest.update(f"{name} {tuple(one.shape)} {one.dtype}".encode())
        digest.update(one.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return hoist.vllm.report(), digest.hexdigest()


def spoil(worker, settings):
    """Other weights than those of the checkpoint, which the next reload reads by other settings."""
    worker.vllm_config.load_config.model_loader_extra_config = settings
    for one in worker.get_model().parameters():
        if one.is_floating_point():
            one.data.mul_(-0.5)
        else:
            one.data.zero_()


def main():
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory
    folder, n_ranks, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    sampling = SamplingParams(max_tokens=16, temperature=0, detokenize=False)
    generates = options.pop("generate", True)
    for load_format, *settings in json.loads(sys.argv[4]):
        llm = LLM(folder, load_format=load_format, model_loader_extra_config=settings[0],
                  skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, tensor_parallel_size=n_ranks,
                  distributed_executor_backend="mp" if n_ranks > 1 else None, **options)

        def said(llm=llm):
            made = llm.generate([{"prompt_token_ids": [1, 2, 3, 4, 5]}], sampling, use_tqdm=False) if generates else []
            found, digests = zip(*llm.collective_rpc(facts))
            return {"tokens": [list(one.outputs[0].token_ids) for one in made], "facts": found, "digests": digests}
        loads = [{"settings": settings[0], **said()}]
        for given in (*settings[1:], settings[0]):
            given = dict(given)
            where = {"weights_path": given.pop("path")} if "path" in given else {}
            # Other weights, so that the same tokens can only come of a reload.
            llm.collective_rpc(spoil, args=(given,))
            spoilt = said()
            llm.collective_rpc("reload_weights", kwargs=where)
            loads.append({"settings": {**given, **where}, "spoilt": spoilt, **said()})
        print("\nENGINE " + json.dumps(loads), flush=True)
        llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()


if __name__ == "__main__":
    main()
