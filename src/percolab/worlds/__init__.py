"""Superposed worlds: several percolation datasets in one X; every sample has one point of each dataset."""
