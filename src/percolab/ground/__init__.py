"""Shared foundations: validation, files, threads, memory, progress, versions. Nothing here is about percolation."""
