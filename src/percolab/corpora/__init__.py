"""Documents: tokens drawn from contexts, nested sets of tokens, with the exact probabilities of every position."""
