# SPDX-License-Identifier: MIT
"""Findings about this machine."""

import collections
import os

from . import _hoist
from .options import io_name
from .waiting import in_thread


Finding = collections.namedtuple("Finding", "name level text remedy options")
Finding.__doc__ = """One thing that loads depend on.

Attributes
----------
name : str
    "io_uring", "direct reads", "cuda:0", "advice", ...: names never change.
level : {"ok", "warning", "advice"}
    "warning": hoist works in another way, or more slowly.
text : str
    The finding.
remedy : str
    What to do about a warning; else "".
options : dict
    With "advice": options for `hoist.load()`; else empty.
"""


def doctor(path=None):
    """Examines this machine, the limits of this process, the drivers, and the file system at `path`.

    Parameters
    ----------
    path : str or os.PathLike, optional
        A file, or a folder with checkpoints; None: the current folder.  Up to 256 MiB are read from
        there to measure, which takes less than two seconds.

    Returns
    -------
    list of Finding
        One for each check, and advice on loading from `path` as the last.

    Raises
    ------
    NotFoundError, AccessError
        `path` does not exist, or may not be read.

    Examples
    --------
    >>> for finding in hoist.doctor("models/"):
    ...     if finding.level == "warning":
    ...         print(finding.name, finding.text, finding.remedy)
    """
    name = None if path is None else os.fspath(path)
    checks, advice = in_thread(lambda: _hoist.doctor(name))
    found = [Finding(name, "ok" if ok else "warning", detail, remedy, {})
             for name, ok, detail, remedy in checks]
    text, skipped, io, chunk_bytes, depth = advice
    options = {} if skipped else {"io": io_name(io), "chunk_bytes": chunk_bytes, "depth": depth}
    found.append(Finding("advice", "advice", skipped or text, "", options))
    return found
