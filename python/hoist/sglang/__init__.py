# SPDX-License-Identifier: MIT
"""hoist reads the weights that SGLang loads.

    sglang serve --model-path MODEL --model-loader-extra-config '{"hoist": {}}'
    sglang serve --model-path MODEL --model-loader-extra-config '{"hoist": {"window": "2G"}}'

SGLang finds hoist by its entry point, in each of its processes; a program calls nothing here.

Why a key of the extra configuration, and not `--load-format hoist`: SGLang's load formats say which
files there are, and SGLang changes "auto" to "mistral" or "gguf" where it finds such files.  The list of
formats is closed, and code all over SGLang compares with its members.  The key says how the files are
read, goes with each format whose files hoist knows, and leaves SGLang's choice of files to SGLang.
Where SGLang does not have hoist's hooks, it refuses the key.

This module imports neither SGLang nor torch before one of its functions is called.
"""

__all__ = ["register", "report"]


def register():
    """Registers hoist's hooks with SGLang.  The entry point of `sglang.srt.plugins`.

    SGLang applies the hooks after it has called all entry points.  The function may be called several
    times.

    Raises
    ------
    ImportError
        SGLang is not installed, or not one that this release of hoist knows.
    """
    from . import hooks
    hooks.register()


def report():
    """The facts of the newest checkpoint that hoist has read for SGLang in this process.

    Returns
    -------
    dict
        "file_bytes": bytes of the tensors in the files that SGLang named; "read_bytes": those of them
        that this process has read so far; "mapped_bytes": those that it has mapped, as the page cache
        had them; "n_tensors"; "n_loads": loads of hoist's; "seconds", the time in hoist; "stages", of
        it, by the stages of `hoist.Load.report()`, nanoseconds, and "open_ns", of opening files; "plan":
        "n_files", and of what would be read from where, by the names of `hoist.plan()`, the sums; "way":
        "stream", "slices", "map", "cache" or "group", by which files are loaded that are not mapped: by
        "group", each rank counts what it has read for all.  Empty: there was no load.
    """
    from . import hooks
    return hooks.newest()
