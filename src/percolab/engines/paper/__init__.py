"""The paper engine: the published datasets, to the bit."""
