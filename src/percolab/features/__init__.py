"""The judge: scores features of any method against the concepts of a forest; and simple methods to compare with."""

from percolab.ground.extras import stubbed

__getattr__, __dir__, __all__ = stubbed(__name__, extra="features")
