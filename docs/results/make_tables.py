"""Fill the tables of the pages here from the JSON files beside them, between the comments that name them.

    python docs/results/make_tables.py [--check]

The commands on each page make the JSON files; this program computes nothing but the difference of two readers. With
--check it writes nothing, and says which page is not up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from percolab.intervals import over_seeds, p_text

HERE = Path(__file__).parent
LAYERS = {
    "raw": "raw input",
    "input": "input layer",
    **{f"blocks.{i}.hidden": f"block {i}, hidden" for i in range(3)},
    **{f"blocks.{i}": f"block {i}, residual stream" for i in range(3)},
}
HIDDEN, STREAM = ([name for name in LAYERS if re.fullmatch(kind, name)] for kind in (r".*hidden", r"blocks\.\d"))


def main() -> None:
    """Write every page again, or check it."""
    check, stale = "--check" in sys.argv[1:], []
    for name, tables in PAGES.items():
        page = HERE / name
        text = page.read_text(encoding="utf-8")
        filled = text
        for words, make in tables.items():
            pattern = re.compile(rf"(<!-- table: {re.escape(words)} -->\n).*?(<!-- end -->)", re.S)
            filled, count = pattern.subn(lambda found, make=make: f"{found[1]}{make()}\n{found[2]}", filled)
            if count != 1:
                raise SystemExit(f"{name} must have one table {words!r}, got {count}")
        if filled != text and not check:
            page.write_text(filled, encoding="utf-8")
        stale += [name] if filled != text else []
    if check and stale:
        raise SystemExit(f"not what make_tables.py writes: {', '.join(stale)}")


@cache
def read(name: str) -> Any:
    """Return a JSON file."""
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval(found: dict[str, Any] | None, digits: int = 3) -> str:
    """Return a value with its interval, if it has one; nothing for no value."""
    value, low, high = ((found or {}).get(key) for key in ("value", "low", "high"))
    if value is None:
        return ""
    if low is None:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


# ---------------------------------------------------------------------- the paper's experiments


def table_one() -> str:
    """Return Table 1 of the paper, beside ours: networks are means with intervals."""
    words = {"ridge": "ridge", "1NN, release order": "1NN, release order"}
    words |= {"1NN, ties averaged": "1NN, ties averaged", "MLP": "MLP"}
    rows = []
    for measure, name, digits in (("r2", "R²", 3), ("mse", "MSE", 4)):
        for model, word in words.items():
            cells = []
            for data in ("one-cluster", "multi-cluster"):
                own = next(row for row in read(f"{data}/results.json")["table_1"] if row["model"] == model)
                found = {"value": own[measure], "low": own[f"{measure}_low"], "high": own[f"{measure}_high"]}
                cells += [own[f"paper_{measure}"] or "", interval(found, digits)]
            rows.append([name if model == "ridge" else "", word, *cells])
    head = ["one-cluster, paper", "one-cluster, ours", "multi-cluster, paper", "multi-cluster, ours"]
    return table(["measure", "model", *head], rows)


def probes(data: str) -> str:
    """Return the errors of probes of z, untrained beside trained, and of fresh values."""
    by: dict[str, dict[str, Any]] = {}
    for row in read(f"{data}/results.json")["controls"]:
        by.setdefault(row["representation"], {})[row["kind"]] = row
    narrow, wide = sorted((name for name in by if name.startswith("random.")), key=lambda name: int(name[7:]))
    words = {narrow: "random features, as wide as the residual stream"}
    words |= {wide: "random features, as wide as a hidden layer", **LAYERS}
    order = ["raw", narrow, wide, *(name for pair in zip(STREAM, HIDDEN, strict=True) for name in pair)]
    rows = []
    for name in order:
        own = by[name]
        control = own.get("untrained") or own.get("random") or own["raw"]
        found = own.get("trained")
        ratio = interval(found["over_untrained"]["z"], 2) if found else ""
        cells = [interval(control["z"]), interval(found["z"]) if found else "", ratio]
        fresh = [interval(control["z_redrawn"]), interval(found["z_redrawn"]) if found else ""]
        rows.append([words[name], *cells, *fresh])
    head = [
        "representation",
        "z, untrained",
        "z, trained",
        "trained over untrained",
        "fresh, untrained",
        "fresh, trained",
    ]
    return table(head, rows)


def findings(data: str) -> str:
    """Return the findings with their verdicts."""
    rows = [
        [one["claim"], one["verdict"], one["numbers"], one["untrained_numbers"]]
        for one in read(f"{data}/results.json")["findings"]["z"]
    ]
    return table(["finding", "verdict", "trained networks", "untrained networks"], rows)


def verdicts() -> str:
    """Return the verdicts on sums of z, of both datasets."""
    by = {data: read(f"{data}/results.json")["findings"]["sum"] for data in ("one-cluster", "multi-cluster")}
    rows = []
    for one in by["multi-cluster"]:
        claim = one["claim"].replace(", block 0 apart", "")
        same = [own["verdict"] for own in by["one-cluster"] if own["claim"] == claim]
        rows.append([one["claim"], *(same or [""]), one["verdict"]])
    return table(["finding, for sums", "one cluster", "many clusters"], rows)


# ---------------------------------------------------------------------- what a network represents


def estimate(experiment: str, digits: int = 2, **given: Any) -> str:
    """Return the estimate of an experiment that has these properties, with its interval."""
    return interval(estimate_of(experiment, **given), digits)


def estimate_of(experiment: str, **given: Any) -> dict[str, Any]:
    """Return the estimate of an experiment that has these properties."""
    rows = [row for row in read(f"represent/{experiment}.json")["estimates"] if given.items() <= row.items()]
    if len(rows) != 1:
        raise SystemExit(f"{experiment}.json must have one estimate of {given}, got {len(rows)}")
    found: dict[str, Any] = rows[0]
    return found


def trained() -> str:
    """Return the change by layer."""
    names = {name: name for name in ("error on z", "error on fresh z")}
    names |= {"z less fresh z": "error on z minus error on fresh z", "separation": "separation"}
    rows = [
        [LAYERS[layer], *(estimate("trained", measure=f"log ratio, {name}", layer=layer, epoch=500) for name in names)]
        for layer in (*HIDDEN, *STREAM)
    ]
    return table(["layer", *names.values()], rows)


def crossed() -> str:
    """Return the error on own values, and where fresh values fall."""
    rows = [
        [
            LAYERS[layer],
            *(
                estimate("crossed", 3, part=part, layer=layer, target=target)
                for target in ("z", "sum")
                for part in ("all", "null")
            ),
        ]
        for layer in (*HIDDEN, *STREAM)
    ]
    return table(["layer", "z, own over others'", "95% of the null", "sum, own over others'", "95% of the null"], rows)


def relevance(*, short: bool = False) -> str:
    """Return the log ratios, relevant over irrelevant, in both worlds, and the null of the one that has it."""
    measures = [
        *(("separation", layer, "separation") for layer in STREAM),
        ("separation", "blocks.2.hidden", "separation"),
        *(("held-out separation", layer, "held-out separation") for layer in ("blocks.2", "blocks.2.hidden")),
        ("accuracy", "blocks.2", "held-out accuracy of a linear classifier"),
        ("best F1, kmeans", "blocks.2", "best F1 of k-means, 256 clusters"),
        ("F1 of a union, kmeans", "blocks.2", "F1 of a union of clusters"),
        ("best F1, neurons", "blocks.2.hidden", "best F1 of neurons"),
        ("F1 of a union, neurons", "blocks.2.hidden", "F1 of a union of neurons"),
    ]
    if short:
        measures = [one for one in measures if one[1] == "blocks.2" and "union" not in one[0]]
    cases = (("relevance", "all"), ("relevance-4", "all"), ("relevance-4", "null"))
    rows = []
    for measure, layer, words in measures:
        given = {"measure": measure, "layer": layer, "epoch": 200}
        where = [] if short else [LAYERS[layer]]
        rows.append([words, *where, *(estimate(file, 3, part=part, **given) for file, part in cases)])
    where = [] if short else ["layer"]
    return table(["measure", *where, "superposed-2", "superposed-4", "superposed-4, null"], rows)


def levels() -> str:
    """Return held-out accuracies themselves: where the hierarchy is relevant, where not, and in the raw input."""
    rows, cases = [], ("relevant", "irrelevant", "raw input")
    for world, file in (("superposed-2", "relevance"), ("superposed-4", "relevance-4")):
        for layer in ("blocks.2", "blocks.2.hidden"):
            given = {"measure": "accuracy", "layer": layer, "epoch": 200}
            rows.append([world, LAYERS[layer], *(estimate(file, 3, part=f"mean, {case}", **given) for case in cases)])
    return table(["held-out accuracy", "layer", *cases], rows)


def scaling() -> str:
    """Return exponents: over all sizes, and over the upper half of them."""
    cases = (("1NN", "n", "training rows"), ("network", "n", "training rows"), ("network", "parameters", "parameters"))
    parts = ("exponent", "upper half", "upper less lower half")
    rows = []
    for data in ("one-cluster", "multi-cluster"):
        for model, axis, words in cases:
            given = {"data": data, "model": model, "axis": axis}
            found = (estimate("scaling", 3, part=part, **given) for part in parts)
            rows.append([data, model, words, *found])
    return table(["data", "model", "exponent in", "all sizes", "upper half", "upper minus lower half"], rows)


def steering(direction: str, layers: Sequence[str], controls: dict[str, dict[str, str]]) -> str:
    """Return slopes along a direction where the hierarchy is relevant and where not, and controls by their words."""
    rows = []
    cases = {"relevant": {}, "irrelevant": {"case": "irrelevant"}, **controls}
    for layer in layers:
        given = {"measure": "slope", "dose": 1.0, "layer": layer, "direction": direction}
        given |= {"case": "relevant", "network": "trained"}
        rows.append([LAYERS[layer], *(estimate("steering", **(given | other)) for other in cases.values())])
    return table(["steered after", *cases], rows)


def edit() -> str:
    """Return cosines of the changes, beside those without an edit."""
    rows = [
        [
            LAYERS[layer],
            *(
                estimate("edit", 3, measure=measure, case=case, layer=layer)
                for measure in ("shared cosine", "shared cosine, rest")
                for case in ("edit", "null")
            ),
        ]
        for layer in ("input", "blocks.0", "blocks.1")
    ]
    return table(["layer", "shared cosine", "without an edit", "slope removed", "slope removed, without an edit"], rows)


# ---------------------------------------------------------------------- features


def lines(file: str, task: str, methods: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the lines of a task that have a number, in the order of the benchmark or of the methods."""
    found = {line["method"]: line for line in read(f"features/{file}.json")["lines"] if line["task"] == task}
    return [found[name] for name in (methods or found)]


