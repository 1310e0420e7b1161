"""Experiments: what an experiment declares, and how a study of it is run, from data to page.

An experiment declares its settings, the cells to compute for one draw of the data, the estimates made from their
results, the estimates that answer its question, and pictures. The engine computes the cells of all draws, combines
their estimates, and writes the page, all numbers, and a tidy table of the measurements.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

import numpy as np

from percolab.ground.devices import Device, choose_device, device_name
from percolab.ground.files import replacing, write_json, write_table
from percolab.ground.progress import Progress, shown
from percolab.ground.text import one_line
from percolab.ground.validation import check_choice, check_integer
from percolab.ground.version import provenance
from percolab.nn.config import SCALES
from percolab.nn.training import run as training_run
from percolab.store.finished import load
from percolab.study import pictures, report
from percolab.study.cells import Cell, Cells, Here, connected
from percolab.study.directory import CELLS, FIGURES, REPORT, RESULTS, SCHEMA, TABLE, TRAINING, VERSION, claimed
from percolab.study.estimates import Line, Row, combined
from percolab.study.material import Material, Networks, Recorded, cell_of, networks_cell
from percolab.study.networks import find_make
from percolab.study.readers import as_reader
from percolab.study.settings import HIERARCHY, WORLDS, Settings, recipe_of, training_of
from percolab.study.sources import folder

if TYPE_CHECKING:
    import pandas

O = TypeVar("O")  # noqa: E741
PACKAGES = (*training_run.PACKAGES, "scikit-learn", "pandas")
Results = Mapping[str, Any]  #: Results of the lasting cells of one draw, by name.


@dataclass(frozen=True, eq=False)
class Found:
    """The estimates of one draw of the data, and the results behind them."""

    rows: list[Row]  #: estimates with intervals
    networks: dict[str, Any]  #: the networks behind them: how many, and their scores
    results: Results  #: of the cells


@dataclass(frozen=True, eq=False)
class Experiment(Generic[O]):
    """What an experiment declares."""

    name: str
    words: report.Words
    data: tuple[str, ...]  #: data that it can be run on; the first is the default
    options: Callable[[str, int, Any], O]  #: the experiment's options, from scale, number of seeds and training
    #: the cells of one draw of the data, from its settings and the result of `first`
    cells: Callable[..., Sequence[Cell[Any]]]
    analyse: Callable[[Settings[O], Results], Iterable[Row]]  #: estimates of one draw, from the results of its cells
    #: the estimates that answer the question, the one that matters most first
    headline: Callable[[Sequence[Row], Settings[O]], Iterable[Line]]
    #: the networks of one draw, from the results of its cells: how many, and their scores
    networks: Callable[[Settings[O], Results], dict[str, Any]] = lambda s, results: results["measures"].training
    #: pictures of the estimates, the one that answers the question first
    draw: Callable[[Sequence[Row], Settings[O]], dict[str, pictures.Picture]] = lambda rows, settings: {}
    details: Callable[[Sequence[Found], Settings[O]], Details] | None = None  #: tables and pictures of its own
    #: a cell that the other cells of a draw depend on, if there is one
    first: Callable[[Settings[O]], Cell[Any]] | None = None
    least_seeds: int = 2
    usual_seeds: Mapping[str, int] = field(default_factory=lambda: {"paper": 5, "small": 5})  #: by scale
    own_networks: bool = False  #: whether it can be run on the user's networks
    recorded: bool = False  #: whether activations that were recorded elsewhere can take the place of its networks
    several: bool = False  #: whether one study covers several of its data
    training: Callable[[str, str], Any] = training_of  #: how networks are trained, by data and scale
    call: str = "represent {name}"  #: the command that runs it
    #: whether estimates are made before all cells are finished; a cell that fails then does not stop the others
    in_parts: bool = False

    def settings(
        self,
        scale: str = "paper",
        *,
        data: str | Sequence[str] | None = None,
        seeds: int | None = None,
        epochs: int | None = None,
        draws: int = 1,
        network: str | None = None,
        layers: Sequence[str] | None = None,
        activations: str | os.PathLike[str] | None = None,
        readers: Sequence[str] | None = None,
        **options: Any,
    ) -> Settings[O]:
        """Return the settings of a study.

        Parameters
        ----------
        scale
            ``"paper"``, or ``"small"``: minutes on a laptop; see `percolab.study.settings`.
        data
            Some of the experiment's data, or the path of a store; None takes its default.
        seeds
            Number of networks for each target.
        epochs
            Number of epochs, if not the usual one; for documents, number of steps.
        draws
            Number of draws of the data; from three on, intervals are over draws.
        network
            ``module:function`` of the user's networks: ``make(data, seed)`` returns one, which is trained here.
        layers
            Modules of these networks that are read.
        activations
            Folder with ``manifest.json``: activations in place of the networks, "trained" and "untrained" ones.
        readers
            Readers of the networks, by name, with options as for `percolab.compare`, for experiments that allow other
            readers than their usual ones. More can be added later, in the same directory.
        options
            Other values for options of the experiment.
        """
        check_choice("scale", scale, SCALES)
        usual = self.data if self.several else self.data[:1]
        chosen = usual if data is None else (data,) if isinstance(data, str) else tuple(data)
        stored = self._stored(chosen, check_integer("draws", draws, 1))
        count = check_integer("seeds", self.usual_seeds[scale] if seeds is None else seeds, self.least_seeds)
        self._check_network(network, layers)
        training = self.training(self.data[0] if stored else chosen[0], scale)
        flags = {
            "data": chosen != usual and "{data}" not in self.call and ",".join(chosen),
            "seeds": count != self.usual_seeds[scale] and count,
            "epochs": epochs is not None and epochs != training.total and epochs,
            "draws": draws > 1 and draws,
            "network": network,
            "layers": ",".join(layers or ()),
            "readers": ",".join(readers or ()),
        }
        training = training if epochs is None else replace(training, **{f"{training.unit}s": epochs})
        defaults = self.options(scale, count, training)
        if readers and not hasattr(defaults, "readers"):
            raise ValueError(f"readers must be left out: {self.name} has its own, got {','.join(readers)!r}")
        for reader in readers or ():
            as_reader(reader)  # raises for an unknown reader
        for name, value in options.items():
            if value != getattr(defaults, name):
                flags[name.replace("_", "-")] = f"{value:g}" if isinstance(value, float | int) else value
        command = f"percolab {self.call.format(name=self.name, data=chosen[0])} --scale {scale}"
        settings = Settings(
            experiment=self.name,
            scale=scale,
            data=chosen,
            recipes=(stored.recipe,) if stored else tuple(recipe_of(name, scale) for name in chosen),
            training=training,
            seeds=count,
            options=replace(defaults, **options),  # type: ignore[type-var]
            draws=draws,
            network=network or "",
            layers=tuple(layers or ()),
            store=str(Path(chosen[0]).absolute()) if stored else "",
            digest=digest_of(stored, network),
            asked=tuple(readers or ()),
            command=command + "".join(f" --{name} {value}" for name, value in flags.items() if value),
        )
        return settings if activations is None else self._of_recorded(settings, activations)

    def _of_recorded(self, s: Settings[O], activations: str | os.PathLike[str]) -> Settings[O]:
        """Return settings in which recorded activations of a folder replace the networks."""
        if not self.recorded or s.network:
            rule = "network is given" if s.network else f"{self.name} trains its networks"
            raise ValueError(f"activations must be left out: {rule}, got {os.fspath(activations)!r}")
        for reader in s.asked:
            if hasattr(as_reader(reader), "read_network"):
                raise ValueError(f"readers must not change networks where activations are given, got {reader!r}")
        recorded, options = folder(activations), {"activations": str(Path(activations).absolute())}
        networks = Recorded.of(recorded, 0, s.training.total)
        changes: dict[str, Any] = options | ({"keep": (0, networks.last)} if hasattr(s.options, "keep") else {})
        return replace(
            s,
            options=replace(s.options, **changes),  # type: ignore[type-var]
            command=f"{s.command} --activations {activations}",
            layers=tuple(recorded.layers),
            seeds=len(set(networks.seeds)),
            digest=s.digest + recorded.digest,
        )

    def _stored(self, chosen: Sequence[str], draws: int) -> Any:
        """Return the data of a store, if `chosen` names one; None for data that are known by name."""
        of_points = self.data in (HIERARCHY, WORLDS)
        if len(chosen) != 1 or chosen[0] in self.data or not of_points or not Path(chosen[0]).exists():
            for name in chosen:
                check_choice("data", name, self.data)
            return None
        if draws > 1:
            raise ValueError(f"draws must be 1 for data in a store, got {draws}")
        stored = load(chosen[0])
        several = len(getattr(stored.recipe, "factors", (None,))) > 1
        if several != (self.data == WORLDS):
            rule = "one hierarchy" if several else "several hierarchies"
            raise ValueError(f"data must have {rule} for {self.name}, got {chosen[0]!r}")
        return stored

    def _check_network(self, network: str | None, layers: Sequence[str] | None) -> None:
        if network and not self.own_networks:
            raise ValueError(f"network must be left out: {self.name} is about the paper's network, got {network!r}")
        if network and not layers and not self.several:
            raise ValueError("layers must name modules of the network, got None")
        if layers and not network:
            raise ValueError(f"layers must be left out without network, got {','.join(layers)!r}")

    def run(
        self,
        settings: Settings[O],
        output: str | os.PathLike[str],
        *,
        device: Device = "auto",
        overwrite: bool = False,
        ray: str | None = None,
        workers: int = 1,
        again: Callable[[str], bool] = lambda name: False,
        time_limit: float = float("inf"),
        progress: bool | Progress = False,
    ) -> dict[str, Any]:
        """Run a study from data to page, resuming an earlier run in `output`; return all its numbers.

        Parameters
        ----------
        settings
            Returned by `settings`.
        output
            Directory; it must be empty, new, or hold the same study. One process at a time works in it.
        device
            ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        overwrite
            Start again where `output` holds another study.
        ray
            Address of a Ray cluster that computes the cells; None computes them on this machine.
        workers
            Number of cells computed at a time, each in a process with its share of the cores. Several share a GPU.
        again
            Called with the name of a cell: whether the cell is computed again even if it is finished.
        time_limit
            Seconds after which no further cell starts.
        progress
            True shows bars; a function is called with (stage, done, total).
        """
        place = str(choose_device(device)) if ray is None else str(device)
        wanted = {name: value for name, value in settings.to_dict().items() if name != "seeds" or not self.in_parts}
        with (
            connected(ray, workers) as runner,
            claimed(Path(output), wanted, overwrite=overwrite) as directory,
            _one_line_for_cells_of_others(directory / CELLS),
            shown(progress) as tell,
        ):
            until = time.monotonic() + time_limit
            here = Here(place, tell, directory / TRAINING)
            cells = Cells(directory / CELLS, runner, here, keep_failures=self.in_parts, until=until)
            study = Study(self, settings, directory, cells)
            cells.again = frozenset(cell.name for cell in study.all_cells() if cell.lasting and again(cell.name))
            if not study.finished():
                study.publish()  # so that a run that is killed says that it is not finished
            try:
                while missing := [*study.missing(), *sorted(cells.again)]:
                    cells.compute(study.all_cells())
                    cells.again = frozenset()
                    if study.missing() == missing:
                        break
            except KeyboardInterrupt:
                study.publish()
                raise
            if not study.missing():  # left by a process that was killed while it cleaned up
                shutil.rmtree(directory / TRAINING, ignore_errors=True)
            return study.publish()


@contextmanager
def _one_line_for_cells_of_others(cells: Path) -> Iterator[None]:
    """Turn exceptions caused by cells of an earlier run into one line: the files are whole, but anyone's."""
    were_there = cells.exists()
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError) as fault:
        if not were_there:
            raise
        said = f"{type(fault).__name__}: {one_line(fault)}"
        raise ValueError(f"output must hold cells that this study can use, got {str(cells)!r} with {said}") from fault


