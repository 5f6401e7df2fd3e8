"""The documentation names what there is."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, Path(__file__).with_name(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_key_and_method_is_documented() -> None:
    assert load("check.py").undocumented(ROOT) == []
