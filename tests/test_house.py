"""The rooms of the house: who may import whom, by `lint-imports`, which must see what breaks the rules."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import house as house_map
import pytest

ROOT = Path(__file__).parent.parent
MODULES = {"intervals", "streaming", "theory"}
"""Public modules, which are in no room."""
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = {contract["containers"][0]: contract["layers"] for contract in CONTRACTS if contract["type"] == "layers"}
ROOMS = set(LAYERS["percolab"]) - MODULES


@pytest.fixture
def house(tmp_path):
    """A copy of the package, with its contracts."""
    shutil.copytree(
        ROOT / "src" / "percolab", tmp_path / "percolab", ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(house):
    """Return the exit code of lint-imports on a copy of the package, and what it says."""
    code = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as lint; lint()"
    done = subprocess.run([sys.executable, "-c", code, "--no-cache"], cwd=house, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def plant(house, module, line):
    path = house / "percolab" / module
    path.write_text(path.read_text() + f"\n\ndef planted():\n    {line}\n")


def test_the_house_as_it_is(house):
    code, said = lint(house)
    assert code == 0, said


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("engines/native/splitting.py", "from percolab.store import schema", "Rooms stand on the rooms below them"),
        ("ground/files.py", "import percolab.model.recipe", "Rooms stand on the rooms below them"),
        ("nn/networks/model.py", "from percolab.nn.training import run", "Rooms of nn stand on the rooms below them"),
        ("study/cells.py", "from percolab.experiments import paper", "Rooms stand on the rooms below them"),
        ("engines/paper/coalescent.py", "from percolab.engines import native", "The two engines know nothing"),
        ("model/hierarchy.py", "from percolab.model import forest", "No cycles between the modules of a room"),
        ("store/finished.py", "import torch", "The library never imports torch"),
        ("checks/value_laws.py", "import torch.nn", "The library never imports torch"),
    ],
)
def test_what_breaks_a_rule_is_seen(house, module, planted, contract):
    plant(house, module, planted)
    code, said = lint(house)
    assert code == 1
    assert any(line.startswith(contract) and "BROKEN" in line for line in said.splitlines()), said


def test_a_new_module_needs_a_room(house):
    (house / "percolab" / "helpers.py").write_text("")
    code, said = lint(house)
    assert code == 1
    assert "helpers" in said


def test_every_module_is_in_a_room():
    package = ROOT / "src" / "percolab"
    assert {path.stem for path in package.glob("*.py")} == MODULES | {"__init__", "__main__"}
    folders = {path.parent for path in package.rglob("*.py")} - {package}
    assert {path.relative_to(package).parts[0] for path in folders} == ROOMS
    assert all((folder / "__init__.py").exists() for folder in folders)


def test_the_plan_of_the_house_names_every_room():
    plan = (ROOT / "src" / "percolab" / "README.md").read_text()
    drawn = set(re.findall(r"^    (\w+) ", plan, re.MULTILINE))
    assert drawn == ROOMS | MODULES
    below = [room for layer in LAYERS["percolab.nn"] for room in layer.split(" | ")]
    assert re.findall(r"^    nn\.(\w+) ", plan, re.MULTILINE) == below
    assert len(plan.splitlines()) <= 52


def test_every_room_of_nn_says_what_is_in_it():
    for folder in (ROOT / "src" / "percolab" / "nn").glob("*/"):
        if folder.name != "__pycache__":
            assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


@pytest.mark.slow
def test_the_map_is_that_of_the_code():
    """A page that shows another house says how to draw it again: python tests/house.py --write."""
    assert house_map.parted()[1] == house_map.drawn(house_map.read())
