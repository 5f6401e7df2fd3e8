"""The least uplink budget that an experiment can work with."""

import torch

from refprotofl.errors import BudgetError
from refprotofl.experiment import Experiment
from refprotofl.methods.builtin.refprotofl import Options, masked
from refprotofl.methods.common.prototypes import Prototypes, write_prototypes
from refprotofl.methods.core.refusal import LOST
from refprotofl.wire import encode


def check_least_budget(experiment: Experiment, table: Options, adapter_size: int) -> None:
    """Refuses a budget that could not always carry prototypes, one coordinate, and the word that a store is lost."""
    if table.uplink_budget is None:
        return
    num_classes = experiment.known_input.num_classes
    zeros = torch.zeros(adapter_size)
    ends = [zeros.bool().index_fill(0, torch.tensor([end]), True) for end in (0, adapter_size - 1)]
    least = max(len(encode(masked.pack(table, zeros, zeros, end)[0])) for end in ends) + len(encode({LOST: True}))
    if table.erpa:
        covered = list(experiment.public.classes or ())
        counts = torch.ones(num_classes, dtype=torch.int64).index_fill(0, torch.tensor(covered).long(), 0)
        means = torch.zeros(num_classes, experiment.model.embedding)
        least += len(
            encode(write_prototypes(Prototypes(means[covered], means, counts), masked.DTYPES[table.prototype_type]))
        )
    if table.uplink_budget < least:
        raise BudgetError(
            f"refprotofl.uplink-budget = {table.uplink_budget} bytes is too small: "
            f"prototypes and one parameter take {least} bytes, which is the least that works here."
        )
