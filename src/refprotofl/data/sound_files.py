"""Sound files as log-mel pictures: 32 mel bands by 32 frames, in 8 bits.

The middle 1.024 s at 8 kHz is kept, shorter sounds are padded with silence. Frames of 256 samples under a Hann window
do not overlap; bands lie between 60 and 3,900 Hz; log(1e-6 + power) from silence to full scale is mapped to 0..255.
"""

import importlib
import math
import wave
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, InputError

WAVE = ".wav"
SUFFIXES = (WAVE, ".flac", ".ogg", ".mp3")
RATE, SAMPLES, FRAME, BANDS = 8000, 8192, 256, 32
LOW_HZ, HIGH_HZ = 60.0, 3900.0
FLOOR = 1e-6
LOW, HIGH = math.log(FLOOR), math.log(256.0)  # a full-scale tone has a power below FRAME
LONGEST = 600.0  # seconds

Sound = NDArray[np.float64]  # (samples,), from -1 to 1


def is_sound(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def read_sounds(files: Sequence[Path]) -> NDArray[np.uint8]:
    """Read sounds as pictures (N, bands, frames)."""
    pictures = np.empty((len(files), BANDS, SAMPLES // FRAME), np.uint8)
    for number, file in enumerate(files):
        pictures[number] = log_mel(*_read(file))
    return pictures


def log_mel(sound: Sound, rate: int) -> NDArray[np.uint8]:
    """Return the picture (bands, frames) of a sound, low bands first."""
    frames = _middle(_resampled(sound, rate)).reshape(-1, FRAME) * np.hanning(FRAME)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2 / FRAME  # (frames, FRAME / 2 + 1)
    levels = np.log(FLOOR + power @ _bands().T)  # (frames, bands)
    return np.clip(np.rint(255 * (levels.T - LOW) / (HIGH - LOW)), 0, 255).astype(np.uint8)


def _resampled(sound: Sound, rate: int) -> Sound:
    if rate == RATE:
        return sound
    from scipy.signal import resample_poly

    common = math.gcd(rate, RATE)
    return np.asarray(resample_poly(sound, RATE // common, rate // common))


def _middle(sound: Sound) -> Sound:
    """Return the middle of a sound, padded with silence on both sides if it is shorter."""
    if len(sound) >= SAMPLES:
        start = (len(sound) - SAMPLES) // 2
        return sound[start : start + SAMPLES]
    before = (SAMPLES - len(sound)) // 2
    return np.pad(sound, (before, SAMPLES - len(sound) - before))


@cache
def _bands() -> NDArray[np.float64]:
    """Return triangular filters (bands, FRAME / 2 + 1), equally spaced in mel."""
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (LOW_HZ, HIGH_HZ))
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    hertz = np.fft.rfftfreq(FRAME, 1 / RATE)
    rising = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    filters = np.maximum(0, np.minimum(rising, falling))
    # A narrow band between two frequencies of the transform takes the nearest one.
    for number in np.flatnonzero(filters.sum(axis=1) == 0):
        filters[number, np.abs(hertz - edges[number + 1]).argmin()] = 1
    return filters


def _read(file: Path) -> tuple[Sound, int]:
    """Return the mean of a file's channels, and its rate."""
    sound, rate = _read_wave(file) if file.suffix.lower() == WAVE else _read_other(file)
    if not len(sound):
        raise DataError(f"{file} holds no sound: remove it.")
    return sound.mean(axis=1), rate


def _read_wave(file: Path) -> tuple[Sound, int]:
    try:
        with wave.open(str(file), "rb") as opened:
            width, channels, rate = opened.getsampwidth(), opened.getnchannels(), opened.getframerate()
            if opened.getnframes() > LONGEST * rate:
                raise DataError(f"{file} is longer than {LONGEST:g} s: cut it into parts.")
            data = opened.readframes(opened.getnframes())
    except (wave.Error, EOFError, OSError, ZeroDivisionError) as problem:
        raise DataError(f"{file} cannot be read as a WAV file of whole numbers ({problem}): convert it.") from None
    return _as_numbers(data, width).reshape(-1, channels), rate


def _as_numbers(data: bytes, width: int) -> Sound:
    """Return samples of 1 to 4 bytes as numbers from -1 to 1."""
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128
    padded = np.zeros((len(data) // width, 4), np.uint8)
    padded[:, 4 - width :] = np.frombuffer(data, np.uint8)[: len(data) // width * width].reshape(-1, width)
    return padded.view("<i4")[:, 0] / 2.0**31


def _read_other(file: Path) -> tuple[Sound, int]:
    try:
        soundfile = importlib.import_module("soundfile")
    except (ModuleNotFoundError, OSError):  # an OSError: the library below it is not there
        raise InputError(
            f"{file} needs the package soundfile: install it with pip install 'refprotofl[audio]', or convert the "
            "sounds to WAV, which needs nothing."
        ) from None
    try:
        if soundfile.info(str(file)).duration > LONGEST:
            raise DataError(f"{file} is longer than {LONGEST:g} s: cut it into parts.")
        sound, rate = soundfile.read(str(file), always_2d=True)
    except RuntimeError as problem:
        raise DataError(f"{file} cannot be read as a sound ({problem}): convert it to WAV.") from None
    return np.asarray(sound, np.float64), int(rate)
