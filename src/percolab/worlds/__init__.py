"""Superposed worlds: several percolation datasets in one X, each sample with a point of each."""
