"""Training networks, one or many at once: the training loop, its history and checkpoints, and how it is resumed."""
