"""Differential privacy of a run: the mechanisms that protect samples or clients, and the accounting of epsilon."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.privacy.accounting import Spent, epsilon_cell, epsilon_meaning, epsilon_sentence
    from refprotofl.privacy.dp_sgd import SampleNoise
    from refprotofl.privacy.interface import Mechanism
    from refprotofl.privacy.mechanisms import create_mechanism
    from refprotofl.privacy.own_entropy import OwnEntropy, new_secret
    from refprotofl.privacy.sealed_samples import PrivateSamples, open_samples
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Mechanism",
    "OwnEntropy",
    "PrivateSamples",
    "SampleNoise",
    "Spent",
    "create_mechanism",
    "epsilon_cell",
    "epsilon_meaning",
    "epsilon_sentence",
    "new_secret",
    "open_samples",
]
