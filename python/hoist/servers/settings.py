# SPDX-License-Identifier: MIT
"""The settings of hoist's plug-ins for servers."""

from .. import launcher
from ..options import Options
from ..sizes import size

_WAYS = ("stream", "slices", "map", "cache", "group")
_LOADS = ("budget", "io", "engine", "drop_cache", "verify", "depth", "chunk_bytes")
NAMES = ("way", "window", "group", "device_direct", *_LOADS)
_GROUP_CHUNK = 2 << 20


class Settings:
    """Checked settings.  ValueError names a wrong one, and lists those that there are.

    Parameters
    ----------
    given : dict
        Of the server's configuration.
    others : sequence of str
        Names that the server itself knows; `others` keeps them.
    """

    def __init__(self, given, others=()):
        if not isinstance(given, dict):
            raise ValueError(f"hoist's settings are a dict, not {given!r}")
        known = (*NAMES, *others)
        wrong = sorted(str(name) for name in given if name not in known)
        if wrong:
            raise ValueError(f"hoist has no setting {', '.join(wrong)}; it has "
                             f"{', '.join(known)}")
        self.way = given.get("way")
        if self.way is not None and self.way not in _WAYS:
            raise ValueError(f"way is one of {', '.join(_WAYS)}, not {self.way!r}")
        self.window = given.get("window")
        self.group = given.get("group")
        self.device_direct = given.get("device_direct")
        self._check(given)
        try:
            if self.window is not None and size(self.window) == 0:
                raise ValueError("a window has 1 byte or more")
            self.load = {name: given[name] for name in _LOADS if given.get(name) is not None}
            if self.load.get("io") in ("map", "adaptive"):
                raise ValueError("io is auto, direct or cached here; the way map maps")
            if self.load.get("verify") and self.way in ("slices", "cache"):
                raise ValueError("verify needs whole tensors, which the way stream reads")
            if self.way == "group" and size(self.load.get("chunk_bytes", 0)) > _GROUP_CHUNK:
                raise ValueError("chunk_bytes is 2 MiB at most in the way group")
            Options(**self.load)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a setting of hoist is wrong: {error}") from error
        self.others = {name: given[name] for name in others if name in given}

    def _check(self, given):
        for name, kind in (("verify", bool), ("drop_cache", bool), ("device_direct", bool), ("depth", int)):
            if not isinstance(given.get(name), (kind, type(None))):
                raise ValueError(f"{name} is {'true or false' if kind is bool else 'a number'}, not "
                                 f"{given[name]!r}")
        if self.window is not None and self.way not in (None, "stream", "group"):
            raise ValueError(f"a window belongs to the ways stream and group, not to {self.way}")
        if self.group is not None and not (isinstance(self.group, str) and launcher.is_far(self.group)):
            raise ValueError("group is where the ranks of several machines meet, tcp://HOST:PORT or dir:FOLDER, not "
                             f"{self.group!r}")
        if self.group is not None and self.way != "group":
            raise ValueError('group belongs to the way group: add "way": "group"')
        if given.get("drop_cache") and self.way in ("map", "cache"):
            raise ValueError(f"drop_cache does not go with the way {self.way}, which keeps what it reads")
        for name in ("depth", "chunk_bytes"):
            if given.get(name) is not None and self.way == "cache":
                raise ValueError(f"{name} does not go with the way cache, whose image is read as a whole")
        if self.device_direct is not None and (
                self.way not in (None, "slices") or self.window is not None or given.get("verify")):
            raise ValueError("device_direct belongs to the way slices, in which a copy to a device is a read; leave it "
                             "out, or the way, window and verify")
        if given.get("io") is not None and self.way == "map":
            raise ValueError("io does not go with the way map, which maps what the page cache has")

    @property
    def may_map(self):
        """Whether files that the page cache has may be mapped, as no setting asks for another way."""
        return self.way is None and self.window is None and not self.device_direct and \
            not self.load.keys() - {"budget", "engine"}

    def way_of(self, n_ranks):
        """The way for one of `n_ranks` processes that share a model."""
        streams = n_ranks == 1 or self.load.get("verify") or self.window is not None
        return self.way or ("stream" if streams and not self.device_direct else "slices")
