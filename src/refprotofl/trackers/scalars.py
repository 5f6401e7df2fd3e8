"""What a run's events are to a tracker: numbers by name and round."""

from collections.abc import Iterator

from refprotofl.records.events import Event
from refprotofl.records.rounds import read_traffic

Scalar = tuple[str, int, float]  # name, round, value


class Scalars:
    """Events in, numbers out; sums run over all rounds that it was shown."""

    def __init__(self) -> None:
        self._sent = {"up": 0, "down": 0, "one_off": 0}
        self._dropped = 0  # in the round that the next event of this name ends

    def of(self, event: Event) -> Iterator[Scalar]:
        number = int(event.get("round", 0))
        if event["event"] == "evaluation":
            for protocol, share in event["accuracy"].items():
                if share is not None:
                    yield f"accuracy/{protocol}", number, share
            if event.get("loss") is not None:
                yield "loss/personal", number, event["loss"]
        elif event["event"] == "round":
            yield from self._round(number, event)
        elif event["event"] == "client-failed":
            self._dropped += 1

    def _round(self, number: int, event: Event) -> Iterator[Scalar]:
        for row in read_traffic(event) if "traffic" in event else ():
            if row["purpose"] != "evaluation":
                self._sent[row["direction"] if row["purpose"] == "training" else "one_off"] += row["payload_bytes"]
        for way, total in self._sent.items():
            yield f"bytes/{way}", number, float(total)
        yield "clients/participants", number, float(len(event.get("participants", [])))
        yield "clients/dropped", number, float(self._dropped)
        self._dropped = 0
        if "seconds" in event:
            yield "seconds/round", number, event["seconds"]
        for name, seconds in event.get("spent", {}).items():
            yield f"seconds/{name}", number, seconds
        masks = event.get("masks")
        if masks is not None:
            if masks["overlap"] is not None:
                yield "masks/overlap", number, masks["overlap"]
            sent = sum(part["sent"] for part in masks["parts"].values()) or 1
            for name, part in masks["parts"].items():
                yield f"masks/share-{name}", number, part["sent"] / sent
