"""Random numbers with a law of their own: counter-based Philox, NumPy's PCG64, and the arithmetic that both need."""
