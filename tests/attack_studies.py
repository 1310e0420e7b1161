"""What studies keep and read, as strangers might write it: result files, cells, activations, autoencoders.

Files are made by the grammars of `attack_readers`. Studies are also killed before each thing that they do to files, and
find links, pipes, devices and directories where they keep their own files.
"""

import copy
import io
import json
import shutil
import signal
import tempfile
from collections import Counter
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from attack_forests import in_one_line
from attack_kills import FINE, REFUSED, counting, dying, fork, outcome
from attack_places import PATIENCE_S, contents, not_plain
from attack_readers import (
    flipped,
    npy,
    npz,
    pick,
    spoilt_array,
    spoilt_tensors,
    spoilt_text,
    spoilt_words,
    tried,
    with_other_pickle,
)

import percolab as pl
from percolab.benchmark import Budget, Options, Task, declaration, envelope, submissions
from percolab.benchmark.judgement import AT, SCALARS, SUBTREES, UNITS
from percolab.cli import features as commands
from percolab.features.dictionaries import CLASSES, Pretrained
from percolab.intervals import Estimate
from percolab.nn import TrainConfig
from percolab.study.cells import RECORD, Cell
from percolab.study.directory import CLAIM, MADE, SUBMISSION
from percolab.study.estimates import Line, row
from percolab.study.experiment import Experiment
from percolab.study.material import Array
from percolab.study.measured import Columns, Measured, Units
from percolab.study.report import Words
from percolab.study.settings import Settings
from percolab.study.sources import folder as read_activations

TINY = Budget(n_features=24, k=3, steps=5, batch_size=64, lr=1e-3, n_components=3)
RECIPE = pl.Superposition([pl.Recipe(500, 4, "one_cluster", seeds=seed) for seed in (1, 2)], seed=0)
WORLD = Task(
    "superposed-2", "small", RECIPE, TrainConfig(d_model=8, n_blocks=1, epochs=1), Options("blocks.0", 5, TINY)
)


def emptied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# ---------------------------------------------------------------------- results of the benchmark


def made_results(folder, draws=2):
    """Write result files of two methods at two settings, with numbers that nobody measured; return what they hold."""
    random, s = np.random.default_rng(0), declaration.settings(WORLD, only=["kmeans"], draws=draws)
    units = [Units(np.arange(5) + 3, np.arange(5) * 7), Units(np.arange(4), np.arange(4) * 2)]
    whole = Units(np.full(1, -1), np.zeros(1, np.int64))
    places = [("trained", 0, 0), ("trained", 1, 0), ("trained", 0, 1), ("untrained", None, 0)]
    for draw in range(draws):
        cells = []
        for role, on, factor in places:
            for method in (f"{name}{AT}k={k}" for name in ("kmeans", "topk") for k in (4, 24)):
                where = draw, role, on, 0, "blocks.0", method
                number = units[factor].number.size
                cells += [Measured(*where, name, factor, units[factor], random.random(number)) for name in UNITS]
                level = {"l0": float(method.rpartition("=")[2]), "dead": 0.3}
                for name in (SUBTREES, *SCALARS):
                    cells.append(Measured(*where, name, factor, whole, np.full(1, level.get(name, random.random()))))
        envelope.write(folder, s.drawn(draw), cells, WORLD)
    return [json.loads(file.read_text()) for file in sorted((folder / SUBMISSION).iterdir())]


def signed(values, random):
    """Return a result whose means and checksum match again, most of the time, as far as that can be done."""
    try:
        if random.random() < 0.8:
            for name in UNITS:
                category, own = envelope.CATEGORIES.get(name, (envelope.PLAIN, name))
                known = [line[name] for line in values["eval_result_details"] if line.get(name) is not None]
                values["eval_result_metrics"][category][own] = float(np.mean(known)) if known else None
        if random.random() < 0.95:
            values["checksum"] = envelope.checksum(values)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        pass
    return values


PLACES = (
    "draw",
    "role",
    "seed",
    "layer",
    "factor",
    "trained_on",
    "method",
    "eval_result_details",
    "eval_result_metrics",
)
"""What decides how a result is compared with others."""


