"""Batches from a store larger than memory: as NumPy arrays, for torch, for Ray."""
