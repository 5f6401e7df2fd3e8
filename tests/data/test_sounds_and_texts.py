"""Folders of sounds and texts, and columns of the hub that are not images."""

import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import load_dataset
from refprotofl.data.huggingface import dataset_from_splits
from refprotofl.data.labelled_samples import load_labelled
from refprotofl.data.reading import Reading, Roles
from refprotofl.data.sound_files import BANDS, FRAME, RATE, SAMPLES, log_mel, read_sounds


def tone(hertz: float, seconds: float = 1.0, rate: int = RATE) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)


def save(path: Path, sound: np.ndarray, rate: int = RATE, width: int = 2, channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = np.repeat(np.rint(sound * (2.0 ** (8 * width - 1) - 1)).astype(np.int64), channels)
    shifted = whole + 128 if width == 1 else whole  # 8 bits have no sign
    data = shifted.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


def test_silence_is_black_and_a_tone_is_in_its_band() -> None:
    assert (log_mel(np.zeros(SAMPLES), RATE) == 0).all()
    rows = [int(log_mel(tone(hertz), RATE).astype(int).sum(axis=1).argmax()) for hertz in (200, 800, 3000)]
    assert rows == sorted(rows)
    assert len(set(rows)) == 3
    assert log_mel(tone(800), RATE).shape == (BANDS, SAMPLES // FRAME)


def test_a_short_sound_is_in_the_middle() -> None:
    picture = log_mel(tone(800, 0.256), RATE)  # a quarter: frames 12 to 19
    assert (picture[:, :11] == 0).all()
    assert (picture[:, 21:] == 0).all()
    assert picture[:, 13:19].max(axis=0).min() > 100


@pytest.mark.parametrize(
    ("rate", "width", "channels"), [(RATE, 1, 1), (RATE, 2, 2), (RATE, 3, 1), (RATE, 4, 1), (16_000, 2, 1)]
)
def test_rates_widths_and_channels_make_the_same_picture(tmp_path: Path, rate: int, width: int, channels: int) -> None:
    expected = log_mel(tone(800), RATE).astype(int)
    found = read_sounds([save(tmp_path / "a.wav", tone(800, rate=rate), rate, width, channels)])[0].astype(int)
    loud = expected > 150
    assert abs(found - expected)[loud].max() <= 4


def test_a_folder_of_sounds_of_speakers(tmp_path: Path) -> None:
    for speaker, pitch in (("ann", 1.0), ("bob", 1.2)):
        for name, hertz in (("high", 2000), ("low", 300)):
            for number in range(6):
                save(tmp_path / "in" / speaker / name / f"{number}.wav", tone(hertz * pitch + number, 0.3))
    data = load_dataset(str(tmp_path / "in"), reading=Reading(natural=True))
    assert (data.kind, data.shape) == ("image", (1, BANDS, SAMPLES // FRAME))
    assert data.client_names == ("ann", "bob")
    assert data.class_names == ("high", "low")
    assert len(data.test_labels) == 4
    one = load_labelled(str(tmp_path / "in" / "ann"), "data-path", None, Reading())
    assert one.shape == (1, 32, 32)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.wav", b"RIFF", "cannot be read as a WAV file"),
        ("a.flac", b"fLaC", r"needs the package soundfile: install it with pip install 'refprotofl\[audio\]'"),
    ],
)
def test_sounds_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, complaint: str
) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, InputError), match=complaint):
        read_sounds([tmp_path / name])


def test_a_silent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.wav holds no sound"):
        read_sounds([save(tmp_path / "a.wav", np.zeros(0))])


def fill(folder: Path, texts: dict[str, list[str]]) -> None:
    for place, contents in texts.items():
        (folder / place).mkdir(parents=True)
        for number, text in enumerate(contents):
            (folder / place / f"{number}.txt").write_text(text)


def test_a_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "README.txt").write_text("not a sample")
    fill(tmp_path, {"glad": [f"good {number}" for number in range(5)], "sad": [f"bad {number}" for number in range(5)]})
    data = load_dataset(str(tmp_path))
    assert data.kind == "tokens"
    assert data.class_names == ("glad", "sad")
    assert (len(data.train_labels), len(data.test_labels)) == (8, 2)
    (tmp_path / "sad" / "9.txt").write_text("  \n")
    with pytest.raises(DataError, match=r"9\.txt is an empty text: remove it or fill it in"):
        load_dataset(str(tmp_path))
    (tmp_path / "sad" / "9.txt").write_bytes("schön".encode("latin-1"))
    with pytest.raises(DataError, match=r"9\.txt is not UTF-8"):
        load_dataset(str(tmp_path))


def test_columns_of_the_hub() -> None:
    datasets = pytest.importorskip("datasets")
    rows = 40
    columns = {
        "site": [("a", "b")[row % 2] for row in range(rows)],
        "age": [float(row) for row in range(rows)],
        "pulse": [row % 5 for row in range(rows)],
        "sick": [row % 2 for row in range(rows)],
        "said": [f"word {row}" for row in range(rows)],
    }
    splits = {"train": datasets.Dataset.from_dict(columns)}
    roles = Roles(label="sick", client="site")
    data = dataset_from_splits(splits, "hf:own", 0, Reading(natural=True, roles=roles))
    assert (data.kind, data.feature_names, data.client_names) == ("vector", ("age", "pulse"), ("a", "b"))
    assert (len(data.train_labels), len(data.test_labels)) == (32, 8)
    texts = dataset_from_splits(splits, "hf:own", 0, Reading(roles=Roles(label="sick", text="said")))
    assert texts.kind == "tokens"
    with pytest.raises(InputError, match="hf:own has no column 'hospital'; its columns: site, age"):
        dataset_from_splits(splits, "hf:own", 0, Reading(roles=Roles(label="sick", client="hospital")))
