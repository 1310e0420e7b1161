"""The data model: recipes, forests of nested intervals, and the sums that make targets."""
