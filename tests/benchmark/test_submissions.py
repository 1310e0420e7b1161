"""Result files: names of measures, and files that must be refused."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from attack_studies import made_results  # noqa: E402

from percolab.benchmark import envelope  # noqa: E402


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of k-means and TopK at two settings, in four places of two draws; nobody measured the numbers."""
    return made_results(tmp_path_factory.mktemp("results"))


def one_of(whole, **names):
    """A result as new values, the first with these names."""
    return json.loads(json.dumps(next(v for v in whole if all(v[name] == names[name] for name in names))))


def test_measures_have_saebench_names_if_they_are_the_same(whole):
    """Non-zero codes are L0 there; ours counts firings above chosen thresholds, and what differs has our own name."""
    metrics = one_of(whole, role="trained", trained_on=0, factor=0)["eval_result_metrics"]
    assert set(metrics) == {"recovery", "sparsity", "reconstruction_quality", "shrinkage", "sae_lens"}
    assert set(metrics["sparsity"]) == {"l0"}
    ours = {"l0", "dead", "loss_recovered", "absorption_carried", "probe_1", "probe_5", "probe_activations"}
    assert ours <= set(metrics["recovery"])
    assert "l0_zero" not in metrics["recovery"]
    measured = {cell.measure: cell for cell in envelope.to_measured(one_of(whole, draw=0))}
    values = one_of(whole, draw=0)["eval_result_metrics"]
    assert float(measured["l0"].values[0]) == values["recovery"]["l0"]
    assert float(measured["l0_zero"].values[0]) == values["sparsity"]["l0"]
