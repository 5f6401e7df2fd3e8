"""A method of the user's own: the example from its folder, its options, and what is said when it does not fit."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import refprotofl
from refprotofl.cli.verify import verify
from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.export import load_trained, predict
from refprotofl.federation import run
from refprotofl.federation.models import model_of
from refprotofl.methods import fill_options, find_method

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def python(*arguments, folder):
    environment = os.environ | {"PYTHONPATH": str(Path(refprotofl.__file__).parents[1])}
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_method_example", EXAMPLES / "own_method.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["own_method.py", "own_feddyn.py"])
def test_the_examples_are_short(name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 80


def test_the_guide_shows_the_examples_as_they_are():
    examples = "".join((EXAMPLES / name).read_text() for name in ("own_method.py", "own_feddyn.py"))
    docs = EXAMPLES.parent / "docs"
    guide = (docs / "add-a-method.md").read_text() + (docs / "add-a-method" / "more.md").read_text()
    shown = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    excerpts = [text for text in shown if "Experiment(" not in text and "(Compressor)" not in text]
    excerpts.remove(CORRECTED)
    assert len(excerpts) == 7
    assert all(excerpt in examples for excerpt in excerpts)


CORRECTED = """\
class CorrectedClient(FedAvgClient):
    def train(self, round, message):
        self.load(message.tensor("shared"))
        correction = torch.ones(sum(self.model.sizes(self.parts)))  # (P,)
        shared, corrections = self.model.parameters_of(self.parts), self.shaped(correction)

        def add_correction(trained):
            for parameter, by in zip(shared, corrections, strict=True):
                parameter.grad.add_(by)

        self.fit(round, grad_hook=add_correction)
        return {"shared": self.keep_trained(round)}
"""


def test_the_guides_gradient_hook_moves_every_shared_weight_down(module, simulate):
    declared = (
        "from refprotofl.methods import *\nimport torch\n\n"
        + CORRECTED
        + """
class Own(Method):
    server, client = FedAvgServer, CorrectedClient
"""
    )
    over = {"rounds": 1, "train": {"lr": 0.01, "momentum": 0.0, "weight-decay": 0.0, "batch-size": 1000}}
    corrected = simulate({**over, "method": module("hooked", declared)}).server_state()["shared"]
    plain = simulate({**over, "method": "lg-fedavg"}).server_state()["shared"]
    assert torch.allclose(plain - corrected, torch.full_like(plain, 0.01), atol=1e-6)


@pytest.mark.parametrize(
    ("trim", "expected"),
    [(0.0, [251.5, -1.0]), (0.1, [251.5, -1.0]), (0.25, [2.5, 0.5]), (0.5, [2.5, 0.5]), (1.0, [2.5, 0.5])],
)
def test_the_trimmed_mean_by_hand(example, trim, expected):
    values = torch.tensor([[1.0, 0.0], [1000.0, 1.0], [3.0, -7.0], [2.0, 2.0]])
    assert example.trimmed_mean(values, trim).tolist() == expected


def test_the_example_from_its_folder_in_workers_too(tmp_path, monkeypatch):
    settings = ["method=own_method:TrimmedMean", "own.trim=0.3", "clients=4", "rounds=2", "train-limit=300"]
    sets = [word for setting in settings for word in ("--set", setting)]
    there = tmp_path / "there"
    command = ["-c", "from refprotofl.cli import main; main()", "run", *sets, "--workers", "2", "--out", there]
    python(*command, folder=EXAMPLES)
    summary = json.loads((there / "summary.json").read_text())
    assert summary["experiment"]["own"] == {"trim": 0.3}
    assert summary["accuracy"]["personal"] > 0.15  # better than guessing one of ten

    monkeypatch.chdir(EXAMPLES)
    here = run(load_experiment(settings=settings), out=tmp_path / "here").folder
    verify(here, there)  # the same in every message and state
    trained = load_trained(there, 1, trust_code=True)
    assert predict(trained, "digits").accuracy == summary["accuracy_per_client"]["personal"][1]


def test_the_example_as_a_script(tmp_path):
    printed = python(EXAMPLES / "own_method.py", folder=tmp_path)
    assert "'personal': 0." in printed


def test_the_second_example_is_the_built_in_method_where_clients_have_equal_data(simulate, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    keys = {"partition": "iid", "train-limit": 160, "rounds": 3, "share": "adapter"}
    own = simulate({"method": "own_feddyn:FedDyn", "own": {"alpha": 0.2}, **keys})
    ours = simulate({"method": "feddyn", "feddyn": {"alpha": 0.2}, **keys})
    for name in ("shared", "moved"):
        assert torch.allclose(own.server_state()[name], ours.server_state()[name], atol=1e-6)


def test_defaults_are_part_of_the_experiment(simulate, module):
    own = module("filled", GOOD)
    plain = simulate({"method": own, "rounds": 1}).resolved
    said = simulate({"method": own, "rounds": 1, "own": {"beta": 1, "name": "a", "fast": "on"}}).resolved
    other = simulate({"method": own, "rounds": 1, "own": {"beta": 2}}).resolved
    assert plain.own == {"beta": 1.0, "name": "a", "fast": True, "steps": 3}
    assert plain.hash == said.hash
    assert plain.hash != other.hash


def test_options_are_checked_against_their_defaults():
    options = {"beta": 1.0, "steps": 3, "fast": True}
    assert fill_options("m:C", options, {"beta": 2, "fast": "off"}) == {"beta": 2.0, "steps": 3, "fast": False}
    with pytest.raises(InputError, match=r"own.beat = 2 is not an option of .* 'm:C'; its options are beta, steps"):
        fill_options("m:C", options, {"beat": 2})
    for wrong in ({"steps": 1.5}, {"steps": True}, {"beta": "x"}, {"fast": 1}):
        with pytest.raises(InputError, match="is not of the kind of its default"):
            fill_options("m:C", options, wrong)


def test_other_methods_have_none(simulate):
    with pytest.raises(InputError, match=r"own.beta = 1 is not an option of method = 'fedavg'; it takes no options"):
        simulate({"method": "fedavg", "own": {"beta": 1}})


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"beta": [1]}, r"own = .* has beta = \[1\], which is not a finite number, a text, true or false"),
        ({"beta": float("inf")}, "has beta = inf"),
        (3, "own = 3 is not a table"),
    ],
)
def test_options_are_scalars(own, problem):
    with pytest.raises(InputError, match=problem):
        Experiment.parse({"own": own})


GOOD = """
from refprotofl.methods import HEAD, Client, FedAvgClient, FedAvgServer, Server

