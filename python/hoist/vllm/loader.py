# SPDX-License-Identifier: MIT
"""vLLM's model loader over hoist.  Importing this module imports vLLM."""

import copy
import os
import time

from vllm.config import get_current_vllm_config_or_none
from vllm.logger import init_logger
from vllm.model_executor.model_loader import default_loader, weight_utils
from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight

from ..servers.ranks import Ranks, gatherer
from ..servers.reading import Facts, give_back, read
from ..servers.settings import Settings

# vLLM shows the lines of its own loggers.
_log = init_logger("vllm.hoist")
_newest = {}


def newest():
    """The facts of the newest load."""
    return dict(_newest.get("facts", ()))


def _n_ranks():
    """Processes that share the model: those of tensor and of pipeline parallelism."""
    from vllm.distributed import parallel_state
    if not parallel_state.model_parallel_is_initialized():
        return 1
    return parallel_state.get_tensor_model_parallel_world_size() * parallel_state.get_pp_group().world_size


def _ranks(settings):
    """Those of tensor parallelism; all of them call this for each load.  None: there is one."""
    from vllm.distributed import parallel_state
    if not parallel_state.model_parallel_is_initialized():
        return None
    group = parallel_state.get_tp_group()
    return None if group.world_size == 1 else Ranks(gatherer(group.cpu_group), settings.group)


class HoistModelLoader(default_loader.DefaultModelLoader):
    """vLLM's default loader, with hoist where it reads files.

    vLLM finds the files, filters experts and multimodal parts, tracks weights and reloads as it does
    with its own loaders.
    """

    def __init__(self, load_config):
        self._settings = Settings(load_config.model_loader_extra_config, ("enable_weights_track",))
        self._given_config, self._facts = load_config, None
        load_config = copy.copy(load_config)
        load_config.load_format = "auto"  # which files it looks for
        load_config.model_loader_extra_config = self._settings.others
        super().__init__(load_config)

    def load_weights(self, model, model_config):
        """Fills a model."""
        super().load_weights(model, model_config)
        give_back()  # also of the last tensor
        # load_weights() sets this for torchao's checkpoints; a reload makes another loader of the configuration.
        self._given_config.safetensors_load_strategy = self.load_config.safetensors_load_strategy

    def get_all_weights(self, model_config, model):
        """Names and tensors of all that the model asks for."""
        # A reload comes here without load_weights(), which sets the filters up.
        if get_current_vllm_config_or_none() is not None:
            self._init_ep_weight_filter(model_config)
            self._init_mm_encoder_only_weight_filter(model, model_config)
        facts = self._facts = self._begin()
        try:
            yield from super().get_all_weights(model_config, model)
        finally:
            self._facts = None
        facts.end()

    def _begin(self):
        """The facts of a load that begins."""
        ret = _newest["facts"] = Facts(self._settings.way_of(_n_ranks()), _log)
        return ret

    def _files(self, source):
        folder, files, is_safe, index = self._prepare_weights(
            source.model_or_path, source.subfolder, source.revision, source.fall_back_to_pt,
            source.allow_patterns_overrides)
        if is_safe and self._encoder_only_lm_prefixes is not None:
            files = weight_utils.filter_mm_encoder_only_safetensors_files(
                files, folder, index, self._encoder_only_lm_prefixes,
                weights_mapper=self._encoder_only_weights_mapper)
            if not files:
                raise RuntimeError("no file is left for --mm-encoder-only: none of "
                                   f"{source.model_or_path} has weights beside the language model's")
        if is_safe and source.is_unused_weight is not None:
            files = weight_utils.filter_safetensors_files_by_weight_name(files, source.is_unused_weight)
        return sorted(files, key=weight_utils._natural_sort_key)

    def _get_weights_iterator(self, source):
        strategy = self.load_config.safetensors_load_strategy
        if strategy == "torchao":
            _log.warning("torchao's checkpoints are put together by vLLM's own loader: hoist reads nothing")
            return super()._get_weights_iterator(source)
        if strategy is not None:
            _log.warning("hoist reads in its own ways: --safetensors-load-strategy %s is without effect", strategy)
        files = self._files(source)
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        facts = self._facts or self._begin()
        return read([os.fspath(path) for path in files],
                    lambda name: not should_skip_weight(name, self.local_expert_ids), self._settings, facts,
                    _ranks(self._settings) if facts["way"] == "group" else None, prefix=source.prefix)
