"""Changes bytes towards branches that were not taken yet, with atheris: python fuzz.py message|state SECONDS FOLDER.

A failure is any error but the one that bad input may have, a message that is another when it is sent on, or a gigabyte.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["refprotofl.wire", "refprotofl.records.state_files"]):
    from refprotofl.core.errors import DataError
    from refprotofl.records.state_files import map_state, save_state
    from refprotofl.wire import WireError, decode, encode

from tests.faults.test_damaged_bytes import MESSAGE, STATE

STATE_FILE = Path(tempfile.mkdtemp()) / "state.safetensors"


def message(data: bytes) -> None:
    try:
        found = decode(data)
    except WireError:
        return
    again = encode(found)  # it may be another code of the same indices
    assert encode(decode(again)) == again


def state(data: bytes) -> None:
    STATE_FILE.write_bytes(data)
    try:
        map_state(STATE_FILE)
    except DataError:
        return


def main() -> None:
    what, seconds, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    if what == "message":
        (folder / "whole").write_bytes(encode(MESSAGE))
    else:
        save_state(folder / "whole", STATE, sync=False)
    options = [f"-max_total_time={seconds}", "-rss_limit_mb=1000", "-max_len=4096", "-print_final_stats=1", "-seed=1"]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={folder}/", str(folder)], {"message": message, "state": state}[what]
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
