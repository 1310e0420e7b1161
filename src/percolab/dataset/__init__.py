"""Datasets, and making them."""
