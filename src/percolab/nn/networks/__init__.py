"""What predicts y: the paper's network, its scores, its activations, what it does without some; and baselines."""
