"""Certificates of a site that expire soon, and their renewal. Keys stay as they are, and so does the authority."""

from dataclasses import dataclass

from refprotofl.deploy import certificates
from refprotofl.deploy.operator import Operator
from refprotofl.deploy.site import BROKER_USER, Site

WARNING = 30.0  # days before the end of a certificate from which commands say so
AHEAD = 60.0  # days before its end from which a certificate is renewed


@dataclass(frozen=True)
class Expiring:
    name: str  # of the file, or of the node
    days: float

    def __str__(self) -> str:
        if self.days < 0:
            return f"{self.name} has expired"
        return f"{self.name} expires in {int(self.days)} {'day' if int(self.days) == 1 else 'days'}"


def expiring(site: Site, operator: Operator, days: float = WARNING) -> list[Expiring]:
    """Return the certificates that end within this many days, the first to end first."""
    if site.keys.insecure:
        return []
    found = [Expiring(name, certificates.days_left(site.server / name)) for name in site.transport.certificates]
    found += [Expiring(name, left) for name, left in operator.certificates().items()]
    return sorted((one for one in found if one.days < days), key=lambda one: (one.days, one.name))


def warning(site: Site, found: list[Expiring]) -> str:
    """Return a sentence on certificates that expire soon; "" if there are none."""
    if not found:
        return ""
    first = ", ".join(map(str, found[:3])) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    if any(one.name == "ca.crt" for one in found):
        return f"{first}. A new authority means a new site and new kits: refprotofl deploy init."
    return f"{first}: refprotofl deploy renew {site.folder}"


def renew(site: Site, operator: Operator, days: float = AHEAD) -> list[str]:
    """Replace the certificates that end within this many days; return the names of files and nodes."""
    ending = [one.name for one in expiring(site, operator, days)]
    if "server.crt" in ending:
        certificates.renew_server(site.server, site.keys.host)
    if "client.crt" in ending:
        certificates.renew_client(site.server, BROKER_USER)
    files = [name for name in ("server.crt", "client.crt") if name in ending]
    nodes = operator.renew([name for name in ending if not name.endswith(".crt")])
    return files + nodes
