"""Everything here needs the extra mqtt and mosquitto; REFPROTOFL_BROKER=required makes their absence an error."""

import importlib.util
import os

from tests.deployments import apart, exported, settings, undisturbed

__all__ = ["apart", "exported", "settings", "undisturbed"]


def missing() -> str:
    """Return what is missing for these tests."""
    if importlib.util.find_spec("paho") is None:
        return "the extra mqtt is not installed"
    from refprotofl.engines.mqtt.broker import find_mosquitto

    return "" if find_mosquitto() else "mosquitto is not installed (apt install mosquitto)"


if missing():
    if os.environ.get("REFPROTOFL_BROKER") == "required":
        raise RuntimeError(f"REFPROTOFL_BROKER=required, but {missing()}.")
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str:
    return f"Not tried: MQTT with a real broker, as {missing()}." if missing() else "MQTT is tried with mosquitto."
