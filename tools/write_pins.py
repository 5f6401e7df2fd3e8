"""Write tests/pins/pins.json with the digests of both makers of CPUs, Intel and AMD, on a machine of either.

    python tools/write_pins.py [ARGUMENT OF PYTEST]...

MKL chooses its kernels by the CPU's maker. A small shared library, loaded before torch, answers MKL's question for the
other one. Needs a C compiler, Linux on x86-64, and the environment that `make setup` makes. Each change in pins.json
belongs into CHANGELOG.md.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDINGS = {"Intel": "db810ab1c2a1", "AMD": "d399aa30487c"}
PREFER = "int mkl_serv_intel_cpu(void){{return {0};}} int mkl_serv_intel_cpu_true(void){{return {0};}}"


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        for maker in ROUNDINGS:
            environment = os.environ | {"LD_PRELOAD": str(_library(Path(folder), maker))}
            _check_rounding(maker, environment)
            command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses=0", "tests/pins", *sys.argv[1:]]
            print(f"{maker}:", flush=True)
            subprocess.run(command, cwd=root, env=environment | {"REFPROTOFL_WRITE_PINS": "1"}, check=True)


def _library(folder: Path, maker: str) -> Path:
    """Compile the library that tells MKL who made the CPU."""
    source, library = folder / f"{maker}.c", folder / f"{maker}.so"
    source.write_text(PREFER.format(int(maker == "Intel")))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def _check_rounding(maker: str, environment: dict[str, str]) -> None:
    """Exit if this release of MKL no longer asks the function that the library replaces."""
    program = "from refprotofl.core import numerics; numerics.apply('portable'); print(numerics.rounding())"
    shown = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    if shown.stdout.strip() != ROUNDINGS[maker]:
        sys.exit(f"{maker} rounds as {ROUNDINGS[maker]}, not as {shown.stdout.strip()}: this torch asks another way")


if __name__ == "__main__":
    main()
