"""What every room stands on: validation, files, threads, memory, progress, versions; nothing of percolation."""
