"""Engines: what turns a recipe into a forest, positions and targets. `paper` and `native` share what is here."""
