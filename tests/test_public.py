"""What users see: the names of the package, and the types that its functions return."""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import percolab as pl
from percolab.ground.extras import surface

SRC = Path(pl.__file__).parent
MODULES = ("benchmark", "engines", "exports", "features", "nn", "show", "streaming", "study", "theory")
OPAQUE = {"Checked", "ClusterTable"}
"""Classes that users pass on without looking inside."""


def own_classes():
    """Return the names of all classes of the package, as often as they are given."""
    trees = (ast.parse(path.read_text()) for path in SRC.rglob("*.py"))
    return [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def public():
    """Return what is public, by its full name."""
    found = {f"percolab.{name}": getattr(pl, name) for name in pl.__all__ if name not in MODULES}
    for module in MODULES:
        home = getattr(pl, module)
        found |= {f"percolab.{module}.{name}": getattr(home, name) for name in home.__all__}
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


@pytest.mark.parametrize("module", [pl, *(getattr(pl, name) for name in MODULES)], ids=lambda module: module.__name__)
def test_dir_shows_what_users_use(module):
    assert dir(module) == sorted(module.__all__)
    things = [getattr(module, name) for name in module.__all__]
    assert not any(hasattr(thing, "py_func") for thing in things), "a kernel"
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_a_dataset_is_saved_by_a_process_that_asked_for_nothing_else(tmp_path):
    code = f"import percolab as pl; pl.generate(n_points=50, dim=2, seed=1).save({str(tmp_path / 'a.zarr')!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(pl.load(tmp_path / "a.zarr")) == 50


def test_importing_the_package_loads_nothing():
    code = "import percolab, sys; print(*{'numpy', 'numba', 'zarr', 'scipy', 'torch'} & {*sys.modules})"
    assert not subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


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


@pytest.mark.parametrize(
    ("module", "older", "newer"),
    [
        (pl, "Made", pl.StoreReport),
        (pl, "Table", pl.engines.ClusterTable),
        (pl, "Rows", pl.engines.GeneratedRows),
        (pl, "Cut", pl.Partition),
        (pl, "attachment", pl.engines.attachment),
        (pl.nn, "Score", pl.nn.RegressionScore),
        (pl.show, "draw_document", pl.show.draw),
    ],
)
def test_older_names_warn(module, older, newer):
    with pytest.warns(DeprecationWarning, match=rf"percolab.*\.{older} is now percolab\.") as warned:
        assert getattr(module, older) is newer
    assert warned[0].filename == __file__


def test_older_names_can_be_imported():
    with pytest.warns(DeprecationWarning, match=r"Made is now"):
        from percolab import Made
    assert Made is pl.StoreReport


def test_a_missing_extra_is_named():
    get, _ = surface("percolab.some", ["thing"], {"thing": "percolab.nowhere"}, extra="nn")
    with pytest.raises(ModuleNotFoundError, match=r"percolab\.nowhere"):  # a fault of percolab's own
        get("thing")
    for name, said in (
        ("nn.ResidualMLP", "percolab.nn needs torch: pip install 'percolab[nn]'"),
        ("compare", "percolab.study needs torch: pip install 'percolab[nn]'"),
        ("features.TopK(2, k=1).fit([[1.0]])", "this method needs SAELens: pip install 'percolab[sae]'"),
    ):
        code = f"import sys; sys.modules['torch'] = None; import percolab as pl; pl.{name}"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.stderr.splitlines()[-1] == f"ImportError: {said}"


def test_public_names_of_classes_are_unique():
    classes = {thing for thing in public().values() if inspect.isclass(thing)}
    assert len({thing.__name__ for thing in classes}) == len(classes)
    often = Counter(own_classes())
    assert (often["Score"], often["Seeds"], often["Truth"]) == (1, 1, 1)


def test_what_public_functions_return_is_public():
    things, classes = public(), set(own_classes())
    named = {name.rsplit(".", 1)[1] for name in things}
    assert {"generate", "Forest", "Score", "Release", "Stream"} <= named
    hidden = {
        (name, word)
        for name, thing in things.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
        for annotation in returned(thing)
        for word in set(re.findall(r"\w+", str(annotation))) & classes - named
    }
    assert not hidden
