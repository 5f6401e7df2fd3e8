"""FedYogi (Reddi et al. 2021): FedAdam whose mean square moves by steps that do not depend on its distance."""

from torch import Tensor

from refprotofl.methods.builtin.fedadam.fedadam import FedAdamServer
from refprotofl.methods.builtin.fedyogi import Options


class FedYogiServer(FedAdamServer):
    options: Options

    def next_mean_square(self, before: Tensor, square: Tensor) -> Tensor:
        return before - (1 - self.options.beta2) * square * (before - square).sign()