@dataclass(frozen=True, eq=False)
class Details:
    """What an experiment shows beyond its estimates."""

    sections: list[str]  #: HTML
    values: dict[str, Any]  #: more numbers for results.json
    drawn: dict[str, pictures.Picture]
    tables: dict[str, pandas.DataFrame]  #: written as CSV and Parquet, by name
    finding: tuple[str, str] | None = None  #: the sentence at the top of the page and its colour, if not the first line


@dataclass(frozen=True, eq=False)
class Study(Generic[O]):
    """One study while it runs."""

    experiment: Experiment[O]
    settings: Settings[O]
    directory: Path
    cells: Cells

    def plan(self, draw: int) -> list[Cell[Any]]:
        """Return the cells of a draw; if they depend on a first cell that is not finished, only that cell."""
        settings, experiment = self.settings.drawn(draw), self.experiment
        if experiment.first is None:
            return list(experiment.cells(settings))
        first = experiment.first(settings)
        return [first, *experiment.cells(settings, self.cells.read(first))] if self.cells.has(first) else [first]

    def all_cells(self) -> list[Cell[Any]]:
        """Return the cells of all draws."""
        return [cell for draw in range(self.settings.draws) for cell in self.plan(draw)]

    def missing(self, *draws: int) -> list[str]:
        """Return the names of the unfinished cells of some draws; without arguments, of all draws."""
        cells = [cell for draw in draws or range(self.settings.draws) for cell in self.plan(draw)]
        return [cell.name for cell in cells if cell.lasting and not self.cells.has(cell)]

    def failed(self) -> dict[str, str]:
        """Return the reasons why cells failed, by cell name."""
        records = {cell.name: self.cells.made(cell) for cell in self.all_cells()}
        return {name: record.failed for name, record in records.items() if record is not None and record.failed}

    def finished(self) -> list[int]:
        """Return the draws whose cells are all finished; with `in_parts`, the draws with any finished cell."""
        draws = range(self.settings.draws)
        return [draw for draw in draws if not self.missing(draw) or (self.experiment.in_parts and self.results(draw))]

    def results(self, draw: int) -> Results:
        """Return the results of a draw."""
        start = self.settings.drawn(draw).prefix
        wanted = [cell for cell in self.plan(draw) if cell.lasting and self.cells.has(cell)]
        return {cell.name.removeprefix(start): self.cells.read(cell) for cell in wanted}

    def publish(self) -> dict[str, Any]:
        """Write figures, page, table and results.json from the draws that are finished; return all numbers."""
        begun, tell = time.perf_counter(), self.cells.here.progress
        draws, experiment, s, place = self.finished(), self.experiment, self.settings, self.cells.here.device
        device = device_name(choose_device(place)) if place != "auto" else "a Ray cluster"
        analyses = [self._analysed(draw) for draw in draws]
        rows = combined([analysis.rows for analysis in analyses]) if analyses else []
        headline = list(experiment.headline(rows, s)) if analyses else []
        drawn = experiment.draw(rows, s) if rows else {}
        details = experiment.details(analyses, s) if experiment.details and analyses else Details([], {}, {}, {})
        images = self._write({**drawn, **details.drawn})
        missing, networks = self.missing(), _trained(analyses)
        results = {
            "schema": SCHEMA, "version": VERSION, "experiment": s.experiment, "scale": s.scale, "command": s.command,
            "draws": len(draws), "missing": missing, "failed": self.failed(),
            "headline": [line.to_dict() for line in headline],
            "estimates": [row.to_dict() for row in rows], "training": networks, "settings": s.to_dict(),
            **details.values, **self._times(begun),
            "provenance": provenance(PACKAGES, device=device),
        }  # fmt: skip
        for name, table in details.tables.items():
            (self.directory / name).parent.mkdir(exist_ok=True)
            write_table(table, self.directory / name)
        if analyses and find_spec("pyarrow") is not None:
            with replacing(self.directory / TABLE) as file:
                tidy([analysis.results for analysis in analyses]).to_parquet(file, index=False)
        shown = report.Report(
            experiment.words, results, networks, rows, headline, images, details.sections, details.finding
        )
        with replacing(self.directory / REPORT) as file:
            file.write_bytes(report.make(shown))
        write_json(self.directory / RESULTS, results)
        if not missing:
            tell("report", 1, 1)
        return results

    def _analysed(self, draw: int) -> Found:
        s, results = self.settings.drawn(draw), self.results(draw)
        return Found(list(self.experiment.analyse(s, results)), self.experiment.networks(s, results), results)

    def _write(self, drawn: Mapping[str, pictures.Picture]) -> dict[str, tuple[bytes, str]]:
        folder = self.directory / FIGURES
        folder.mkdir(exist_ok=True)
        pictures.write({name: picture.figure for name, picture in drawn.items()}, folder, self.cells.here.progress)
        return {name: ((folder / f"{name}.png").read_bytes(), picture.caption) for name, picture in drawn.items()}

    def _times(self, begun: float) -> dict[str, Any]:
        """Return the time and the devices of each stage."""
        seconds: dict[str, float] = {}
        devices: dict[str, set[str]] = {}
        for cell in self.all_cells():
            record, stage = self.cells.made(cell), cell.stage or cell.name.rpartition("/")[2]
            if record is not None:
                seconds[stage] = seconds.get(stage, 0.0) + record.seconds
                devices.setdefault(stage, set()).add(record.device)
        return {
            "seconds": {**seconds, "report": time.perf_counter() - begun},
            "devices": {stage: ", ".join(sorted(names)) for stage, names in devices.items()},
        }


