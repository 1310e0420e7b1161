"""A summary of a dataset: what ``percolab info`` prints."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.dataset.dataset import Dataset
from percolab.ground.memory import readable
from percolab.ground.text import counted, printable
from percolab.store import finished
from percolab.store.locations import Location
from percolab.worlds.superposed import AnyDataset, Superposed

if TYPE_CHECKING:
    from rich.table import Table


LARGE = 20_000_000  #: Points of a dataset on disk above which depths and targets are not read for a summary.


def summarise(dataset: AnyDataset) -> dict[str, Any]:
    """Return the recipe, sizes and first statistics of a dataset as plain values, ready for JSON. X is not read."""
    if isinstance(dataset, Superposed):
        return _summarise_world(dataset)
    forest, y, depth = dataset.forest, dataset.y, dataset.forest.point_depth
    read: dict[str, Any] = {"n_extra_bonds": forest.n_extra_bonds, "n_classes": dataset.n_classes}
    if forest.n_points:
        read |= {"depth_mean": float(depth.mean()), "depth_max": int(depth.max())}
        read |= {"y_mean": float(y.mean()), "y_variance": float(y.var())}
    return _summary(dataset, forest.cluster_start, read)


def _summary(dataset: Dataset, start: Any, read: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics that follow from the starts of clusters, with the statistics that were read."""
    n_clusters = len(start) - 1
    # Clusters are sorted by size, the largest first.
    alone = bisect(range(n_clusters), False, key=lambda c: int(start[c + 1]) - int(start[c]) == 1)
    return {
        "recipe": dataset.recipe.to_dict(),
        "n_points": len(dataset),
        "dim": int(dataset.X.shape[1]),
        "dtype": np.dtype(dataset.X.dtype).name,
        "n_clusters": n_clusters,
        "largest_cluster": int(start[1]) if n_clusters else 0,
        "singletons": n_clusters - alone,
        "n_latents": len(dataset) - n_clusters,
        **dict.fromkeys(("n_extra_bonds", "depth_mean", "depth_max", "y_mean", "y_variance", "n_classes")),
        **read,
        "modified": dataset.modification,
        "provenance": dict(dataset.provenance),
    }


def summarise_documents(recipe: DocumentRange) -> dict[str, Any]:
    """Return the recipe and sizes of documents as plain values, ready for JSON."""
    corpus = recipe.corpus
    contexts = [corpus.contexts(k).size for k in range(len(corpus.lexicons))]
    sizes = {"n_documents": len(recipe), "length": corpus.length, "n_tokens": corpus.n_tokens, "n_contexts": contexts}
    return {"recipe": recipe.to_dict(), **sizes, "modified": None}


def _summarise_world(world: Superposed) -> dict[str, Any]:
    n, dim = world.X.shape
    y = np.asarray(world.y)
    numbers = y.dtype.kind == "f" and n > 0
    return {
        "recipe": world.recipe.to_dict(),
        "n_samples": int(n),
        "dim": int(dim),
        "dtype": np.dtype(world.X.dtype).name,
        "relevant": list(world.relevant),
        "y_mean": float(y.mean()) if numbers else None,
        "y_variance": float(y.var()) if numbers else None,
        "n_classes": None if y.dtype.kind == "f" or y.ndim > 1 else int(y.max(initial=-1)) + 1,
        "factors": [_summarise_factor(world, k) for k in range(len(world.factors))],
        "modified": world.modification,
        "provenance": dict(world.provenance),
    }


def _summarise_factor(world: Superposed, k: int) -> dict[str, Any]:
    """Return the sizes of a factor, its scale and weight, and the correlation of its y with the world's."""
    recipe, factor = world.recipe, summarise(world.factors[k])
    sizes = ("n_points", "dim", "n_clusters", "largest_cluster", "n_latents", "depth_mean", "depth_max")
    factor_y, y = np.asarray(world.factors[k].y), np.asarray(world.y)
    correlation = None
    if factor_y.dtype.kind == y.dtype.kind == "f" and factor_y.ndim == 1 and len(world) > 1:
        correlation = float(np.corrcoef(factor_y[world.rows[:, k]], y)[0, 1])
    return {
        "mode": recipe.factors[k].mode,
        **{name: factor[name] for name in sizes},
        "sigma": float(world.sigma[k]),
        "scale": recipe.scales[k],
        "weight": None if recipe.weights is None else recipe.weights[k],
        "correlation": correlation,
    }


