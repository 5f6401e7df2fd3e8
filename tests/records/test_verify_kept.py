"""Every file of every kept round is checked: a byte that is flipped in any of them is found, and the file is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from refprotofl import Experiment
from refprotofl.core.errors import DataError
from refprotofl.engines.local.store import read_state
from refprotofl.federation import run
from refprotofl.federation.models import known_digests
from refprotofl.records.folder import read_experiment
from refprotofl.records.manifest import read_manifest
from refprotofl.records.verify import Verified, verify_run

ROUNDS = 4


@pytest.fixture(scope="module")
def folder(tiny: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the clients in each round, so that rounds share files; observations and given messages next to states."""
    keys = {"clients": 3, "fraction": 0.67, "rounds": ROUNDS, "keep_checkpoints": 3, "method": "refprotofl"}
    return run(tiny(**keys), out=tmp_path_factory.mktemp("kept") / "run").folder


def verify(folder: Path) -> Verified:
    recorded = read_manifest(folder / "checkpoint").get("initial")
    return verify_run(folder, known_digests(read_experiment(folder), recorded), read_state)


def kept_files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in (folder / "checkpoint").rglob("*") if path.is_file())


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x01
    path.write_bytes(bytes(data))


def test_all_kept_rounds_are_checked(folder: Path) -> None:
    assert verify(folder).kept == (2, 3, 4)


def test_a_flipped_byte_in_any_kept_file_is_found_and_the_file_named(folder: Path, tmp_path: Path) -> None:
    files = kept_files(folder)
    names = " ".join(str(file) for file in files)
    assert all(kind in names for kind in ("manifest-2", "manifest-3", "server-2", "server-3", "observed-2", "blobs/"))
    assert sum("clients" in str(file) for file in files) > 3  # of earlier rounds, too
    for number, file in enumerate(files):
        damaged = Path(shutil.copytree(folder, tmp_path / str(number)))
        for place in (0, (damaged / file).stat().st_size // 2, -1):
            flip(damaged / file, place)
            with pytest.raises(DataError, match=file.name.replace(".", r"\.")):
                verify(damaged)
            flip(damaged / file, place)
        shutil.rmtree(damaged)


def test_all_damaged_files_are_named(folder: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "run"))
    for name in ("server-2.safetensors", "server-4.safetensors", "manifest-3.json"):
        flip(damaged / "checkpoint" / name, -1)
    with pytest.raises(DataError, match="3 files are damaged") as problem:
        verify(damaged)
    assert all(name in str(problem.value) for name in ("server-2", "server-4", "manifest-3"))


def test_a_state_of_a_kept_round_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "run"))
    (damaged / "checkpoint" / "server-2.safetensors").unlink()
    with pytest.raises(DataError, match=r"server-2\.safetensors cannot be read"):
        verify(damaged)


def test_a_manifest_that_was_put_in_place_of_another_is_found(folder: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "run"))
    checkpoint = damaged / "checkpoint"
    shutil.copy(checkpoint / "manifest-3.json", checkpoint / "manifest-2.json")
    with pytest.raises(DataError, match=r"manifest-2\.json is of another round"):
        verify(damaged)
