"""The laws that data obey, each as a check that can fail, and the suite that runs all checks."""
