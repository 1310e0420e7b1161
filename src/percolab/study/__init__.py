"""The engine of all experiments: data, networks, readers, contrasts, intervals, verdict, files, page."""
