"""The experiment on causes: a whole run, small in everything."""

import pytest

torch = pytest.importorskip("torch")

from percolab.experiments.causation import EXPERIMENT  # noqa: E402
from percolab.study import causes  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.slow
def test_a_run_goes_from_documents_to_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(causes, "STEPS", 2)
    monkeypatch.setattr(causes, "DOCUMENTS", 16)
    along = "kmeans@n_features=16"
    readers = f"interchange@along={along}", f"steering@along={along}", "ablation"
    chosen = EXPERIMENT.settings("small", seeds=1, epochs=10, documents=60, readers=readers)
    results = EXPERIMENT.run(chosen, tmp_path / "run", device="cpu")
    lines = [line["what"] for line in results["headline"]]
    assert lines[0] == "interchange: sibling"
    assert {f"interchange: {along}", f"steering: slope along {along}", "ablation: rise"} <= set(lines)
    assert "interchange, sibling: own - other" in lines
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("data:image/png") == 2
    assert not results["missing"]


def test_readers_that_were_not_asked_for_have_no_picture():
    chosen = EXPERIMENT.settings("small", seeds=1, readers=("ablation",))
    assert EXPERIMENT.draw([], chosen) == {}
