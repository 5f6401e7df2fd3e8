"""The experiment: one frozen, validated configuration with its hash, from defaults, presets, files and settings."""

from refprotofl.experiment.configuration import METHOD_TABLES, Experiment, differences, with_kebab_keys

__all__ = ["METHOD_TABLES", "Experiment", "differences", "with_kebab_keys"]