def digest_of(stored: Any, network: str | None) -> str:
    """Return a digest of stored targets and of the file that makes networks; empty if the study uses neither."""
    parts = [np.asarray(stored.y).tobytes()] if stored else []
    if network:
        parts.append(Path(inspect.getsourcefile(find_make(network)) or "").read_bytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16] if parts else ""


def _trained(analyses: Sequence[Found]) -> dict[str, Any]:
    """Return the number of networks in all draws, and their scores."""
    if not analyses:
        return {}
    total = {"networks": sum(analysis.networks.get("networks", 0) for analysis in analyses)}
    test = [score for analysis in analyses for score in analysis.networks.get("test", ())]
    return {**analyses[0].networks, **total, **({"test": test} if test else {})}


def declared(module: str, **given: Any) -> Experiment[Any]:
    """Return the experiment that a module declares.

    The experiment takes its name and its text from the module's name and docstring. Functions of the module become the
    fields with the same names: `options`, `cells`, `analyse`, `headline`, and optionally `networks`, `draw`, `details`,
    `first` and `training`. A module without `cells` has `train`, `measure` and `Measured`, for `train_then_measure`.

    Parameters
    ----------
    module
        Full name of the module.
    given
        All other fields, and fields whose function is in another module.
    """
    scope = vars(sys.modules[module])
    functions = {each.name: scope[each.name] for each in fields(Experiment) if callable(scope.get(each.name))}
    if "cells" not in {*functions, *given}:
        parts = {"train": scope["train"], "measure": scope["measure"], "kind": scope["Measured"]}
        functions["cells"] = partial(train_then_measure, **parts)
    usual = {"name": module.rpartition(".")[2], "words": report.Words.of(scope["__doc__"])}
    return Experiment(**{**usual, **functions, **given})