def features(task: str, columns: dict[str, str], methods: Sequence[str] | None = None, file: str = "results") -> str:
    """Return some columns of the benchmark; methods without any of these numbers are left out."""
    rows = []
    for line in lines(file, task, methods):
        cells = [short(name, line["values"].get(name)) for name in columns]
        if any(cells):
            rows.append([f"`{line['method']}`", *cells])
    return table(["method", *columns.values()], rows)


def documents(file: str) -> str:
    """Return the contrasts of every reader after the second block, and those of TopK minus those of k-means."""
    readers = READERS | {"separation": "separation, log ratio"}
    return _documents(file, readers, {name: {"contrast": name} for name in CONTRASTS}, "contrast")


def documents_levels(file: str) -> str:
    """Return what every reader finds after the second block, by role, and TopK minus k-means."""
    roles = {words: {"role": role} for role, words in DOCUMENT_ROLES.items()}
    return _documents(file, READERS, roles, "level")


def _documents(file: str, readers: dict[str, str], columns: dict[str, dict[str, str]], part: str) -> str:
    """Return one row per reader that was run, and the row TopK minus k-means if both were."""
    first = read(f"documents/{file}.json")["settings"]["options"]["layers"][0]
    rows = [row for row in read(f"documents/{file}.json")["estimates"] if row["part"] == part]
    rows = [row for row in rows if row["layer"] in (first, row.get("role"))]  # the raw input is a layer of its own
    by = {
        reader: [
            next(row for row in rows if row["reader"] == reader and wanted.items() <= row.items())
            for wanted in columns.values()
        ]
        for reader in {row["reader"] for row in rows}
    }
    cells = [[words, *(interval(row, 2) for row in by[reader])] for reader, words in readers.items() if reader in by]
    if {"topk", "kmeans"} <= by.keys():
        pairs = zip(by["topk"], by["kmeans"], strict=True)
        cells.append(["TopK minus k-means, F1", *(interval(minus(*pair)) for pair in pairs)])
    return table(["", *columns], cells)


