"""What is published: a source archive, a wheel built from it, and what an empty environment gets from that."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

EXAMPLE = """
import percolab as pl

ds = pl.generate(pl.Recipe(n_points=300, dim=4, seeds=7))
ds.save("small.zarr")
assert (pl.load("small.zarr", verify=True).y == ds.y).all()
print(pl.__file__)
"""


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def only(folder, pattern):
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A source archive of this tree, and the wheel that is built from the archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    with tarfile.open(only(folder, "*.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    source = only(folder, "percolab-*[0-9]")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    return folder


@pytest.mark.slow
def test_the_archive_holds_what_the_tests_need(dist):
    source = only(dist, "percolab-*[0-9]")
    for name in ("README.md", "LICENSE", "CITATION.cff", "Makefile", "tests/golden", "docs/conf.py", "benchmarks"):
        assert (source / name).exists(), name
    assert not (source / ".git").exists()
    assert not (source / "build").exists()


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(dist):
    with zipfile.ZipFile(only(dist, "*.whl")) as wheel:
        names = wheel.namelist()
        (metadata,) = (wheel.read(name).decode() for name in names if name.endswith("METADATA"))
    package = {name for name in names if ".dist-info/" not in name}
    on_disk = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert package == {path.relative_to(ROOT / "src").as_posix() for path in on_disk}
    assert {"percolab/py.typed", "percolab/rng/ziggurat.npz"} <= package
    fields = Parser().parsestr(metadata)
    assert set(fields.get_all("Provides-Extra")) == set(PROJECT["project"]["optional-dependencies"])
    assert fields["Author"] == "The percolab developers"
    assert fields["License-Expression"] == "MIT"


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(dist, tmp_path):
    place = tmp_path / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-index", only(dist, "*.whl"))
    # Dependencies are those of this environment; an editable percolab in it is not seen, since its .pth is not read.
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    found = Path(run(python, "-c", EXAMPLE, cwd=tmp_path, env=clean))
    assert found.is_relative_to(packages)
    told = run(place / "bin" / "percolab", "info", "small.zarr", cwd=tmp_path, env=clean)
    assert "300" in told


def test_tools_of_developers_are_no_extras():
    groups, extras = PROJECT["dependency-groups"], PROJECT["project"]["optional-dependencies"]
    assert {"check", "test", "docs", "bench"} <= set(groups)
    assert not set(groups) & set(extras)


def test_every_extra_is_described_in_the_documentation():
    page = (ROOT / "docs" / "install.md").read_text()
    for extra in PROJECT["project"]["optional-dependencies"]:
        assert f"| `{extra}` |" in page, extra
