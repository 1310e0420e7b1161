"""The engine of all experiments: data, networks, readers, contrasts, intervals, verdict, files, page.

A study is a grid: draws of the data, networks, layers and readers. Each cell is computed once (`measured`), and
contrasts over cells are read together (`contrasts`). `compare` is the engine for a notebook; `diff` finds
what two networks do not share. Needs the extra ``nn``; importing this package imports neither torch nor pandas.
"""

from percolab.ground.extras import stubbed

__getattr__, __dir__, __all__ = stubbed(__name__, extra="nn")
