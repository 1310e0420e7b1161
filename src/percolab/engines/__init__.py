"""Engines turn a recipe into a forest, positions and targets. `paper` and `native` share the modules of this folder.

Only the random processes, and making rows of a dataset without the rest, are public.
"""

from percolab.ground.extras import stubbed

__getattr__, __dir__, __all__ = stubbed(__name__)
