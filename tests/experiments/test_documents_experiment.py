"""The experiment on documents: readers of one's choice, and more of them later."""

import pandas
import pytest

torch = pytest.importorskip("torch")

from percolab.experiments.documents import EXPERIMENT  # noqa: E402
from percolab.experiments.relevance import EXPERIMENT as RELEVANCE  # noqa: E402
from percolab.study.networks import Networks  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.slow
def test_readers_are_chosen_and_more_are_added(tmp_path, monkeypatch):
    first = EXPERIMENT.settings("small", epochs=10, documents=60, readers=["separation"])
    assert "--readers separation" in first.command
    results = EXPERIMENT.run(first, tmp_path, device="cpu")
    assert {row["reader"] for row in results["estimates"] if "reader" in row} == {"separation"}
    table = pandas.read_parquet(tmp_path / "table.parquet")
    assert set(table["role"]) == {"trained", "other", "untrained", "raw", "permuted"}
    assert table["value"].notna().any()
    monkeypatch.setattr(Networks, "of", lambda *given: pytest.fail("they are there"))
    more = EXPERIMENT.settings("small", epochs=10, documents=60, readers=["separation", "neurons"])
    results = EXPERIMENT.run(more, tmp_path, device="cpu")
    assert {row["reader"] for row in results["estimates"] if "reader" in row} == {"separation", "neurons"}


def test_readers_are_checked_before_anything_is_trained():
    with pytest.raises(ValueError, match=r"readers must be names .* got 'nonsense'"):
        EXPERIMENT.settings("small", readers=["nonsense"])
    with pytest.raises(ValueError, match="readers must be left out: relevance has its own, got 'beliefs'"):
        RELEVANCE.settings("small", readers=["beliefs"])
