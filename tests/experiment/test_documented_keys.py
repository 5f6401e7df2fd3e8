from pathlib import Path

from refprotofl.experiment import Experiment
from refprotofl.keys.complaints import keys
from refprotofl.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"


def test_every_key_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert [key for key in keys(Experiment) if key != "input" and f"`{key}`" not in text] == []


def test_every_method_has_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8").lower() for page in (DOCS / "methods").glob("*.md"))
    assert [name for name in METHODS if name not in pages] == []
