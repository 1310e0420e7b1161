"""The native engine: any size, any number of workers, any part alone."""
