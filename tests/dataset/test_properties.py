"""What holds for any recipe."""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import percolab as pl
from percolab.model.recipe import ENGINE_NAMES

COLUMNS = ("X", "y", "latent_z", "point_z")


@st.composite
def recipes(draw, most=300):
    mode = draw(st.sampled_from(["one_cluster", "distribution", "custom"]))
    return pl.Recipe(
        draw(st.integers(1, most)),
        draw(st.integers(2, 9)),
        mode,
        create_prob=draw(st.floats(0, 1)) if mode == "custom" else None,
        seeds=pl.Seeds(*draw(st.tuples(*[st.integers(0, 2**64 - 1)] * 3))),
        engine=draw(st.sampled_from(ENGINE_NAMES)),
        min_cluster_size=draw(st.integers(1, 4)),
        dtype=draw(st.sampled_from(["float32", "float64", None])),
    )


def same_bytes(a, b):
    columns = all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in COLUMNS)
    return columns and a.forest.equals(b.forest)


@pytest.mark.slow
@given(recipes())
@settings(max_examples=150, deadline=None)
def test_every_dataset_is_valid_and_made_again(recipe):
    before = repr(np.random.get_state(legacy=False))  # noqa: NPY002
    ds = pl.generate(recipe, threads=1)
    assert repr(np.random.get_state(legacy=False)) == before  # noqa: NPY002
    ds.forest.validate()
    n, latents = ds.forest.n_points, ds.forest.n_latents
    assert (ds.X.shape, ds.y.shape, ds.point_z.shape, ds.latent_z.shape) == ((n, recipe.dim), (n,), (n,), (latents,))
    assert ds.X.dtype == recipe.dtype
    assert np.isfinite(ds.X).all()
    assert (ds.forest.cluster_size >= recipe.min_cluster_size).all()
    if recipe.min_cluster_size == 1:
        assert sorted(ds.forest.point_id) == list(range(recipe.n_points))
    assert same_bytes(ds, pl.generate(pl.Recipe.from_json(recipe.to_json()), threads=3))
    assert pl.engines.targets(ds.forest, ds.latent_z, ds.point_z).tobytes() == ds.y.tobytes()


@given(recipes())
@settings(max_examples=60, deadline=None)
def test_every_bond_has_the_same_length(recipe):
    ds = pl.generate(recipe)
    a, b = ds.forest.bond.T
    length = np.linalg.norm(ds.X[a].astype(float) - ds.X[b], axis=1)
    tolerance = 1e-12 if recipe.dtype == "float64" else 1e-4
    np.testing.assert_allclose(length, recipe.step * np.sqrt(recipe.dim), rtol=tolerance)


@pytest.mark.slow
@given(recipes(most=60))
@settings(max_examples=25, deadline=None)
def test_save_and_load(recipe):
    ds = pl.generate(recipe)
    with tempfile.TemporaryDirectory() as folder:
        ds.save(Path(folder) / "ds.zarr")
        assert same_bytes(pl.load(Path(folder) / "ds.zarr", verify=True).in_memory(), ds)


def test_import_is_light():
    heavy = ["torch", "matplotlib", "zarr", "pandas", "networkx", "sklearn"]
    code = f"import percolab, sys; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


