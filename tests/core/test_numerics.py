"""Portable numerics: when they can be had, what they refuse, and that importing them does not import torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refprotofl.core import numerics
from refprotofl.core.numerics import VARIABLES

pytestmark = pytest.mark.slow

CAPABILITY = "torch.backends.cpu.get_cpu_capability()"
WIDER = bool(numerics._cpu_features().get("AVX512F"))

needs_avx2 = pytest.mark.skipif(not numerics.has_avx2(), reason="needs x86-64 with AVX2")
needs_wider = pytest.mark.skipif(not WIDER, reason="needs a CPU that computes differently by itself")


def in_new_process(code: str, **environment: str) -> str:
    """Return what Python prints in a process that inherits no limits of this one."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize("module", ["refprotofl.core.numerics", "refprotofl", "refprotofl.cli.entry"])
def test_importing_does_not_import_torch(module: str) -> None:
    assert in_new_process(f"import sys, {module}; print('torch' in sys.modules)") == "False"


@needs_avx2
@pytest.mark.parametrize("first", ["", "import torch; "])
def test_torch_obeys_before_it_is_imported_and_before_it_computes(first: str) -> None:
    code = f"from refprotofl.core import numerics; numerics.apply('portable'); import torch; print({CAPABILITY})"
    assert in_new_process(first + code) == "AVX2"


@needs_avx2
def test_onednn_obeys_as_well_after_torch_is_imported() -> None:
    convolve = "torch.nn.functional.conv2d(torch.ones(8, 3, 32, 32), torch.ones(16, 3, 3, 3))"
    code = f"import torch; from refprotofl.core import numerics; numerics.apply('portable'); {convolve}"
    (line,) = (line for line in in_new_process(code, ONEDNN_VERBOSE="1").splitlines() if ",isa:" in line)
    assert line.endswith("isa:Intel AVX2")


LATE = """
import os, torch
torch.ones(100).exp()
from refprotofl.core import numerics
from refprotofl.core.errors import InputError
before = dict(os.environ)
try:
    numerics.apply("portable")
except InputError as problem:
    print(problem, os.environ == before)
"""


@needs_wider
@pytest.mark.parametrize("environment", [{}, {"ATEN_CPU_CAPABILITY": "avx2"}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}])
def test_too_late_is_a_sentence_with_what_to_do_and_leaves_the_environment(environment: dict[str, str]) -> None:
    said = in_new_process(LATE, **environment)
    assert said.startswith('numerics = "portable" comes too late')
    assert "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2,STRICT in the environment" in said
    assert 'numerics = "native"' in said
    assert said.endswith("True")


@needs_avx2
def test_variables_of_the_user_are_in_time_whatever_was_computed() -> None:
    assert in_new_process(LATE, **VARIABLES) == ""


ROUNDING = "from refprotofl.core import numerics; numerics.apply('portable'); print(numerics.rounding())"


@needs_avx2
def test_processes_with_the_same_limits_round_alike_and_a_limit_of_the_user_stays() -> None:
    assert in_new_process(ROUNDING) == numerics.rounding()
    kept = "import os; from refprotofl.core import numerics; numerics.apply('portable'); print(os.environ['MKL_CBWR'])"
    assert in_new_process(kept, MKL_CBWR="COMPATIBLE") == "COMPATIBLE"
    assert in_new_process(kept, MKL_CBWR="AVX512") == "AVX2,STRICT"
    limited = ROUNDING.replace("numerics.rounding()", "numerics.is_limited()")
    assert in_new_process(limited, MKL_CBWR="COMPATIBLE") == "True"


@needs_avx2
def test_native_after_portable_is_still_portable_and_called_so() -> None:
    numerics.apply("native")
    assert numerics.resolve("native") == "portable"
    assert numerics.describe() == {"numerics": "portable", "cpu_capability": "AVX2"}


def test_native_sets_nothing() -> None:
    code = "import os; from refprotofl.core import numerics; numerics.apply('native'); print(numerics.is_limited())"
    assert in_new_process(code) == "False"
    assert in_new_process("from refprotofl.core import numerics; print(numerics.resolve('native'))") == "native"


def test_without_avx2_nothing_is_set_and_the_run_is_called_native(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(numerics, "has_avx2", lambda: False)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    numerics.apply("portable")
    assert not any(name in os.environ for name in VARIABLES)
    assert numerics.resolve("portable") == "native"
    assert "aarch64" in (numerics.caveat("portable") or "")
    assert numerics.caveat("native") is None


RUN = """
import sys
from refprotofl import Experiment, run
from refprotofl.core.errors import InputError
keys = dict(method="local", dataset="digits", train_limit=150, clients=2, rounds=1, min_size=10, model={"name": "mlp"})
def attempt(**more):
    try:
        return run(Experiment(**keys, public={"per-class": 1}, **more), out=sys.argv[1], resume=True).reused
    except InputError as problem:
        return str(problem)[:40]
"""


def in_python(code: str, out: Path) -> list[str]:
    return in_new_process(f"import sys; sys.argv.append({str(out)!r}){RUN}{code}").splitlines()


@needs_wider
def test_in_python_a_run_is_refused_after_native_computation_but_a_finished_one_is_read(tmp_path: Path) -> None:
    native = "import torch; torch.ones(100).exp()\n"
    assert in_python(native + "print(attempt())", tmp_path / "run") == ['numerics = "portable" comes too late: to']
    assert not (tmp_path / "run").exists()
    assert in_python("import torch\nprint(attempt())", tmp_path / "run") == ["False"]
    assert in_python(native + "print(attempt())", tmp_path / "run") == ["True"]
    assert in_python(native + "print(attempt(numerics='native'))", tmp_path / "other") == ["False"]
