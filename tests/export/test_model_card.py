import json
import re
import shutil
from dataclasses import replace

import pytest

from refprotofl.data import federate, load_dataset
from refprotofl.export import export, load_trained


@pytest.fixture
def card(mlp_run, tmp_path):
    export(load_trained(mlp_run, 2), tmp_path / "out")
    return (tmp_path / "out" / "README.md").read_text()


def snippets(card):
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


def test_it_has_what_the_summary_has(card, mlp_run):
    summary = json.loads((mlp_run / "summary.json").read_text())
    for protocol in ("personal", "own", "personal_prototype"):
        own, mean = summary["accuracy_per_client"][protocol][2], summary["accuracy"][protocol]
        assert f"| `{protocol}` | {own:.2%} | {mean:.2%} |".replace("%", " %") in card
    assert f"{summary['communication']['uplink']['payload_bytes']:,} bytes" in card
    assert summary["state_digest"] in card
    assert summary["experiment_hash"] in card
    assert "| rounds | 2 of 2 |" in card
    assert "| method | `refprotofl` |" in card
    assert "Apache License 2.0" in card


def test_it_does_not_reveal_what_the_client_holds(card, mlp_run):
    trained = load_trained(mlp_run, 2)
    counts = federate(trained.experiment, load_dataset("digits")).class_counts()[2]
    numbers = [int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.]| %)", card)]
    assert int(counts.sum()) not in numbers
    assert not set(counts[counts > 20].tolist()) & set(numbers)


def test_the_snippets_work_as_they_stand(cnn_run, tmp_path, monkeypatch, capsys):
    export(load_trained(cnn_run, 0), tmp_path / "out", "onnx")
    monkeypatch.chdir(tmp_path / "out")
    ours, onnx = snippets((tmp_path / "out" / "README.md").read_text())
    assert len(ours.splitlines()) == 6
    printed = []
    for snippet in (ours, onnx):
        exec(snippet, {})
        printed.append(capsys.readouterr().out)
    assert re.fullmatch(r"\['\d'\]\n", printed[0])
    assert printed[0] == printed[1]


def test_without_onnx_it_is_not_mentioned(card):
    assert len(snippets(card)) == 1
    assert "onnx" not in card


def test_a_run_that_is_not_finished_states_no_accuracy(mlp_run, tmp_path):
    copy = shutil.copytree(mlp_run, tmp_path / "copy")
    (copy / "summary.json").unlink()
    export(load_trained(copy, 0), tmp_path / "out")
    assert "The run was not finished" in (tmp_path / "out" / "README.md").read_text()


def test_a_client_that_was_not_evaluated_states_no_accuracy(make_run, tmp_path):
    folder = make_run(evaluate={"clients": 1, "test-limit": 50})
    evaluated = json.loads((folder / "summary.json").read_text())["evaluated_clients"]
    for client in range(3):
        export(load_trained(folder, client), tmp_path / str(client))
        card = (tmp_path / str(client) / "README.md").read_text()
        assert ("did not evaluate this client" in card) == (client not in evaluated)
        assert ("a class-balanced draw of 50 test images" in card) == (client in evaluated)


def test_the_path_of_the_data_is_left_out(mlp_run, tmp_path):
    trained = load_trained(mlp_run, 0)
    private = trained.experiment.model_copy(update={"dataset": "/home/ann/hospital/scans.npz"})
    export(replace(trained, experiment=private), tmp_path / "out")
    assert "| data set | `scans.npz` |" in (tmp_path / "out" / "README.md").read_text()
    for file in (tmp_path / "out").iterdir():
        assert b"hospital" not in file.read_bytes()
