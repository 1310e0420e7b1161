"""Linear probes of activations: what they are asked for, how they are fitted and scored, and their controls."""
