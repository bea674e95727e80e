# SPDX-License-Identifier: MIT
"""Whether a server has what hoist calls of it."""

import importlib
import operator
from importlib import metadata


def _version(server, packages):
    for package in packages:
        try:
            return f"{server} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            pass
    return f"{server}, which is not installed,"


def check(server, packages, known, names):
    """Raises ImportError, which names what the server lacks.

    Parameters
    ----------
    server : str
        Its name, for people.
    packages : sequence of str
        The packages that may have installed it.
    known : str
        The release that hoist was written for.
    names : dict of str and sequence of str
        Modules, and of each what hoist calls there.
    """
    for module, attributes in names.items():
        name = module
        try:
            found = importlib.import_module(module)
            for attribute in attributes:
                name = f"{module}.{attribute}"
                operator.attrgetter(attribute)(found)
        except Exception as error:  # a module of a server may end its import by any
            raise ImportError(f"{_version(server, packages)} has no {name}: hoist needs the {server} that it was "
                              f"written for, {known}, or one that is like it here") from error