PEAK = """
import re, sys, percolab as pl
from dataclasses import replace
recipe = replace(pl.PRESETS[sys.argv[1]], min_cluster_size=int(sys.argv[2]), dim=int(sys.argv[3]))
ds = pl.generate(recipe)
returned = ds.X.nbytes + ds.y.nbytes + ds.latent_z.nbytes + ds.point_z.nbytes
returned += sum(getattr(ds.forest, c).nbytes for c in ("point_id", "left_size", "bond", "cluster_start", "cluster_id"))
# Not ru_maxrss, which a child takes over from the process that forked it.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024, returned)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_peak_memory_is_what_is_returned_and_half_again():
    for arguments in (("paper-one-cluster", "1", "100"), ("paper-multi-cluster", "500", "100")):
        run = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True)
        peak, returned = map(int, run.stdout.split())
        assert peak < 1.5 * returned + 300e6


def test_make_percolation():
    X, y = pl.make_percolation(100, 5, random_state=0, return_X_y=True)
    assert (X.shape, y.shape) == ((100, 5), (100,))
    ds = pl.make_percolation(100, 5, random_state=0, mode="one_cluster")
    assert isinstance(ds, pl.Dataset)
    assert ds.forest.n_clusters == 1
    for fresh in (np.random.default_rng, np.random.RandomState):
        a, b = (pl.make_percolation(50, 3, random_state=fresh(4)) for _ in range(2))
        assert same_bytes(a, b)
        rng = fresh(4)
        assert not same_bytes(*(pl.make_percolation(50, 3, random_state=rng) for _ in range(2)))


def test_a_seed_is_called_seed():
    recipe = pl.Recipe(50, 3, seed=7)
    assert recipe == pl.Recipe(50, 3, seeds=7) == pl.Recipe(50, 3, seeds=pl.Seeds.from_int(7))
    made = pl.generate(recipe)
    assert same_bytes(made, pl.generate(n_points=50, dim=3, seed=7))
    assert same_bytes(made, pl.make_percolation(50, 3, seed=7))
    assert same_bytes(made, pl.make_percolation(50, 3, random_state=7))
    assert pl.generate(n_points=50, dim=3, mode="one_cluster", threads=1).forest.n_clusters == 1
    for wrong, message in (
        (
            lambda: pl.Recipe(50, 3, seed=7, seeds=8),
            "seed and seeds are the same, and only one may be given, got 7 and 8",
        ),
        (lambda: pl.Recipe(50, 3, seed=-1), "seed must be at least 0, got -1"),
        (lambda: pl.generate(recipe, dim=4), "dim must be left out where a recipe is given, got 4"),
        (lambda: pl.make_percolation(5, seed=1, random_state=2), "seed and random_state are the same, got 1 and 2"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_make_percolation_has_sizes_by_default():
    assert pl.make_percolation(random_state=1).X.shape == (1000, 20)


@pytest.mark.parametrize("recipe", [1000, None, {"n_points": 5}])
def test_generate_says_what_it_takes(recipe):
    with pytest.raises(ValueError, match=r"recipe must be a Recipe or the name of a preset, got .*: name sizes"):
        pl.generate(recipe)


@pytest.mark.slow
def test_notebooks_show_tables(tmp_path):
    ds = pl.generate(pl.Recipe(2000, 3, seeds=5))
    ds.save(tmp_path / "ds.zarr")
    stored = pl.load(tmp_path / "ds.zarr")
    for shown, words in (
        (ds.recipe, ["n_points", "2,000", "graph 5, embed 10005, value 20005"]),
        (pl.Superposition([ds.recipe, ds.recipe], seed=1), ["n_points 2,000, dim 3", "1.0, 1.0", "no"]),
        (ds.forest, ["clusters", f"{ds.forest.n_clusters:,}", "latents"]),
        (ds, ["rows", "2,000", "float32", "native"]),
        (stored, ["rows", "2,000", "float32", "native"]),
        (pl.verify(ds), ["law", "expected", "measured", "verdict", "pass"]),
    ):
        page = shown._repr_html_()
        tree = ElementTree.fromstring(f"<div>{page}</div>")
        text = " ".join(tree.itertext())
        assert all(word in text for word in words)
        assert not any(word in text for word in ("Seeds(", "Recipe(", "()"))
    assert "forest" not in vars(stored)  # showing it reads no columns
    made = replace(ds, provenance={"created": "<script>alert(1)</script>"})
    assert "<script>" not in made._repr_html_()
    assert "&lt;script&gt;" in made._repr_html_()


def test_progress_reports_every_stage_to_its_end():
    seen = {}
    pl.generate(pl.Recipe(100_000, 3, seeds=0), progress=lambda stage, done, total: seen.update({stage: (done, total)}))
    assert seen
    for done, total in seen.values():
        assert done == total == 100_000


def test_an_interrupt_is_passed_on():
    class Stop(BaseException):
        pass

    def interrupt(stage, done, total):
        raise Stop

    try:
        pl.generate(pl.Recipe(100_000, 3, seeds=0), progress=interrupt, threads=2)
    except Stop:
        return
    raise AssertionError("the interrupt was swallowed")
