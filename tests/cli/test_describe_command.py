"""The path of an engineer with a table: describe, run, report, predict, export, each printed by the one before."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def table(path: Path, rows: int = 90) -> Path:
    lines = ["row,hospital,age,pulse,remark,sick"]
    for row in range(rows):
        age = "" if row == 4 else str(40 + row % 7)
        lines.append(
            f"{row / 10},{('basel', 'bern', 'chur')[row % 3]},{age},{row % 2 + row / 500},ok{row % 5},{row % 2}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def printed_next(err: str) -> list[str]:
    """Return the words of the command that was printed as the next one."""
    line = next(line for line in reversed(err.splitlines()) if line.startswith("Next: refprotofl "))
    return shlex.split(line.removeprefix("Next: refprotofl "))


def test_each_command_prints_the_next(refprotofl: "Command", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "heart.csv")
    described = refprotofl("data", "describe", "heart.csv", "--out", "who.png")
    assert described.code == 0
    assert (tmp_path / "who.png").is_file()
    for words in ("90 rows", "3 features", "3 clients", "2 classes", "basel", "client", "label", "ignored"):
        assert words in described.out
    command = printed_next(described.err)
    for setting in ("data.client=hospital", "data.label=sick", "data.missing=mean", "model.name=mlp"):
        assert setting in command
    assert 'data.ignore=["remark"]' in command
    ran = refprotofl(*command, "--set", "rounds=1", "--set", "train.local-epochs=1")
    assert ran.code == 0
    compare = printed_next(ran.err)
    assert compare[:3] == ["compare", "--preset", "quick"]
    assert "refprotofl,fedavg,local" in compare
    reported = refprotofl("report", "runs/heart")
    predict = printed_next(reported.err)
    assert predict == ["predict", "runs/heart", "--client", "basel", "heart.csv", "--out", "labels.csv"]
    predicted = refprotofl(*predict)
    assert predicted.code == 0
    lines = (tmp_path / "labels.csv").read_text().splitlines()[1:]
    positions = [int(line.split(",")[0]) for line in lines]
    assert len({*positions}) == 18
    assert max(positions) >= 18  # of the whole file, which has 90 rows
    assert "predictions are for its 18 test samples, by their positions in it" in predicted.err
    assert printed_next(predicted.err)[:4] == ["export", "runs/heart", "--client", "basel"]


def test_new_rows_are_predicted_by_the_names_of_their_columns(
    refprotofl: "Command", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "heart.csv")
    keys = (
        "dataset=heart.csv",
        "data.client=hospital",
        'data.ignore=["row", "remark"]',
        "data.missing=mean",
        "rounds=1",
    )
    named = ("data.label=sick", "public.per-class=2", "train.local-epochs=1")
    settings = [word for key in (*keys, *named) for word in ("--set", key)]
    assert refprotofl("run", "--preset", "quick", *settings, "--out", "a").code == 0
    (tmp_path / "new.csv").write_text("pulse,remark,age\n0.1,x,41\n1.1,y,\n")
    (tmp_path / "known.csv").write_text("sick,pulse,age\n0,0.1,41\n1,1.1,\n")
    outcome = refprotofl("predict", "a", "--client", "bern", "new.csv")
    rows = [line.split(",") for line in outcome.out.splitlines()]
    assert rows[0][:2] == ["name", "class"]
    assert len(rows) == 3
    known = refprotofl("predict", "a", "--client", "bern", "known.csv")
    assert known.out == outcome.out
    assert "Accuracy on labelled samples" in known.err
    (tmp_path / "bad.csv").write_text("pulse,remark\n0.1,x\n")
    refused = refprotofl("predict", "a", "--client", "bern", "bad.csv", "--out", "labels.csv")
    assert refused.code == 3
    assert "bad.csv has no column 'age', which the model takes" in refused.err
    assert not (tmp_path / "labels.csv").exists()


def test_arrays_and_texts_are_described(refprotofl: "Command", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    labels, speakers = np.arange(60) % 2, np.array(["ann", "bob", "cid"])[np.arange(60) % 3]
    np.savez("a.npz", x=np.zeros((60, 1, 8), np.float32), y=labels, speaker=speakers)
    described = refprotofl("data", "describe", "a.npz", "--set", "data.kind=series")
    assert described.code == 0
    assert {"data.client=speaker", "model.name=cnn", "data.kind=series"} <= {*printed_next(described.err)}
    sentences = [f"{'ab'[row % 2]}\t{row % 2}\tThis is the sentence of number {row}." for row in range(40)]
    Path("t.tsv").write_text("\n".join(sentences) + "\n")
    described = refprotofl("data", "describe", "t.tsv")
    assert {'data.client="1"', 'data.label="2"', 'data.text="3"'} <= {*printed_next(described.err)}


def test_a_file_that_cannot_be_read_names_row_and_column(refprotofl: "Command", tmp_path: Path) -> None:
    path = table(tmp_path / "heart.csv")
    path.write_text(path.read_text().replace("\n0.3,basel,43", "\n0.3,basel,old"))
    described = refprotofl("data", "describe", path, "--set", "data.ignore=[]")
    assert described.code == 3
    assert "row 4 (line 5), column 'age': 'old' is not a number" in described.err
