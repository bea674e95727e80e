# SPDX-License-Identifier: MIT
"""Generates tokens with vLLM's engine, for servers_vllm.py: a program, since an engine has its process for itself.

    servers_engine.py FOLDER N_RANKS {"FORMAT": {SETTINGS}, ...}

Prints a line of JSON for each load format: the tokens, those after reload_weights, what each rank of
hoist's has read in the load.
"""

import json
import os
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1",
                  VLLM_CPU_OMP_THREADS_BIND="nobind", HF_HUB_OFFLINE="1")
if sys.argv[2] == "1":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"


def facts(worker):
    """What a worker's process has read."""
    import hoist.vllm
    return hoist.vllm.report()


def main():
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory
    for load_format, settings in json.loads(sys.argv[3]):
        llm = LLM(sys.argv[1], load_format=load_format, model_loader_extra_config=settings,
                  skip_tokenizer_init=True, enforce_eager=True, max_model_len=64,
                  tensor_parallel_size=int(sys.argv[2]), distributed_executor_backend="mp" if sys.argv[2] != "1" else None)
        sampling = SamplingParams(max_tokens=16, temperature=0, detokenize=False)

        def tokens():
            made = llm.generate([{"prompt_token_ids": [1, 2, 3, 4, 5]}], sampling, use_tqdm=False)
            return list(made[0].outputs[0].token_ids)
        said = {"format": load_format, "settings": settings, "tokens": tokens()}
        said["facts"] = llm.collective_rpc(facts)
        if load_format == "hoist":
            # Other weights, so that the same tokens can only come of a reload.
            llm.collective_rpc(spoil)
            said["spoilt"] = tokens()
            llm.collective_rpc("reload_weights")
            said["reloaded"] = tokens()
            said["facts_reloaded"] = llm.collective_rpc(facts)
        print("\nENGINE " + json.dumps(said), flush=True)
        llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()


def spoil(worker):
    """Other weights than those of the checkpoint."""
    for one in worker.get_model().parameters():
        one.data.mul_(-0.5)


if __name__ == "__main__":
    main()