def minus(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the difference of two estimates from the same networks, with Student's interval over draws."""
    return over_seeds([a - b for a, b in zip(first["by_draw"], second["by_draw"], strict=True)]).to_dict()


def in_short() -> str:
    """Return trained less untrained and trained less raw, of every SAE and k-means, in every task."""
    rows = []
    for method in SAES:
        cells = []
        for task in TASKS:
            found = [line["values"] for line in lines("results", task) if line["method"] == method]
            cells.append(short("", found[0]["trained_untrained"]) if found else "")
        rows.append([f"`{method}`", *cells])
    return table(["trained - untrained", *TASKS.values()], rows)


def short(name: str, found: dict[str, Any] | None) -> str:
    """Return a value and half of its interval, so that many fit in a row; a share, whose sides differ, in full."""
    value, low, high = ((found or {}).get(key) for key in ("value", "low", "high"))
    if value is None or low is None or name == "chance":
        return interval({"value": value})
    if name.endswith("_share"):
        return interval(found, 2)
    if name in ("dead", "l0"):
        return f"{value:,.0f}"
    return f"{value:.3f} ± {max(high - value, value - low):.3f}"


def by_size(task: str, methods: Sequence[str]) -> str:
    """Return recovery in trained networks by size of the concept."""
    tables = [line["by_size"]["trained"] for line in lines("results", task, methods)]
    found = [dict(zip(one["from"], one["recovery"], strict=True)) for one in tables]
    ends = zip(*(tables[0][name] for name in ("from", "to", "concepts")), strict=True)
    rows = [
        [f"{max(low, LEAST_ROWS):,.0f} to {high - 1:,.0f}", f"{count:,.0f}", *(f"{own[low]:.2f}" for own in found)]
        for low, high, count in ends
    ]
    return table(["rows", "concepts", *(f"`{name}`" for name in methods)], rows)


def counts(metric: str, methods: Sequence[str]) -> str:
    """Return a metric of trained networks, of untrained ones and of the raw input, task by task."""
    rows = []
    for method in methods:
        cells = []
        for task in TASKS:
            found = [line["values"] for line in lines("results", task) if line["method"] == method]
            values = [values[f"{metric}{case}"]["value"] for values in found for case in ("", "_untrained", "_raw")]
            cells.append(" / ".join(f"{value:,.0f}" for value in values))
        rows.append([f"`{method}`", *cells])
    return table(["trained / untrained / raw input", *TASKS.values()], rows)


# ---------------------------------------------------------------------- the benchmark


def benchmark_methods(task: str) -> str:
    """Return two tables of the methods of a task of the benchmark: recovery by role of network, and how features fire.

    A method without any number of the second table is left out there.
    """
    found = read(f"benchmark/{task}.json")["table"]
    tables = []
    for titles in SHOWN:
        kept = [i for i, title in enumerate(found["head"]) if title in titles]
        rows = [[row[0], *(row[i] for i in kept)] for row in found["rows"]]
        tables.append(table(["method", *(found["head"][i] for i in kept)], [row for row in rows if any(row[1:])]))
    return "\n\n".join(tables)


def benchmark_endpoints(task: str) -> str:
    """Return two tables of the endpoints of a task of the benchmark: the verdicts, and what they rest on."""
    verdicts, grounds = [], []
    for one in read(f"benchmark/{task}.json")["endpoints"]:
        draws = ", ".join(f"{value:.3f}" for value in one["by_draw"])
        smallest = "none planted" if one["smallest_effect"] is None else f"{one['smallest_effect']:.3f}"
        name, holm = [one["endpoint"], f"`{one['method']}`"], "" if one["holm"] is None else p_text(one["holm"])
        verdicts.append([*name, interval(one), holm, one["verdict"]])
        grounds.append([*name, draws, f"{one['dropped']:.0%}", smallest])
    first = table(["endpoint", "method", "estimate (95%)", "Holm p", "verdict"], verdicts)
    return f"{first}\n\n{table(['endpoint', 'method', 'draws', 'pairs dropped', 'found with 80% power'], grounds)}"


def benchmark_tasks(endpoint: str, measure: str | None = None) -> str:
    """Return an endpoint of all tasks at the small scale, or another measure beside it, marked by their verdicts.

    Estimates of fewer than three draws are left out.
    """
    rows = []
    for task in SMALL_TASKS:
        tested = [endpoint_of(f"{task}-small", endpoint, method, measure) for method in CONFIRMATORY]
        shown = [one if one is not None and len(one["by_draw"]) >= 3 else None for one in tested]
        rows.append([f"`{task}`", *("" if one is None else marked(one) for one in shown)])
    kept = [i for i in range(1 + len(CONFIRMATORY)) if any(row[i] for row in rows)]
    return table([["task", *CONFIRMATORY][i] for i in kept], [[row[i] for i in kept] for row in rows])


def marked(endpoint: dict[str, Any]) -> str:
    """Return an estimate, bold if the verdict is that it is above or below 0, in italics if it is not above 0."""
    value, _, rest = interval(endpoint).partition(" ")
    mark = {"above 0": "**", "below 0": "**", "not above 0": "*"}.get(endpoint.get("verdict", ""), "")
    return f"{mark}{value}{mark} {rest}"


def level_of(task: str, role: str, method: str, measure: str) -> dict[str, Any] | None:
    """Return the mean of a measure of a method in networks of a role."""
    wanted = {"role": role, "method": method, "measure": measure}
    rows = read(f"benchmark/{task}.json")["levels"]
    return next((row for row in rows if wanted.items() <= row.items()), None)


def endpoint_of(task: str, endpoint: str, method: str, measure: str | None = None) -> dict[str, Any] | None:
    """Return what an endpoint says of a method, where it was tested; or the same difference of another measure."""
    rows = read(f"benchmark/{task}.json")["endpoints" if measure is None else "beside"]
    wanted = endpoint, method, measure
    return next((row for row in rows if (row["endpoint"], row["method"], row.get("measure")) == wanted), None)


def dictionaries(task: str, others: Sequence[str] = ()) -> str:
    """Return what each confirmatory method and others find in a task, with the endpoints."""
    rows = []
    for method in (*CONFIRMATORY, *others):
        own, raw = (level_of(task, role, method, "f1") for role in ("trained", "raw"))
        tested = (endpoint_of(task, endpoint, method) for endpoint in ("method", "question"))
        rows.append([f"`{method}`", *(interval(one) for one in (own, *tested, raw))])
    kept = [i for i in range(5) if any(row[i] for row in rows)]
    head = ["recovery", "own lexicon", "minus k-means", "own - other", "raw input"]
    return table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def rates() -> str:
    """Return recovery and dead features in small documents by the task's learning rate and by another one."""
    plain, rows = level_of("documents-small-rates", "trained", "kmeans", "f1"), []
    for method in CONFIRMATORY[:3]:
        for task, name in (("documents-small", method), ("documents-small-rates", f"{method}@lr=0.01")):
            f1, dead = (level_of(task, "trained", name, measure) for measure in ("f1", "dead"))
            rows.append([f"`{name}`", interval(f1), interval(minus(f1, plain)), f"{dead['value']:.2f}"])
    return table(["method", "recovery", "minus k-means", "dead"], rows)


CONFIRMATORY = ("topk", "batchtopk", "matryoshka", "kmeans")
NOT_LEARNED = ("neurons", "random-dictionary")
LEXICONS = {"own lexicon": "trained", "other lexicon": "other", "untrained": "untrained", "raw input": "raw"}
SMALL_TASKS = (
    "documents",
    "documents-tuned",
    "superposed-2",
    "superposed-2-tenth",
    "superposed-4",
    "superposed-4-tenth",
    "paper-one-cluster",
    "paper-one-cluster-tenth",
    "paper-multi-cluster",
    "paper-multi-cluster-tenth",
)
READERS = {
    "beliefs": "beliefs, R²",
    "topk": "TopK, F1",
    "kmeans": "k-means, F1",
    "neurons": "neurons, F1",
}
CONTRASTS = ("own - other", "trained - untrained", "trained - raw")
DOCUMENT_ROLES = {
    "trained": "own lexicon",
    "other": "other lexicon",
    "untrained": "untrained",
    "raw": "raw input",
    "permuted": "chance",
}
SHOWN = (
    ("recovery", "untrained", "random norms", "other", "raw input", "chance", "trained - raw", "own - other"),
    ("at L0 32", "L0", "dead", "threshold 0", "bridged by patches", "bridged at random"),
)
"""Columns of the two tables of methods."""

LEAST_ROWS = 50
"""of a concept, in all tasks"""
TASKS = {
    "paper-one-cluster": "one-cluster",
    "paper-multi-cluster": "multi-cluster",
    "superposed-2": "superposed-2",
    "superposed-4": "superposed-4",
}
STEERED = ("raw", "input", "blocks.0", "blocks.1")
RANDOM, UNTRAINED = {"direction": "random"}, {"network": "untrained"}
OTHERS = {
    "feature of an unrelated concept": {"direction": "other feature"},
    "relevant minus unrelated feature": {"direction": "feature less another"},
}
FOUND = {
    "recovery": "trained",
    "untrained": "untrained",
    "raw": "raw input",
    "chance": "chance",
    "trained_untrained": "trained - untrained",
}
RELEVANT = {
    "relevant_irrelevant": "relevant - irrelevant",
    "relevant_irrelevant_ratio": "log ratio",
    "relevant_irrelevant_ratio_over_kmeans": "log ratio, minus that of k-means",
    "relevant_irrelevant_share": "share of concepts",
}
ABSORBED = {
    "absorption_edge": "edges: recall outside - inside",
    "absorption_edge_untrained": "edges, untrained",
    "absorption_edge_raw": "edges, raw input",
    "absorption_excess": "rows beyond independent misses",
    "absorption_excess_untrained": "rows, untrained",
    "absorption_excess_raw": "rows, raw input",
}
SHAPE = {
    "recovery": "recovery",
    "l0": "firing features per row",
    "purity": "purity",
    "splitting": "features per concept",
    "dead": "dead features",
    "explained_variance": "explained variance",
    "loss_recovered": "loss recovered",
}
LEARNED = ["kmeans", "batchtopk", "matryoshka", "batchtopk-frozen-decoder"]
SAES = ["kmeans", "topk", "batchtopk", "jumprelu", "gated", "matryoshka", "batchtopk-frozen-decoder"]
WIDTHS = ["batchtopk@n_features=256", "batchtopk@n_features=1024", "batchtopk", "batchtopk@n_features=16384"]
SPARSITIES = ["batchtopk@k=8", "batchtopk", "batchtopk@k=128"]

PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "../benchmark.md": {
        f"small tasks, {endpoint}": partial(benchmark_tasks, endpoint) for endpoint in ("method", "question")
    },
    "benchmark-details.md": {
        f"{task}, {kind}": partial(make, task)
        for task in ("documents", "documents-small", "superposed-2-small")
        for kind, make in (("methods", benchmark_methods), ("endpoints", benchmark_endpoints))
    }
    | {"small tasks, method at L0 32": partial(benchmark_tasks, "method", "f1 at L0 32"), "rates": rates},
    "documents.md": {
        "documents, full, levels": partial(documents_levels, "full"),
        **{f"documents, {file}": partial(documents, file) for file in ("full", "small")},
    },
    "paper.md": {"table 1": table_one},
    "represent.md": {"relevance": lambda: relevance(short=True)},
    "features.md": {
        "in short": in_short,
        "dictionaries, small": lambda: dictionaries("documents-small", NOT_LEARNED),
        "dictionaries, full": lambda: dictionaries("documents"),
    },
    "paper-details.md": {
        "probes, one-cluster": lambda: probes("one-cluster"),
        "probes, multi-cluster": lambda: probes("multi-cluster"),
        "findings, one-cluster": lambda: findings("one-cluster"),
        "findings, multi-cluster": lambda: findings("multi-cluster"),
        "verdicts, sums": verdicts,
    },
    "represent-details.md": {
        "trained": trained,
        "crossed": crossed,
        "relevance": relevance,
        "levels": levels,
        "steering, own": lambda: steering("own", STEERED, {"random direction": RANDOM, "untrained": UNTRAINED}),
        "steering, feature": lambda: steering("feature", STEERED[2:], OTHERS),
        "steering, probe": lambda: steering("probe", STEERED, {"95% of fresh": {"direction": "fresh probe"}}),
        "edit": edit,
        "scaling": scaling,
    },
    "features-details.md": {
        "one-cluster": lambda: features("paper-one-cluster", FOUND),
        "multi-cluster": lambda: features("paper-multi-cluster", FOUND),
        "superposed-2": lambda: features("superposed-2", FOUND),
        "superposed-4": lambda: features("superposed-4", FOUND),
        "dead": lambda: counts("dead", SAES[1:]),
        "firing": lambda: counts("l0", ["jumprelu", "gated"]),
        "relevant, superposed-2": lambda: features("superposed-2", RELEVANT),
        "relevant, superposed-4": lambda: features("superposed-4", RELEVANT),
        "sizes, one-cluster": lambda: by_size("paper-one-cluster", SAES),
        "sizes, multi-cluster": lambda: by_size("paper-multi-cluster", LEARNED),
        "sizes, superposed-2": lambda: by_size("superposed-2", SAES),
        "sizes, superposed-4": lambda: by_size("superposed-4", SAES),
        "shape, one-cluster": lambda: features("paper-one-cluster", SHAPE, SAES),
        "shape, multi-cluster": lambda: features("paper-multi-cluster", SHAPE, LEARNED),
        "shape, superposed-2": lambda: features("superposed-2", SHAPE, SAES),
        "shape, superposed-4": lambda: features("superposed-4", SHAPE, SAES),
        "widths": lambda: features("superposed-2", SHAPE, WIDTHS, "widths"),
        "sparsities": lambda: features("superposed-2", SHAPE, SPARSITIES, "widths"),
        "absorption, one-cluster": lambda: features("paper-one-cluster", ABSORBED, SAES),
        "absorption, multi-cluster": lambda: features("paper-multi-cluster", ABSORBED, LEARNED),
        "absorption, superposed-2": lambda: features("superposed-2", ABSORBED, SAES[1:]),
        "absorption, superposed-4": lambda: features("superposed-4", ABSORBED, SAES[1:]),
    },
}

if __name__ == "__main__":
    main()
