# SPDX-License-Identifier: MIT
"""The documentation: every public name has a docstring, the names that texts mention exist, the tutorial runs."""

import collections
import doctest
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import hoist

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DOC = os.path.join(TOP, "doc", "python")
MODULES = ["hoist", "hoist.cache", "hoist.core", "hoist.core.utils", "hoist.driver", "hoist.errors",
           "hoist.numpy", "hoist.safetensors", "hoist.safetensors.numpy", "hoist.safetensors.torch",
           "hoist.torch", "hoist.dcp", "hoist.transformers", "hoist.sglang", "hoist.vllm"]
# Packages that modules import, and that a machine may lack.
NEEDS = {"numpy": "numpy", "torch": "torch", "dcp": "torch.distributed.checkpoint"}
TUPLE_FIELD = type(collections.namedtuple("n", "x").x)
# Classes that a function makes: their own arguments are nobody's.
MADE = ["hoist.Load", "hoist.Save", "hoist.Slice", "hoist.cache.Image", "hoist.core.Buffer",
        "hoist.core.MemoryResource", "hoist.core.IPCAllocationHandle",
        "hoist.core.IPCBufferDescriptor", "hoist.driver.DType", "hoist.driver.Usage",
        "hoist.driver.DLPackArray", "hoist.safetensors.PySafeSlice"]


def is_there(name):
    """Whether a module of another package can be imported."""
    try:
        importlib.import_module(name)
        return True
    except ImportError:
        return False


def public_names(module):
    """{name: object} of a module: those of `__all__`, or those that are made there."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, value in vars(module).items() if not name.startswith("_")
                 and getattr(value, "__module__", None) == module.__name__]
    return {name: getattr(module, name) for name in names}


def members(cls):
    """{name: object} of the public methods and properties of a class, and of its bases in hoist."""
    ret = {}
    for base in cls.__mro__:
        if (base.__module__ or "").split(".")[0] == "hoist":
            for name, value in vars(base).items():
                if not name.startswith("_"):
                    ret.setdefault(name, value)
    return ret


def everything():
    """(qualified name, object) of all that is public, each object once."""
    seen = set()
    for module_name in MODULES:
        if module_name.endswith(tuple(NEEDS)) and not is_there(NEEDS[module_name.rsplit(".", 1)[-1]]):
            continue
        module = importlib.import_module(module_name)
        yield module_name, module
        for name, value in public_names(module).items():
            if inspect.ismodule(value) or id(value) in seen:
                continue
            seen.add(id(value))
            yield f"{module_name}.{name}", value
            for member, one in members(value).items() if inspect.isclass(value) else ():
                if isinstance(one, (staticmethod, classmethod)):
                    one = one.__func__
                if id(one) not in seen:
                    seen.add(id(one))
                    yield f"{module_name}.{name}.{member}", one


def section(text, title):
    """The names of a section of a docstring in NumPy's style; None: there is no such section."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^[A-Z][A-Za-z ]+\n---|\Z)", text, re.M | re.S)
    if found is None:
        return None
    heads = re.findall(r"^(\S.*?)(?: :.*)?$", found[1], re.M)
    return [name.strip().replace("\\*", "*") for head in heads for name in head.split(",")]


def parameters(value):
    """The names of the parameters that a caller gives; None: there is no signature."""
    try:
        known = list(inspect.signature(value).parameters.values())
    except ValueError:
        return None
    if known and known[0].name in ("self", "cls", "type") and not inspect.isclass(value):
        known = known[1:]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(one.kind, "") + one.name for one in known]


def options():
    """The options that all loads have."""
    module = importlib.import_module("hoist.options")
    return {*inspect.signature(module.Options).parameters, *module._FLAGS} - {"flags"}


def is_field(value):
    """Whether a name of a class stands for a value, and not for a call."""
    return isinstance(value, (property, int, str)) or inspect.isdatadescriptor(value)


class Docstrings(unittest.TestCase):
    def test_every_public_name_has_one(self):
        count = 0
        for name, value in everything():
            # Fields that their class describes: of named tuples, enumerations and exceptions.
            if isinstance(value, (TUPLE_FIELD, int, str, type(None))):
                continue
            count += 1
            with self.subTest(name=name):
                self.assertTrue(inspect.getdoc(value), "no docstring")
        self.assertGreater(count, 300)

    def test_they_have_the_parameters_of_the_signatures(self):
        count = 0
        for name, value in everything():
            if not callable(value) or is_field(value) or name in MADE or \
                    inspect.isclass(value) and issubclass(value, BaseException):
                continue
            names = parameters(value)
            text = inspect.getdoc(value) or ""
            with self.subTest(name=name):
                self.assertIsNotNone(names, "no signature")
                if value is hoist.load:
                    self.assertEqual(set(section(text, "Parameters")), set(names[:-1]) | options())
                    continue
                told = section(text, "Parameters") or []
                if hasattr(value, "_fields"):  # a named tuple: nobody else makes it
                    told = section(text, "Attributes")
                self.assertEqual(told, names)
            count += bool(names)
        self.assertGreater(count, 100)


