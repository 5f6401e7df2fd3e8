"""Links by name and by number, and how long a round takes over them."""

import pytest

from refprotofl.core.errors import InputError
from refprotofl.core.network import PROFILES, Link, read_links
from refprotofl.report.page.checked_events import Posting, round_seconds


def row(client: int, phase: str, direction: str, size: int, purpose: str = "training") -> Posting:
    return {"client": client, "phase": phase, "direction": direction, "payload_bytes": size, "purpose": purpose}  # type: ignore[typeddict-item]


def test_a_link_is_read_by_its_numbers() -> None:
    links = read_links("up=1Mbit/s, down=5 Mbit/s, latency=50ms")
    assert links.common == Link(1e6, 5e6, 0.05)
    assert links.of(7) == links.common
    assert read_links("up=10kB/s,down=1Gbps").common == Link(80e3, 1e9, 0.0)


@pytest.mark.parametrize("name", ["lte", "lora", "nb-iot", "wifi"])
def test_profiles_have_names(name: str) -> None:
    assert read_links(name).common == PROFILES[name]


def test_clients_may_have_their_own() -> None:
    links = read_links("wifi; 3:lora ;4:up=1kbit/s,down=2kbit/s")
    assert links.of(0) == PROFILES["wifi"]
    assert links.of(3) == PROFILES["lora"]
    assert links.of(4) == Link(1e3, 2e3, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "5g",
            "3:lte",
            "lte;wifi",
            "up=1Mbit/s",
            "up=0bit/s,down=1bit/s",
            "up=1,down=1",
            "up=-1bit/s,down=1bit/s",
        ),
        *("up=1bit/s,down=1bit/s,latency=1", "up=1bit/s,down=1bit/s,speed=3", "up=nanbit/s,down=1bit/s"),
        *(f"wifi;{'9' * 5000}:lte", "wifi;٣:lte", f"up={'9' * 400}bit/s,down=1bit/s"),
    ],
)
def test_what_is_no_link_is_an_error_message(text: str) -> None:
    with pytest.raises(InputError, match="--link"):
        read_links(text)


def test_a_round_by_hand() -> None:
    """Two barriers; in the first client 0 is the slowest, in the second client 1, which computes longer."""
    traffic = [
        *(row(0, "prototypes", "down", 1000), row(0, "prototypes", "up", 500)),
        *(row(1, "prototypes", "down", 100), row(1, "prototypes", "up", 50)),
        *(row(0, "train", "down", 100), row(0, "train", "up", 50)),
        *(row(1, "train", "down", 100), row(1, "train", "up", 50)),
        row(1, "evaluate", "up", 10**9, "evaluation"),
    ]
    links = read_links("up=1kbit/s,down=2kbit/s,latency=100ms")
    # 0.1 + 8 * 1000 / 2000 + 0.1 + 8 * 500 / 1000 = 8.2; then 0.1 + 0.4 + 0.1 + 0.4, and
    # three quarters of twice 2 s, as two workers computed at once; and what the server did.
    spent = {"prototypes": 0.0, "train": 2.0, "server": 0.25}
    assert round_seconds(traffic, spent, links, workers=2, samples=[1, 3]) == pytest.approx(8.2 + 1.0 + 3.0 + 0.25)


def test_the_slowest_link_counts() -> None:
    traffic = [row(client, "train", "up", 1000) for client in range(3)]
    assert round_seconds(traffic, {}, read_links("up=8kbit/s,down=8kbit/s")) == pytest.approx(1.0)
    assert round_seconds(traffic, {}, read_links("up=8kbit/s,down=8kbit/s;2:up=1kbit/s,down=1kbit/s")) == pytest.approx(
        8
    )


def test_what_does_not_cross_takes_no_time() -> None:
    assert round_seconds([], {}, read_links("lora")) == 0
    assert Link(1.0, 1.0, 5.0).seconds(0, 0) == 0
