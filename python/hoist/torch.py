# SPDX-License-Identifier: MIT
"""torch tensors of whole checkpoints."""

import collections

import torch

from . import refit
from ._hoist import Buffer
from .checkpoint import Checkpoint
from .errors import FormatError, InvalidError
from .groups import group_of
from .load import load, load_all, load_as, of_all
from .options import Options, Target, slices_of
from .save import save

# torch's names of the types that safetensors files have; older releases lack some.
_NAMES = ("bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 "
          "complex64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu").split()

# Types that older releases of torch do not take over DLPack: passed as bits of the same size.
_AS_BITS = {"bool": ("u8", "bool"), "u16": ("i16", "uint16"), "u32": ("i32", "uint32"),
            "u64": ("i64", "uint64"), "f8_e4m3fn": ("u8", "float8_e4m3fn"),
            "f8_e5m2": ("u8", "float8_e5m2"), "f8_e4m3fnuz": ("u8", "float8_e4m3fnuz"),
            "f8_e5m2fnuz": ("u8", "float8_e5m2fnuz"), "f8_e8m0fnu": ("u8", "float8_e8m0fnu")}


_DLPACK_CPU = 1


def _taken(buffer):
    """torch.from_dlpack(), which asks an array more than it needs to know of the host's memory."""
    on_host = buffer.__dlpack_device__()[0] == _DLPACK_CPU
    return torch.from_dlpack(buffer.__dlpack__() if on_host else buffer)


def tensor(buffer):
    """A tensor over the buffer's memory, on its device, without a copy.  The tensor keeps the buffer.

    Parameters
    ----------
    buffer : hoist.Buffer

    Returns
    -------
    torch.Tensor

    Raises
    ------
    BufferError
        The buffer is read-only, and torch would write to it: `copy()` of the buffer helps.
    TypeError
        This release of torch lacks the dtype.
    """
    if buffer.is_read_only:
        raise BufferError("the buffer is read-only, and torch has no read-only tensors; "
                          "buffer.copy() can be written to")
    bits, name = _AS_BITS.get(buffer.dtype, (None, None))
    if bits is None:
        return _taken(buffer)
    if not hasattr(torch, name):
        raise TypeError(f"torch {torch.__version__} has no {name}")
    shape = buffer.shape
    flat = _taken(buffer.view(bits) if shape else buffer.reshape((1,)).view(bits))
    return flat.view(getattr(torch, name)).reshape(shape)


def _tensors(running, target, names):
    """{name: tensor} of a load to the host, most of them without a Buffer on the way."""
    return {name: tensor(found) if found.__class__ is Buffer else torch.from_dlpack(found)
            for name, found in running._capsules(target, names, _AS_BITS).items()}


def load_file(source, device=None, **options):
    """Loads all tensors.

    To the host, ranges of the files that the page cache holds are mapped, copy-on-write (`io`
    "adaptive", the default here): the files must not shrink, or be written to, while the tensors
    live.  With `io="auto"` the tensors own their memory.

    Parameters
    ----------
    source : str, os.PathLike or hoist.Checkpoint
    device : str or torch.device, optional
        "cpu", "cuda:0", ...; None: the CPU.
    **options
        Those of `hoist.load()`, without `window`.

    Returns
    -------
    dict of str and torch.Tensor
        With `targets`, a list of one such dict for each target.

    Raises
    ------
    TypeError
        This release of torch lacks a dtype.
    hoist.Error, ValueError
        As `hoist.load()`.
    """
    spec = None if device is None else str(device)
    if not options.get("drop_cache"):
        options.setdefault("io", "adaptive")
    if spec in (None, "cpu") and not any(options.get(name) for name in ("stream", "targets", "into")) \
            and options.get("map") != "readonly":
        return load_as(_tensors, source, **options)
    found = load_all(source, spec, **options)
    if isinstance(found, list):
        return [of_all(tensor, buffers) for buffers in found]
    return of_all(tensor, found)


def as_buffer(array):
    """A Buffer over the memory of a dense tensor, on its device, without a copy.  The buffer keeps the tensor.

    Parameters
    ----------
    array : torch.Tensor
        Of any strides.

    Returns
    -------
    hoist.Buffer

    Raises
    ------
    TypeError
        The tensor is sparse, quantised or on the meta device, or of a type that hoist lacks.
    BufferError
        torch does not export the tensor: a conjugate, or a negative.
    """
    array = array.detach()
    name = str(array.dtype).rpartition(".")[2]
    if array.is_meta or array.is_quantized or array.layout != torch.strided:
        kind = "meta" if array.is_meta else name if array.is_quantized else array.layout
        raise TypeError(f"a tensor that is {kind} has no memory of plain elements; give a dense one on "
                        "another device")
    for dtype, (bits, own) in _AS_BITS.items():
        if own == name:
            signed = torch.uint8 if bits == "u8" else getattr(torch, "int" + bits[1:])
            buffer = Buffer.from_dlpack(array.view(signed))
            return buffer.view(dtype) if buffer.shape else \
                buffer.reshape((1,)).view(dtype).reshape(())
    return Buffer.from_dlpack(array)


