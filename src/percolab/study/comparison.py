"""`compare`: networks against controls, by any readers, with contrasts, intervals and a verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from percolab.corpora.corpus import Corpus
from percolab.ground.devices import Device, choose_device
from percolab.ground.extras import needing
from percolab.ground.files import check_directory, replacing, write_json
from percolab.ground.progress import Progress, shown
from percolab.ground.validation import check_integer
from percolab.ground.version import provenance
from percolab.model.recipe import Recipe
from percolab.nn.config import CorpusTrainConfig, TrainConfig
from percolab.show import pages
from percolab.study import pictures
from percolab.study.contrasts import Contrast, contrasts, sentence
from percolab.study.directory import REPORT, RESULTS, TABLE
from percolab.study.measured import OTHER, PERMUTED, RAW, ROLES, TRAINED, UNTRAINED, Measured, Reading, tidy
from percolab.study.readers import NetworkReader, Reader, as_reader
from percolab.study.settings import AnyRecipe, redrawn
from percolab.study.sources import Raw, Source, TorchSource, as_source
from percolab.study.subject import AnyData, n_factors, views
from percolab.worlds.generation import generate
from percolab.worlds.splits import Split
from percolab.worlds.superposition import Superposition

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

SCHEMA = "percolab.comparison/1"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What networks and controls show, and the contrasts between them."""

    cells: Sequence[Measured]
    results: Sequence[Contrast]  #: all contrasts
    #: the smallest effect of interest; None takes 0.05 in log ratios, 0.01 in F1, R² and accuracy
    delta: float | None = None

    @cached_property
    def table(self) -> pandas.DataFrame:
        """One row for each network, layer, reader, measure and unit."""
        return tidy(self.cells)

    @cached_property
    def contrasts(self) -> pandas.DataFrame:
        """One row for each contrast, with its interval and what the interval is taken over."""
        import pandas

        return pandas.DataFrame([contrast.row() for contrast in self.results])

    @property
    def verdict(self) -> str:
        """One sentence, from the first reader, its first measure and the first layer."""
        return sentence(self.results, self.delta)

    def plot(self) -> Figure:
        """Draw the measure of each role of network, and the contrasts with their intervals."""
        return pictures.of_comparison(self.cells, self.results)

    def __repr__(self) -> str:
        return f"Comparison: {self.verdict}"

    def _repr_html_(self) -> str:
        return "".join([pages.paragraph(self.verdict), *self._body()])

    def _body(self) -> list[str]:
        """Return the picture and the table as HTML."""
        rows = [
            (c.contrast, c.layer, c.reader, c.measure, str(c.estimate), f"{c.networks}", f"{c.by_draw.size}")
            for c in self.results
        ]
        head = ("contrast", "layer", "reader", "measure", "estimate and 95% interval", "networks", "draws")
        over = {c.interval_over for c in self.results}
        return [
            pages.picture(self.plot(), "Above: what each role of network gives. Below: contrasts with 95% intervals."),
            pages.table(rows, head, numbers=[5, 6], stack=True),
            pages.paragraph(f"Intervals are over {' and over '.join(sorted(over))}.", quiet=True),
        ]

    def save(self, directory: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write report.html, results.json and table.parquet into a new or empty directory."""
        folder = check_folder(directory, overwrite=overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / TABLE) as partial:
            self.table.to_parquet(partial)
        made = provenance(("torch", "numpy", "pandas"))
        values = {"schema": SCHEMA, "verdict": self.verdict, "contrasts": [c.row() for c in self.results], "made": made}
        write_json(folder / RESULTS, values)
        with replacing(folder / REPORT) as partial:
            partial.write_bytes(pages.page("Comparison of networks", "", self._body(), verdict=self.verdict))


def check_folder(directory: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the folder for a comparison; raise if the comparison cannot be saved there."""
    folder = Path(directory)
    check_directory(folder)
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise FileExistsError(f"directory must be new or empty unless overwrite is given, got {str(directory)!r}")
    with needing("table.parquet needs", "frames"):
        import pyarrow  # noqa: F401
    return folder


@dataclass(frozen=True, eq=False)
class _Network:
    """A network with its place in the grid."""

    role: str
    trained_on: int | None
    seed: int
    source: Source


def compare(
    data: Any,
    networks: Any,
    readers: Any = ("separation",),
    *,
    layers: str | Sequence[str] | None = None,
    rows: Split | int | None = None,
    draws: int | None = None,
    seeds: int = 3,
    training: Mapping[str, Any] | None = None,
    delta: float | None = None,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> Comparison:
    """Compare networks with controls: every reader on every network, unit by unit, with intervals and a verdict.

    Parameters
    ----------
    data
        A dataset, a world or a corpus; a list of them, one per draw, with a list of `networks`; or, with `draws`, a
        recipe.
    networks
        From role to a network, a list of networks (seeds), or a mapping from factor to networks:
        ``{"trained": {0: [a0, a1], 1: [b0, b1]}, "untrained": [u0, u1], "raw": None}``. A network is a torch module, a
        function from inputs to an array, an array, arrays by layer, or None for the raw input. With `draws` it is a
        function ``make(data, seed)`` that returns a module. A module with ``fit(data, seed)`` trains itself, others are
        trained here; those of role "untrained" are not trained. The raw input of documents, decayed bags of tokens,
        takes 4 n T V bytes on the device.
    readers
        Names ("separation", "accuracy", "probe" of points, "beliefs" of documents, or feature methods such as
        "kmeans"), objects with `fit` and `encode`, or readers. The verdict is about the first. Options of documents
        come after ``@``: ``separation@since=6+truth=true`` reads positions six or more into a segment, by their true
        contexts; ``about=token`` asks about tokens. "interchange", "steering" and "ablation" intervene on networks of
        documents, the first two also along features: ``steering@along=kmeans,topk@k=8``. These three have no values for
        networks that are not torch modules.
    layers
        Names of modules; ``blocks.1[-1]`` is the last position of a module. None takes the last block of a percolab
        network; the layers of other networks must be named.
    rows
        A `Split` of points, or the number of held-out documents. Readers are fitted on training rows and scored on test
        rows.
    draws
        How many datasets are drawn from the recipe. With three or more, intervals are over draws.
    seeds
        Networks of each role and factor, with `draws`.
    training
        Options of `percolab.nn.train` for networks that are trained here: `config`, which gets the seeds, and others.
    delta
        The smallest effect of interest. It is stated before the data are seen.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    progress
        True shows a bar; a function is called with (stage, done, total).
    """
    place = choose_device(device)
    several = isinstance(readers, Sequence) and not isinstance(readers, str)
    asked = [as_reader(reader) for reader in (readers if several else [readers])]
    if not asked:
        raise ValueError("readers must not be empty")
    cells: list[Measured] = []
    how: dict[str, Any] = {"seeds": seeds, "training": training or {}, "device": place}
    with shown(progress) as tell:
        for draw, (drawn, roles) in enumerate(_draws(data, networks, draws, **how)):
            each = listed(roles, n_factors(drawn))
            chosen = _usual_layers(each) if layers is None else [layers] if isinstance(layers, str) else list(layers)
            cells += read_draw(draw, drawn, each, asked, chosen, rows, place, tell)
    return Comparison(cells, contrasts(cells), delta)


# ---------------------------------------------------------------------- draws


def _draws(data: Any, networks: Any, draws: int | None, **how: Any) -> Iterable[tuple[AnyData, Mapping[str, Any]]]:
    """Return the data and the networks of every draw; `how` is for networks that are made here."""
    if draws is not None:
        if not isinstance(data, AnyRecipe):
            raise ValueError(f"data must be a recipe if draws are given, got {type(data).__name__}")
        for role, make in networks.items():
            if make is not None and not callable(make):
                rule = "networks must be functions make(data, seed) if draws are given"
                raise ValueError(f"{rule}, got {make!r} for {role}")
        return _made(data, networks, check_integer("draws", draws, 1), **how)
    if isinstance(data, list | tuple):
        if not isinstance(networks, list | tuple) or len(networks) != len(data):
            raise ValueError(f"networks must be a list of {len(data)} mappings, one per dataset")
        return zip(data, networks, strict=True)
    if isinstance(data, Recipe | Superposition):
        raise ValueError("draws must be given with a recipe, got None")
    return [(data, networks)]


def _made(
    recipe: Any, roles: Mapping[str, Any], draws: int, *, seeds: int, training: Mapping[str, Any], device: Any
) -> Iterator[tuple[AnyData, Mapping[str, Any]]]:
    """Yield the data and the networks by role of each draw, one draw at a time: only one draw is in memory."""
    check_integer("seeds", seeds, 1)
    for draw in range(draws):
        drawn = redrawn(recipe, draw)
        data: Any = drawn if isinstance(drawn, Corpus) else generate(drawn)
        many, networks = n_factors(data) > 1, dict[str, Any]()
        for role, make in roles.items():
            if make is None or role == UNTRAINED:
                networks[role] = make and [make(data, seed) for seed in range(seeds)]
                continue
            networks[role] = {
                k: [_trained(make, data.swapped(k) if many else data, seed, training, device) for seed in range(seeds)]
                for k in range(n_factors(data))
            }
        yield data, networks


def _trained(make: Callable[..., Any], data: AnyData, seed: int, training: Mapping[str, Any], device: Any) -> Any:
    """Return a trained network: it trains itself if it has `fit`, otherwise `percolab.nn.train` trains it."""
    network = make(data, seed)
    if callable(getattr(network, "fit", None)):
        network.fit(data, seed)
        return network
    from percolab.nn.training.training import train

    options = dict(training)
    usual = CorpusTrainConfig() if isinstance(data, Corpus) else TrainConfig()
    config = replace(options.pop("config", usual), seed=seed)
    return train(data, config, model=network, device=device, **options).model


# ---------------------------------------------------------------------- the grid


def listed(roles: Any, factors: int) -> list[_Network]:
    """Return the networks one by one, with role, factor and place in their list."""
    if not isinstance(roles, Mapping) or not roles:
        raise ValueError("networks must be a mapping from role to networks, such as {'trained': [...], 'raw': None}")
    networks: list[_Network] = []
    for role, value in roles.items():
        if role not in ROLES and str(role).lower() in ROLES:
            raise ValueError(f"networks must have the role {str(role).lower()!r}, got {role!r}")
        is_by_factor = isinstance(value, Mapping) and all(isinstance(key, int) for key in value)
        by_factor = value if is_by_factor else {None: value}
        if role in (TRAINED, OTHER) and factors > 1 and None in by_factor:
            raise ValueError(
                f"networks must say which of the {factors} factors the {role} ones were trained on, "
                f"as {{'{role}': {{0: [...], 1: [...]}}}} does"
            )
        for factor, members in by_factor.items():
            if factor is not None and not 0 <= factor < factors:
                raise ValueError(f"factors of networks must be below {factors}, got {factor}")
            each = members if isinstance(members, list | tuple) else [members]
            if len({id(network) for network in each}) < len(each):
                raise ValueError(
                    f"networks must differ, since intervals are over networks, got the same one twice as {role!r}"
                )
            networks += [_Network(role, factor, seed, as_source(network)) for seed, network in enumerate(each)]
    if any(isinstance(network.source, Raw) for network in networks):
        networks.append(_Network(PERMUTED, None, 0, Raw(permuted=True)))
    return networks


def _usual_layers(listed: Sequence[_Network]) -> list[str]:
    """Return the layers of the first network that has any; a comparison of arrays has one layer without a name."""
    for network in sorted(listed, key=lambda network: network.role != TRAINED):
        if names := network.source.layers():
            return names
    return ["activations"]


def read_draw(
    draw: int,
    data: AnyData,
    networks: Sequence[_Network],
    readers: Sequence[Reader | NetworkReader],
    layers: Sequence[str],
    rows: Split | int | None,
    device: Any,
    progress: Progress,
) -> Iterator[Measured]:
    """Return what every reader gives for every network, layer and hierarchy of one draw."""
    grid, stage = [*product(views(data, rows), networks)], f"draw {draw}" if draw else "networks"
    for done, (view, network) in enumerate(grid):
        progress(stage, done, len(grid))
        anywhere = network.role in (RAW, PERMUTED)
        recorded = network.source.read(view, [network.role] if anywhere else layers, device)
        for (layer, values), reader in product(recorded.items(), readers):
            readings: list[Reading] = []
            if not hasattr(reader, "read_network"):
                readings = reader.read(view, values, network.seed)
            elif isinstance(network.source, TorchSource):  # only a torch module can be intervened on
                readings = reader.read_network(view, network.source.model, layer, network.seed)
            where = draw, network.role, network.trained_on, network.seed, layer, reader.name
            yield from (Measured(*where, r.measure, view.factor, r.units, r.values) for r in readings)
    progress(stage, len(grid), len(grid))
