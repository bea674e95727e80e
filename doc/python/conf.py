# SPDX-License-Identifier: MIT
"""Sphinx: the reference and the tutorial of the Python package, which is imported from the path."""

import collections
import importlib.util
import re

from docutils import nodes
from sphinx.ext.autodoc import ClassDocumenter
from sphinx.roles import XRefRole

import hoist

project = "hoist"
author = "the authors of hoist"
version = release = hoist.__version__

extensions = ["sphinx.ext.autodoc", "numpydoc"]
needs_sphinx = "5.3"
# Names are looked at, and nothing of these packages is called.
autodoc_mock_imports = [name for name in ("numpy", "torch") if importlib.util.find_spec(name) is None]
try:
    import torch.distributed.checkpoint
except ImportError:  # Debian's torch has none
    autodoc_mock_imports += ["torch.distributed.checkpoint", "torch.futures"]
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": True}
numpydoc_show_class_members = False
add_module_names = True
nitpicky = True
# Of other packages' names no inventory is at hand.
nitpick_ignore_regex = [(r"py:.*", r"(?!hoist\b).*")]
default_role = "name"
TUPLE_FIELD = type(collections.namedtuple("n", "x").x)
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "description": "Python: " + release}
html_show_sourcelink = False
html_copy_source = False


class Name(XRefRole):
    """`hoist.x.y` and `hoist.x.y()` are links, which must lead somewhere; other texts are code."""

    def run(self):
        if not re.fullmatch(r"hoist(\.\w+)+(\(\))?", self.text):
            return [nodes.literal(self.rawtext, self.text)], []
        self.name, self.refdomain, self.reftype = "py:obj", "py", "obj"
        self.title = self.text
        self.has_explicit_title, self.disabled = True, False
        self.target = self.text.removesuffix("()")
        self.classes = ["xref", "py", "py-obj"]
        return self.create_xref_node()


class OwnName(ClassDocumenter):
    """The extension's Flag is a class of its own only under the name that MAX gives it."""

    def import_object(self, raiseerror=False):
        ret = super().import_object(raiseerror)
        if self.fullname == "hoist.driver.CompletionFlag":
            self.doc_as_attr = False
        return ret


def name_bases(app, name, cls, options, bases):  # pylint: disable=unused-argument
    """Bases that programs do not see are not named."""
    bases[:] = [base for base in bases if base.__name__[0] != "_" and base.__module__ != "hoist._hoist"
                ] or [object]


def skip(*arguments):
    """The fields of named tuples, which the class describes."""
    return True if isinstance(arguments[3], TUPLE_FIELD) else None


def setup(app):
    app.add_role("name", Name())
    app.add_autodocumenter(OwnName, override=True)
    app.connect("autodoc-process-bases", name_bases)
    app.connect("autodoc-skip-member", skip)
