"""The documentation: its Python runs, its commands are understood, its links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

from percolab.cli import main
from percolab.model.recipe import PRESETS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

EXPERIMENTS = {"reproduce", "train", "baselines", "probe"}
"""Commands that take minutes: `tests/test_nn_*.py` run them at a small scale."""


def fences(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def with_python():
    return [page for page in PAGES if fences(page, "python")]


def commands():
    lines = [line for page in PAGES for fence in fences(page, "sh") for line in fence.splitlines()]
    return [line for line in lines if line.startswith("percolab ")]


@pytest.mark.parametrize("page", with_python(), ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore")  # some pages start Ray
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "\n".join(fences(page, "python"))
    exec(compile(source, page.name, "exec"), {"__name__": "__main__"})


def test_the_pages_with_examples_are_found():
    assert {"README.md", "data-model.md", "scale.md"} <= {page.name for page in with_python()}
    assert len(commands()) >= 6


def test_commands_run_in_the_order_of_the_page(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for command in commands():
        words = shlex.split(command, comments=True)[1:]
        if set(words) & set(PRESETS):
            # The paper's datasets take seconds and a gigabyte: ask only whether the words are understood.
            assert main.run([*words, "--threads", "0"]) == 2
            assert capfd.readouterr().err == "error: --threads must be at least 1, got 0\n"
        elif "--shards" in words and int(words[words.index("--n-points") + 1]) > 10**6:
            assert main.run([*words, "--shards", "0"]) == 2
            assert capfd.readouterr().err == "error: --shards must be at least 1, got 0\n"
        elif words[0] in EXPERIMENTS:
            assert main.run([*words, "--device", "abacus"]) != 0
            error = capfd.readouterr().err
            assert error.startswith("error: ")
            assert "option" not in error
            assert "command" not in error
        else:
            assert main.run(words) == 0, capfd.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_exist(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