def attack_results(count, seed):
    """Check so many folders of result files, of which some are not as they should be; print what is read."""
    submissions.FROZEN = {"small/superposed-2": WORLD}

    def make_try(random):
        emptied(folder)
        for k, values in enumerate(whole):
            if random.random() < 0.95:
                (folder / f"{k}.json").write_text(json.dumps(values))
        for k in random.choice(len(whole), random.integers(1, 3), replace=False):
            values = copy.deepcopy(whole[k])
            for _ in range(random.integers(1, 3)):
                name = pick(random, PLACES)
                if isinstance(values, dict) and random.random() < 0.7:
                    values = values | {name: spoilt_words(values.get(name), random)}
                else:
                    values = spoilt_words(values, random)
            (folder / f"{k}.json").write_bytes(spoilt_text(json.dumps(signed(values, random)), random))
        if random.random() < 0.03:
            not_plain(folder / f"{random.integers(len(whole))}.json", random)
        said = io.StringIO()
        with redirect_stdout(said), np.errstate(all="ignore"):
            commands._check(folder)
        assert all(line.isprintable() for line in said.getvalue().split("\n"))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        whole = made_results(emptied(Path(name) / "whole"))
        return tried(count, seed, make_try)


# ---------------------------------------------------------------------- cells and claims of studies


@dataclass(frozen=True)
class NoOptions:
    """Options."""

    size: int = 3


@dataclass(frozen=True, eq=False)
class Weights:
    """A result that others need."""

    values: Array
    parts: dict[str, Array]
    name: str


def make_weights(here):
    here.scratch.mkdir(parents=True, exist_ok=True)
    (here.scratch / "begun.txt").write_text("half")  # as training leaves a checkpoint
    return Weights(np.arange(3.0), {"a": np.eye(2)}, "weights")


def measure(here, weights, add=0):
    here.scratch.mkdir(parents=True, exist_ok=True)
    (here.scratch / "begun.txt").write_text("half")
    units = Units(np.arange(3), np.arange(3))
    value = weights.values @ np.ones(3) + weights.parts["a"][0, 0] + np.arange(3.0) + add
    return Columns.of([Measured(0, "trained", 0, 0, weights.name, "probe", "f1", 0, units, value)])


def cells(s):
    weights = Cell(f"{s.prefix}networks", Weights, make_weights, s.to_dict(), lasting=False)
    parts = [Cell(f"{s.prefix}part/{k}", Columns, partial(measure, add=k), s.to_dict(), (weights,)) for k in range(2)]
    return [weights, *parts]


def analyse(s, results):
    found = [one for kept in results.values() for one in kept.cells(s.draw)]
    mean = float(np.mean([one.values.mean() for one in found]))
    return [row(Estimate(mean, 0.5, 9.0, 2, 3), part="all", layer=found[0].layer)]


EXPERIMENT = Experiment(
    name="kills",
    words=Words.of("A study.\n\nIs it whole?\n\nBy killing it."),
    data=("one-cluster",),
    options=lambda scale, seeds, training: NoOptions(),
    cells=cells,
    analyse=analyse,
    networks=lambda s, results: {"networks": 2},
    headline=lambda rows, s: [Line("the mean", rows[0])],
    draw=lambda rows, s: {},
)
SETTINGS = Settings("kills", "small", ("one-cluster",), (pl.Recipe(10, 2, seeds=1),), TrainConfig(), 2, NoOptions())


def study(folder):
    """Run a small study below a folder."""
    return EXPERIMENT.run(SETTINGS, folder / "out", device="cpu")


def spoilt_cell(file, random):
    """Change a file of a cell: its arrays, its record, its archive."""
    with np.load(file) as stored:
        parts = dict(stored)
    record = json.loads(str(parts.pop(RECORD)))
    for _ in range(random.integers(1, 3)):
        if random.random() < 0.5:
            name = pick(random, list(parts))
            parts[name] = spoilt_array(parts[name], random)
        else:
            record["values"] = spoilt_words(record["values"], random)
    if random.random() < 0.2:
        record = spoilt_words(record, random)
    if random.random() < 0.1:
        parts[pick(random, ("more", "values/..", "name", RECORD + "/x"))] = np.zeros(2)
    text = np.array(spoilt_text(json.dumps(record), random).decode("utf-8", "replace").replace("\x00", ""))
    parts[RECORD] = text
    if random.random() < 0.5:
        np.savez(file, **parts)
    else:
        file.write_bytes(npz(parts, random))