def summarise_store(location: Location, dataset: AnyDataset | StoredDocuments) -> dict[str, Any]:
    """Return the summary of a dataset on disk; if it has more than `LARGE` points, only a few rows are read."""
    if isinstance(dataset, StoredDocuments):
        first = np.asarray(dataset.floor[: max(1, LARGE // 10 // dataset.corpus.length)])
        floor = {"floor_mean": float(first[:, 1:].mean()) if len(first) else None}
        return {**summarise_documents(dataset.recipe), **floor, "provenance": dict(dataset.provenance)}
    if isinstance(dataset, Superposed) or len(dataset) <= LARGE:
        return summarise(dataset)
    return _summary(dataset, finished.Complete(location).array("cluster_start"), {})


def one_line(summary: dict[str, Any]) -> str:
    """Return one line about the data that were made, with the seeds that make them again."""
    if "n_documents" in summary:
        contexts = " and ".join(map(str, summary["n_contexts"]))
        return (
            f"{summary['n_documents']:,} documents of {summary['length']:,} tokens out of {summary['n_tokens']:,}, "
            f"{contexts} contexts; seed {summary['recipe']['corpus']['seed']}"
        )
    if "factors" in summary:
        relevant = " and ".join(map(str, summary["relevant"]))
        return (
            f"{summary['n_samples']:,} samples in R^{summary['dim']} of {len(summary['factors'])} factors, "
            f"y from {relevant}; seed {summary['recipe']['seed']}"
        )
    recipe, seeds = summary["recipe"], summary["recipe"]["seeds"]
    line = (
        f"{summary['n_points']:,} points in R^{summary['dim']}, {counted(summary['n_clusters'], 'cluster')}, "
        f"{summary['n_latents']:,} latents; seeds {seeds['graph']}, {seeds['embed']}, {seeds['value']}"
    )
    if recipe.get("edits"):
        line += f"; edits {_counted([edit['kind'] for edit in recipe['edits']])}"
    if recipe.get("target"):
        line += f"; target {recipe['target']['kind']}"
    return line + (f"; modified: {summary['modified']}" if summary.get("modified") else "")


def table(summary: dict[str, Any], title: str) -> Table:
    """Return a summary as a table for the terminal."""
    from rich.table import Table
    from rich.text import Text

    result = Table(
        title=Text(printable(title), style="bold"), title_justify="left", show_header=False, box=None, padding=(0, 2)
    )
    result.add_column(style="cyan", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in _lines(summary):
        result.add_row(name, Text(printable(value)))  # text from a store may come from an untrusted source
    return result


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [*size_lines(summary), *_recipe_lines(summary)]
    if summary["modified"]:
        lines.append(("modified", f"{summary['modified']}: the recipe does not make this"))
    if "store_bytes" in summary:
        lines.append(("on disk", readable(summary["store_bytes"])))
    provenance = summary["provenance"]
    versions = {key: value for key, value in provenance.items() if key not in ("created", "loaded_from", "modified")}
    lines.append(("made", f"{provenance.get('created', 'at an unknown time')} by {_pairs(versions)}"))
    lines += [(f"sha256 {name}", digest) for name, digest in summary.get("sha256", {}).items()]
    if "sha256" in summary:
        lines.append(("verified", "every array matches its digest"))
    return lines


def size_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the sizes and first statistics of a summary as names and text."""
    if "n_documents" in summary:
        return _sizes_of_documents(summary)
    return _sizes_of_world(summary) if "factors" in summary else _sizes_of_dataset(summary)


def _sizes_of_documents(summary: dict[str, Any]) -> list[tuple[str, str]]:
    recipe, n_tokens = summary["recipe"], summary["n_tokens"]
    lines = [("documents", f"{summary['n_documents']:,} of {summary['length']:,} tokens, from number {recipe['lo']:,}")]
    for k, (count, share) in enumerate(zip(summary["n_contexts"], recipe["corpus"]["shares"], strict=True)):
        lines.append((f"lexicon {k}", f"{n_tokens:,} tokens, {count} contexts, share {share:g}"))
    if summary["floor_mean"] is not None:
        lines.append(("floor", f"mean {summary['floor_mean']:.6g} nats after the first token"))
    return lines


def _sizes_of_world(summary: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("samples", f"{summary['n_samples']:,} in {summary['dim']} dimensions, {summary['dtype']}")]
    for k, factor in enumerate(summary["factors"]):
        role = "in the product" if factor["weight"] is None and k in summary["relevant"] else "irrelevant"
        role = f"weight {factor['weight']:g}" if factor["weight"] else role
        sizes = f"{factor['n_points']:,} points in R^{factor['dim']}, {counted(factor['n_clusters'], 'cluster')}"
        text = f"{sizes}, {factor['n_latents']:,} latents, mode {factor['mode']}, scale {factor['scale']:g}, {role}"
        if factor["correlation"] is not None:
            text += f", correlation with y {factor['correlation']:.3f}"
        lines.append((f"factor {k}", text))
    return lines if summary["y_mean"] is summary["n_classes"] is None else [*lines, ("y", _y_text(summary))]


def _sizes_of_dataset(summary: dict[str, Any]) -> list[tuple[str, str]]:
    recipe, points = summary["recipe"], f"{summary['n_points']:,} in {summary['dim']} dimensions, {summary['dtype']}"
    if recipe["min_cluster_size"] > 1:
        points += f", of {recipe['n_points']:,} before the filter"
    sizes = f"{summary['n_clusters']:,}, largest {summary['largest_cluster']:,}, singletons {summary['singletons']:,}"
    lines = [("points", points), ("clusters", sizes), ("latents", f"{summary['n_latents']:,}")]
    if summary["n_extra_bonds"]:
        lines.append(("cycles", f"{summary['n_extra_bonds']:,} bonds close one"))
    if summary["depth_mean"] is not None:
        lines.append(("depth", f"mean {summary['depth_mean']:.6g}, max {summary['depth_max']:,}"))
        lines.append(("y", _target_text(summary)))
    if recipe.get("edits"):
        lines.append(("edits", _counted([edit["kind"] for edit in recipe["edits"]])))
    return lines


def _recipe_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    recipe = summary["recipe"]
    if "n_documents" in summary:
        return [("recipe", _pairs({name: recipe["corpus"][name] for name in ("renewal", "min_size", "seed")}))]
    if "factors" in summary:
        return [("recipe", f"superposed, rotate {'yes' if recipe['rotate'] else 'no'}, seed {recipe['seed']}")]
    seeds = ", ".join(f"{name} {seed}" for name, seed in recipe["seeds"].items())
    hidden = ("seeds", "dtype", "edits", "target")
    shown = {key: value for key, value in recipe.items() if key not in hidden and value is not None}
    return [("recipe", _pairs(shown)), ("seeds", seeds)]


def _target_text(summary: dict[str, Any]) -> str:
    """Return what y is and, if it is a number, its mean and variance."""
    target = dict(summary["recipe"].get("target", {"kind": "sum"}))
    kind = target.pop("kind")
    rule = f"{kind} ({_pairs(target)}), " if target else "" if kind == "sum" else f"{kind}, "
    return rule + (f"{target['levels']} tokens per row" if "levels" in target else _y_text(summary))


def _y_text(summary: dict[str, Any]) -> str:
    if summary["n_classes"] is not None:
        return f"{summary['n_classes']:,} classes"
    return f"mean {summary['y_mean']:.6g}, variance {summary['y_variance']:.6g}"


def _counted(kinds: list[str]) -> str:
    """Return kinds of edits in the order of first occurrence, with the number of each."""
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in values.items()
    )
