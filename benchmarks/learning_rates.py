"""Learning rates of sparse autoencoders, chosen once per task and representation, on a draw used for nothing else.

    python benchmarks/learning_rates.py documents small

prints recovery on validation rows by role and rate. `percolab.benchmark.tasks` has the best ones.
"""

import json
import sys
from dataclasses import replace

import numpy as np

from percolab.benchmark.declaration import settings
from percolab.benchmark.judgement import AT, judge
from percolab.benchmark.networks_and_controls import Representation, train
from percolab.benchmark.tasks import MIDDLE, Task, task
from percolab.features.register import entry
from percolab.study.cells import Here
from percolab.study.measured import RAW, TRAINED, UNTRAINED

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
"""Learning rates that are tried."""
TUNING_DRAW = 10_000
"""The draw on which learning rates are chosen, and nothing else is done."""


def choose_rates(task: Task, device: str = "auto") -> dict[str, dict[float, float]]:
    """Return recovery on validation rows by role and learning rate, of a TopK autoencoder at the middle setting.

    The task takes the best rate of each role.
    """
    s = settings(task, only=["topk"], seeds=1).drawn(TUNING_DRAW)
    here = Here(device)
    weights = train(s, here)
    found: dict[str, dict[float, float]] = {}
    for which in (Representation(TRAINED, 0), Representation(UNTRAINED), Representation(RAW)):
        for rate in RATES:
            one = entry(f"topk@k={MIDDLE}+lr={rate:g}", s.options.budget)
            cells = judge(which, one, replace(s, options=replace(s.options, rates={})), here, weights).cells(0)
            own = [c.values[0] for c in cells if c.measure == "validation" and c.factor == 0 and AT not in c.reader]
            found.setdefault(which.role, {})[rate] = float(np.mean(own))
    return found


if __name__ == "__main__":
    print(json.dumps(choose_rates(task(*sys.argv[1:3])), indent=1))
