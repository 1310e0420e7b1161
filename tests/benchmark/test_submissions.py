"""Result files that must be refused, each in one line that names the file, and methods that are not everywhere."""

import json
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from attack_studies import WORLD, made_results  # noqa: E402

from percolab.benchmark import declaration, envelope, submissions  # noqa: E402
from percolab.benchmark.judgement import AT  # noqa: E402
from percolab.cli import main  # noqa: E402


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of k-means and TopK at two settings, in four places of two draws; nobody measured the numbers."""
    return made_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(autouse=True)
def frozen(monkeypatch):
    """The tiny task as if it were one of version 1."""
    monkeypatch.setattr(submissions, "FROZEN", {"small/superposed-2": WORLD})


def one_of(whole, **names):
    """A result as new values, the first with these names."""
    return json.loads(json.dumps(next(v for v in whole if all(v[name] == names[name] for name in names))))


def placed(folder, results):
    """A folder of these results, with checksums of their own."""
    folder.mkdir(parents=True)
    for i, values in enumerate(results):
        values["checksum"] = envelope.checksum(values)
        (folder / f"{i}.json").write_text(json.dumps(values))
    return folder


def everywhere(whole):
    """One method's results in all places: two draws, three networks, two hierarchies."""
    places = [v for v in whole if v["method"] == f"topk{AT}k=4"]
    apart = [v for v in places if (v["trained_on"], v["factor"]) == (0, 1)]
    return [*places, *(v | {"trained_on": 1} for v in apart), *(v | UNTRAINED for v in apart)]


def of_others(values, method="their-method"):
    return values | {"method": method, "sae_cfg_dict": {"width": 3}}


UNTRAINED = {"role": "untrained", "trained_on": -1}
FAULTS = {
    # another task than the frozen one, under the digest of the frozen one
    "a layer": (lambda v: v.update(layer="blocks.9"), r"layer must be 'blocks\.0', as the task is frozen, got"),
    "a network": (lambda v: v["eval_config"].update(network="mine:make"), r"eval_config\.network must be ''"),
    "data": (lambda v: v["eval_config"].update(data_digest="0" * 16), r"eval_config\.data_digest must be ''"),
    "a size": (lambda v: v["eval_config"].update(min_size=2), r"eval_config\.min_size must be 5"),
    "a scale": (lambda v: v["eval_config"].update(scale="paper"), r"eval_config\.scale must be 'small'"),
    "a training": (lambda v: v["eval_config"]["training"].update(epochs=9), r"eval_config\.training\.epochs must be 1"),
    "a budget": (lambda v: v["eval_config"]["budget"].update(steps=9), r"eval_config\.budget\.steps must be 5"),
    "a recipe": (lambda v: v["eval_config"]["recipe"].update(seed=9), r"eval_config\.recipe\.seed must be 0"),
    "no budget": (lambda v: v["eval_config"].update(budget={}), r"eval_config\.budget must be "),
    "a copied draw": (lambda v: v.update(draw=1), r"eval_config\.recipe\.factors\.0\.seeds\S* must be \d+"),
    "the draw of learning rates": (lambda v: v.update(draw=10_000), r"'draw' must be from 0 to 9999, got 10000"),
    # settings
    "a setting of none": (lambda v: v.update(method=f"topk{AT}k=16"), r"method must be topk @ k=4 or topk @ k=8 or"),
    "a setting spelt anew": (lambda v: v.update(method=f"topk{AT}k=24.0"), r"method must be topk @ k=4 or"),
    "no setting": (lambda v: v.update(method="topk"), r"method must be topk @ k=4 or"),
    "another option": (lambda v: v.update(method=f"topk{AT}lr=0.1"), r"method must be topk @ k=4 or"),
    "a setting of text": (lambda v: v.update(method=f"topk{AT}k=abc"), r"method must be topk @ k=4 or"),
    "an option of none": (lambda v: v.update(method="topk@bogus=1"), r"method must have the option it is given"),
    "an option without a value": (lambda v: v.update(method="topk@x"), r"method must be NAME or NAME@option=value"),
    "our name, written otherwise": (lambda v: v.update(method=f"TopK{AT}k=4"), r"method must be one of neurons"),
    "a name of the table": (lambda v: v.update(method="kmeans-1"), r"method must be one of neurons"),
    "options of another setting": (lambda v: v["sae_cfg_dict"].update(k=8), r"sae_cfg_dict\.k must be 4"),
    "an option more": (lambda v: v["sae_cfg_dict"].update(width=3), r"sae_cfg_dict must be "),
    # numbers
    "no validation": (lambda v: v["eval_result_metrics"]["recovery"].pop("validation"), r"'recovery' must have valid"),
    "validation of 9": (lambda v: v["eval_result_metrics"]["recovery"].update(validation=9), r"from 0 to 1, got 9"),
    "validation of nothing": (lambda v: v["eval_result_metrics"]["recovery"].update(validation=None), "must be number"),
    "no dead": (lambda v: v["eval_result_metrics"]["recovery"].pop("dead"), r"recovery must have dead"),
    "dead of 2": (lambda v: v["eval_result_metrics"]["recovery"].update(dead=2), r"'dead' must be from 0 to 1, got 2"),
    "no L0": (lambda v: v["eval_result_metrics"]["recovery"].pop("l0"), r"'recovery' must have l0"),
    "an L0 below 0": (lambda v: v["eval_result_metrics"]["recovery"].update(l0=-1), r"'l0' must be from 0 to"),
    "a bridge of text": (lambda v: v["eval_result_metrics"]["recovery"].update(bridged="x"), r"'bridged' must be num"),
    "an effect of 5": (lambda v: v["eval_result_metrics"]["recovery"].update({"planted_0.1": 5}), "from 0 to 1, got 5"),
    "an F1 of -1": (lambda v: v["eval_result_details"][0].update(f1_chosen=-1), r"'f1_chosen' must be from 0 to 1"),
    "a concept twice": (lambda v: v["eval_result_details"][1].update(concept=3), r"must have each concept once"),
    "no concepts": (lambda v: v.update(eval_result_details=[]), r"recovery\.f1 must be the mean of its details, None"),
    # places
    "a hierarchy of none": (lambda v: v.update(factor=2), r"factor must be 0 or 1 for role 'trained', got 2"),
    "trained on none": (lambda v: v.update(trained_on=-1), r"trained_on must be 0 or 1 for role 'trained', got -1"),
    "trained on a third": (lambda v: v.update(trained_on=2), r"trained_on must be 0 or 1 for role 'trained', got 2"),
    "untrained on one": (lambda v: v.update(role="untrained"), r"trained_on must be -1 for role 'untrained', got 0"),
    "a seed": (lambda v: v.update(seed=1000), r"'seed' must be from 0 to 999, got 1000"),
    "a second raw input": (lambda v: v.update(role="raw", layer="raw", trained_on=-1, seed=1), r"seed must be 0 for"),
    "a role": (lambda v: v.update(role="permuted"), r"'role' must be 'trained' or 'untrained' or"),
    "the truth": (lambda v: v.update(role="truth", layer="truth", trained_on=-1), r"role must be 'truth' for perc"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), FAULTS.values(), ids=FAULTS)
