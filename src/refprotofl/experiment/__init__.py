"""The experiment: one frozen, validated configuration with its hash, from defaults, presets, files and settings."""

from refprotofl.experiment.configuration import Experiment, differences, with_kebab_keys

__all__ = ["Experiment", "differences", "with_kebab_keys"]
