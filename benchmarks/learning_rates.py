"""Learning rates of sparse autoencoders, chosen once per task and representation, on a draw used for nothing else.

    python benchmarks/learning_rates.py documents small

prints recovery on validation rows, one line per role and rate as soon as it is known. `percolab.benchmark.tasks` has
the best ones.
"""

import json
import sys
from collections.abc import Iterator

from percolab.benchmark.declaration import settings
from percolab.benchmark.judgement import _encoded, _prepared
from percolab.benchmark.networks_and_controls import Representation, Subject, train
from percolab.benchmark.tasks import MIDDLE, Task, task
from percolab.features.register import entry
from percolab.study.cells import Here
from percolab.study.measured import RAW, TRAINED, UNTRAINED

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Learning rates that are tried."""
TUNING_DRAW = 10_000
"""The draw on which learning rates are chosen, and nothing else is done."""


def tried(task: Task, device: str = "auto") -> Iterator[tuple[str, float, float]]:
    """Yield a role, a rate, and the recovery of a TopK autoencoder on validation rows at the middle setting."""
    s = settings(task, only=["topk"], seeds=1).drawn(TUNING_DRAW)
    data = Subject(s, Here(device))
    weights = train(0, data)
    entries = [entry(f"topk@k={MIDDLE}+lr={rate:g}", s.options.budget) for rate in RATES]
    for which in (Representation(TRAINED, 0), Representation(UNTRAINED), Representation(RAW)):
        bench, views = next(iter(_prepared(which, data, weights, apart=True)))
        side = bench.sides[views[0].factor]
        for rate, chosen in zip(RATES, entries, strict=True):
            method = bench._fit(chosen, bench.parts["fit"], side.labels["fit"])
            codes = _encoded(method, bench.parts["validation"])
            yield which.role, rate, side.choose_thresholds(codes)[1]


def main() -> None:
    by_role: dict[str, dict[float, float]] = {}
    for role, rate, recovery in tried(task(*sys.argv[1:3])):
        by_role.setdefault(role, {})[rate] = recovery
        print(f"{role}, learning rate {rate:g}: {recovery:.4f}", flush=True)
    print("best:", json.dumps({role: max(by_rate, key=by_rate.__getitem__) for role, by_rate in by_role.items()}))


if __name__ == "__main__":
    main()
