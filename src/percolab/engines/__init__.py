"""Engines: what turns a recipe into a forest, positions and targets. `paper` and `native` share what is here.

Public are the random processes alone, and rows of a dataset without the rest.
"""

from percolab.ground.extras import stubbed

__getattr__, __dir__, __all__ = stubbed(__name__)
