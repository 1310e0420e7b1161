"""The frame of any experiment: its directory and stages, its table of estimates, its figures and its page."""
