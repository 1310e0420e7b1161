"""Methods on one network: each scored on the trained network, and on an untrained one of the same shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from percolab.features.register import MODEST, TRUTHFUL, as_taken, decoder_of, fitted
from percolab.features.register import entry as as_entry
from percolab.features.result import MEANINGS, Score, number
from percolab.features.scoring import score
from percolab.ground.devices import Device, choose_device
from percolab.ground.progress import Display, Progress, shown
from percolab.nn.networks.activations import label
from percolab.show import dot_rows, pages
from percolab.study.measured import RAW, TRAINED, UNTRAINED
from percolab.study.sources import as_source
from percolab.study.subject import views
from percolab.worlds.superposed import AnyDataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGE = "methods"
COLUMNS = (
    "recovery", "chance", "recovered", "purity", "splitting", "absorption_edge", "explained_variance", "l0", "features",
)  # fmt: skip
ONE_EACH = (
    "One network each; methods are scored on rows of their fit. percolab benchmark has intervals and held-out rows."
)


@dataclass(frozen=True)
class Compared:
    """The score of a method on a network."""

    method: str
    network: str
    layer: str
    score: Score


def compare(
    dataset: AnyDataset,
    networks: Mapping[str, Any],
    methods: Iterable[str],
    *,
    layer: str | None = None,
    seed: int = 0,
    device: Device = "auto",
    progress: bool | Progress = False,
    **options: Any,
) -> list[Compared]:
    """Score methods on networks, such as a trained one and an untrained one of the same shape.

    Parameters
    ----------
    dataset
        What the network was trained on.
    networks
        By role: torch modules, functions, arrays, or arrays by layer, as for `percolab.compare`.
    methods
        As for the benchmark: names, ``"package.module:Class"``, with options after ``@``.
    layer
        Module whose activations are read; None takes the last block.
    seed
        Seed of the methods and of the draws.
    device
        Where to compute.
    progress
        True shows a bar; a function is called with (stage, done, total).
    options
        Options of `score`: factor, min_size, threshold, draws.
    """
    place, entries = choose_device(device), [as_entry(spec, MODEST) for spec in methods]
    for entry in entries:
        if entry.method in TRUTHFUL:
            raise ValueError(f"method must make features of activations, got {entry.name!r}")
    sources, view = {role: as_source(network) for role, network in networks.items()}, views(dataset)[0]
    name = layer or next((known for source in sources.values() for known in source.layers()), "activations")
    compared: list[Compared] = []
    total = len(networks) * len(entries)
    with shown(progress) as tell:
        for network, source in sources.items():
            A = source.read(view, [name], place)[name]
            for entry in entries:
                tell(STAGE, len(compared), total)
                if isinstance(tell, Display):
                    tell.note(STAGE, f"{entry.name}, {network}")
                method = fitted(entry, seed, A)
                codes, decoder = method.encode(as_taken(method, A)), decoder_of(method, A)
                result = score(dataset, codes, seed=seed, **options, **decoder)
                compared.append(Compared(entry.name, network, name, result))
        tell(STAGE, total, total)
    return compared


def rows(scores: Sequence[Compared]) -> list[list[str]]:
    """Return a table as text: a heading, then each method, on the trained network first."""
    order = {row.method: i for i, row in reversed(list(enumerate(scores)))}
    body = [
        [row.method, row.network, *(number(name, row.score.summary.get(name, float("nan"))) for name in COLUMNS)]
        for row in sorted(scores, key=lambda row: (order[row.method], row.network != TRAINED))
    ]
    return [["method", "network", *(name.replace("_", " ") for name in COLUMNS)], *body]


def page(scores: Sequence[Compared], title: str) -> bytes:
    """Return a page with the recovery of every method, the table, and the plots of every method."""
    head, *body = rows(scores)
    control = {TRAINED: "the trained network", UNTRAINED: "one of the same shape that was never trained", RAW: "X"}
    roles = [control.get(role, role) for role in dict.fromkeys(row.network for row in scores)]
    lead = f"{scores[0].score.settings['rows']:,} rows, {label(scores[0].layer)}. Methods on {' and on '.join(roles)}."
    best = max((row for row in scores if row.network == TRAINED), key=lambda row: row.score.summary["recovery"])
    beside = [row for row in scores if row.method == best.method and row.network in (UNTRAINED, RAW)]
    source = {UNTRAINED: "an untrained one", RAW: "X"}
    contrast = "".join(f", {row.score.summary['recovery']:.3f} from {source[row.network]}" for row in beside)
    share = f"{best.score.summary['recovery']:.3f} of the concepts' F1 from the trained network"
    verdict = f"The best method, {best.method}, recovers {share}{contrast}."
    parts = [pages.picture(_recovery(scores), "Recovery by method, chance in grey: mean best F1 of a concept.")]
    parts += [*pages.wide_table(body, head, names=2), pages.definitions(MEANINGS)]
    for row in scores:
        if row.network == TRAINED:
            caption = f"{row.method}: recovery by size over chance, purity, splitting by size, absorption by depth."
            figure = pages.picture(row.score.plot(), caption, wide=True)
            parts.append(pages.folded(f"{row.method} on the trained network, in pictures", [figure]))
    return pages.page(title, f"{lead} {ONE_EACH}", parts, verdict=verdict)


def _recovery(scores: Sequence[Compared]) -> Figure:
    """Draw recovery by method: the trained network, the untrained one, and chance."""
    series: dict[str, dict[str, dot_rows.Mark]] = {name: {} for name in (*(row.network for row in scores), "chance")}
    for row in scores:
        series[row.network][row.method] = dot_rows.Mark(row.score.summary["recovery"])
        if row.network == TRAINED:
            series["chance"][row.method] = dot_rows.Mark(row.score.summary["chance"])
    methods = list(dict.fromkeys(row.method for row in scores))
    return dot_rows.draw(dot_rows.Panel(methods, series, "recovery: mean best F1 of a concept"))
