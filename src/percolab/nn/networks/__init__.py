"""Predictors of y: the paper's network, its scores and activations, its loss under replaced activations; baselines."""
