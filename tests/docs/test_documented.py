"""The documentation names what there is."""

import importlib.util
import re
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


def test_the_reference_pages_name_what_there_is() -> None:
    """After a key, a command or a public name was added or removed: python tools/reference.py."""
    import typer

    import refprotofl
    from refprotofl.cli.entry import app
    from refprotofl.core.lazy import homes_of
    from refprotofl.experiment import Experiment
    from refprotofl.experiment.keys import keys

    def named(page: str, pattern: str) -> set[str]:
        return set(re.findall(pattern, (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8"), re.MULTILINE))

    commands = vars(typer.main.get_command(app))["commands"]
    assert named("keys.md", r"^\| `([\w.-]+)` \|") == set(keys(Experiment)), (
        test_the_reference_pages_name_what_there_is.__doc__
    )
    assert named("commands.md", r"^## (.+)$") == set(commands), test_the_reference_pages_name_what_there_is.__doc__
    public = set(homes_of(Path(refprotofl.__file__).read_text(encoding="utf-8")))
    assert named("python.md", r"^## (.+)$") == public, test_the_reference_pages_name_what_there_is.__doc__
