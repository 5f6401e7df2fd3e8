"""Checks of the documentation: it names every key, on a page of the configuration or on its method's own."""

from pathlib import Path

from refprotofl.experiment import Experiment
from refprotofl.experiment.keys import keys
from refprotofl.methods.catalogue import METHODS, TABLES


def undocumented(root: Path) -> list[str]:
    """Keys and methods that no page below `root` names; a page of methods may leave their table's name out."""
    common = "".join(page.read_text(encoding="utf-8") for page in (root / "docs" / "configuration").glob("*.md"))
    missing = [
        key
        for key in keys(Experiment)
        if key != "input" and key.partition(".")[0] not in TABLES and f"`{key}`" not in common
    ]
    for name, method in METHODS.items():
        page = root / method.page
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if name not in text.lower():
            missing.append(f"{method.page} on {name}")
        for key in keys(method.table) if method.table else {}:
            if f"`{name}.{key}`" not in text and f"`{key}`" not in text:
                missing.append(f"{name}.{key}")
    return missing
