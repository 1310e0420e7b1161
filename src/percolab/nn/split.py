"""The split that experiments take unless they are given another: that of `percolab.split_rows`."""

from percolab.worlds.splits import SPLIT_SEED, Split, split_rows

__all__ = ["SPLIT_SEED", "Split", "split_rows"]