Loaded = collections.namedtuple("Loaded", "missing unexpected kept report")
Loaded.__doc__ = """The result of `hoist.torch.load_into()`.

Attributes
----------
missing : list of str
    Names of the module or dict that the checkpoint lacks.
unexpected : list of str
    Names of the checkpoint that the module or dict lacks.
kept : list of str
    Names of the tensors that `changed_only` has not read.
report : dict or None
    The facts of the load, as `hoist.Load.report()`; None: nothing was read.
"""


def _places(tensors):
    """{name: tensors}: those that are the same memory (tied parameters) stand under the first's name."""
    firsts, ret = {}, {}
    for name, value in tensors.items():
        place = (value.device, value.data_ptr(), value.shape, value.stride(), value.dtype)
        first = firsts.setdefault(place, name) if value.numel() > 0 else name
        ret.setdefault(first, []).append(value)
    return ret


def _named(module, checkpoint, strict):
    """(tensors of a module or dict that the checkpoint has, missing names, unexpected names)"""
    named = module.state_dict(keep_vars=True) if isinstance(module, torch.nn.Module) else module
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    missing = [name for name in tensors if name not in checkpoint]
    unexpected = [name for name in checkpoint if name not in tensors]
    if strict and (missing or unexpected):
        raise InvalidError(f"the checkpoint lacks {missing[:5]} ({len(missing)} in all), and has "
                           f"{unexpected[:5]} beside ({len(unexpected)} in all); strict=False loads "
                           "the others")
    return {name: value for name, value in tensors.items() if name in checkpoint}, missing, unexpected


def _parts(source, slices):
    """{name: parts} of the tensors of which only parts are loaded, as `hoist.Target` takes them."""
    slices_of(slices)  # checks them
    ret = {}
    for pattern, parts in (slices or {}).items():
        names = source._matching(pattern)
        if not names:
            raise InvalidError(f"slices: {source.path} has no tensor that is called or matches {pattern!r}")
        for name in names:
            ret.setdefault(name, []).extend(parts if isinstance(parts, list) else [parts])
    return ret


def _filled(source, tensors, parts, options):
    """The report of a load of {name: tensor} in place; None: there are none."""
    devices = {}
    for name, value in tensors.items():
        devices.setdefault(value.device, {})[name] = value
    if not devices:
        Options(targets=[Target()], **{name: value for name, value in options.items() if name != "progress"})
        return None
    targets = [Target(into=into, slices={name: parts[name] for name in into if name in parts})
               for into in devices.values()]
    with load(source, targets=targets, **options) as running:
        running.wait()
        return running.report()


