"""Benchmark of feature methods.

Does a method find more than k-means, and what a network learned rather than what the data give away?

Methods turn activations into features. They are fitted on some rows, their thresholds and their sparsity are chosen on
others, and they are scored on others again: documents that nothing was fitted on, or held-out rows of points. Recovery
is the mean over concepts of the best F1 of any feature.

Endpoints are named in advance, each for TopK, BatchTopK, Matryoshka and k-means. Method: recovery in networks that were
trained on the concepts' hierarchy, less that of k-means in the same networks. Question: recovery in these networks,
less that in networks trained on another hierarchy of the same data (own - other). Cause, for documents: how far patches
along the features of a method bring predictions to those of a document with the sibling context, less how far those of
k-means do. One number per draw of the data; a two-sided t over draws, with Holm's correction over the methods of an
endpoint. An endpoint is undecided if dropping cells with more than half of their features dead, and those paired with
them, changes the verdict, or drops more than a fifth of the pairs. Beside each endpoint is the smallest effect that the
same rule finds in 80% of simulated benchmarks.

Controls: untrained networks; networks with random weights of the trained weights' norms; the raw input; features whose
rows are permuted (chance); oracles. All that is not an endpoint is exploratory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from percolab.benchmark import envelope
from percolab.benchmark.endpoints import AT_MATCHED, CAUSE, ENDPOINTS, MEASURES, METHOD, QUESTION, estimates, tested
from percolab.benchmark.judgement import judge, reads
from percolab.benchmark.networks_and_controls import RENORMED, TRUTH, Representation, Subject, representations, train
from percolab.benchmark.tasks import CONFIRMATORY, NETWORKS, PLAIN, REVISION, TASKS, Options, Task, task
from percolab.features.register import METHODS, Entry, check_installed, entry, has_sae_lens, needs_sae_lens, source
from percolab.ground.devices import Device
from percolab.ground.progress import Progress
from percolab.ground.validation import check_integer, check_number
from percolab.show import pages
from percolab.store.finished import load_points
from percolab.study.cells import Cell, Cells
from percolab.study.contrasts import OWN_OTHER, TRAINED_RAW, TRAINED_UNTRAINED
from percolab.study.directory import CELLS
from percolab.study.estimates import Line, Row, combined, find, select
from percolab.study.experiment import Details, Found, Results, Study, declared, digest_of
from percolab.study.material import cell_of, networks_cell
from percolab.study.measured import OTHER, RAW, TRAINED, UNTRAINED, Columns, Measured
from percolab.study.pictures import Picture, by_layer, by_number
from percolab.study.report import LOOKS, section
from percolab.study.settings import Settings
from percolab.study.sources import folder
from percolab.study.subject import n_factors

USUAL = tuple(dict.fromkeys((*CONFIRMATORY, *METHODS)))  #: Methods that are compared, the confirmatory ones first.
#: Columns of the table: role and measure, or a contrast; and their headings.
COLUMNS = (
    (TRAINED, "f1", "recovery"), (UNTRAINED, "f1", "untrained"), (RENORMED, "f1", "random norms"),
    (OTHER, "f1", "other"), (RAW, "f1", "raw input"), (TRAINED, "chance", "chance"),
    (None, TRAINED_UNTRAINED, "trained - untrained"), (None, TRAINED_RAW, "trained - raw"),
    (None, OWN_OTHER, "own - other"), (TRAINED, AT_MATCHED, "at L0 32"), (TRAINED, "l0", "L0"),
    (TRAINED, "dead", "dead"), (TRAINED, "explained_variance", "explained variance"),
    (TRAINED, "loss_recovered", "loss recovered"), (TRAINED, "f1_zero", "threshold 0"),
    (TRAINED, "f1_chosen", "feature chosen before"), (TRAINED, "one_to_one", "one to one"), (TRAINED, "auc", "AUC"),
    (TRAINED, "f1_subtrees", "held-out subtrees"), (TRAINED, "splitting", "splitting"),
    (TRAINED, "absorption_edge", "absorption, edges"), (TRAINED, "absorption_linear", "linear reading of the same"),
    (TRAINED, "absorption_over_linear", "absorption over the reading"),
    (TRAINED, "absorption_eligible", "eligible edges"), (TRAINED, "absorption_carried", "full absorption"),
    (TRAINED, "bridged", "bridged by patches"), (TRAINED, "bridged_random", "bridged at random"),
    (TRAINED, "stability", "stability"), (TRAINED, "stability_rows", "stability of random rows"),
    (TRAINED, "stability_purity", "stability and purity, rank correlation"), (TRAINED, "mcc", "MCC"),
    (TRAINED, "uniqueness", "uniqueness"), (TRAINED, "latent_precision", "precision"),
    (TRAINED, "latent_recall", "recall"), (TRAINED, "shrinkage", "shrinkage"), (TRAINED, "probe_1", "1-sparse probe"),
    (TRAINED, "probe_5", "5-sparse probe"), (TRAINED, "probe_activations", "probe of activations"),
    (TRAINED, "tree_edges", "tree edges"), (TRAINED, "tree_ancestors", "tree ancestors"),
)  # fmt: skip
WHERE = {TRAINED: "networks trained on the hierarchy", OTHER: "networks trained on another hierarchy",
         UNTRAINED: "untrained networks", RAW: "the raw input"}  # fmt: skip
CUT = "recall outside a lower concept minus inside it. Intervals far beyond the means are cut off."
#: Pictures against L0: role, measure, its label, caption.
CURVES = {
    **{f"recovery-{role}": (role, "f1", "recovery", f"Recovery in {where}.") for role, where in WHERE.items()},
    "absorption": (TRAINED, "absorption_edge", "recall outside\nminus inside",
                   f"Absorption of concepts that have a feature with F1 of 0.5 or more: its {CUT}"),
    "absorption-linear": (TRAINED, "absorption_linear", "recall outside\nminus inside",
                          f"The same of a linear reading with the feature's recall: its {CUT}"),
}  # fmt: skip
LINES = "One line per method against L0; k-means with one centre, kmeans-1 in the table, is left out."
BY_METHOD = "Recovery by method, the mean over concepts of the best F1. Lines: 95% intervals; small marks: draws."
#: What endpoints subtract, in words.
CONTROLS = {
    f"{TRAINED} - {PLAIN}": "that of k-means",
    OWN_OTHER: "that in networks trained on another hierarchy",
    TRAINED_UNTRAINED: "that in untrained networks",
}
#: Share of a GPU that a cell needs on a Ray cluster: scoring on the processor takes longer than fitting on the GPU.
GPUS = 0.25


# ---------------------------------------------------------------------- cells


def cells(s: Settings[Options]) -> list[Cell[Any]]:
    """Return the cells of a draw: the networks of every seed, and every method on every representation.

    Cells that the endpoints need are computed first, then the confirmatory methods on the other representations, then
    all other methods. Methods on the same representation follow each other and share its activations.
    """
    named = s.of_networks | {"share": s.options.share, "tuned": s.options.tuned}
    del named["seeds"]  # networks can be added later
    networks = [
        networks_cell(s, partial(train, i), name=f"networks-{i}", on=Subject, made_from={**named, "number": i})
        for i in range(s.seeds)
    ]
    asked = {name: value for name, value in s.to_dict()["options"].items() if name != "budget"} | {"store": s.store}
    asked |= named | {"revision": REVISION}
    planned: list[Cell[Any]] = [] if s.options.activations else [*networks]
    entries = [entry(name, s.options.budget) for name in s.asked]
    compared = (TRAINED,) if n_factors(s.recipe) > 1 else (TRAINED, UNTRAINED)  # by endpoints
    for which in (*representations(s), Representation(TRUTH)):
        needs = (networks[which.seed],) if which.role in (TRAINED, RENORMED) and not s.options.activations else ()
        for method in entries:
            if not reads(method, which.role):
                continue
            key = {**asked, "method": method.name, "options": method.options, "source": source(method)}
            key = json.loads(json.dumps({**key, "representation": which.name}))
            make, how = partial(judge, which, method), {"on": Subject, "made_from": key, "stage": method.name}
            how |= {"gpus": GPUS, "rank": 2 if method.name not in CONFIRMATORY else int(which.role not in compared)}
            planned.append(cell_of(s, f"{which.name}/{method.slug}", Columns, make, *needs, **how))
    return planned


def measured_in(s: Settings[Options], results: Results) -> list[Measured]:
    """Return all measures of a draw."""
    return [cell for columns in results.values() if isinstance(columns, Columns) for cell in columns.cells(s.draw)]


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return the estimates of a draw."""
    return estimates(measured_in(s, results), tuned=s.options.tuned)


