"""What users see: the names of the package, and the types that its functions return."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import percolab as pl

SRC = Path(pl.__file__).parent
MODULES = ("exports", "features", "nn", "show", "streaming", "theory")
OPAQUE = {"Table"}
"""Classes that users pass on without looking inside."""


def own_classes():
    """Return the names of all classes of the package."""
    trees = (ast.parse(path.read_text()) for path in SRC.rglob("*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def public():
    """Return what is public, by its full name."""
    found = {f"percolab.{name}": getattr(pl, name) for name in pl.__all__ if name not in MODULES}
    for module in MODULES:
        home = getattr(pl, module)
        for name in getattr(home, "__all__", None) or vars(home):
            thing = getattr(home, name)
            if not name.startswith("_") and getattr(thing, "__module__", "").startswith("percolab"):
                found[f"percolab.{module}.{name}"] = thing
    return found


def returned(thing):
    """Yield the annotations of what a function or the members of a class give."""
    if not inspect.isclass(thing):
        yield inspect.signature(thing).return_annotation
        return
    if thing.__name__ in OPAQUE:
        return
    yield from vars(thing).get("__annotations__", {}).values()
    for name, member in vars(thing).items():
        function = getattr(member, "fget", None) or getattr(member, "func", member)
        if inspect.isfunction(function) and not name.startswith("_"):
            yield inspect.signature(function).return_annotation


def test_dir_shows_what_users_use():
    code = "import percolab; print([name for name in dir(percolab) if not name.startswith('__')])"
    shown = ast.literal_eval(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    assert set(shown) == set(pl.__all__) - {"__version__"}
    assert not {"ground", "rng", "model", "engines", "store", "checks", "import_module"} & set(shown)
    assert all(hasattr(pl, name) for name in dir(pl))
    assert not any(hasattr(getattr(pl, name), "py_func") for name in dir(pl)), "a kernel"


def test_public_modules_are_there_without_an_import_of_their_own():
    # A process each, as one module imports others; forked, as starting them takes most of a second.
    code = f"""if True:
        import os, percolab as pl
        for module in {MODULES}:
            if not os.fork():
                print(getattr(pl, module).__name__, flush=True)
                os._exit(0)
            os.wait()
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split() == [f"percolab.{module}" for module in MODULES], run.stderr


def test_unknown_names_are_refused():
    for module in (pl, pl.exports, pl.nn):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            module.nothing  # noqa: B018


def test_what_public_functions_return_is_public():
    things, classes = public(), own_classes()
    named = {name.rsplit(".", 1)[1] for name in things} | {"StreamingDataset", "TokenDataset", "TorchDataset"}
    assert {"generate", "Forest", "Score", "Release", "Stream"} <= named
    named |= set(pl.study.__all__)
    assert all(hasattr(pl.exports, name) for name in ("StreamingDataset", "TorchDataset"))
    assert all(hasattr(pl.study, name) for name in pl.study.__all__)
    hidden = {
        (name, word)
        for name, thing in things.items()
        if callable(thing)
        for annotation in returned(thing)
        for word in set(re.findall(r"\w+", str(annotation))) & classes - named
    }
    assert not hidden
