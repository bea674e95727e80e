# SPDX-License-Identifier: MIT
"""Checkpoints kept in memory, for processes that come and go.

>>> hoist.cache.add("model/")                          # once: loads it
>>> with hoist.cache.attach("model/") as image:        # each worker: milliseconds
...     weight = image["lm_head.weight"]               # a Buffer; image.tensor(name): its facts

An image is sealed: all processes share its pages, and a write of one is its own.  A small process in
the background, the holder, keeps the images of one user until they are dropped.
"""

import builtins
import collections.abc
import os
import sysconfig
import typing

from . import _hoist
from .checkpoint import Tensor, open_flags
from .errors import missing
from .load import _Progress
from .options import budget_of, choose, engine_of, io_of

_PAGES = ("default", "small", "huge")


class ImageInfo(typing.NamedTuple):
    """The facts of an image.

    Attributes
    ----------
    path : str
        Of the checkpoint, links resolved.
    format : str
        As `Checkpoint.format`; "" in a list.
    nbytes : int
        Bytes of the image's memory.
    tensor_bytes : int
        Bytes of its tensors.
    n_tensors : int
    age : float
        Seconds since the image was added.
    n_attached : int
        How often the holder handed the image out; 0 outside of a list.
    node : int
        The NUMA node of the pages; -1: several, or unknown.
    pages : {"default", "small", "huge"}
        "default": transparent huge pages; "huge": of the hugetlb pool.
    note : str
        Why pages or node differ from what was asked for; else "".
    """

    path: str
    format: str
    nbytes: int
    tensor_bytes: int
    n_tensors: int
    age: float
    n_attached: int
    node: int
    pages: str
    note: str


def _info(fields):
    fields = builtins.list(fields)
    fields[5] /= 1e9
    fields[8] = _PAGES[fields[8]]
    return ImageInfo(*fields)


class Image(collections.abc.Mapping):
    """An attached image: a mapping from names to Buffers on the CPU.

    `hoist.cache.attach()` and `hoist.cache.add()` make images.  An image is a context manager.  Buffers
    live on after its end, in a child of fork, too.  Any thread may use an image.
    """

    def __init__(self, image):
        self._image = image
        self._names = [image._tensor(index)[0] for index in range(len(image))]

    def _index(self, name):
        try:
            return self._image._find(name)
        except KeyError:
            raise missing(name, f"the image has {len(self)} others") from None

    def __getitem__(self, name):
        return self._image._buffer(self._index(name))

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)

    def __contains__(self, name):
        try:
            self._image._find(name)
        except (KeyError, TypeError):
            return False
        return True

    # A mapping would compare and hash by its items.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def tensor(self, name):
        """The facts of a tensor, without its memory.

        Parameters
        ----------
        name : str

        Returns
        -------
        hoist.Tensor

        Raises
        ------
        MissingError
            There is no such tensor.
        """
        return Tensor._make(self._image._tensor(self._index(name)))

    @property
    def metadata(self):
        """The texts that the checkpoint carries beside its tensors."""
        return self._image._metadata()

    @property
    def info(self):
        """The facts of the image, an ImageInfo."""
        return _info(self._image._info())

    @property
    def closed(self):
        """True after close()."""
        return self._image.closed

    def close(self):
        """Lets go of the image.  Buffers that were given live on."""
        self._image.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return "<hoist.cache.Image: " + ("closed>" if self.closed else f"{self.info.path!r}>")


def _holder():
    """The command that becomes the holder: the package's own, where it was installed as a script."""
    script = os.path.join(sysconfig.get_path("scripts"), "hoist")
    return script if "HOIST_CACHE_HOLDER" not in os.environ and os.access(script, os.X_OK) else None


def add(path, *, replace=False, read_only=False, engine="auto", io="auto", budget=None, node=None,
        pages="default", progress=None, holder=None, raw=False, follow_links=True,
        skip_unsupported=False):
    """Loads a checkpoint into an image, and gives the image to the holder.

    A valid image of the checkpoint is left as it is; one whose files have changed is replaced.

    Parameters
    ----------
    path : str or os.PathLike
    replace : bool
        Makes a new image even if there is a valid one.
    read_only : bool
        Buffers of the result are read-only.
    engine, io, budget
        As in `hoist.load()`; not "map".
    node : int, optional
        The NUMA node of the pages; None: of the threads that load.
    pages : {"default", "small", "huge"}
    progress : callable or True, optional
        Called with (bytes done, bytes in all) some ten times a second; an exception ends the call.
    holder : str, optional
        The program that becomes the holder if there is none: run as "PROGRAM cache hold".
    raw, follow_links, skip_unsupported : bool
        As in `hoist.open()`.

    Returns
    -------
    Image

    Raises
    ------
    StaleError
        The checkpoint changed during the call.
    OutOfMemoryError, NotFoundError, AccessError, FormatError
        Those of `hoist.open()` and loads; NotFoundError also: there is no program to be the holder.
    """
    bar = _Progress(progress)
    try:
        return Image(_hoist.cache_add(
            os.fspath(path), flags=_hoist.CACHE_REPLACE if replace else 0,
            open_flags=open_flags(follow_links, raw, skip_unsupported),
            image_flags=_hoist.IMAGE_READ_ONLY if read_only else 0, engine=engine_of(engine),
            io=io_of(io), budget=budget_of(budget), node=node,
            pages=choose({name: n for n, name in enumerate(_PAGES)}, pages, "pages"),
            progress=bar.told, holder=_holder() if holder is None else os.fspath(holder)))
    finally:
        bar.close()


def attach(path, *, read_only=False):
    """Attaches the image of a checkpoint: maps its memory, and reads nothing.

    Parameters
    ----------
    path : str or os.PathLike
        The checkpoint that was given to `hoist.cache.add()`.
    read_only : bool
        Buffers are read-only; else a write to a page makes a copy of the page for this process.

    Returns
    -------
    Image

    Raises
    ------
    NotFoundError
        There is no image of this checkpoint, or no holder.
    StaleError
        The checkpoint has changed since the image was made.
    AccessError
        The holder, or its folder, is not this user's.
    """
    return Image(_hoist.cache_attach(os.fspath(path), _hoist.IMAGE_READ_ONLY if read_only else 0))


def list():  # pylint: disable=redefined-builtin
    """The holder's images in the order in which they were added.

    Returns
    -------
    list of ImageInfo
        Empty without a holder.

    Raises
    ------
    AccessError
        The holder, or its folder, is not this user's.
    """
    return [_info(fields) for fields in _hoist.cache_list()]


def drop(path=None):
    """Drops images.  The memory is free once the processes that have one attached have let go of it.

    Parameters
    ----------
    path : str or os.PathLike, optional
        The checkpoint; None: all images.

    Returns
    -------
    int
        The number of images that were dropped.

    Raises
    ------
    NotFoundError
        There is no image of `path`, or no holder.
    """
    return _hoist.cache_drop(None if path is None else os.fspath(path))