def attack_cells(count, seed):
    """Go on with so many studies whose cells or claim are not as they should be."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, read=0, refused=0, wrong=0, crashes=0)
    with tempfile.TemporaryDirectory() as name:
        whole, folder = Path(name) / "whole", Path(name) / "here"
        expected = study(whole)["estimates"]
        for _ in range(count):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
            spoilt_study(folder / "out", random)
            try:
                with np.errstate(all="ignore"):
                    found = study(folder)
                counts["read"] += 1
                counts["as before"] += found["estimates"] == expected
                page = (folder / "out" / "report.html").read_text()
                counts["wrong"] += "<script" in page
            except (FileExistsError, MemoryError, ValueError) as fault:
                counts["refused"] += in_one_line(fault)
    return counts


def spoilt_study(folder, random):
    if random.random() < 0.1:
        claim = json.loads((folder / CLAIM).read_text())
        (folder / CLAIM).write_bytes(spoilt_text(json.dumps(spoilt_words(claim, random)), random))
        return
    if random.random() < 0.3:  # so that what is needed is read
        shutil.rmtree(folder / "cells" / "part")
    spoilt_cell(pick(random, sorted((folder / "cells").rglob("*.npz"))), random)


# ---------------------------------------------------------------------- studies that are killed, or in others' company


def numbers(folder):
    """Return what a study found, without times."""
    results = json.loads((folder / "out" / "results.json").read_text())
    return results["estimates"], results["headline"], results["missing"]


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def attack_studies(count, seed):
    """Kill a study before about so many changes to files; run it among links and pipes, and several at once."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=0, killed=0, changes=0, refused=0, lost=0, wrong=0, crashes=0, **{"left over": 0})
    with tempfile.TemporaryDirectory() as name:
        whole, folder = Path(name) / "whole", Path(name) / "here"
        whole.mkdir()
        assert outcome(fork(counting, Path(name) / "changes", study, whole)) == FINE
        expected, truth, changes = files_of(whole), numbers(whole), int((Path(name) / "changes").read_text())
        counts["changes"] = changes
        step = max(1, changes // count)
        for change in range(seed % step, changes, step):
            emptied(folder)
            code = outcome(fork(dying, change, study, folder))
            counts["killed"] += code == -signal.SIGKILL
            counts["crashes"] += code not in (FINE, -signal.SIGKILL)
            finish(folder, expected, truth, counts)
        for _ in range(count):
            among_others(Path(name), whole, random, counts)
        for _ in range(max(1, count // 10)):
            emptied(folder)
            codes = [outcome(child) for child in [fork(study, folder) for _ in range(3)]]
            counts["tried"] += 1
            counts["refused"] += codes.count(REFUSED)
            counts["crashes"] += sum(code not in (FINE, REFUSED) for code in codes) + (FINE not in codes)
            finish(folder, expected, truth, counts)
    return counts


def finish(folder, expected, truth, counts):
    """Run a study again that may have been killed, and look at what is there then."""
    counts["tried"] += 1
    counts["crashes"] += outcome(fork(study, folder)) != FINE
    counts["wrong"] += numbers(folder) != truth
    counts["left over"] += files_of(folder) != expected


def among_others(place, whole, random, counts):
    """Go on with a study in which some files are links, pipes, devices or directories; nothing else changes."""
    folder, precious = place / "here", place / "precious"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    for name in ("networks", "part", "part/0"):
        emptied(precious / name)
        (precious / name / "notes.txt").write_text("years of work")
    (precious / "file").write_text("years of work")
    names = sorted(
        {*MADE, CLAIM, "figures/mean.png", "cells/part", "cells/part/0.npz", "cells/networks.npz", "training/networks"}
    )
    for name in random.choice(names, random.integers(1, 3), replace=False):
        path = folder / "out" / name
        if not path.parent.is_dir() or path.parent.is_symlink():
            continue
        not_plain(path, random, precious, precious / "file", precious / "part", "nowhere")
    if random.random() < 0.5:
        for k in range(2):
            with suppress(OSError):
                (folder / "out" / "cells" / "part" / f"{k}.npz").unlink()
    before = contents(precious)
    code = outcome(fork(in_time, folder, bool(random.random() < 0.3)))
    counts["tried"] += 1
    counts["refused"] += code == REFUSED
    counts["crashes"] += code not in (FINE, REFUSED)
    counts["lost"] += contents(precious) != before


def in_time(folder, overwrite):
    signal.alarm(PATIENCE_S)
    settings = replace(SETTINGS, seeds=3) if overwrite else SETTINGS
    try:
        EXPERIMENT.run(settings, folder / "out", device="cpu", overwrite=overwrite)
    except (OSError, ValueError) as fault:  # one line for the user, whatever it is
        if "\n" in str(fault):
            raise
        raise FileExistsError(str(fault)) from fault


# ---------------------------------------------------------------------- activations, autoencoders


def attack_activations(count, seed):
    """Read so many folders of activations, and what a method is given from them."""
    data = pl.generate(RECIPE)
    device = torch.device("cpu")

    class View:
        shape = (len(data.X),)

    entries = [
        {"file": f"{k}.npy", "role": role, "factor": factor, "seed": 0, "draw": 0, "layer": "blocks.0", "rows": 500}
        for k, (role, factor) in enumerate([("trained", 0), ("trained", 1), ("untrained", None)])
    ]

    def make_try(random):
        emptied(folder)
        for k in range(3):
            values = np.asarray(data.X, np.float32)
            values = spoilt_array(values, random) if random.random() < 0.3 else values
            (folder / f"{k}.npy").write_bytes(npy(values, random) if random.random() < 0.3 else plain_npy(values))
        if random.random() < 0.05:
            not_plain(folder / f"{random.integers(3)}.npy", random)
        listed = {"activations": entries}
        for _ in range(random.integers(0, 3)):
            listed = spoilt_words(listed, random)
        (folder / "manifest.json").write_bytes(spoilt_text(json.dumps(listed), random))
        found = read_activations(folder)
        for entry in found.entries:
            given = found.source(entry["role"], entry.get("factor"), entry.get("seed", 0), entry.get("draw", 0))
            with np.errstate(all="ignore"):
                given.read(View(), given.layers(), device)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        return tried(count, seed, make_try)


def plain_npy(values):
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def state_of(kind, width=6, features=10):
    """Return weights as a class of dictionary_learning has them."""
    weights, generator = {}, torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    if kind in ("JumpReluAutoEncoder", "MatryoshkaBatchTopKSAE"):
        weights = {
            "W_enc": draw(width, features),
            "W_dec": draw(features, width),
            "b_enc": draw(features),
            "b_dec": draw(width),
        }
        weights["threshold"] = draw(features) if kind == "JumpReluAutoEncoder" else draw()
        return weights
    weights = {
        "encoder.weight": draw(features, width),
        "decoder.weight": draw(width, features),
        "encoder.bias": draw(features),
    }
    names = {"AutoEncoder": "bias", "AutoEncoderNew": "decoder.bias", "GatedAutoEncoder": "decoder_bias"}
    weights[names.get(kind, "b_dec")] = draw(width)
    if kind == "GatedAutoEncoder":
        weights |= {"gate_bias": draw(features), "r_mag": draw(features), "mag_bias": draw(features)}
    if kind == "AutoEncoderTopK":
        weights["k"] = torch.tensor(3)
    return weights | ({"threshold": draw()} if kind == "BatchTopKSAE" else {})


def attack_dictionaries(count, seed):
    """Encode with so many autoencoders from folders, of dictionary_learning and of SAELens where it is installed."""
    from importlib.util import find_spec

    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    kinds = {kind: state_of(kind) for kind in CLASSES}

    def of_dictionary_learning(random):
        kind = pick(random, CLASSES)
        config, state = {"trainer": {"dict_class": kind, "activation_dim": 6}}, dict(kinds[kind])
        for _ in range(random.integers(0, 3)):
            config = spoilt_words(config, random) if random.random() < 0.2 else config
            state = spoilt_tensors(state, random)
        file = io.BytesIO()
        torch.save(state, file)
        content = file.getvalue()
        if random.random() < 0.2:
            content = with_other_pickle(content, random)
        elif random.random() < 0.1:
            content = flipped(content, random)
        (folder / "ae.pt").write_bytes(content)
        (folder / "config.json").write_bytes(spoilt_text(json.dumps(config), random))

    def of_sae_lens(random):
        from safetensors.numpy import save

        config = json.loads((whole / "cfg.json").read_text())
        weights = dict(saved)
        for _ in range(random.integers(0, 3)):
            if random.random() < 0.6:
                config = spoilt_words(config, random)
            else:
                name = pick(random, list(weights))
                changed = spoilt_array(weights[name], random)
                weights[name] = changed if changed.dtype.kind in "biuf" and changed.dtype.isnative else weights[name]
        content = save({name: np.ascontiguousarray(values) for name, values in weights.items()})
        (folder / "cfg.json").write_bytes(spoilt_text(json.dumps(config), random))
        (folder / "sae_weights.safetensors").write_bytes(flipped(content, random) if random.random() < 0.2 else content)

    def make_try(random):
        emptied(folder)
        (of_sae_lens if saved and random.random() < 0.5 else of_dictionary_learning)(random)
        if random.random() < 0.03:
            not_plain(pick(random, sorted(folder.iterdir())), random)
        with np.errstate(all="ignore"):
            Pretrained(str(folder), device="cpu").fit(x).encode(x)

    with tempfile.TemporaryDirectory() as name:
        folder, whole, saved = Path(name) / "in", Path(name) / "whole", {}
        if find_spec("sae_lens") is not None:
            from safetensors.numpy import load_file

            from percolab.features.saes import TopK

            TopK(n_features=8, k=2, steps=2, batch_size=8, device="cpu").fit(x).save(whole)
            saved = load_file(whole / "sae_weights.safetensors")
        return tried(count, seed, make_try)
