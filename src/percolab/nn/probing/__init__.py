"""Linear probes of activations: their targets, how they are fitted and scored, and their controls."""
