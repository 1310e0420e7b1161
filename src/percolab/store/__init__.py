"""Datasets on disk and at URLs: written in cells, saved whole or made in shards, read lazily."""
