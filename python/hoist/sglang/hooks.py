# SPDX-License-Identifier: MIT
"""Hooks around two functions of SGLang's: that which reads files, and that which checks its settings.

Importing this module imports torch; SGLang's modules are imported by the functions.
"""

import importlib
import json
import logging
import os
import time

from ..servers import needed
from ..servers.ranks import Ranks, gatherer
from ..servers.reading import Facts, read
from ..servers.settings import Settings

_log = logging.getLogger(__name__)
_newest = {}

_REGISTRY = "sglang.srt.plugins.hook_registry"
_LOADER = "sglang.srt.model_loader.loader"
_READS = "DefaultModelLoader._get_weights_iterator"
_CHECKS = "_validate_default_loader_extra_config"
# The names that the hooks use of _LOADER.
_CALLED = ("DefaultModelLoader._prepare_weights", "DefaultModelLoader._filter_mtp_weights",
           "DefaultModelLoader._MTP_PATTERN", "maybe_add_mtp_safetensors")
_KNOWN = "0.5.23"  # SGLang that the hooks were written for
# Load formats of DefaultModelLoader's that name a reader, and not files.
_READERS = ("fastsafetensors", "instanttensor", "npcache")


def newest():
    """The facts of the newest checkpoint."""
    return dict(_newest.get("facts", ()))


def _n_ranks():
    """Processes that share the model: those of tensor and of pipeline parallelism."""
    from sglang.srt.runtime_context import get_parallel
    parallel = get_parallel()
    return parallel.tp_size * parallel.pp_size


def _ranks(settings):
    """Those of tensor parallelism; all of them call this for each load.  None: there is one."""
    from sglang.srt.runtime_context import get_parallel
    if get_parallel().tp_size == 1:
        return None
    from sglang.srt.distributed.parallel_state import get_tp_group
    return Ranks(gatherer(get_tp_group().cpu_group), settings.group)


def _server():
    """The server's configuration of models."""
    from sglang.srt.runtime_context import get_model
    return get_model()


def _given(load_config):
    """hoist's settings for a load; None: SGLang reads itself."""
    extra = load_config.model_loader_extra_config
    if not extra:  # update_weights_from_disk does not pass on what the server was started with
        extra = _server().model_loader_extra_config or {}
        extra = json.loads(extra) if isinstance(extra, str) else extra
    return None if load_config.load_format in _READERS else extra.get("hoist")


def _files(loader, source, resolved):
    """The files that SGLang would read."""
    if resolved is not None:
        return resolved.weight_files
    folder, files, is_safe = loader._prepare_weights(
        source.model_or_path, source.revision, source.fall_back_to_pt, source.allow_patterns_overrides)
    if is_safe and source.model_config is not None:
        add = importlib.import_module(_LOADER).maybe_add_mtp_safetensors
        files = add(files, folder, "model.safetensors.index.json", source.model_config.hf_config)
    return files


def _settings(given, source):
    """The settings for a source, and the way to read it."""
    settings = Settings(given)
    if source.model_config is None and settings.way != "cache":
        # An adapter.  SGLang keeps its tensors, which must not stay in the file.
        settings.way = "stream"
    way = settings.way_of(_n_ranks())
    if _server().weight_loader_drop_cache_after_load and way not in ("map", "cache"):
        settings.load.setdefault("drop_cache", True)
    return settings, way


def _told(found, facts):
    yield from found
    facts.end()


def weights(original, loader, source, **named):
    """Names and tensors of a source: around DefaultModelLoader._get_weights_iterator().

    Parameters
    ----------
    original : callable
        SGLang's own, which is called where hoist is not asked for.
    loader : DefaultModelLoader
    source : DefaultModelLoader.Source
    **named
        Those of SGLang's; "resolved_source": the files are known already.
    """
    given = _given(loader.load_config)
    if given is None:
        return original(loader, source, **named)
    files = [os.fspath(path) for path in _files(loader, source, named.get("resolved_source"))]
    settings, way = _settings(given, source)
    if _server().weight_loader_prefetch_checkpoints and not named.get("startup_prefetch_started"):
        _log.warning("hoist reads ahead by itself: --weight-loader-prefetch-checkpoints is without effect")
    facts = _newest["facts"] = Facts(way, _log)
    draft = loader.load_config.draft_model_idx

    def is_wanted(name):
        match = None if draft is None else loader._MTP_PATTERN.match(name)
        return match is None or int(match[1]) == draft
    if loader.counter_before_loading_weights == 0.0:
        loader.counter_before_loading_weights = time.perf_counter()
    found = _told(read(files, is_wanted, settings, facts, _ranks(settings) if way == "group" else None,
                       prefix="" if draft is not None else source.prefix), facts)
    return found if draft is None else loader._filter_mtp_weights(found, source.prefix, draft)


def checked(original, *, extra_config, load_format, **named):
    """Refuses wrong settings before there is a model: around _validate_default_loader_extra_config().

    Parameters
    ----------
    original : callable
        SGLang's own, which is called where hoist is not asked for.
    extra_config : dict
    load_format : LoadFormat
    **named
        Those of SGLang's.

    Raises
    ------
    ValueError
        Names the wrong setting, and those that there are.
    """
    if "hoist" not in (extra_config or ()):
        original(extra_config=extra_config, load_format=load_format, **named)
        return
    beside = sorted(str(name) for name in extra_config if name != "hoist")
    if beside:
        raise ValueError(f"{', '.join(beside)}: not beside hoist, which reads in place of SGLang's own reader; "
                         'hoist\'s settings are within its key: {"hoist": {"window": "2G"}}')
    if load_format in _READERS:
        raise ValueError(f"the load format {load_format.value} is a reader of its own: hoist reads with the load "
                         "formats auto, safetensors, pt, mistral, layered, presharded and flash_rl")
    Settings(extra_config["hoist"])


def register():
    """Registers both hooks, or none."""
    needed.check("SGLang", ["sglang"], _KNOWN, {_REGISTRY: ("HookRegistry.register", "HookType.AROUND"),
                                                _LOADER: (_READS, _CHECKS, *_CALLED)})
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    for name, hook in ((_READS, weights), (_CHECKS, checked)):
        target = f"{_LOADER}.{name}"
        if all(known[1] is not hook for known in getattr(HookRegistry, "_hooks", {}).get(target, ())):
            HookRegistry.register(target, hook, HookType.AROUND)
