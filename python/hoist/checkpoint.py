# SPDX-License-Identifier: MIT
"""Checkpoints: files that name tensors."""

import collections.abc
import typing

from . import _hoist


class Tensor(typing.NamedTuple):
    """A tensor of a checkpoint: where its bytes lie, and what they are."""

    name: str
    dtype: str
    shape: tuple
    nbytes: int
    file: int  # of Checkpoint.files
    offset: int  # bytes from the start of the file
    strides: typing.Optional[tuple]  # in elements; None: C order


class _Values(collections.abc.ValuesView):
    """All tensors in their order, none looked up by its name."""

    def __iter__(self):
        checkpoint = self._mapping
        return map(Tensor._make, map(checkpoint._tensor, range(len(checkpoint))))


class _Items(collections.abc.ItemsView):
    def __iter__(self):
        return zip(self._mapping, _Values(self._mapping))


class Checkpoint(_hoist.Checkpoint, collections.abc.Mapping):
    """An opened checkpoint: a mapping from names to `Tensor`, in the order of the files.

    `hoist.open()` makes it.  Only headers were read.  A checkpoint is a context manager; a load
    that was started on it goes on after its end.
    """

    def __new__(cls, path, *, follow_links=True, raw=False):
        flags = _hoist.OPEN_FOLLOW_LINKS if follow_links else 0
        flags |= _hoist.OPEN_RAW if raw else 0
        self = super().__new__(cls, path, flags)
        self._path = path
        return self

    def __init__(self, path, *, follow_links=True, raw=False):
        pass

    def __getitem__(self, name):
        return Tensor(*self._tensor(self._find(name)))

    def __iter__(self):
        return iter(self._names())

    def __contains__(self, name):
        try:
            self._find(name)
        except (KeyError, TypeError):
            return False
        return True

    def values(self):
        """A view of all `Tensor`s."""
        return _Values(self)

    def items(self):
        """A view of all names and `Tensor`s."""
        return _Items(self)

    # A mapping would compare and hash by its items.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @property
    def path(self):
        """The path that was opened."""
        return self._path

    @property
    def files(self):
        """(path, bytes) of each file."""
        return self._files()

    @property
    def metadata(self):
        """The texts that the files carry beside their tensors."""
        return self._metadata()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        state = "closed" if self.closed else f"{len(self)} tensors, {self.nbytes} bytes"
        return f"<hoist.Checkpoint {str(self._path)!r}: {state}>"


def open(path, *, follow_links=True, raw=False):  # pylint: disable=redefined-builtin
    """Opens the checkpoint at `path`, a file or a folder.

    Parameters
    ----------
    path : str or os.PathLike
        safetensors and its index, GGUF, .npy, .npz, .max, PyTorch's zip checkpoints, or a folder
        that holds one of these.
    follow_links : bool
        Whether files of a folder may be links to any place, as those of Hugging Face's cache are.
    raw : bool
        Opens a file of any kind as one tensor of u8 called "data".

    Returns
    -------
    Checkpoint
        A mapping from names to `Tensor`.

    Raises
    ------
    FormatError
        A file is malformed: the text names file, tensor and byte.
    NotFoundError, AccessError, UnsupportedError
    """
    return Checkpoint(path, follow_links=follow_links, raw=raw)