def test_a_file_that_is_not_of_the_task_is_refused_by_its_name(change, message, whole, tmp_path):
    values = one_of(whole, draw=0, role="trained", trained_on=0, factor=0, method=f"topk{AT}k=4")
    change(values)
    with pytest.raises(ValueError, match=rf"^0\.json must be a result of the benchmark: .*{message}") as fault:
        submissions.check(placed(tmp_path / "in", [values]))
    assert str(fault.value).isprintable()


def test_a_method_made_elsewhere_may_have_any_name_but_one_of_percolab(whole, tmp_path):
    values = one_of(whole, draw=0, role="trained")
    (task,) = submissions.check(placed(tmp_path / "in", [of_others(values, name) for name in ("their@x", "topk-2")]))
    assert [row[0] for row in declaration.table(task.rows)[1]] == ["their@x", "topk-2"]


def test_oracles_have_no_dead_features_and_no_network(whole, tmp_path):
    values = one_of(whole, draw=0, **UNTRAINED) | {"role": "truth", "layer": "truth", "method": "oracle"}
    values["sae_cfg_dict"] = envelope.options_of("oracle", "truth", WORLD.options)
    del values["eval_result_metrics"]["recovery"]["dead"]
    submissions.check(placed(tmp_path / "in", [values]))
    with pytest.raises(ValueError, match=r"role must be 'truth' for percolab's oracles alone, got 'untrained'"):
        submissions.check(placed(tmp_path / "other", [values | {"role": "untrained", "layer": "blocks.0"}]))


def test_files_about_one_hierarchy_have_the_same_concepts_or_are_named(whole, tmp_path):
    first, second = (one_of(whole, draw=0, factor=0, role=role) for role in ("trained", "untrained"))
    second["eval_result_details"][0]["concept"] += 100
    with pytest.raises(ValueError, match=r"must have the same concepts, got 0\.json and 1\.json"):
        submissions.check(placed(tmp_path / "in", [first, second]))


# ---------------------------------------------------------------------- which files are read


