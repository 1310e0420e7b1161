"""Digests of what both engines make: the same on every machine.

    python tests/digests.py            # compare with tests/golden/digests.json; exit code 0 if all are equal
    python tests/digests.py --write    # write that file: the definition of the data has changed

The engines are imported without the package around them, so that numpy, numba and scipy are all that a machine needs.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from itertools import product
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "digests.json"
CASES = list(product(("native", "paper"), ("one_cluster", "distribution"), (2, 7, 100), ("float32", "float64")))
POINTS = 5000
"""Enough for a cluster of several pieces."""


def digests() -> dict[str, dict[str, str]]:
    """Return, for every case, a digest of X and one of the forest and y."""
    return {" ".join(map(str, case)): digest(*case) for case in CASES}


def digest(engine: str, mode: str, dim: int, dtype: str) -> dict[str, str]:
    """Make a dataset of 5,000 points with seeds=7 and return its digests."""
    from percolab.engines.native import engine as native
    from percolab.engines.paper import engine as paper
    from percolab.ground.progress import silent
    from percolab.model.recipe import Recipe

    recipe = Recipe(POINTS, dim, mode, seeds=7, engine=engine, dtype=dtype)
    made = {"native": native, "paper": paper}[engine].build(recipe, 2, silent)
    forest = made.forest
    columns = forest.cluster_start, forest.cluster_id, forest.point_id, forest.left_size, forest.bond, made.y
    assert made.X.dtype == dtype
    return {"X": _sha256(made.X), "forest and y": _sha256(*columns)}


def _sha256(*columns) -> str:
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:16]


def _import_bare_package() -> None:
    """Let modules of percolab be imported without its front, which imports all that users may want."""
    package = ModuleType("percolab")
    package.__path__ = [str(HERE.parent / "src" / "percolab")]
    sys.modules["percolab"] = package


def main() -> int:
    _import_bare_package()
    found = digests()
    if "--write" in sys.argv:
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    golden = json.loads(GOLDEN.read_text())
    for case, columns in found.items():
        for name, value in columns.items():
            print(f"{case:34} {name:13} {value}  {'equal' if golden[case][name] == value else 'DIFFERENT'}")
    print(platform.machine(), "Python", platform.python_version(), *platform.libc_ver())
    return int(found != golden)


if __name__ == "__main__":
    sys.exit(main())
