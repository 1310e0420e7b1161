"""Datasets for the eye: pictures, cards, summaries, and the style that all figures and pages share."""
