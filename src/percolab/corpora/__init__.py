"""Documents: tokens drawn from contexts, which are nested sets of tokens, with exact probabilities per position."""