def networks(s: Settings[Options], results: Results) -> dict[str, Any]:
    """Return the number of networks."""
    return {"networks": len({which for which in representations(s) if which.role == TRAINED})}


# ---------------------------------------------------------------------- page


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return the endpoints."""
    for test in tested(rows):
        what = f"{_measured(test.endpoint, s)}, for {test.method}"
        yield Line(what, test.estimate, note=test.words, ruled=test.verdict)


def _measured(endpoint: str, s: Settings[Options]) -> str:
    """Return an endpoint, and what it measures."""
    contrast = ENDPOINTS[endpoint][0 if n_factors(s.recipe) > 1 else -1]  # the last one for a single hierarchy
    what = "share bridged along features" if endpoint == CAUSE else "recovery"
    return f"{endpoint}: {what} minus {CONTROLS[contrast]}"


def finding(verdicts: Mapping[tuple[str, str], str], s: Settings[Options]) -> tuple[str, str]:
    """Return what the verdicts by endpoint and method say, a sentence per endpoint, and their colour.

    The last sentence says what was not measured.
    """
    sentences, looks, missing = list[str](), set[str](), dict[str, list[str]]()
    for endpoint in ENDPOINTS if s.options.documents else (METHOD, QUESTION):
        methods = CONFIRMATORY if endpoint == QUESTION else [name for name in CONFIRMATORY if name != PLAIN]
        of = {method: verdicts[endpoint, method] for method in methods if (endpoint, method) in verdicts}
        said = [f"{one} for {', '.join(name for name in of if of[name] == one)}" for one in dict.fromkeys(of.values())]
        sentences += [f"{_measured(endpoint, s).capitalize()} is {'; '.join(said)}."] if said else []
        looks |= {LOOKS.get(of.get(method, ""), "mixed") for method in methods}
        if absent := ", ".join(method for method in methods if method not in of):
            missing.setdefault(absent, []).append(endpoint)
    left = "; ".join(f"{', '.join(named)} for {absent}" for absent, named in missing.items())
    sentences += [f"Not measured: {left}."] if left else []
    return " ".join(sentences), looks.pop() if len(looks) == 1 else "mixed"


def draw(rows: Sequence[Row], s: Settings[Options]) -> dict[str, Picture]:
    """Draw recovery by method and role; and against L0, one line per method: recovery for each role, and absorption."""
    measured = any(select(rows, part="level", role=role, measure="f1") for role in WHERE)
    drawn = {"recovery": Picture(_by_method(rows, s), BY_METHOD)} if measured else {}
    for name, (role, measure, label, text) in CURVES.items():
        if series := _series(rows, role, measure):
            title = f"{s.data[0]}: {name.replace('-', ', ')}"
            figure = by_number(series, "at", title, "L0, features that fire on a row", label, to_means=measure != "f1")
            drawn[name] = Picture(figure, f"{text} {LINES}")
    return drawn


def _by_method(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Draw one line of dots per method: each role of network, the raw input, and chance."""
    series = {role: select(rows, part="level", role=role, measure="f1") for role in WHERE}
    series["chance"] = select(rows, part="level", role=TRAINED, measure="chance")
    names = [row[0] for row in table(rows)[1] if any(r["method"] == row[0] for each in series.values() for r in each)]
    how: dict[str, Any] = {"along": "method", "limits": (-0.05, 1.05)}
    return by_layer(series, names, s.data[0], "recovery: mean best F1 of a concept", **how)


