"""The experiments: one module each, whose last line declares an `EXPERIMENT` of the engine in `percolab.study`.

A module's docstring is what its page says: title, question, and how it is measured; its functions `options`, `cells`,
`analyse`, `headline` and `draw` are the experiment's. Beside them are `points` and `responses`, which several share,
`paper_findings`, `paper_figures` and `paper_tables`, parts of `paper`, and `runs`, the experiments as functions. This
module imports no torch.
"""

#: Experiments on what networks represent.
REPRESENT = ("trained", "crossed", "relevance", "steering", "edit", "documents", "ownership", "causation")
FORMERLY = {"dose": "steering"}  #: Former names of experiments.
