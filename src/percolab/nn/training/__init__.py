"""Training networks, one or many at once: the loop, what is kept of it, and how it is resumed."""
