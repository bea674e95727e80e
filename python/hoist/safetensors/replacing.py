# SPDX-License-Identifier: MIT
"""hoist's functions in place of those of the safetensors package, for programs that cannot be changed."""

import contextlib
import importlib
import sys
import threading

# The module of each name that is replaced, of the package's and of hoist's.
_NAMES = (("", "safe_open"), ("torch", "load_file"), ("torch", "load_model"), ("numpy", "load_file"))
_lock = threading.Lock()
_depth = 0
_undo = []  # what ends the outermost block: calls


def _pairs():
    """[(the package's object, hoist's)] of the modules that can be imported: torch may be missing."""
    ret = []
    for module, name in _NAMES:
        end = "." + module if module else ""
        with contextlib.suppress(ImportError) if module else contextlib.nullcontext():
            theirs = importlib.import_module("safetensors" + end)
            ours = importlib.import_module("hoist.safetensors" + end)
            ret.append((getattr(theirs, name), getattr(ours, name)))
    return ret


def _places(objects):
    """{(name of a module, name in it)} of these objects, without hoist's own modules."""
    wanted, ret = {id(one) for one in objects}, set()
    for name, module in list(sys.modules.items()):
        # Not getattr(), which would make lazy modules load others.
        names = getattr(module, "__dict__", {}) if name.partition(".")[0] != "hoist" else {}
        ret.update((name, key) for key, value in list(names.items()) if id(value) in wanted)
    return ret


def _put(pairs, kept):
    """In all modules, the second object of a pair wherever the first is, but for the places `kept`."""
    for old, new in pairs:
        for name, key in _places([old]) - kept:
            sys.modules[name].__dict__[key] = new


def _begin():
    pairs = _pairs()
    own = _places([new for _, new in pairs])
    _put(pairs, own)
    # Names that were imported within the block have hoist's, too; those that a program has put there stay.
    return lambda: _put([(new, old) for old, new in pairs], own)


@contextlib.contextmanager
def replacing():
    """Within the block, `safe_open` and the calls that load files are hoist's wherever a module has
    those of the safetensors package.

    >>> with hoist.safetensors.replacing():
    ...     model = AutoModelForCausalLM.from_pretrained("model/")

    This holds for modules that were imported before, such as those of transformers, diffusers and
    accelerate, for modules that are imported within the block, and for all threads.  Blocks may be
    nested.  At the end every module has again what it had, and a module that was imported within the
    block has the package's.

    Yields
    ------
    None

    Raises
    ------
    ImportError
        The safetensors package is not installed.
    """
    global _depth
    with _lock:
        if _depth == 0:
            _undo.append(_begin())
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _undo.pop()()
