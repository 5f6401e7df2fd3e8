"""All privacy mechanisms by the unit that they protect. The only place that makes one from `privacy.unit`."""

from importlib import import_module

from refprotofl.experiment import Experiment
from refprotofl.privacy.interface import Mechanism

MECHANISMS = {  # by name: some need torch, which a run without privacy may not have imported yet
    "none": ("refprotofl.privacy.interface", "NoPrivacy"),
    "sample": ("refprotofl.privacy.sample_level", "SampleLevel"),
    "client": ("refprotofl.privacy.client_level", "ClientLevel"),
}


def create_mechanism(experiment: Experiment) -> Mechanism:
    home, name = MECHANISMS[experiment.privacy.unit]
    made: Mechanism = getattr(import_module(home), name)(experiment)
    return made
