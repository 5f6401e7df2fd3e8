"""The Flower app that a deployment's runs are submitted as: it names installed code and contains none."""

import json
import warnings

KEYS = ("preset", "file", "set", "out", "data")  # of the run config; an empty text leaves a key as it is
CONTENTS = ("pyproject.toml", "README.md", "LICENSE", ".info/CONTENT")  # all that a bundle may contain


def components() -> dict[str, str]:
    return {
        "serverapp": "refprotofl.engines.flower.server_app:app",
        "clientapp": "refprotofl.engines.flower.client_app:app",
    }


def build_bundle() -> bytes:
    """Return the app as Flower's SuperLink takes it."""
    from flwr.cli.build import build_fab_from_files

    from refprotofl import __version__

    lines = ["[project]", 'name = "refprotofl"', f"version = {json.dumps(__version__)}", 'license = "Apache-2.0"']
    lines += ["[tool.flwr.app]", 'publisher = "refprotofl"', "[tool.flwr.app.components]"]
    lines += [f"{name} = {json.dumps(place)}" for name, place in components().items()]
    lines += ["[tool.flwr.app.config]", *(f'{key} = ""' for key in KEYS)]
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of what Flower uses
        bundle: bytes = build_fab_from_files({"pyproject.toml": "\n".join(lines).encode()})[0]
    return bundle
