"""A row of a comparison as plain values: nested for programs, flat for spreadsheets."""

from collections.abc import Sequence
from typing import Any

from refprotofl.report.comparison import Difference, OverSeeds


def nested(row: OverSeeds, headline: str) -> dict[str, Any]:
    """By name; `headline` is the protocol that the table is read by."""
    accuracy = {
        protocol: {"mean": found.mean, "half_width": found.half_width, "values": row.values[protocol]}
        for protocol, found in row.accuracy.items()
    }
    last = {
        protocol: {"mean": found.mean, "half_width": found.half_width, "evaluations": row.evaluations}
        for protocol, found in row.last.items()
    }
    return {
        "name": row.name,
        "asked": row.asked or row.name,
        "share": row.share,
        "accuracy": accuracy,
        "worst": row.worst,
        "client_spread": row.client_spread,
        "last": last,
        "bytes": row.bytes,
        "against": _against(row, headline),
        "local_epochs": row.local_epochs,
        "steps": row.steps,
        "seconds": row.seconds,
        "privacy": row.privacy,
        "facts": row.facts,
        "notes": list(row.notes),
        "runs": list(row.runs),
    }


def _against(row: OverSeeds, headline: str) -> dict[str, Any] | None:
    """The headline's difference, and all of them by protocol."""
    if row.against is None:
        return None
    found = row.against.differences
    return {
        "baseline": row.against.baseline,
        "protocol": headline,
        **_difference(found.get(headline)),
        "by_protocol": {name: _difference(one) for name, one in found.items()},
    }


def _difference(found: Difference | None) -> dict[str, Any]:
    if found is None:
        return {"mean": None, "half_width": None, "p": None, "p_holm": None, "seeds": 0, "within_noise": None}
    pair = found.paired
    return {
        "mean": pair.mean,
        "half_width": pair.half_width,
        "p": pair.p,
        "p_holm": found.p_holm,
        "seeds": pair.count,
        "within_noise": pair.within_noise,
    }


def flat(row: OverSeeds, protocols: Sequence[str]) -> dict[str, object]:
    """By column; every row has the same ones."""
    line: dict[str, object] = {"method": row.name, "share": row.share, "seeds": len(row.runs)}
    for protocol in protocols:
        line |= _flat_accuracy(row, protocol)
    line |= {"baseline": row.against.baseline if row.against else None, "last_evaluations": row.evaluations}
    line |= {f"{key}_bytes": sent for key, sent in row.bytes.items()}
    line |= {"epsilon": row.privacy and row.privacy["epsilon"], "privacy_unit": row.privacy and row.privacy["unit"]}
    return {**line, "local_epochs": row.local_epochs, "steps": row.steps, "seconds": row.seconds}


def _flat_accuracy(row: OverSeeds, protocol: str) -> dict[str, object]:
    found, last = row.accuracy.get(protocol), row.last.get(protocol)
    against = _difference(row.against.differences.get(protocol) if row.against else None)
    return {
        protocol: found and found.mean,
        f"{protocol}_half_width": found and found.half_width,
        f"{protocol}_difference": against["mean"],
        f"{protocol}_difference_half_width": against["half_width"],
        f"{protocol}_p": against["p"],
        f"{protocol}_p_holm": against["p_holm"],
        f"{protocol}_worst": row.worst.get(protocol),
        f"{protocol}_client_spread": row.client_spread.get(protocol),
        f"{protocol}_last": last and last.mean,
        f"{protocol}_last_half_width": last and last.half_width,
    }
