"""Certificates are replaced before they end: those of the server and those of nodes; old ones are revoked as well."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from refprotofl.deploy import certificates, renewal
from refprotofl.deploy.kits import REQUEST, load_key, write_kits, write_request
from refprotofl.deploy.operator import admit, revoke
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.engines.mqtt import identities
from refprotofl.engines.mqtt.control import MqttOperator
from refprotofl.engines.mqtt.node_process import install


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = create_site(
        tmp_path / "site", SiteKeys(host="127.0.0.1", port=8883, operator_port=8884, nodes=2, transport="mqtt")
    )
    write_kits(site)
    return site


@pytest.fixture
def operator(site: Site) -> MqttOperator:
    """The operator, with both nodes admitted."""
    operator = MqttOperator(site)
    for number in range(2):
        kit = site.kit(number)
        write_request(kit, load_key(kit, f"node-{number}"), f"node-{number}")
        admit(site, operator, f"node-{number}", kit / REQUEST)
    return operator


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_new_site_has_nothing_to_renew(site: Site, operator: MqttOperator) -> None:
    assert renewal.expiring(site, operator) == []
    assert renewal.warning(site, []) == ""
    assert renewal.renew(site, operator) == []


def test_what_ends_soon_is_named_and_renewed_for_the_same_keys(
    site: Site, operator: MqttOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "NODE_DAYS", 20)
    monkeypatch.setattr(certificates, "DAYS", 10)
    identities.renew(site, ["node-1"])
    certificates.renew_server(site.server, "127.0.0.1")
    monkeypatch.undo()
    before = {name: read(site.server / name) for name in ("server.crt", "client.crt")}
    found = renewal.expiring(site, operator)
    assert [one.name for one in found] == ["server.crt", "node-1"]
    assert renewal.warning(site, found) == (
        f"server.crt expires in 9 days, node-1 expires in 19 days: refprotofl deploy renew {site.folder}"
    )
    assert renewal.renew(site, operator) == ["server.crt", "node-1"]
    after = {name: read(site.server / name) for name in before}
    assert after["client.crt"] == before["client.crt"]
    assert after["server.crt"].public_key() == before["server.crt"].public_key()
    assert after["server.crt"].not_valid_after_utc - before["server.crt"].not_valid_after_utc > timedelta(days=700)
    assert renewal.expiring(site, operator) == []


def test_the_authority_outlives_what_it_signs(site: Site) -> None:
    assert certificates.days_left(site.server / "ca.crt") > 5 * 365 + certificates.DAYS
    assert "a new site and new kits" in renewal.warning(site, [renewal.Expiring("ca.crt", 3.0)])


def test_a_node_takes_a_newer_certificate_for_its_key_and_no_other(
    site: Site, operator: MqttOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, other = site.kit(0), site.kit(1)
    old = (kit / "node.crt").read_bytes()
    monkeypatch.setattr(certificates, "NODE_DAYS", 400)
    identities.renew(site, ["node-0", "node-1"])
    new = dict(zip(("node-0", "node-1"), sorted_by_node(site), strict=True))
    public = identities._details(old)[1]
    (kit / "node.crt").write_bytes(old)  # as on a device, which has not got the new one
    assert not install(kit, (other / "node.crt").read_bytes(), public)
    assert not install(kit, b"-----BEGIN CERTIFICATE-----", public)
    assert install(kit, new["node-0"], public)
    assert not install(kit, old, public)  # an older one does not come back
    assert (kit / "node.crt").read_bytes() == new["node-0"]


def sorted_by_node(site: Site) -> list[bytes]:
    return sorted(identities.issued_certificates(site).values(), key=lambda one: identities._details(one)[0])


def test_all_certificates_of_a_revoked_node_are_revoked(
    site: Site, operator: MqttOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(site.kit(0) / "node.crt").serial_number
    identities.renew(site, ["node-0"])
    second = read(site.kit(0) / "node.crt").serial_number
    revoke(site, operator, "node-0")
    revoked = x509.load_pem_x509_crl((site.server / "revoked.pem").read_bytes())
    assert {one.serial_number for one in revoked} == {first, second}
    assert len(identities.revoked_nodes(site)) == 1
    assert operator.certificates().keys() == {"node-1"}
