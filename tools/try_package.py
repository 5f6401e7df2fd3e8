"""Install the built wheel into an empty environment and use it there: make package.

python tools/try_package.py DIST [--extras]   (each extra alone, in an environment of its own)
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORTS = {  # what an extra is for
    "audio": "soundfile",
    "hf": "datasets",
    "mlflow": "mlflow",
    "mqtt": "paho.mqtt.client",
    "onnx": "onnxruntime",
    "privacy": "dp_accounting",
    "tabular": "pyarrow",
    "tensorboard": "tensorboardX",
    "flower": "flwr",
    "clip": "open_clip",
}
TRY = """
import refprotofl as rp
result = rp.run(rp.Experiment.preset("quick", rounds=1, clients=2), out="run", workers=1)
assert result.bytes["total"] > 0
assert rp.report("run", out="run.html").stat().st_size > 100_000
"""


def check_contents(dist: Path) -> Path:
    """Return the wheel, after checking that both packages have what they need and nothing of the tests."""
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert "refprotofl/py.typed" in names, "the wheel has no py.typed"
    assert any(name.startswith("refprotofl/report/page/assets/") for name in names), "the wheel has no page assets"
    assert not any(name.startswith("tests") for name in names), "the wheel has tests"
    with tarfile.open(sdist) as file:
        listed = {name.partition("/")[2] for name in file.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/refprotofl/__init__.py"} <= listed
    return wheel


def install(place: Path, wheel: Path, extra: str = "") -> Path:
    """Return the Python of a new environment with the wheel."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    wanted = f"refprotofl[{extra}] @ {wheel.absolute().as_uri()}" if extra else str(wheel)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", wanted], check=True)
    return python


def try_one(wheel: Path, extra: str = "") -> None:
    """Install and use the wheel, in a folder that has nothing of the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        python = install(place / "venv", wheel, extra)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        code = TRY if not extra else f"import refprotofl, {IMPORTS[extra]}"
        subprocess.run([python, "-c", code], cwd=place, env=environment, check=True)
        subprocess.run([python.with_name("refprotofl"), "--version"], cwd=place, env=environment, check=True)
    print(f"{wheel.name}{f'[{extra}]' if extra else ''}: installed and used", flush=True)


def main() -> None:
    wheel = check_contents(Path(sys.argv[1]))
    if "--extras" not in sys.argv[2:]:
        try_one(wheel)
        return
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in extras:
        if extra in IMPORTS:
            try_one(wheel, extra)


if __name__ == "__main__":
    main()