class Own:
    '''Shares the head.

    And no more than that.'''
    server, client, shared = FedAvgServer, FedAvgClient, HEAD
    options = {"beta": 1.0, "name": "a", "fast": True, "steps": 3}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported, and gives `module:Own`."""
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(name, text):
        name = f"own_method_{name}"
        (tmp_path / f"{name}.py").write_text(text)
        written.append(name)
        return f"{name}:Own"

    yield write
    for name in written:
        sys.modules.pop(name, None)


def test_a_class_declares_a_method(module, simulate):
    name = module("good", GOOD)
    method = find_method(name)
    assert method.line == "Shares the head"  # as the other methods' lines, without a full stop
    head_only = simulate({"method": name, "rounds": 1})
    assert all(one.message["shared"].shape == (90,) for one in head_only.tap.select("up", "train"))


def test_parts_may_depend_on_the_experiment(module, tiny):
    name = module("function", GOOD + "    shared = lambda experiment: ('head',) if experiment.rounds > 1 else ()\n")
    assert find_method(name).shared(tiny({"rounds": 1})) == ()
    assert find_method(name).shared(tiny({"rounds": 2})) == ("head",)


@pytest.mark.parametrize(("base", "share"), [("Method", "adapter"), ("FedAvg", "full")])
def test_by_default_the_adapter_is_shared_unless_a_method_of_ones_own_inherits_otherwise(module, simulate, base, share):
    text = "from refprotofl.methods import FedAvgClient, FedAvgServer, Method\n"
    text += "from refprotofl.methods.builtin.fedavg import FedAvg\n\n"
    name = module(f"own_{base}", f"{text}class Own({base}):\n    server, client = FedAvgServer, FedAvgClient\n")
    assert Experiment(method=name).share == "auto"  # its code is not loaded for this
    for asked, found in (({}, share), ({"share": "adapter"}, "adapter"), ({"share": "full"}, "full")):
        assert simulate({"method": name, "rounds": 1, **asked}).resolved.share == found


def test_different_backbones_under_a_method_of_ones_own(module, simulate):
    name = module("mixed", GOOD)
    simulate({"method": name, "rounds": 1, "model": {"name": {"cnn": 2, "mlp": 2}}})
    name = module("whole", GOOD + "    shared = ('backbone',)\n")
    with pytest.raises(InputError, match="shares the backbone"):
        simulate({"method": name, "model": {"name": {"cnn": 2, "mlp": 2}}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Other = 1", "has no 'Own'"),
        ("Own = 1", "is not callable"),
        ("def Own(): pass", "is not a class; docs/add-a-method.md shows how"),
        ("import nowhere_at_all", "module 'nowhere_at_all' not found"),
        ("1 / 0", "importing it failed with ZeroDivisionError"),
        ("class Own: pass", "has no attribute 'server', which must be its Server class"),
        ("class Own: server = 3", "its server 3 is not a subclass of refprotofl.methods.Server"),
        (
            "from refprotofl.methods import *\nclass Own: server, client = FedAvgServer, FedAvgServer",
            "its client FedAvgServer is not a subclass of refprotofl.methods.Client",
        ),
        (
            "from refprotofl.methods import *\nclass Half(Server): pass\nclass Own: server = Half",
            "Half must still define evaluation, round, state_names",
        ),
        (
            "from refprotofl.methods import *\nclass Half(Client):\n  def train(self, round, message): return {}\n"
            "class Own: server, client = FedAvgServer, Half",
            "Half must still define evaluate",
        ),
        (
            "from refprotofl.methods import *\nclass More(FedAvgClient): verbs = ('train', 'sing', 'evaluate')\n"
            "class Own: server, client = FedAvgServer, More",
            "More has no method for its verbs sing",
        ),
        (
            "from refprotofl.methods import *\nclass Old(FedAvgServer):\n"
            "  def __init__(self, experiment, model, public, parts): pass\n"
            "class Own: server, client = Old, FedAvgClient",
            "the constructor of Old takes experiment, model, public, parts; it must take one argument, the context",
        ),
        (GOOD + "    shared = ('body',)", r"shared = \('body',\) is not a tuple of some of backbone, feature, head"),
        (GOOD + "    options = {'a': [1]}", "is not a dict of names and their default values"),
    ],
)
def test_what_does_not_fit_is_reported(module, request, text, problem):
    name = module(f"bad{request.node.callspec.indices['text']}", text)
    with pytest.raises(InputError, match=problem) as found:
        find_method(name)
    assert name in str(found.value)


BORROWED = """
from refprotofl.methods import ADAPTER, find_method

