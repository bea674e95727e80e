# SPDX-License-Identifier: MIT
from abc import ABCMeta
from collections.abc import Iterator
from typing import Any

import torch
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

def newest() -> dict[str, Any]: ...

class HoistModelLoader(DefaultModelLoader, metaclass=ABCMeta):  # type: ignore[misc]
    def __init__(self, load_config: LoadConfig) -> None: ...
    def load_weights(self, model: Any, model_config: Any) -> None: ...
    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, torch.Tensor]]: ...