# "`hoist.load()`", "hoist.torch.iter(...)": not "hoist.h", a file, nor "hoist.pc".
NAME = re.compile(r"(?<![\w./-])hoist(?:\.[A-Za-z_]\w*)+")
FILES = re.compile(r"hoist\.(?:\w+\.)*(?:h|pc|1|so|abi3)\b")


def texts():
    """(where, text) of everything that mentions names of the package."""
    for name, value in everything():
        yield name, value.__doc__ if isinstance(getattr(value, "__doc__", None), str) else ""
    for folder, _, names in os.walk(DOC):
        for name in names:
            if name.endswith(".rst"):
                yield os.path.join(folder, name), None
    for name in ("README.md", "NEWS", "HACKING.md"):
        yield os.path.join(TOP, name), None


def exists(name):
    """Whether a name is a module of the package, or can be reached from one, as an attribute."""
    known, path = hoist, "hoist"
    for part in name.split(".")[1:]:
        path += "." + part
        try:
            if inspect.ismodule(known) and not hasattr(known, part):
                importlib.import_module(path)
            known = getattr(known, part)
        except ModuleNotFoundError as error:  # torch is missing: nobody can tell what is in hoist.torch
            return not error.name.startswith("hoist")
        except AttributeError:
            return False
    return True


@unittest.skipUnless(os.path.isdir(DOC), "the documentation is not beside these tests")
class Names(unittest.TestCase):
    def test_the_names_that_texts_mention_exist(self):
        count = 0
        for where, text in texts():
            if text is None:
                with open(where, encoding="utf-8") as file:
                    text = file.read()
            for name in sorted(set(NAME.findall(text))):
                if FILES.match(name):
                    continue
                count += 1
                with self.subTest(where=where, name=name):
                    self.assertTrue(exists(name), "there is no such name")
        self.assertGreater(count, 150)

    def test_the_pages_build_without_a_warning(self):
        for package in ("sphinx", "numpydoc"):
            if importlib.util.find_spec(package) is None:
                self.skipTest(f"{package} is not installed")
        with tempfile.TemporaryDirectory() as out:
            run = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b",
                                  "dummy", "-d", out, DOC, out], capture_output=True, text=True,
                                 check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))


def examples(path):
    """(the examples of a page, how many need torch, which is missing).

    A page's comment ".. needs: torch" goes before such examples, ".. needs: nothing" behind them.
    """
    with open(path, encoding="utf-8") as file:
        text = file.read()
    needs = [(text.count("\n", 0, found.start()), found[1])
             for found in re.finditer(r"^\.\. needs: (\w+)$", text, re.M)]
    ret, n_left = [], 0
    for example in doctest.DocTestParser().get_examples(text, path):
        need = [package for line, package in needs if line < example.lineno][-1:]
        if need == ["torch"] and importlib.util.find_spec("torch") is None:
            n_left += 1
        else:
            ret.append(example)
    return ret, n_left


@unittest.skipUnless(os.path.isdir(DOC), "the documentation is not beside these tests")
class Tutorial(unittest.TestCase):
    """Each page is run in an empty folder, with a holder of the cache of its own."""

    def run_page(self, page):
        path = os.path.join(DOC, "tutorial", page)
        known, n_left = examples(path)
        self.assertGreater(len(known) + n_left, 20)
        test = doctest.DocTest(known, {"__name__": "__main__"}, page, path, 0, None)
        said = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        before = os.getcwd()
        # The path of the holder's socket must be short.
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/tmp") as runtime, \
                mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": runtime}):
            os.chdir(folder)
            try:
                runner.run(test, out=said.append)
            finally:
                os.chdir(before)
            # The holder, which ends with its last image, removes its folder.
            until = time.monotonic() + 100
            while os.listdir(runtime) and time.monotonic() < until:
                time.sleep(0.01)
        self.assertEqual(runner.failures, 0, "".join(said))
        if n_left > 0:
            self.skipTest(f"{n_left} examples need torch; the {len(known)} others have passed")


def add_pages():
    """A test for each page."""
    pages = sorted(os.listdir(os.path.join(DOC, "tutorial"))) if os.path.isdir(DOC) else []
    for page in pages:
        def test(self, page=page):
            self.run_page(page)
        setattr(Tutorial, "test_" + page.removesuffix(".rst"), test)


add_pages()

if __name__ == "__main__":
    unittest.main()
