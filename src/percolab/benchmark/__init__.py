"""The benchmark of methods, version 1: tasks, representations, methods at several sparsities, two endpoints per task.

Needs the extra ``nn``, and for sparse autoencoders ``sae``. Importing this package imports neither.
"""

from percolab.ground.extras import stubbed

__getattr__, __dir__, __all__ = stubbed(__name__, extra="nn")
