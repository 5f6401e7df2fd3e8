"""A site's certificates, and the messages about their dates."""

from pathlib import Path

import pytest
from cryptography import x509
from tests.flower.breaking import shift_clock

from refprotofl.deploy.certificates import DAYS, validity_problem, write_certificates


def test_certificates_are_valid_for_the_host_and_loopback_as_long_as_they_say(tmp_path: Path) -> None:
    write_certificates(tmp_path, "server.example")
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert (server.not_valid_after_utc - server.not_valid_before_utc).days == DAYS
    assert [validity_problem(tmp_path / name) for name in ("ca.crt", "server.crt")] == ["", ""]


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (-DAYS - 1, "server.crt expired on "),
        (-DAYS + 1, ""),
        (1, "server.crt is not valid before "),
        (0.04, ""),  # the hour for clocks that are behind
    ],
)
def test_dates_are_judged_by_this_machines_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, words: str
) -> None:
    shift_clock(monkeypatch, days)
    write_certificates(tmp_path, "127.0.0.1")
    monkeypatch.undo()
    problem = validity_problem(tmp_path / "server.crt")
    assert problem.startswith(words)
    assert bool(problem) == bool(words)


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----"])
def test_what_is_no_certificate_is_reported(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    assert validity_problem(path).startswith(f"{path} cannot be read as a certificate: make a new site")
