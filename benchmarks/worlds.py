"""Time and memory of superposed worlds: against making their factors alone, and against what is returned.

    python benchmarks/worlds.py [--repeats 7] [--quick] [--json out.json]

What a world adds to each row of a factor, in float32: one read for its scale; one read from a random place, log₄ D
rounds of rotation if it is rotated, and one read and one write of X; 16 bytes of the table of rows and of y.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from functools import partial

import timing

import percolab as pl
from percolab.ground import parallel
from percolab.ground.memory import readable

THREADS = sorted({1, parallel.thread_count(None)})


def factors_alone(world: pl.Superposition, threads: int) -> list[pl.Dataset]:
    return [pl.generate(factor, threads=threads) for factor in world.factors]


def worlds(quick: bool) -> dict[str, pl.Superposition]:
    """Return what is timed: the presets, and both in more dimensions."""
    two, four = pl.PRESETS["superposed-2"], pl.PRESETS["superposed-4"]
    assert isinstance(two, pl.Superposition)
    assert isinstance(four, pl.Superposition)
    wide = [replace(factor, dim=256) for factor in two.factors]
    found = {
        "superposed-2": two,
        "superposed-4": four,
        "2 of 256 dimensions": pl.Superposition(wide, seed=0),
        "2 of 256 dimensions, rotated into 64": pl.Superposition(wide, dim=64, seed=0),
    }
    if quick:
        small = {name: [replace(f, n_points=f.n_points // 10) for f in world.factors] for name, world in found.items()}
        found = {
            name: pl.Superposition(small[name], dim=world.dim, rotate=world.rotate, seed=0)
            for name, world in found.items()
        }
    return found


def times(chosen: dict[str, pl.Superposition], repeats: int) -> list[timing.Row]:
    rows = []
    for name, world in chosen.items():
        for threads in THREADS:
            what = f"{name}, {threads} thread{'s' * (threads > 1)}"
            ours, theirs = partial(pl.generate, world, threads=threads), partial(factors_alone, world, threads)
            rows.append(timing.compare(what, ours, "its factors alone", theirs, "at most 1.3", repeats, warm=True))
    return rows


def memory(world: pl.Superposition) -> tuple[int, int]:
    """Return the peak memory of making a world, beyond that of importing and compiling, and what is returned."""
    tiny = pl.Superposition([replace(f, n_points=5000) for f in world.factors], dim=world.dim, rotate=world.rotate)
    load = "import percolab as pl\n"
    make = "world = pl.generate(pl.Superposition.from_json({!r}))\n".format
    before = timing.peak_bytes(load + make(tiny.to_json()))
    peak = timing.peak_bytes(load + make(tiny.to_json()) + make(world.to_json()))
    made = pl.generate(world)
    columns = [made.X, made.y, made.rows]
    for factor in made.factors:
        columns += [factor.y, factor.latent_z, factor.point_z]
        columns += [getattr(factor.forest, field.name) for field in fields(factor.forest)]
    return peak - before, sum(int(column.nbytes) for column in columns)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    options.add_argument("--json")
    chosen = options.parse_args()
    made = worlds(chosen.quick)
    rows = times(made, chosen.repeats)
    timing.show("superposed worlds", rows, chosen.json)
    for name, world in made.items():
        peak, returned = memory(world)
        print(f"{name}: peak {readable(peak)}, returned {readable(returned)}, ratio {peak / returned:.2f}")


if __name__ == "__main__":
    main()
