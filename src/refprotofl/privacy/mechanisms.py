"""All privacy mechanisms by the unit that they protect. The only place that makes one from `privacy.unit`."""

from refprotofl.experiment import Experiment
from refprotofl.privacy.client_level import ClientLevel
from refprotofl.privacy.interface import Mechanism, NoPrivacy
from refprotofl.privacy.sample_level import SampleLevel

MECHANISMS: dict[str, type[Mechanism]] = {kind.unit: kind for kind in (NoPrivacy, SampleLevel, ClientLevel)}


def create_mechanism(experiment: Experiment) -> Mechanism:
    return MECHANISMS[experiment.privacy.unit](experiment)
