"""The experiments: a module each, which declares an `EXPERIMENT` of the engine in `percolab.study`.

A module's docstring is what its page says: title, question, and how it is measured. This module imports no
torch.
"""

REPRESENT = ("trained", "crossed", "relevance", "steering", "edit", "documents", "ownership", "causation")
"""Experiments on what networks represent."""
FORMERLY = {"dose": "steering"}
"""Names that experiments had before."""