class Watched(find_method("refprotofl").client):
    def answer(self, verb, round, message):
        return super().answer(verb, round, message)

class Own:
    server, client, shared = find_method("refprotofl").server, Watched, ADAPTER
"""


def test_parts_of_a_built_in_method_bring_its_options(module, simulate):
    name = module("borrowed", BORROWED)
    usual, own = simulate({"rounds": 2}, keep=0.3), simulate({"rounds": 2, "method": name}, keep=0.3)
    assert own.finished.summary["state_digest"] == usual.finished.summary["state_digest"]
    assert own.finished.summary["experiment"]["refprotofl"]["keep"] == 0.3
    fed_back = {"error_feedback": "ef21", "normalise": "participants"}
    usual, own = simulate({"rounds": 2}, **fed_back), simulate({"rounds": 2, "method": name}, **fed_back)
    assert own.finished.summary["state_digest"] == usual.finished.summary["state_digest"]


TYPED = """
from typing import Literal
from pydantic import Field
from refprotofl.methods import Cost, FedAvgClient, FedAvgServer, Table

class Options(Table):
    beta: float = Field(1.0, gt=0, description="a rate above 0")
    kind: Literal["even", "odd"] = "even"
    head_steps: int = 3

class Server(FedAvgServer):
    options: Options
    def round(self, cohort):
        super().round(cohort)
        assert self.options.beta == 2.0 and self.options.head_steps == 3

class Own:
    server, client, options = Server, FedAvgClient, Options
    cost = Cost("P + 1", "P")
    extra_outputs = 2
    @staticmethod
    def check(experiment):
        if experiment.own.get("kind") == "odd" and experiment.clients % 2 == 0:
            raise ValueError('has own.kind = "odd", but an even number of clients')
"""


def test_typed_options_a_cost_and_extra_outputs(module, simulate):
    name = module("typed", TYPED)
    method = find_method(name)
    done = simulate({"method": name, "rounds": 1, "own": {"beta": 2}})
    assert done.finished.summary["experiment"]["own"] == {"beta": 2.0, "kind": "even", "head-steps": 3}
    assert model_of(done.resolved, 0).head.out_features == 10 + 2
    assert method.cost(done.resolved).up == "P + 1"


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"beta": 0}, "own.beta = 0 is too small; allowed: a rate above 0."),
        ({"kind": "wild"}, "own.kind = 'wild' is not known; allowed: even or odd."),
        ({"headsteps": 1}, "There is no key own.headsteps; did you mean own.head-steps?"),
        ({"kind": "odd"}, 'The experiment has own.kind = "odd", but an even number of clients.'),
    ],
)
def test_what_is_wrong_with_typed_options_is_reported(module, simulate, own, sentence):
    name = module("typed", TYPED)
    with pytest.raises(InputError) as refusal:
        simulate({"method": name, "own": own})
    assert str(refusal.value) == sentence
