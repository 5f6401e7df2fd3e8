"""The app as Flower packs it, and as its Hub would show it."""

import importlib
import importlib.metadata
import io
import tomllib
import warnings
import zipfile
from typing import Any

import pytest
from flwr.cli.build import build_fab_from_files
from flwr.cli.utils import collect_files
from flwr.common.config import get_app_presentation_metadata, get_fab_config
from packaging.requirements import Requirement
from tests.flower.loopback import ROOT

from refprotofl.deploy.run_config import KEYS
from refprotofl.engines.flower.bundle import CONTENTS, build_bundle, components
from refprotofl.engines.flower.internals import code_in

SMALL = 50_000  # bytes: every node is handed it with every run


@pytest.fixture(scope="module")
def built() -> tuple[bytes, Any]:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of what Flower imports
        bundle, metadata = build_fab_from_files(collect_files(ROOT))
    return bundle, metadata


@pytest.fixture(scope="module")
def bundle(built: tuple[bytes, Any]) -> bytes:
    return built[0]


def test_it_says_for_which_flower_it_is_and_under_which_licence(built: tuple[bytes, Any]) -> None:
    bundle, metadata = built
    assert metadata.fab_format_version == 1
    assert metadata.flwr_version_min == "1.41"
    assert metadata.flwr_version_target == "1.41.0"
    with zipfile.ZipFile(io.BytesIO(bundle)) as packed:
        assert b"Apache License" in packed.read("LICENSE")


def test_it_shows_a_name_and_a_description(bundle: bytes) -> None:
    shown = get_app_presentation_metadata(get_fab_config(bundle))
    assert shown.display_name == "RefProtoFL"
    assert shown.description is not None
    assert shown.description.startswith("Federated learning over thin links")
    assert len(shown.description) <= 200  # more is cut short


@pytest.mark.parametrize("own", [True, False], ids=["of-deploy-run", "of-flwr-run"])
def test_it_is_small_and_has_no_code(bundle: bytes, own: bool) -> None:
    """Code in it would not be what runs: both sides import the package that is installed."""
    packed = build_bundle() if own else bundle
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert set(archive.namelist()) <= set(CONTENTS)
    assert code_in(packed) == ""
    assert len(packed) < SMALL


def test_its_two_apps_are_found_in_the_package(bundle: bytes) -> None:
    assert get_fab_config(bundle)["tool"]["flwr"]["app"]["components"] == components()
    for place in components().values():
        module, _, name = place.partition(":")
        assert hasattr(importlib.import_module(module), name)


def test_its_run_config_has_the_five_keys(bundle: bytes) -> None:
    """Flower refuses a key that an app does not declare."""
    declared = get_fab_config(bundle)["tool"]["flwr"]["app"]["config"]
    assert declared == {**dict.fromkeys(KEYS, ""), "preset": "quick"}
    assert get_fab_config(build_bundle())["tool"]["flwr"]["app"]["config"] == dict.fromkeys(KEYS, "")


def test_flower_is_installed_with_its_extra_alone() -> None:
    """It is among the dependencies because Flower's build looks for it only there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (flower,) = [one for one in map(Requirement, project["dependencies"]) if one.name == "flwr"]
    assert flower.marker is not None
    assert [flower.marker.evaluate({"extra": extra}) for extra in ("", "test", "flower")] == [False, False, True]
    assert "flower" in project["optional-dependencies"]
    assert flower.specifier.contains(importlib.metadata.version("flwr"))
