"""Write the data files of this folder's experiments: `python prepare.py SOURCE TARGET`.

SOURCE holds hapt-signals.npz, heart-disease-4-hospitals.csv, sentiment-3-sources.tsv, fsdd-logmel32.npz and
shakespeare-speeches.tsv. Each file in TARGET has the clients that its data come with.
"""

import csv
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

WINDOW, STEP = 128, 64  # samples of a sensor, at 50 Hz
CONTEXT, ROLES, MOST_WINDOWS = 40, 100, 200  # characters; the roles with the most text; windows of a role
RAREST = 20  # windows that a next character has at least; rarer ones are left out, as no public set could hold them
NAMES = {" ": "space", "\n": "line end"}


def prepare_hapt(source: Path, target: Path) -> None:
    """Cut the labelled spans of 30 people into windows; those of a span overlap and stay on one side of a split."""
    file = np.load(source / "hapt-signals.npz")
    signals = (file["signals"] * file["scale"][:, None]).astype(np.float32)  # (6, samples)
    windows, labels, people, spans = [], [], [], []
    for span, (person, _, label, start, length) in enumerate(file["segments"].tolist()):
        for offset in range(0, length - WINDOW + 1, STEP):
            windows.append(signals[:, start + offset : start + offset + WINDOW])
            labels.append(str(file["classes"][label - 1]))
            people.append(f"person {person:02}")
            spans.append(span)
    np.savez(
        target / "hapt.npz", x=np.stack(windows), y=np.array(labels), person=np.array(people), span=np.array(spans)
    )


def prepare_heart(source: Path, target: Path) -> None:
    """Replace the grade 0..4 of the disease by its presence."""
    with (source / "heart-disease-4-hospitals.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (target / "heart.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(name for name in rows[0] if name != "num"), "disease"])
        for row in rows:
            sick = "no" if int(row.pop("num")) == 0 else "yes"
            writer.writerow([*row.values(), sick])


def prepare_sentiment(source: Path, target: Path) -> None:
    """Name the columns."""
    text = (source / "sentiment-3-sources.tsv").read_text(encoding="utf-8")
    (target / "sentiment.tsv").write_text(f"site\tpositive\tsentence\n{text}", encoding="utf-8")


def prepare_spoken_digits(source: Path, target: Path) -> None:
    """Name the speakers; takes 0 to 4 are the official test set."""
    file = np.load(source / "fsdd-logmel32.npz")
    split = np.where(file["take"] < 5, "test", "train")
    speaker = file["speakers"][file["speaker"]]
    np.savez(target / "spoken-digits.npz", x=file["x"], y=file["y"], speaker=speaker, split=split)


def prepare_shakespeare(source: Path, target: Path) -> None:
    """Cut the speeches of the largest roles into windows that do not overlap, each with the character after it."""
    speeches: dict[str, list[str]] = defaultdict(list)
    with (source / "shakespeare-speeches.tsv").open(encoding="utf-8") as file:
        for line in file:
            play, role, speech = line.rstrip("\n").split("\t")
            speeches[f"{role} ({play})"].append(speech.replace("\\n", "\n"))
    texts = {role: "\n".join(parts) for role, parts in speeches.items()}
    largest = sorted(texts, key=lambda role: (-len(texts[role]), role))[:ROLES]
    windows = [
        (texts[role][place : place + CONTEXT], texts[role][place + CONTEXT], role, place)
        for role in largest
        for place in list(range(0, len(texts[role]) - CONTEXT, CONTEXT + 1))[:MOST_WINDOWS]
    ]
    count = Counter(following for _, following, _, _ in windows)
    kept = [(text, NAMES.get(next, next), *rest) for text, next, *rest in windows if count[next] >= RAREST]
    x, y, owners, order = map(np.array, zip(*kept, strict=True))
    np.savez_compressed(target / "shakespeare.npz", x=x, y=y, role=owners, place=order)


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    target.mkdir(parents=True, exist_ok=True)
    for prepare in (prepare_hapt, prepare_heart, prepare_sentiment, prepare_spoken_digits, prepare_shakespeare):
        prepare(source, target)


if __name__ == "__main__":
    main()
