"""The paper's experiments made again: settings, findings with their rules and controls, figures and report."""