def test_the_directory_of_a_task_is_checked_and_the_name_of_a_parent_changes_nothing(whole, tmp_path):
    values = one_of(whole, draw=0, role="trained")
    for root in (tmp_path / "documents", tmp_path / "submission" / "documents"):
        placed(root / "submission", [values])
        for name in ("experiment.json", "results.json", "cells/part/0.json"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text('{"schema": "percolab study"}')
        (task,) = submissions.check(root)
        assert task.files == 1
        (task,) = submissions.check(root / "submission")  # loose files
        assert task.files == 1
        (root / "submission" / "0.json").unlink()
        with pytest.raises(ValueError, match=r"check must hold 1 to 100,000 result files \(\.json\), got 0"):
            submissions.check(root)


def test_a_file_is_named_by_its_place(whole, tmp_path):
    values = one_of(whole, draw=0) | {"seed": 1000}
    placed(tmp_path / "in" / "documents" / "submission", [values])
    with pytest.raises(ValueError, match=r"^documents/submission/0\.json must be a result of the benchmark: "):
        submissions.check(tmp_path / "in")


# ---------------------------------------------------------------------- methods that are not everywhere


def test_a_method_without_some_results_is_named_on_the_page_and_in_the_terminal(whole, tmp_path, capsys):
    """Some networks, draws or settings alone can be chosen after their results are known."""
    settings = {"topk": (4, 8, 24), "kmeans": (1, 4, 8, 24)}
    every, places = [], everywhere(whole)
    for values in places:
        for name, numbers in settings.items():
            for k in numbers:
                method = f"{name}{AT}k={k}"
                options = envelope.options_of(method, values["role"], WORLD.options)
                every.append(values | {"method": method, "sae_cfg_dict": options})
    theirs = [of_others(values) for values in places]
    (task,) = submissions.check(placed(tmp_path / "all", [*every, *theirs]))
    assert list(task.lacking) == []
    kept = [v for v in every if v["method"] != f"topk{AT}k=8" or v["draw"] == 0]  # a setting on one draw alone
    folder = placed(tmp_path / "some", [*kept, *theirs[:3]])
    (task,) = submissions.check(folder)
    said = "lacks {}, its settings on all draws, networks and hierarchies of the task"
    expected = {f"topk {said.format('6 of 36 results')}", f"their-method {said.format('9 of 12 results')}"}
    assert set(task.lacking) == expected
    assert main.run(["benchmark", "--check", str(folder)]) == 0
    assert expected <= set(capsys.readouterr().out.splitlines())
    assert all(f"<p>{line}</p>" in (folder / submissions.REPORT).read_text() for line in expected)
    shutil.rmtree(folder)
    (task,) = submissions.check(placed(folder, kept[:2]))  # one network on one hierarchy
    assert list(task.lacking) == [f"topk {said.format('10 of 12 results')}"]


@pytest.mark.parametrize(
    "left_out", [{"trained_on": 1}, {"factor": 1}, {"trained_on": 1, "draw": 1}, {"role": "trained", "draw": 0}]
)
def test_networks_and_hierarchies_that_nobody_has_are_missed_too(left_out, whole, tmp_path):
    kept = [v for v in everywhere(whole) if any(v[name] != value for name, value in left_out.items())]
    (task,) = submissions.check(placed(tmp_path / "in", [of_others(values) for values in kept]))
    missing = f"{12 - len(kept)} of 12 results"
    assert list(task.lacking) == [
        f"their-method lacks {missing}, its settings on all draws, networks and hierarchies of the task"
    ]


def test_draws_and_networks_that_were_left_out_are_counted(whole, tmp_path):
    """Draws 0 to 4 could have been computed, and the best one submitted."""
    values = one_of(whole, draw=0, role="trained")
    frozen = declaration.settings(WORLD, only=())
    later = [values | {"draw": 4, "seed": seed, "eval_config": envelope.config(frozen.drawn(4))} for seed in (1, 2)]
    (task,) = submissions.check(placed(tmp_path / "in", [of_others(v) for v in later]))
    assert list(task.lacking)[:2] == ["4 of draws 0 to 4 have no results", "1 of networks 0 to 2 have no results"]


# ---------------------------------------------------------------------- names


def test_cosines_may_be_negative(whole, tmp_path):
    """MCC has signs: a dictionary can point away from all true directions."""
    values = of_others(one_of(whole, draw=0, role="trained", trained_on=0, factor=0))
    values["eval_result_metrics"]["sae_lens"]["mcc"] = -0.2
    (task,) = submissions.check(placed(tmp_path / "in", [values]))
    head, (row,) = declaration.table(task.rows)
    assert row[head.index("MCC")] == "-0.200"


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