def train_then_measure(
    s: Settings[O], train: Callable[..., Networks], measure: Callable[..., Any], kind: type[Any]
) -> list[Cell[Any]]:
    """Return two cells: networks, which are large and not needed once they are measured, and the measurements on them.

    They are made by ``train(data)`` and ``measure(data, networks)``, which returns a `kind`; `data` is a `Material`.
    """
    if getattr(s.options, "activations", ""):
        return [cell_of(s, "measures", kind, partial(of_recorded, measure))]
    networks = networks_cell(s, train)
    return [networks, cell_of(s, "measures", kind, measure, networks)]


def of_recorded(measure: Callable[..., Any], data: Material) -> Any:
    """Return what ``measure(data, networks)`` gives for networks whose activations were recorded elsewhere."""
    s = data.settings
    return measure(data, Recorded.of(folder(s.options.activations), s.draw, s.training.total))


# ---------------------------------------------------------------------- the tidy table


def tidy(by_draw: Sequence[Results]) -> pandas.DataFrame:
    """Return every number that was measured: draw, cell, measure, the places along its axes, value.

    If the result has a list for an axis, such as its layers, the places are the entries of that list. A result that has
    a method `tidy` makes its part of the table by itself.
    """
    import pandas

    parts = []
    for draw, results in enumerate(by_draw):
        for name, result in results.items():
            tables = [result.tidy()] if hasattr(result, "tidy") else _annotated(result)
            parts += [part.assign(draw=draw, cell=name) for part in tables]
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()


def _annotated(result: Any) -> Iterator[pandas.DataFrame]:
    """Yield the arrays of a result whose axes are named, as tables."""
    import pandas

    for name, kind in get_type_hints(type(result), include_extras=True).items():
        for along in getattr(kind, "__metadata__", ()):
            named, arrays = [getattr(result, f"{axis}s", None) for axis in along], getattr(result, name)
            for measure, values in arrays.items() if isinstance(arrays, dict) else [(name, arrays)]:
                sizes = zip(named, values.shape, strict=True)
                index = pandas.MultiIndex.from_product(
                    [n if isinstance(n, list) else range(size) for n, size in sizes], names=list(along)
                )
                table = pandas.DataFrame({"value": values.ravel()}, index=index).reset_index()
                yield table.assign(field=name, measure=measure)
