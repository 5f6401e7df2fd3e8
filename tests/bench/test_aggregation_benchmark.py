"""The replayed uploads pass through the real server."""

import pytest
import torch

from refprotofl.bench.aggregation import dense_mean, make_server, make_uploads, measure_aggregation, serve
from refprotofl.core.errors import InputError


def test_the_servers_round_gives_what_dense_arithmetic_gives() -> None:
    size, clients = 700, 9
    uploads = make_uploads(size, 0.1, 4)
    server = make_server(clients, size, 0.1)
    serve(server, uploads)
    total, weights = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for client in range(clients):  # clients beyond the fourth send the first ones' uploads over again
        upload, weight = uploads[client % 4], client % 7 + 1
        total += weight * upload.values * upload.mask
        weights += weight * upload.mask
    expected = torch.where(weights > 0, total / weights.clamp(min=1), 0.0)
    assert torch.allclose(server.adapter, expected.to(torch.float32), rtol=1e-6, atol=0)
    assert 0 < int((server.adapter != 0).sum()) < size


def test_uploads_differ_and_send_the_share() -> None:
    one, other = make_uploads(1000, 0.05, 2)
    assert int(one.mask.sum()) == int(other.mask.sum()) == 50
    assert not torch.equal(one.mask, other.mask)


def test_the_yardstick_is_the_mean() -> None:
    uploads = make_uploads(30, 0.5, 2)
    expected = (2 * uploads[0].values + uploads[1].values) / 3
    assert torch.allclose(dense_mean(uploads, 3), expected)


def test_a_row_for_the_server_and_for_each_yardstick() -> None:
    report = measure_aggregation(count=3, size=200, keep=0.1, repeats=1)
    assert [row["work"] for row in report.rows] == [
        "server's round",
        "its checks",
        "decoding alone",
        "dense mean",
    ]
    assert report.rows[3]["times_the_dense_mean"] == 1
    assert "3 uploads" in report.notes[0]


def test_an_adapter_too_small_to_exist_is_refused() -> None:
    with pytest.raises(InputError, match="22 parameters"):
        make_server(1, 21, 0.1)
