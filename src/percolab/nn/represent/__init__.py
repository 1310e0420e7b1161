"""Experiments on what a network represents, each against a control that can win, with intervals over seeds and kin.

`settings` says what an experiment is made from; `running.represent` runs it; a module an experiment: `trained`,
`crossed`, `relevance`, `dose`, `edit`. Statistics are functions of arrays, so they can be tried on planted ones.
"""
