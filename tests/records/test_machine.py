"""The origin of a run's numbers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from refprotofl.records import machine
from refprotofl.records.machine import describe_machine, source_commit


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in whose tree the package seems to lie."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    package = tmp_path / "repository" / "package" / "records"
    package.mkdir(parents=True)
    (package / "machine.py").write_text("")
    monkeypatch.setattr(machine, "__file__", str(package / "machine.py"))
    git(tmp_path / "repository", "init", "-q")
    return tmp_path / "repository"


def git(repository: Path, *command: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *command], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_package_and_marks_changes(repository: Path) -> None:
    asked = source_commit.__wrapped__  # it is asked once a process
    (repository / "other").write_text("")
    git(repository, "add", "other")
    git(repository, "commit", "-qm", "another's")
    assert asked() is None  # the package is only installed here
    git(repository, "add", "package")
    git(repository, "commit", "-qm", "ours")
    head = git(repository, "rev-parse", "HEAD")
    assert asked() == head
    (repository / "other").write_text("changed")
    assert asked() == head
    (repository / "package" / "beside.py").write_text("")
    assert asked() == f"{head}+"


def test_a_commit_is_recorded_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "source_commit", lambda: "abc+")
    assert describe_machine()["commit"] == "abc+"
    monkeypatch.setattr(machine, "source_commit", lambda: None)
    assert "commit" not in describe_machine()
