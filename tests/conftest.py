"""Every test computes as a run does on a machine without GPU: with one thread of the CPU, in portable numerics.

With REFPROTOFL_TEST_DEVICE=cuda (or mps) the GPU stays in sight, and engines/test_devices.py tries it too.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from refprotofl import Experiment
from refprotofl.core import numerics
from refprotofl.data import digests
from refprotofl.federation import run
from refprotofl.federation.local_run import OpenEngine, open_engine

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start tests with Ctrl-C ignored
numerics.apply("portable")  # before torch computes; processes that tests start inherit it
torch.set_num_threads(1)

EVERYTHING = os.environ.get("REFPROTOFL_FAULTS") == "full"
PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a slow machine is no failure
# `make test` draws the same cases every time and everywhere, so that it never fails by chance.
settings.register_profile("same-cases", derandomize=True, database=None, **PATIENT)
# `make test-faults` draws others every time; a failure prints what reproduces it.
settings.register_profile("new-cases", max_examples=500, print_blob=True, database=None, **PATIENT)
settings.load_profile("new-cases" if EVERYTHING else "same-cases")

TRIED = "tried: "

Tried = Callable[[str, int], None]  # what, and how often

if "REFPROTOFL_TEST_DEVICE" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.backends.mps.is_available = lambda: False  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Draws from torch's global generator do not depend on which tests this process did before."""
    torch.manual_seed(0)


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Tried:
    """Called with what a test tried, and how often: the end of the run reports the sums."""
    return lambda what, count: record_property(f"{TRIED}{what}", count)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    sums: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        for name, count in report.user_properties:
            if name.startswith(TRIED):
                sums[name.removeprefix(TRIED)] += count
    for what, count in sums.items():
        terminalreporter.write_line(f"tried and passed: {count:,} {what}")


@pytest.fixture(scope="session")
def patient() -> OpenEngine:
    """Workers do all that is theirs: else a small run would be over in this process before they have started."""
    return partial(open_engine, patient=True)


@pytest.fixture(scope="session", autouse=True)
def _own_digest_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leave nothing in the cache of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        file = tmp_path_factory.mktemp("cache") / "digests.json"
        patch.setattr(digests, "_cache_file", lambda: file)
        yield


@pytest.fixture(autouse=True)
def _own_modules_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules that a test wrote and imported, so that the next may use the same name."""
    before = {*sys.modules}
    yield
    written = str(tmp_path_factory.getbasetemp())
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(written):
            del sys.modules[name]


@pytest.fixture(scope="session")
def brief_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run: three clients, three rounds, each evaluated. Whoever changes it takes a copy."""
    plain = {
        **{"dataset": "digits", "train-limit": 150, "clients": 3, "rounds": 3, "min-size": 10},
        **{"public": {"per-class": 1}, "model": {"name": "mlp", "embedding": 8}},
        "evaluate": {"every": 1, "test-limit": 20},
    }
    return run(Experiment.parse(plain), out=tmp_path_factory.mktemp("brief") / "run").folder
