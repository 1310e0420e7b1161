"""Time and memory of the paper engine against NumPy drawing as many Gaussians as X has entries.

    python benchmarks/paper_engine.py [--repeats 5] [--json out.json]

The floor: directions are d Gaussians per latent, and clusters other than one add 2d + 2 each for vector and origin. All
come from streams that must be read in order, so one core draws them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import timing

import percolab as pl
from percolab.ground.memory import readable

MULTI = pl.PRESETS["paper-multi-cluster"]
CASES = [
    ("paper-one-cluster", pl.PRESETS["paper-one-cluster"], 200_000, 1.5),
    ("paper-multi-cluster", MULTI, 2_000_000, 1.5),
    ("the same, unfiltered", replace(MULTI, min_cluster_size=1), 2_000_000, 3.0),
]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--json")
    chosen = options.parse_args()
    rows = []
    for name, recipe, n, target in CASES:
        rows.append(
            timing.compare(
                f"generate {name}",
                lambda recipe=recipe: pl.generate(recipe),
                f"standard_normal(({n:,}, 100))",
                lambda n=n: np.random.default_rng().standard_normal((n, 100)),
                f"at most {target}",
                chosen.repeats,
            )
        )
        rows[-1].detail["memory"] = memory(recipe)
    timing.show("paper engine", rows, chosen.json)
    for row in rows:
        used = row.detail["memory"]
        print(f"{row.what}: peak {readable(used['peak'])}, returned {readable(used['returned'])}")


def memory(recipe: pl.Recipe) -> dict[str, int]:
    """Return the peak memory of making a dataset, beyond that of importing the library, and what is returned."""
    load = "import percolab as pl\n"
    peak = timing.peak_bytes(f"{load}ds = pl.generate(pl.Recipe.from_json({recipe.to_json()!r}))")
    ds = pl.generate(recipe)
    columns = [ds.X, ds.y, ds.latent_z, ds.point_z, ds.forest.point_id, ds.forest.left_size, ds.forest.bond]
    columns += [ds.forest.cluster_start, ds.forest.cluster_id]
    return {"peak": peak, "import": timing.peak_bytes(load), "returned": sum(int(c.nbytes) for c in columns)}


if __name__ == "__main__":
    main()