def load_into(module, source, *, strict=True, changed_only=False, slices=None, **options):
    """Loads tensors into a module, or a dict of names and tensors, where they are.

    Tensors may be on several devices, and have another dtype of f32, f16 and bf16 than the file; a
    parameter that stands under several names is loaded once.  No further memory is taken for the
    destination; `budget` bounds the staging memory.  After a failure the exception has `into_states`
    (`hoist.Load`): a list of dicts, one for each device.

    Parameters
    ----------
    module : torch.nn.Module or dict
    source : str, os.PathLike or hoist.Checkpoint
    strict : bool
        Whether names that only one side has are an error.
    changed_only : bool
        Reads only tensors whose digest is not that of the tensor which the memory holds already, as
        far as hoist knows: see the notes.  Not with `group`.
    slices : dict, optional
        {name or glob: (axis, rank, n_ranks)}, as for `hoist.load()`: the tensors of which the memory has
        only a part, as a rank's of tensor parallelism has.
    **options
        Those of `hoist.load()`, without `device`, `stream`, `tensors`, `dtype`, `into`, `targets` and
        `window`.

    Returns
    -------
    Loaded

    Raises
    ------
    InvalidError
        With `strict`: the names differ, and the text lists some of them; nothing was loaded.  A shape
        or dtype differs; nothing was loaded.
    FormatError
        With `changed_only`: there are no digests of the checkpoint.  `hoist.save(digest=True)` and
        ``hoist cp --digest`` put them into files, `Checkpoint.keep_digests()` and
        ``hoist digest --keep`` beside files that other programs wrote.

    Notes
    -----
    `changed_only` compares digests that checkpoints hold, and reads no memory.  The first call with
    `changed_only` reads all.  From then on each `load_into()` that ends well, with `changed_only` or
    without, records the digests of the tensors that it has filled.  The record belongs to the memory:
    not to the names, the module or the checkpoint.  A tensor is kept if the checkpoint's digest, dtype
    and shape, and the slice, are those of the record, and read otherwise.  There is no record, or its
    end has come, and so the tensor is read, if

    - the tensor is another object than the one that was loaded into, such as those that
      `Module.state_dict()` makes anew with each call; give the module, or keep the dict;
    - torch has counted a write to the tensor or to a view (`Tensor._version`): an optimiser's step,
      `copy_()`, `load_state_dict()`;
    - the tensor has another storage, shape, stride or dtype, as after `Module.to()`;
    - a later load in place of hoist's wrote to the memory, by any object, or has begun to and failed;
    - nobody can know: the checkpoint holds no digest of the tensor, torch counts no writes to it
      (`Tensor.is_inference()`), it lies between the addresses of another, or it may be a running statistic:
      a module's buffer of one axis or none, or of a dict, what is called running_mean, running_var or
      num_batches_tracked.  Such a tensor is read at each call.

    Some writes nobody sees: through `Tensor.data`, methods of a storage, NumPy's arrays and other
    packages' views of the memory, hoist's own Buffers among them; by torch.distributed's collectives, by replays of CUDA graphs and
    kernels that torch did not start, by other processes; by batch norm in training, to statistics with
    other names in a dict; and memory that loses its content behind torch's back, as in an engine's sleep mode or by
    `resize_(0)` of a storage.  After any of these, and whenever in doubt, load without `changed_only`,
    which reads all.

    Whoever wrote the checkpoint is trusted to have kept right digests.  A program that copies another
    file's metadata with its digests to new tensors lies, and changed tensors are kept.  `verify=True`
    compares the bytes that are read with the digests, not those that are kept.

    Between a failure and the next success, tensors may be of two checkpoints, and torn.  The same
    call again reads what is missing.

    Examples
    --------
    >>> hoist.torch.load_into(module, "step-100/", changed_only=True)  # the first call reads all
    >>> hoist.torch.load_into(module, "step-200/", changed_only=True)  # reads what differs
    """
    if not isinstance(source, Checkpoint):
        group = group_of(*(options.get(name) for name in ("group", "rank", "group_timeout", "group_secret")))
        with Checkpoint(source, group=group) as checkpoint:
            return load_into(module, checkpoint, strict=strict, changed_only=changed_only, slices=slices,
                             **options)
    tensors, missing, unexpected = _named(module, source, strict)
    parts = _parts(source, slices)
    places = _places(tensors)
    uncounted = {id(tensors[name]) for name in refit.uncounted(module) if name in tensors} if changed_only else set()
    contents = {name: refit.content(source, name, parts.get(name)) for name, values in places.items()
                if (changed_only or any(map(refit.is_marked, values))) and
                uncounted.isdisjoint(map(id, values))}
    if changed_only and options.get("group") is not None:
        raise InvalidError("changed_only reads what this process lacks, and the ranks of a group must all "
                           "load; leave out one of changed_only and group")
    if changed_only and places and all(source.digest(name) is None for name in places):
        raise FormatError(f"{source.path} holds no digests, by which changed_only knows tensors: save with "
                          "digest=True, or keep digests beside the files by Checkpoint.keep_digests() or "
                          "`hoist digest --keep`")
    beside = refit.overlapping(places) if changed_only else set()
    kept = {name: None for name in contents
            if changed_only and name not in beside and refit.holds(places[name], contents[name])}
    rest = {name: values[0] for name, values in places.items() if name not in kept}
    report = _filled(source, rest, parts, options)
    refit.note((places[name], contents[name]) for name in rest if name in contents)
    return Loaded(missing, unexpected, list(kept), report)


def iter(source, device=None, **options):  # pylint: disable=redefined-builtin
    """Gives tensors as they arrive; with `window`, tensors that the program drops make room.

    The load runs beside the program, and is cancelled when the generator is closed.

    Parameters
    ----------
    source : str, os.PathLike or hoist.Checkpoint
    device : str or torch.device, optional
    **options
        Those of `hoist.load()`, without `targets` and `into`.

    Yields
    ------
    name : str
    tensor : torch.Tensor

    Raises
    ------
    WindowError
        The window is full of tensors that the program holds.
    hoist.Error, ValueError, TypeError
        As `hoist.load()`.
    """
    spec = None if device is None else str(device)
    with load(source, spec, **options) as running:
        for name, buffer in running:
            box = [tensor(buffer)]
            del buffer  # the window counts what this generator holds, too
            yield name, box.pop()


def save_file(tensors, path, **options):
    """Saves a dict of names and tensors, and returns when the files are at their paths.

    The tensors are read from their memory, on any device and of any strides.  Tensors that share
    memory (tied weights) are written each for itself, and are separate when they are loaded.

    Parameters
    ----------
    tensors : dict of str and torch.Tensor
        Such as `module.state_dict()`.
    path : str or os.PathLike
    **options
        Those of `hoist.save()`.  A safetensors file gets the metadata "format": "pt", which other
        programs look for, unless `metadata` has that key.
    """
    running = save(tensors, path, **_marked(path, options))
    running.wait()


def _marked(path, options):
    """The options of a save, with the metadata that say whose tensors they are."""
    known = options.get("format")
    ending = str(path).rpartition(".")[2].lower()
    if known == "safetensors" or known is None and ending not in ("gguf", "npy", "max"):
        options["metadata"] = {"format": "pt", **(options.get("metadata") or {})}
    return options
