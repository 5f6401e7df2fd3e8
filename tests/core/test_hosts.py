"""Names and addresses, alone and before a port."""

import pytest

from refprotofl.core.errors import InputError
from refprotofl.core.network import read_host, with_port


@pytest.mark.parametrize(
    ("text", "host", "address"),
    [
        ("server", "server", "server:8443"),
        ("edge-1.example.org", "edge-1.example.org", "edge-1.example.org:8443"),
        ("10.0.0.5", "10.0.0.5", "10.0.0.5:8443"),
        ("2001:db8::5", "2001:db8::5", "[2001:db8::5]:8443"),
        ("[::1]", "::1", "[::1]:8443"),
    ],
)
def test_an_ipv6_address_stands_in_brackets_before_a_port(text: str, host: str, address: str) -> None:
    assert read_host(text, "--host") == host
    assert with_port(host, 8443) == address


@pytest.mark.parametrize(
    "text", ["server:9000", "10.0.0.5:9000", "[::1]:9000", "::1::", "https://server", "fe80::1%eth0"]
)
def test_a_colon_that_is_no_ipv6_address_is_reported(text: str) -> None:
    with pytest.raises(
        InputError, match=r"it has a colon and is no IPv6 address\. Give the name or the address without a port"
    ):
        read_host(text, "--host")


@pytest.mark.parametrize(
    "text", ["", ".", "a..b", "-x", "a b", "$(id)", "10.0.0.256", "10.0.0", "[server]", "x" * 64, "a.b\n"]
)
def test_what_is_neither_name_nor_address_is_reported(text: str) -> None:
    with pytest.raises(InputError, match=r"^--host '.*': it is neither a host name nor an address\.$"):
        read_host(text, "--host")
