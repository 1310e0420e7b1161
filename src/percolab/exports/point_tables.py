"""A dataset as two tables, one of points and one of latents.

For a superposed world, the table of points has one line per sample, with the truth of one factor, and the other table
has the latents of that factor. These tables are not a whole dataset, and are not read back as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import LATENT_COLUMNS
from percolab.exports.columns import TAILS
from percolab.model.forest import Forest
from percolab.model.graphs import latent_columns
from percolab.worlds.superposed import AnyDataset, Superposed, Truth, truth

ON_CLUSTERS = """{n:,} points in {dim} dimensions on {n_clusters:,} clusters, with the {n_latents:,} latent variables
that made their targets."""
OF_A_WORLD = """{n:,} samples of a superposed world in {dim} dimensions, with the {n_latents:,} latent variables of its
factor {factor}: `row` is the point of that factor that a sample has, and what follows is that point's."""
COLUMNS_SAID = """\
Line i of `points` is row i: its position `X`, its target `y`, its own value `z`, its cluster, and how many latents it
has (`depth`). Line i of `latents` is latent i, whose points are `start` to `start + size - 1`. Neighbouring points are
relatives: shuffle before training, and hold out whole subtrees or clusters (`percolab.split_rows`) to test more than
memory.

"""
READ_BACK = "`percolab.exports.read_parquet(PATH)` gives the dataset back. "


@dataclass(frozen=True, eq=False)
class PointTables:
    """The rows of a dataset, or the samples of a world, each a line of the first table; latents are the second."""

    data: AnyDataset
    known: Truth  #: the hierarchy that is exported, and the row of each sample in it
    factor: int | None  #: the factor of the hierarchy, in a world

    @classmethod
    def of(cls, dataset: AnyDataset, factor: int | None) -> Self:
        """Return the tables of a dataset, or of a world with the truth of one factor."""
        return cls(dataset, truth(dataset, factor), (factor or 0) if isinstance(dataset, Superposed) else None)

    tails = TAILS

    @property
    def forest(self) -> Forest:
        """The hierarchy."""
        return self.known.forest

    @property
    def release_order(self) -> NDArray[np.int64]:
        """The samples by cluster, then by birth of their points, as in the authors' release."""
        rank = np.empty(self.forest.n_points, np.int64)
        rank[self.forest.release_order] = np.arange(rank.size)
        return np.argsort(rank[self.known.rows], kind="stable")

    def lines(self, rows: slice) -> Any:
        """Return some lines of the table of points, X as one column of vectors."""
        import pyarrow as pa

        X = np.ascontiguousarray(self.data.X[rows])
        return pa.table({"X": pa.FixedSizeListArray.from_arrays(X.reshape(-1), X.shape[1])} | self._columns(rows))

    def flat_lines(self, rows: slice) -> Any:
        """Return some lines of the table of points, X as columns x0, x1 and so on."""
        import pyarrow as pa

        X = np.ascontiguousarray(np.asarray(self.data.X[rows]).T)
        return pa.table({f"x{j}": column for j, column in enumerate(X)} | self._columns(rows))

    def _columns(self, rows: slice) -> dict[str, NDArray[Any]]:
        """Return some lines of the table of points, without X; a y of several columns is y0, y1 and so on."""
        forest, dataset = self.forest, self.known.dataset
        at = self.known.rows[rows]
        cluster = forest.point_cluster[at]
        y = np.asarray(self.data.y)[rows]
        targets = {"y": y} if y.ndim == 1 else {f"y{j}": column for j, column in enumerate(y.T)}
        columns = {
            "z": dataset.point_z[at],
            "cluster": cluster,
            "cluster_id": forest.cluster_id[cluster],
            "point_id": forest.point_id[at],
            "depth": forest.point_depth[at],
        }
        if self.factor is not None:
            return targets | {"row": at} | columns
        return targets | columns | {name: column[at] for name, column in self._extra(latents=False).items()}

    def truths(self) -> Any:
        """Return the table of latents; refuse bonds that close cycles, which the table cannot hold."""
        import pyarrow as pa

        if count := self.forest.n_extra_bonds:
            rule = "forest must have no bonds that close cycles in a table of latents"
            raise ValueError(f"{rule}, got {count}; use hdf5")
        return pa.table(latent_columns(self.forest, self.known.latent_z) | self._extra(latents=True))

    def _extra(self, *, latents: bool) -> dict[str, NDArray[Any]]:
        """Return the columns that only some datasets have, of latents or of points."""
        extra = self.known.dataset.extra.items()
        return {name: np.asarray(column) for name, column in extra if (name in LATENT_COLUMNS) == latents}

    def card(self) -> dict[str, str]:
        """Return the text about these tables for the card of a folder."""
        n, dim = self.data.X.shape
        what = ON_CLUSTERS if self.factor is None else OF_A_WORLD
        sizes = {"n_clusters": self.forest.n_clusters, "n_latents": self.forest.n_latents, "factor": self.factor}
        return {
            "title": "Percolation data",
            "it": "it",
            "what": what.format(n=n, dim=dim, **sizes),
            "columns": COLUMNS_SAID + (READ_BACK if self.factor is None else ""),
        }