def _series(rows: Sequence[Row], role: str, measure: str) -> dict[str, list[Row]]:
    """Return a measure of each method by L0, without k-means with one centre; for absorption, confirmatory methods."""
    by_method: dict[str, list[Row]] = {}
    for point in select(rows, part="curve", role=role, measure=measure):
        if point["setting"] != "k=1" and (measure == "f1" or point["method"] in CONFIRMATORY):
            by_method.setdefault(point["method"], []).append(point)
    return {method: sorted(each, key=lambda r: float(r["at"])) for method, each in by_method.items()}


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the table of methods as text: its head, and one line per method."""
    order = {name: i for i, name in enumerate(USUAL)}
    methods = sorted(
        {r["method"]: None for r in select(rows, part="level")},
        key=lambda name: order.get(name.removesuffix("-1"), len(order)),
    )
    numbers = {title: [_shown(rows, role, measure, method) for method in methods] for role, measure, title in COLUMNS}
    shown = [title for title, values in numbers.items() if any(values)]
    return ["method", *shown], [[method, *(numbers[t][i] for t in shown)] for i, method in enumerate(methods)]


def _shown(rows: Sequence[Row], role: str | None, measure: str, method: str) -> str:
    if role is None:
        row = find(rows, part="contrast", contrast=measure, method=method, measure="f1")
    else:
        read = TRUTH if method.startswith("oracle") and role == TRAINED else role
        row = find(rows, part="level", role=read, method=method, measure=measure)
    if row is None or not np.isfinite(row.estimate.value):
        return ""
    half = (row.estimate.high - row.estimate.low) / 2
    return f"{row.estimate.value:.3f}" + (f" ± {half:.3f}" if role is None and np.isfinite(half) else "")


def _all_methods(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterable[str]:
    """All methods.

    Numbers are means over concepts, networks and draws, at the setting that validation rows choose; after ± stands half
    of a 95% interval. Recovery is in networks trained on the concepts' hierarchy. Untrained, random norms, other and
    raw input are recovery of the same method there; chance is recovery with permuted rows. L0 is the number of features
    that fire on a row, and kmeans-1 is k-means with one firing centre per row. Absorption is recall outside minus
    inside a lower concept; beside it stands the same difference for a linear reading with the same recall. Other
    methods than those of the endpoints are exploratory. docs/benchmark.md says what the other columns are.
    """
    return pages.wide_table(body, head)


def _beside_the_endpoints(others: Sequence[Row]) -> Iterable[str]:
    """Beside the endpoints.

    The same differences at equal sparsity, L0 32, in the networks whose settings reach it; and where the feature of
    each concept, too, is chosen on validation rows (f1_chosen), not as the best one on scored rows. Recovery minus that
    of random directions in the same networks, which learn nothing.
    """
    lines = [(r["endpoint"], r["measure"], r["method"], r.estimate.text(), r.over) for r in others]
    yield pages.table(lines, ("endpoint", "measure", "method", "estimate and 95% interval", "over"))


def details(analyses: Sequence[Found], s: Settings[Options]) -> Details:
    """Return the table of methods and the tests."""
    rows = combined([analysis.rows for analysis in analyses])
    head, body = table(rows)
    other = [m for measures in MEASURES.values() for m in measures[1:]]
    beside = [r for r in select(rows, part="endpoint") if r["measure"] in other or r["endpoint"] not in ENDPOINTS]
    beside = [r for r in beside if r["method"] in CONFIRMATORY and np.isfinite(r.estimate.value)]
    sections = section(_all_methods, head, body) + (section(_beside_the_endpoints, beside) if beside else [])
    tests = list(tested(rows))
    values = {"table": {"head": head, "rows": body}, "endpoints": [test.to_dict() for test in tests]}
    return Details(sections, values, {}, {}, finding({(t.endpoint, t.method): t.verdict for t in tests}, s))


EXPERIMENT = declared(
    __name__,
    name="benchmark",
    data=TASKS,
    options=lambda scale, seeds, training: task(TASKS[0], scale).options,
    own_networks=True,
    call="benchmark --tasks {data}",
    in_parts=True,
)


# ---------------------------------------------------------------------- running


def settings(
    chosen: Task,
    *,
    methods: Iterable[str] = (),
    only: Sequence[str] | None = None,
    seeds: int | None = None,
    draws: int = 1,
    network: str | None = None,
    layer: str | None = None,
    activations: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
) -> Settings[Options]:
    """Return the settings of a task; parameters are those of `benchmark`."""
    stored = None if data is None else load_points(data)
    if stored is not None and check_integer("draws", draws, 1) > 1:
        raise ValueError(f"draws must be 1 for data in a store, got {draws}")
    if stored is not None and chosen.options.documents:
        raise ValueError(f"data must be left out for tasks on documents, got it for {chosen.name!r}")
    if network and not layer:
        raise ValueError("layer must name a module of the network, got None")
    options = chosen.options if layer is None else replace(chosen.options, layer=layer)
    digest = digest_of(stored, network)
    if activations is not None:
        if not all(map(folder(activations).places, range(draws))):
            raise ValueError(f"activations must have files for every one of {draws} draws, got {str(activations)!r}")
        digest += folder(activations).digest
        options = replace(options, activations=str(Path(activations).absolute()))
    count = check_integer("seeds", NETWORKS[chosen.scale] if seeds is None else seeds, 1)
    usual = (name for name in USUAL if has_sae_lens() or not needs_sae_lens(_entry(name, options)))
    asked = tuple(dict.fromkeys((*(usual if only is None else only), *methods)))
    for name in asked:
        check_installed(_entry(name, options))
    named = {
        "seeds": count != NETWORKS[chosen.scale] and count, "draws": draws > 1 and draws, "network": network,
        "layer": layer, "activations": activations, "data": data, "only": only is not None and ",".join(only),
    }  # fmt: skip
    flags = "".join(f" --{name} {value}" for name, value in named.items() if value)
    flags += "".join(f" --method {name}" for name in methods)
    return Settings(
        experiment="benchmark", scale=chosen.scale, data=(chosen.name,),
        recipes=(stored.recipe if stored is not None else chosen.recipe,), training=chosen.training, seeds=count,
        options=options, draws=draws, network=network or "", layers=(options.layer,),
        store="" if data is None else str(Path(data).absolute()), digest=digest, asked=asked,
        command=f"percolab benchmark --tasks {chosen.name} --scale {chosen.scale}{flags}",
    )  # fmt: skip


def _entry(name: str, options: Options) -> Entry:
    try:
        return entry(name, options.budget)
    except ValueError as fault:
        raise ValueError(f"methods must be known: {fault}") from fault


def benchmark(
    tasks: Iterable[str | Task] = TASKS,
    *,
    output: str | os.PathLike[str],
    scale: str = "paper",
    methods: Iterable[str] = (),
    only: Sequence[str] | None = None,
    again: Sequence[str] = (),
    seeds: int | None = None,
    draws: int = 1,
    network: str | None = None,
    layer: str | None = None,
    activations: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    device: Device = "auto",
    ray: str | None = None,
    workers: int = 1,
    overwrite: bool = False,
    progress: bool | Progress = False,
) -> dict[str, dict[str, Any]]:
    """Run tasks of the benchmark, resuming what is in `output`; return the numbers of each task.

    Parameters
    ----------
    tasks
        Some of `TASKS`, or the user's own tasks. Each task has a directory of its name in `output`.
    output
        Directory. The directory of a task holds its cells, report.html, results.json, and in submission/ one file per
        draw, role, hierarchy, seed, and method with its options and setting.
    scale
        ``"paper"``, or ``"small"``: minutes on a laptop.
    methods
        Methods beside the usual ones: ``"package.module:Class"``, the name of an entry point, a name with other
        options, such as ``"batchtopk@n_features=512"``, or ``"pretrained@path=FOLDER"``.
    only
        Compute these methods alone. Others can be added later.
    again
        Methods that are computed again even if their cells are finished.
    seeds
        Number of networks for each target and draw; None takes 3, at the small scale 1.
    draws
        Number of draws of the data; tests need three or more.
    network
        ``module:function`` of the user's networks: ``make(data, seed)`` returns one.
    layer
        The module whose activations are read; None takes that of the task.
    activations
        Folder with ``manifest.json``: recorded activations replace the networks.
    data
        A store of points in place of the task's data.
    time_limit
        Seconds after which no further cell starts.
    device, ray, workers, overwrite, progress
        As for `percolab.study.experiment.Experiment.run`.
    """
    chosen = [wanted if isinstance(wanted, Task) else task(wanted, scale) for wanted in tasks]
    given: dict[str, Any] = {"seeds": seeds, "draws": draws, "network": network, "layer": layer, "data": data}
    each = [settings(wanted, methods=tuple(methods), only=only, activations=activations, **given) for wanted in chosen]
    for name in again:
        if any(name not in s.asked for s in each):
            raise ValueError(f"again must name methods that are computed ({', '.join(each[0].asked)}), got {name!r}")
    slugs = [entry(name, chosen[0].options.budget).slug for name in again]
    limit = float("inf") if time_limit is None else check_number("time_limit", time_limit, 0)
    results = {}
    for wanted, s in zip(chosen, each, strict=True):
        place = Path(output) / wanted.name
        how: dict[str, Any] = {"device": device, "ray": ray, "workers": workers}
        how |= {"overwrite": overwrite, "progress": progress}
        how |= {"time_limit": limit, "again": lambda name: name.rpartition("/")[2] in slugs}
        results[wanted.name] = EXPERIMENT.run(s, place, **how)
        study = Study(EXPERIMENT, s, place, Cells(place / CELLS))
        for number in study.finished():
            envelope.write(place, s.drawn(number), measured_in(s.drawn(number), study.results(number)), wanted)
    return results
