"""The Flower app that a deployment's runs are submitted as: it names installed code and contains none."""

import hashlib
import io
import json
import zipfile

from refprotofl.deploy.run_config import KEYS

CONTENTS = ("pyproject.toml", "README.md", "LICENSE", ".info/CONTENT")  # all that a bundle may contain


def components() -> dict[str, str]:
    return {
        "serverapp": "refprotofl.engines.flower.server_app:app",
        "clientapp": "refprotofl.engines.flower.client_app:app",
    }


def build_bundle() -> bytes:
    """Return the app as Flower's SuperLink takes it: a zip archive with a manifest, the same bytes every time."""
    from refprotofl import __version__

    lines = ["[project]", 'name = "refprotofl"', f"version = {json.dumps(__version__)}", 'license = "Apache-2.0"']
    lines += ["[tool.flwr.app]", 'publisher = "refprotofl"', "[tool.flwr.app.components]"]
    lines += [f"{name} = {json.dumps(place)}" for name, place in components().items()]
    lines += ["[tool.flwr.app.config]", *(f'{key} = ""' for key in KEYS)]
    project = "\n".join(lines).encode()
    manifest = f"pyproject.toml,{hashlib.sha256(project).hexdigest()},{8 * len(project)}".encode()
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (("pyproject.toml", project), (".info/CONTENT", manifest)):
            archive.writestr(zipfile.ZipInfo(name), data)
    return bundle.getvalue()
