"""Every invalid input gets its exit code and a one-sentence error; no stack trace, no files left behind."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from tests.cli.conftest import Command


@pytest.fixture
def refused(refprotofl: "Command", tiny: Path) -> Callable[..., str]:
    """Calls a command that must end with this code and these words, and leave nothing."""

    def call(code: int, *arguments: object, words: tuple[str, ...]) -> str:
        outcome = refprotofl(*arguments)
        assert outcome.code == code, outcome.err
        assert outcome.out == ""
        for word in words:
            assert word in outcome.err
        assert "Internal error" not in outcome.err
        assert list(Path.cwd().iterdir()) == [], "something was left behind"
        return str(outcome.err)

    return call


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("dataset=digit", ("dataset = 'digit'", "'digits'", "cifar10")),
        ("dataset=", ("dataset = ''", "is empty", "a path")),
        ("clients=1000000000", ("clients = 1000000000", "1,000,000")),
        ("clients=1e9", ("clients = 1000000000.0", "whole number")),
        ("clients=1000000", ("clients = 1000000", "min-size = 5", "at most 7 clients")),
        ("model.name=", ("model.name = ''", "resnet18")),
        ("method=", ("method = ''", "refprotofl")),
        ("dataset=no/such.npz", ("no/such.npz", "path not found in")),
        ("dataset=nowhere:load", ("dataset", "'nowhere'")),
        ("train.lrr=0.1", ("train.lrr", "train.lr?")),
        ("lr=0.1", ("There is no key lr", "train.lr")),
        ("rounds=two", ("rounds = 'two'", "is not a whole number", "1 or more")),
        ("rounds=2.5", ("rounds = 2.5", "whole number")),
        ("rounds=0", ("rounds = 0", "too small")),
        ("rounds=" + "9" * 5000, ("rounds = '999", "is not a whole number")),
        ("refprotofl.uplink-budget=" + "9" * 400, ("refprotofl.uplink-budget = 999", "is more than the maximum of")),
        ("refprotofl.uplink-budget=" + "9" * 400 + " kB", ("refprotofl.uplink-budget = '999", "is not a size")),
        ("seed=-1", ("seed = -1", "0 or more")),
        ("refprotofl.keep=0", ("refprotofl.keep = 0", "above 0 and up to 1")),
        ("refprotofl.keep=1.5", ("refprotofl.keep = 1.5", "too large")),
        ("refprotofl.apud=maybe", ("refprotofl.apud = 'maybe'", "on or off")),
        ("alpha=0", ("alpha = 0", "above 0")),
        ("alpha=nan", ("alpha = nan",)),
        (
            "partition=dirichlett",
            (
                "partition = 'dirichlett'",
                "dirichlet, iid, shards, classes-per-client, quantity, feature-shift or natural",
            ),
        ),
        ("shift=0.2", ("has shift = 0.2", 'partition = "feature-shift", not "dirichlet"')),
        ("method=fedavgg", ("method = 'fedavgg'", "did you mean 'fedavg'?")),
        ("method=refprotofll", ("method = 'refprotofll'", "did you mean 'refprotofl'?")),
        ("model.name=resnet19", ("resnet19", "resnet18")),
        ("train=7", ("train", "is not a table")),
        ("evaluate.clients=3", ("evaluate.clients = 3", "clients = 2")),
        ("refprotofl.uplink-budget=20 parsecs", ("uplink-budget", "20 kB")),
        ("public.per-class=15", ("public.per-class = 15", "14 or fewer")),
        ("public.classes=[0, 3]", ("public.classes", "no class 3", "0 to 2")),
        ("train-limit=2", ("train-limit = 2", "at least 3")),
        ("clients=40", ("clients = 40", "min-size = 5", "at most 7 clients")),
    ],
)
def test_a_wrong_value_is_reported_by_key(
    refused: Callable[..., str], tiny: Path, setting: str, words: tuple[str, ...]
) -> None:
    refused(2, "run", tiny, "--set", setting, "--workers", 1, words=words)
    refused(2, "run", tiny, "--set", setting, "--workers", 1, "--out", "made", words=words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--preset", "quik"), ("preset 'quik'", "quick", "paper")),
        (("run", "nowhere.toml"), ("nowhere.toml", "No such file")),
        (("run", "."), ("experiment file .", "directory")),
        (("run", "--set", "rounds"), ("--set 'rounds'", "key=value")),
        (("run", "--set", "=3"), ("--set '=3'", "key=value")),
        (("run", "--workers", "0"), ("--workers 0", "at least 1")),
        (("run", "--workers", "x"), ("--workers x", "auto")),
        (("run", "--workers", "-1"), ("--workers -1", "auto")),
        (("run", "--resume"), ("--resume needs --out",)),
        (("run", "--nonsense"), ("--nonsense",)),
        (("run", "one.toml", "two.toml"), ("two.toml",)),
        (("rnu",), ("rnu",)),
        (("verify", "nowhere"), ("nowhere is not a run folder",)),
        (("verify",), ("RUN_FOLDER",)),
        (("partition", "--set", "dataset=mnits"), ("'mnits'", "'mnist'")),
        (("data", "fetch", "mnits"), ("mnits",)),
        (("data", "check", "nowhere.npz"), ("nowhere.npz",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) and value[0] in ("run", "verify", "data") else None,
)
def test_a_wrong_command_line_is_reported(
    refused: Callable[..., str], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(2, *arguments, words=words)


def test_several_mistakes_are_reported_at_once(refused: Callable[..., str], tiny: Path) -> None:
    settings = ("--set", "rounds=0", "--set", "train.lrr=1", "--set", "alpha=0")
    refused(2, "run", tiny, *settings, words=("rounds = 0", "train.lrr", "alpha = 0"))


def test_toml_that_is_not_toml(refused: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("rounds = = 3")
    refused(2, "run", file, words=(str(file), "not valid TOML", "line 1"))
    file.write_bytes(b"\xff\xfe\x00")
    refused(2, "run", file, words=(str(file),))


def test_a_budget_that_is_too_small_names_the_least_which_then_works(
    refused: Callable[..., str], refprotofl: "Command", tiny: Path
) -> None:
    words = ("refprotofl.uplink-budget = 40 bytes", "least")
    message = refused(2, "run", tiny, "--set", "refprotofl.uplink-budget=40 B", words=words)
    (needed,) = re.findall(r"take (\d+) bytes", message)
    least = int(needed)
    refused(2, "run", tiny, "--set", f"refprotofl.uplink-budget={least - 1}", words=(f"{least} bytes",))
    budget = ("--set", f"refprotofl.uplink-budget={least}")
    assert refprotofl("run", tiny, *budget, "--workers", 1, "--out", "run").code == 0


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_data_set_that_is_not_here_and_cannot_be_fetched(refused: Callable[..., str], name: str) -> None:
    words = (f"files of {name}", "--data DIR", "REFPROTOFL_DATA", "no connection")
    refused(3, "run", "--preset", "small", "--set", f"dataset={name}", words=words)


def test_a_data_folder_that_is_not_there(refused: Callable[..., str]) -> None:
    refused(2, "run", "--set", "dataset=mnist", "--data", "nowhere", words=("--data nowhere", "folder not found"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    return tmp_path / "pictures"


def draw(file: Path, size: tuple[int, int]) -> None:
    file.parent.mkdir(exist_ok=True)
    Image.fromarray(np.zeros(size, np.uint8)).save(file)


def test_a_folder_without_images(refused: Callable[..., str], folder: Path) -> None:
    refused(3, "run", "--set", f"dataset={folder}", words=(str(folder), "no class folders"))
    (folder / "cat").mkdir()
    refused(3, "run", "--set", f"dataset={folder}", words=(str(folder / "cat"), "no images"))


def test_images_of_different_sizes(refused: Callable[..., str], folder: Path) -> None:
    for number in range(10):
        draw(folder / "cat" / f"{number}.png", (4, 4))
        draw(folder / "dog" / f"{number}.png", (4, 5) if number == 7 else (4, 4))
    words = ("differ in size", "4 x 4", "5 x 4", "7.png")
    refused(3, "run", "--set", f"dataset={folder}", words=words)


def test_one_class_only(refused: Callable[..., str], make_npz: Callable[..., Path]) -> None:
    file = make_npz(np.full(40, 3))
    refused(3, "run", "--set", f"dataset={file}", words=(str(file), "all train labels are 3", "two classes"))


def test_a_file_that_is_cut_off(refused: Callable[..., str], make_npz: Callable[..., Path]) -> None:
    file = make_npz(np.arange(60) % 3)
    file.write_bytes(file.read_bytes()[:-100])
    refused(3, "run", "--set", f"dataset={file}", words=(str(file), "not a readable .npz"))


def test_more_clients_than_samples(refused: Callable[..., str], make_npz: Callable[..., Path]) -> None:
    few = ("--set", "clients=3", "--set", "min-size=1", "--set", "public.per-class=0")
    file = make_npz([0, 1, 0, 1], tests=2)
    refused(2, "run", "--set", f"dataset={file}", *few, words=("clients = 3", "only 2", "at most 2 clients"))


@pytest.mark.parametrize(
    ("labels", "names"),
    [(np.arange(60) % 3 + 1, "123"), (np.array([0, 4, 9])[np.arange(60) % 3], "049")],
    ids=["from 1", "with gaps"],
)
def test_labels_need_not_be_counted_from_zero(
    refprotofl: "Command", make_npz: Callable[..., Path], tiny: Path, labels: np.ndarray, names: str
) -> None:
    file = make_npz(labels)
    outcome = refprotofl("run", tiny, "--set", f"dataset={file}", "--workers", 1, "--out", "run")
    assert outcome.code == 0, outcome.err
    assert f'"class-names": {list(names)!r}'.replace("'", '"') in re.sub(
        r"\s+", " ", Path("run/experiment.json").read_text()
    ).replace("[ ", "[").replace(" ]", "]")


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/refprotofl", "/proc/refprotofl/run"])
def test_an_out_that_cannot_be_written(refprotofl: "Command", tiny: Path, place: str) -> None:
    Path("file").write_text("in the way")
    outcome = refprotofl("run", tiny, "--workers", 1, "--out", place)
    assert outcome.code == 2
    assert f"Cannot use {place} as the run folder" in outcome.err
    assert outcome.err.count("\n") == 1
    assert [path.name for path in Path.cwd().iterdir()] == ["file"]
    assert Path("file").read_text() == "in the way"


def test_a_folder_with_other_things_in_it_is_left_alone(refprotofl: "Command", tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    for extra in ((), ("--resume",)):
        outcome = refprotofl("run", tiny, "--workers", 1, "--out", other, *extra)
        assert outcome.code == 2
        assert "is not empty and holds no run (thesis.tex" in outcome.err
        assert [path.name for path in other.iterdir()] == ["thesis.tex"]
    assert (other / "thesis.tex").read_text() == "precious"
