"""The cost of a round's masked uploads at the server, on one core, one after the other.

The real server runs a round over the real cohort; only the clients are replayed: each answers at once with bytes that
were encoded before. So the time has everything that the server does for an upload: decoding, the ledger, digests,
checks, Eq. (7), and the divergence check before the commit. The checks are also measured alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from refprotofl.bench.measuring import MemoryWatch, Report, ShowProgress, alternate, ratio, silent, timed
from refprotofl.core import InputError, counted, one_compute_thread, stream
from refprotofl.engines import EngineInfo, Record, Request, Result, start_ahead
from refprotofl.experiment import Experiment
from refprotofl.federation.divergence import check_divergence
from refprotofl.methods import Cohort, ServerContext, apud
from refprotofl.methods.base.cohort import Norms, field_norms
from refprotofl.methods.builtin.refprotofl.server import RefProtoServer
from refprotofl.models import ADAPTER, SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.wire import Ledger, Message, Sparse, decode, encode

CLASSES = 10
DISTINCT = 50  # uploads that are made; more of them repeat these
LEAST_SIZE = 2 * CLASSES + 2
ROW = 512  # coordinates that move alike, as a row of the feature layer does


@dataclass(frozen=True)
class Upload:
    """One client's masked update, encoded and as tensors."""

    data: bytes
    values: Tensor  # (d,)
    mask: Tensor  # (d,)


class ReplayEngine:
    """An engine that replays prepared answers."""

    info = EngineInfo()

    def __init__(self, uploads: Sequence[Upload]) -> None:
        self._uploads = uploads

    def map(self, requests: Iterable[Request], deadline: float | None) -> Iterator[Result]:
        for client in start_ahead(requests, lambda request: request.client, self.info.max_in_flight):
            yield Result(self._uploads[client % len(self._uploads)].data)

    def discard(self, client: int) -> None:
        """Do nothing: nothing is kept."""

    def explain(self, client: int) -> str:
        return ""

    def settle(self, round: int) -> dict[int, Record]:
        return {}

    def committed(self, round: int, oldest: int) -> None:
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def make_uploads(size: int, keep: float, count: int) -> list[Upload]:
    """Make uploads in which some rows move more than others, so that masks are as uneven as real ones."""
    uploads = []
    for client in range(count):
        generator = stream(0, "bench-upload", client=client)
        pace = np.exp(generator.standard_normal(-(-size // ROW))).repeat(ROW)[:size]
        values = torch.from_numpy((0.01 * pace * generator.standard_normal(size)).astype(np.float32))
        mask = apud.select(values, torch.zeros(size), apud.number_to_send(keep, size))
        indices = mask.nonzero().squeeze(1)
        uploads.append(Upload(encode({"adapter": Sparse(indices, values[indices], size)}), values, mask))
    return uploads


def make_server(clients: int, size: int, keep: float) -> RefProtoServer:
    """Make a server with an adapter of `size` zeros and joined clients: client i with i % 7 + 1 samples."""
    if size < LEAST_SIZE:
        raise InputError(f"--size {size}: use at least {LEAST_SIZE} parameters, the smallest adapter.")
    input = {"class-names": [str(name) for name in range(CLASSES)], "shape": [1, 1, 1], "mean": [0.0], "std": [1.0]}
    experiment = Experiment.parse(
        {
            "clients": clients,
            "input": input,
            "model": {"embedding": 1},
            "refprotofl": {"keep": keep, "erpa": False},
        }
    )
    # One unit wide behind as many inputs as it takes: d = inputs + 1 of the feature layer, 2 C of the head.
    model = SplitModel(nn.Identity(), size - 2 * CLASSES - 1, 1, CLASSES, pixels((0.0,), (1.0,)))
    model.write(ADAPTER, torch.zeros(size))
    server = RefProtoServer(ServerContext(experiment, model, ADAPTER, options=experiment.refprotofl))
    server.samples = torch.arange(clients) % 7 + 1
    return server


def serve(server: RefProtoServer, uploads: Sequence[Upload]) -> None:
    """Run one round with an upload from every client."""
    clients = range(server.experiment.clients)

    def unwatched(direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        """Ignore the message."""

    cohort = Cohort(ReplayEngine(uploads), Ledger(), server.counted_as, 1, clients, unwatched)
    before = dict(server.state)
    server.round(cohort)
    assert len(cohort.clients) == len(clients), cohort.failures[:1]
    assert not check_divergence(before, server.state, {}, cohort.norms, server.experiment.max_step).reason


def check(server: RefProtoServer, answers: Sequence[Message]) -> None:
    """Run the checks of a round alone: each answer by its schema and its norms, and the state at the end."""
    norms: Norms = {}
    for client in range(server.experiment.clients):
        answer = answers[client % len(answers)]
        server.checked("train", answer)
        for name, norm in field_norms(answer).items():
            norms.setdefault(("train", name), {})[client] = norm
    assert not check_divergence(server.state, dict(server.state), {}, norms, server.experiment.max_step).reason


def dense_mean(uploads: Sequence[Upload], count: int) -> Tensor:
    """Average float32 vectors (d,) in memory: the minimum that averaging costs."""
    total = torch.zeros_like(uploads[0].values)
    for client in range(count):
        total += uploads[client % len(uploads)].values
    return total / count


def measure_aggregation(
    count: int, size: int, keep: float, repeats: int, show_progress: ShowProgress = silent
) -> Report:
    with one_compute_thread():
        uploads = make_uploads(size, keep, min(count, DISTINCT))

        def serve_all() -> None:
            serve(make_server(count, size, keep), uploads)

        def decode_all() -> None:
            for client in range(count):
                decode(uploads[client % len(uploads)].data)

        answers = [decode(upload.data) for upload in uploads]
        measures = {
            "server's round": timed(serve_all),
            "its checks": timed(lambda: check(make_server(count, size, keep), answers)),
            "decoding alone": timed(decode_all),
            "dense mean": timed(lambda: dense_mean(uploads, count)),
        }
        found = alternate(measures, repeats, show_progress)
        with MemoryWatch() as memory:
            serve_all()
    megabytes = sum(len(uploads[client % len(uploads)].data) for client in range(count)) / 1e6
    extra = (memory.highest - memory.before) / 1e6 if memory.highest and memory.before else None
    rows = [
        {
            "work": name,
            "cpu_s": median(times),
            "ms_per_upload": 1000 * median(times) / count,
            "mb_per_s": megabytes / median(times) if name not in ("dense mean", "its checks") else None,
            "times_the_dense_mean": ratio(times, found["dense mean"]),
            "extra_mb": extra if name == "server's round" else None,
        }
        for name, times in found.items()
    ]
    notes = [
        f"{counted(count, 'upload')}, {len(uploads)} of them distinct, of {keep:.0%} of {size:,} parameters: "
        f"{1000 * megabytes / count:.1f} kB each. extra MB: peak private memory above that before the round."
    ]
    return Report("A round's masked uploads at the server, one core", rows, notes)
