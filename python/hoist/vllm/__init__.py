# SPDX-License-Identifier: MIT
"""vLLM's `--load-format hoist`.

    vllm serve MODEL --load-format hoist
    vllm serve MODEL --load-format hoist --model-loader-extra-config '{"window": "2G"}'

vLLM finds the loader by hoist's entry point, in each of its processes; a program calls nothing here.
This module imports neither vLLM nor torch before one of its functions is called.
"""

__all__ = ["register", "report"]


def register():
    """Makes hoist known to vLLM as a load format.  The entry point of `vllm.general_plugins`.

    It may be called several times.

    Raises
    ------
    ImportError
        vLLM is not installed, or not one that this release of hoist knows.
    """
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
        it, by the stages of `hoist.Load.report()`, nanoseconds; "way":
        "stream", "slices", "map", "cache" or "group", by which files are loaded that are not mapped: by
        "group", each rank counts what it has read for all.  Empty: there was no load.
    """
    from . import loader
    return loader.newest()
