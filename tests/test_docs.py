"""The documentation: its Python runs and type-checks, its commands are understood, its links lead somewhere."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import percolab as pl
from percolab.cli import main
from percolab.model.recipe import PRESETS

ROOT = Path(__file__).parent.parent
TOP = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "src" / "percolab" / "README.md"]
PAGES = TOP + sorted((ROOT / "docs").rglob("*.md"))

EXPERIMENTS = {"reproduce", "train", "baselines", "probe", "represent", "scaling", "benchmark"}
"""Commands that take minutes: `tests/cli` and `tests/experiments` run them at a small scale."""


def name_of(page):
    return str(page.relative_to(ROOT))


def fences(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def examples(page):
    """Return all Python of a page: what the tests run, and the cells that are run when the site is built."""
    fence = r"^```(?:python|\{code-cell\} ipython3)\n(?::\S+:.*\n)*(.*?)^```$"
    return "\n".join(re.findall(fence, page.read_text(), re.MULTILINE | re.DOTALL))


def with_python():
    return [page for page in PAGES if fences(page, "python")]


def to_run(page):
    """Return a page as a parameter, marked with what it takes to run it."""
    marks = [pytest.mark.slow, pytest.mark.ray] if "import ray" in examples(page) else []
    return pytest.param(page, id=name_of(page), marks=marks + [pytest.mark.slow] * (page.name == "data-model.md"))


def commands(page):
    lines = [line for fence in fences(page, "sh") for line in fence.splitlines()]
    return [line for line in lines if line.startswith("percolab ")]


@pytest.mark.parametrize("page", [to_run(page) for page in with_python()])
@pytest.mark.filterwarnings("ignore")  # some pages start Ray
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "\n".join(fences(page, "python"))
    exec(compile(source, page.name, "exec"), {"__name__": "__main__"})


# Errors are looked for in the examples alone; percolab is read as an installed package is, by its py.typed. What is not
# ours and large, or without types, counts as unknown.
STRICT = """
[mypy]
strict = True
[mypy-torch.*,ray.*]
follow_imports = skip
ignore_missing_imports = True
[mypy-networkx.*,pandas.*,sklearn.*]
ignore_missing_imports = True
"""


@pytest.mark.slow
def test_examples_pass_strict_type_checks(tmp_path):
    (tmp_path / "mypy.ini").write_text(STRICT)
    pages = [page for page in PAGES if examples(page)]
    for page in pages:
        name = re.sub(r"\W", "_", name_of(page).removesuffix(".md"))
        (tmp_path / f"{name}.py").write_text(examples(page))
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--cache-dir=cache", "."]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"no issues found in {len(pages)} source files" in run.stdout


def test_the_pages_with_examples_are_found():
    assert {"README.md", "data-model.md", "scale.md"} <= {page.name for page in with_python()}
    assert {"README.md", "start.md", "scale.md"} <= {page.name for page in PAGES if commands(page)}


SECONDS = {"README.md", "docs/command-line.md", "docs/documents.md", "docs/scale.md", "docs/tutorials/scale.md"}
"""Pages whose commands take seconds."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (name_of(page) in SECONDS), id=name_of(page))
        for page in PAGES
        if commands(page)
    ],
)
def test_commands_run_in_the_order_of_the_page(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for command in commands(page):
        capfd.readouterr()  # what the last one said
        words = shlex.split(command, comments=True)[1:]
        if set(words) & set(PRESETS):
            # The paper's datasets take seconds and a gigabyte: ask only whether the words are understood.
            assert main.run([*words, "--threads", "0"]) == 2
            assert capfd.readouterr().err == "error: --threads must be at least 1, got 0\n"
        elif "--shards" in words and int(words[words.index("--n-points") + 1]) > 10**6:
            assert main.run([*words, "--shards", "0"]) == 2
            assert capfd.readouterr().err == "error: --shards must be at least 1, got 0\n"
        elif words[0] in EXPERIMENTS | {"score"}:
            wrong = ["--min-size", "1"] if words[0] == "score" else ["--device", "abacus"]
            assert main.run([*words, *wrong]) != 0
            error = capfd.readouterr().err
            assert error.startswith("error: ")
            assert "option" not in error
            assert "command" not in error
        else:
            assert main.run(words) == 0, capfd.readouterr().err


def test_every_public_name_is_in_the_reference():
    for module in (pl, pl.engines, pl.features, pl.benchmark, pl.study, pl.nn, pl.show):
        page = (ROOT / "docs" / "reference" / f"{module.__name__.removeprefix('percolab.')}.md").read_text()
        entries = set(re.findall(r"^\.\. (?:autofunction|autoclass|autoexception|py:data):: (\w+)", page, re.MULTILINE))
        modules = {name for name in module.__all__ if inspect.ismodule(getattr(module, name))}
        assert entries == set(module.__all__) - {"__version__"} - modules


def test_python_is_on_the_first_screen():
    for page in (ROOT / "README.md", ROOT / "docs" / "start.md"):
        first_screen = "\n".join(page.read_text().splitlines()[:20])
        assert "import percolab as pl" in first_screen, page.name


def test_the_citation_names_this_version():
    assert f"\nversion: {pl.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_images_exist(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_tables_of_the_results_are_those_of_their_files():
    program = ROOT / "docs" / "results" / "make_tables.py"
    done = subprocess.run([sys.executable, str(program), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
