"""Which device a run takes, what is recorded of it, and what it has no say in."""

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from refprotofl.cli.progress import ProgressCallback
from refprotofl.core import devices
from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.federation.local_run import Site, worker_count, worker_specifications
from refprotofl.federation.simulation import load_federation
from refprotofl.records.folder import read_events

CUDA = torch.device("cuda", 0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has torch find these."""

    def equip(cuda: int = 0, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Model {device.index}")
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return equip


@pytest.mark.parametrize(
    ("cuda", "mps", "asked", "chosen"),
    [
        (0, False, "auto", "cpu"),
        (0, True, "auto", "mps"),
        (2, False, "auto", "cuda:0"),
        (1, True, "auto", "cuda:0"),
        (1, True, "mps", "mps"),
        (1, True, "cpu", "cpu"),
        (3, False, "cuda", "cuda:0"),
    ],
)
def test_auto_is_the_fastest_there_is(
    machine: Callable[..., None], cuda: int, mps: bool, asked: str, chosen: str
) -> None:
    machine(cuda, mps)
    assert devices.choose(asked) == torch.device(chosen)


@pytest.mark.parametrize(
    ("cuda", "mps", "asked", "there"),
    [(0, False, "cuda", "cpu"), (0, True, "cuda", "mps, cpu"), (1, False, "mps", "cuda, cpu")],
)
def test_a_missing_device_is_refused_with_the_available_ones(
    machine: Callable[..., None], cuda: int, mps: bool, asked: str, there: str
) -> None:
    machine(cuda, mps)
    with pytest.raises(
        InputError, match=rf'device = "{asked}": torch .* finds no such device here. Available: {there}\. '
    ):
        devices.choose(asked)


def test_a_run_on_a_missing_device_leaves_nothing(uneven: Callable[..., Experiment], tmp_path: Path) -> None:
    with pytest.raises(InputError, match='device = "cuda"'):
        run(uneven(device="cuda"), out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_several_gpus_are_assigned_in_turn(machine: Callable[..., None]) -> None:
    machine(cuda=2)
    assert [device.index for device in devices.assign_devices(CUDA, 5)] == [0, 1, 0, 1, 0]
    assert devices.describe(CUDA, 1) == "cuda:0 Model 0"
    assert devices.describe(CUDA, 3) == "cuda:0 Model 0, cuda:1 Model 1"
    assert devices.assign_devices(devices.CPU, 2) == [devices.CPU] * 2
    assert devices.describe(devices.CPU, 2) == "cpu"


def test_each_worker_gets_its_own_gpu(
    machine: Callable[..., None], uneven: Callable[..., Experiment], tmp_path: Path
) -> None:
    machine(cuda=2)
    federation = replace(load_federation(uneven(), None), device=CUDA)
    site = Site(federation, records={}, folder=tmp_path, data_dir=None, workers=3)
    plain = [json.loads(specification) for specification in worker_specifications(site)]
    assert [one["device"] for one in plain] == ["cuda:0", "cuda:1", "cuda:0"]
    assert all("device" not in one["experiment"] for one in plain)


def test_by_itself_there_is_one_process_for_a_gpu_and_one_for_a_core(
    machine: Callable[..., None], uneven: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(cuda=2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    experiment = uneven()  # 5 clients
    assert worker_count("auto", experiment, CUDA) == 2
    assert worker_count("auto", experiment, torch.device("mps")) == 1
    assert worker_count("auto", experiment, devices.CPU) == 3
    assert worker_count(4, experiment, CUDA) == 4
    assert worker_count(9, experiment, CUDA) == 5


def test_the_device_has_no_say_in_the_experiment(uneven: Callable[..., Experiment]) -> None:
    assert uneven(device="cuda").hash == uneven(device="cpu").hash == uneven().hash
    assert "device" not in uneven(device="cuda").plain()
    with pytest.raises(InputError, match=r"device = 'tpu'.*auto, cpu, cuda or mps"):
        uneven(device="tpu")


class CutOff(Callback):
    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        raise KeyboardInterrupt


def test_a_run_may_resume_on_another_device_and_each_start_records_it(
    uneven: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(uneven(device="cpu"), out=out, callback=CutOff())
    monkeypatch.setattr(devices, "choose", lambda asked: {"mps": devices.CPU}[asked])
    monkeypatch.setattr(devices, "describe", lambda device, workers: f"elsewhere, for {workers}")
    run(uneven(device="mps"), out=out, resume=True)
    devices_used = [(event["event"], event["device"]) for event in read_events(out) if "device" in event]
    assert devices_used == [("start", "cpu"), ("resume", "elsewhere, for 1")]


def test_progress_names_the_gpu(uneven: Callable[..., Experiment], tmp_path: Path) -> None:
    def line(device: str, workers: int) -> str:
        console = Console(file=io.StringIO(), width=200)
        callback = ProgressCallback(console)
        callback.on_start(uneven(device=device), tmp_path, workers, 0)
        callback.on_close()
        return console.file.getvalue().splitlines()[0]  # type: ignore[attr-defined, no-any-return]

    assert line("cuda", 1).endswith("clients run in this process on cuda")
    assert line("mps", 2).endswith("clients run in 2 worker processes on mps")
    assert line("cpu", 1).endswith("clients run in this process")


def settings() -> list[object]:
    return [
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]  # torch sets it unseen
        os.environ.get(devices.CUBLAS),
    ]


def test_kernels_are_fixed_for_a_run_on_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    occupied = [1]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: occupied[-1])
    monkeypatch.setattr(torch.cuda, "set_device", occupied.append)
    monkeypatch.delenv(devices.CUBLAS, raising=False)
    before = settings()
    undo = devices.make_repeatable(CUDA)
    assert settings() == [True, False, False, "highest", 1, False, ":4096:8"]
    undo()
    assert settings() == before
    assert occupied == [1, CUDA, 1]
    devices.make_repeatable(devices.CPU)
    assert settings() == before


def test_a_users_own_workspace_for_cublas_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setenv(devices.CUBLAS, ":16:8")
    undo = devices.make_repeatable(CUDA)
    assert os.environ[devices.CUBLAS] == ":16:8"
    undo()
    assert os.environ[devices.CUBLAS] == ":16:8"
