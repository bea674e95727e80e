# SPDX-License-Identifier: MIT
"""Models of transformers, whose weights hoist loads.

>>> from transformers import AutoModelForCausalLM
>>> model = hoist.transformers.from_pretrained(AutoModelForCausalLM, "model/")

For programs that call `from_pretrained()` themselves, and cannot be changed, there is
`hoist.safetensors.replacing()`.
"""

import logging
import os
import time

_log = logging.getLogger(__name__)

__all__ = ["from_pretrained"]

# Options that find a model's files, beside its name.
_FINDING = ("revision", "token", "trust_remote_code")
# Options that need other files, or another result, than those that hoist loads and gives.
_REFUSED = ("cache_dir", "subfolder", "variant", "output_loading_info", "gguf_file", "state_dict")


def _source(path, finding):
    """What hoist.open() takes for a name that transformers takes."""
    path = os.fspath(path)
    if os.path.exists(path) or path.startswith("hf://"):
        return path
    revision = finding.get("revision")
    return f"hf://{path}" + (f"@{revision}" if revision else "")


def _class_of(model, config):
    """The class itself, or the one that a class AutoModel... takes for the configuration."""
    mapping = getattr(model, "_model_mapping", None)
    if mapping is None:
        return model
    if type(config) not in mapping.keys():
        raise ValueError(f"{model.__name__} has no class for {type(config).__name__}; give the model's class "
                         "itself, or call its from_pretrained() within hoist.safetensors.replacing()")
    from transformers.models.auto.auto_factory import _get_model_class
    return _get_model_class(config, mapping)


def from_pretrained(model, path, *, config=None, load=None, **options):
    """A model with the weights of a checkpoint.

    Parameters of the file's dtype share memory with what was loaded: nothing is copied.  As with
    transformers' own call, parts of files that the page cache holds are mapped, copy-on-write: the files
    must not shrink, or be written to, while the model lives; `load={"io": "auto"}` gives the model
    memory of its own.  A line in the log of "hoist.transformers" (INFO) says what was loaded, and how fast.

    Parameters
    ----------
    model : type
        A class of transformers: `AutoModelForCausalLM`, `LlamaForCausalLM`, ...
    path : str or os.PathLike
        A folder, or the name of a model in Hugging Face's cache; nothing is downloaded.
    config : transformers.PreTrainedConfig, optional
        None: that of the folder.
    load : dict, optional
        Options of `hoist.torch.load_file()`: `device`, `io`, `budget`, ...
    **options
        Those of the class's own `from_pretrained()`: `dtype`, `attn_implementation`, ...  Changes of
        the configuration are made in `config`.

    Returns
    -------
    transformers.PreTrainedModel
        In evaluation mode.

    Raises
    ------
    hoist.Error, ValueError
        As `hoist.torch.load_file()`; an auto class has no class for the configuration; an option of
        transformers that is not supported here.
    OSError
        transformers finds no configuration; nothing is downloaded.
    """
    import transformers
    from .torch import load_file
    wrong = [name for name in _REFUSED if options.get(name)]
    if wrong:
        raise ValueError(f"hoist.transformers.from_pretrained() has no option {', '.join(wrong)}; the model's "
                         "own call has, within hoist.safetensors.replacing()")
    finding = {name: options.pop(name) for name in _FINDING if name in options}
    finding["local_files_only"] = True
    own = os.fspath(path)
    if config is None:
        config = transformers.AutoConfig.from_pretrained(own, **finding)
    model = _class_of(model, config)
    began = time.monotonic()
    state = load_file(_source(path, finding), **(load or {}))
    _log.info("hoist has loaded or mapped %.3f GB, %d tensors, of %s in %.2f s",
              sum(one.nbytes for one in state.values()) / 1e9, len(state), own, time.monotonic() - began)
    ret = model.from_pretrained(None, config=config, state_dict=state, **options)
    ret.name_or_path = ret.config.name_or_path = own
    if ret.can_generate() and options.get("generation_config") is None:
        known = transformers.GenerationConfig
        try:
            ret.generation_config = known.from_pretrained(own, **finding)
        except OSError:  # as transformers does where there is none
            ret.generation_config = known.from_pretrained(own, config_file_name="config.json",
                                                          _from_model_config=True, **finding)
    return ret
