"""The experiment on who owns a concept: its numbers from shares that are made up, and a whole run."""

import numpy as np
import pandas
import pytest

torch = pytest.importorskip("torch")

from percolab.experiments.ownership import EXPERIMENT, Owned, analyse  # noqa: E402

torch.set_num_threads(1)


def test_numbers_of_a_pair_are_those_of_its_shares():
    rows = [  # pair, owner, share, F1
        ("swap", "first", 0.1, 0.9), ("swap", "first", 0.4, 0.9), ("swap", "second", 0.31, 0.9),
        ("swap", "second", 0.9, 0.9), ("swap", "second", 0.0, 0.4),
        ("tuned", "both", 0.5, 0.9), ("tuned", "both", 0.8, 0.9), ("tuned", "second", 0.95, 0.9),
        ("reseeded", "both", 0.45, 0.9), ("reseeded", "both", 0.7, 0.9), ("reseeded", "both", 0.5, 0.1),
    ]  # fmt: skip
    pair, owner, share, f1 = (list(column) for column in zip(*rows, strict=True))
    nearest = ["first" if s < 0.25 else "both" if s < 0.75 else "second" for s in share]
    zeros = [0] * len(rows)
    owned = Owned(pair, zeros, owner, nearest, zeros, zeros, np.array(f1), np.array(share))
    found = analyse(EXPERIMENT.settings("small"), {"pairs": owned})
    values = {(r["pair"], r["measure"]): r.estimate.value for r in found}
    expected = {
        ("swap", "matched"): 4 / 5, ("swap", "misattributed"): 2 / 4, ("swap", "auc"): 3 / 4,
        ("swap", "auc over reseeded"): 6 / 8,  # distances 0.4, 0.1, 0.19 and 0.4 against 0.05 and 0.2
        ("tuned", "matched"): 1, ("tuned", "misattributed"): 1 / 3, ("tuned", "auc"): 1,
        ("tuned", "auc over reseeded"): 1,
        ("reseeded", "matched"): 2 / 3, ("reseeded", "misattributed"): 0,
    }  # fmt: skip
    assert values == pytest.approx(expected)


@pytest.mark.slow
def test_a_run_goes_from_documents_to_a_page(tmp_path):
    chosen = EXPERIMENT.settings("small", epochs=60, documents=120, method="kmeans@n_features=48")
    results = EXPERIMENT.run(chosen, tmp_path / "run", device="cpu")
    assert {r["pair"] for r in results["estimates"]} == {"swap", "tuned", "reseeded"}
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("data:image/png") == 1
    assert (tmp_path / "run" / "tables" / "concepts.csv").exists()
    assert not results["missing"]
    table = pandas.read_parquet(tmp_path / "run" / "table.parquet")
    assert set(table["measure"]) == {"f1", "share"}
