"""`refprotofl frontier`: the Pareto front of accuracy and bytes."""
