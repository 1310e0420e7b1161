"""Digests of what both engines make, and of documents and beliefs: the same on every machine.

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
CORPORA = (1, 3)
"""Numbers of lexicons."""


def digests() -> dict[str, dict[str, str]]:
    """Return, for every case, digests of what it makes."""
    found = {" ".join(map(str, case)): digest(*case) for case in CASES}
    return found | {f"corpus {count}": corpus_digest(count) for count in CORPORA}


def digest(engine: str, mode: str, dim: int, dtype: str) -> dict[str, str]:
    """Make a dataset of 5,000 points with seeds=7 and return its digests."""
    from percolab.engines import native, paper
    from percolab.ground.progress import silent
    from percolab.model.recipe import Recipe

    recipe = Recipe(POINTS, dim, mode, seeds=7, engine=engine, dtype=dtype)
    made = {"native": native, "paper": paper}[engine].build(recipe, 2, silent)
    forest = made.forest
    columns = forest.cluster_start, forest.cluster_id, forest.point_id, forest.left_size, forest.bond, made.y
    assert made.X.dtype == dtype
    return {"X": _sha256(made.X), "forest and y": _sha256(*columns)}


def corpus_digest(count: int) -> dict[str, str]:
    """Make a corpus of so many lexicons of 500 tokens and return digests of 200 documents and of what is true of them.

    The renewal is one that 32 bits do not hold, and the tokens are of another corpus, so that lexicons are in doubt.
    """
    from percolab.corpora.corpus import Corpus
    from percolab.model.recipe import Recipe

    lexicons = [Recipe(500, 2, "one_cluster", seeds=seed) for seed in range(count)]
    corpus = Corpus(lexicons, length=33, renewal=0.1, min_size=8, shares=range(1, count + 1), seed=7)
    documents = corpus.documents(2**40, 2**40 + 200)
    beliefs = corpus.beliefs(documents.tokens[::-1, ::-1])
    truth = beliefs.floor, beliefs.believed, beliefs.believed_lexicon, beliefs.lexicon
    inside = [beliefs.inside(corpus.contexts(k), k) for k in range(count)]
    laws = [corpus.unigram, corpus.predict(documents.tokens), *map(corpus.prior, range(count))]
    return {"documents": _sha256(*vars(documents).values()), "beliefs": _sha256(*truth, *inside, *laws)}


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
