"""Random numbers: counter-based Philox, NumPy's PCG64, and the arithmetic that both need."""
