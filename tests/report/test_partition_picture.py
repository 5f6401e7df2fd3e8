import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import find_objects, label

from refprotofl.core.errors import InputError
from refprotofl.data import federate, load_dataset
from refprotofl.experiment import Experiment
from refprotofl.report.pictures.partition import Panel, draw_partition, draw_partitions, partition_panel, round_down

COUNTS = np.array([[30, 0, 5], [0, 12, 1]])
NAMES = ("cat", "dog", "a very long name of a class")


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_the_suffix_decides_and_the_same_counts_give_the_same_file(tmp_path, suffix, start):
    files = [tmp_path / "new" / f"{number}{suffix}" for number in range(2)]
    for file in files:
        assert draw_partition(COUNTS, NAMES, file, "toy") == f"{file}: 2 clients by 3 classes."
    assert files[0].read_bytes().startswith(start)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_bubble_areas_are_in_proportion_to_samples(tmp_path):
    """Measured in the picture: the blue area of one bubble against that of another."""

    def blue(count):
        counts = np.zeros((10, 10), int)
        counts[0, 0] = 1000  # sets the scale
        counts[5, 5] = count
        draw_partition(counts, NAMES * 4, tmp_path / "picture.png")
        pixels = np.asarray(Image.open(tmp_path / "picture.png").convert("RGB")).astype(int)
        return int(((pixels[..., 2] - pixels[..., 0]) > 40).sum())

    nothing = blue(0)
    areas = [blue(count) - nothing for count in (250, 500, 1000)]
    assert all(larger / smaller == pytest.approx(2, rel=0.06) for smaller, larger in pairwise(areas))


@pytest.mark.parametrize("shape", [(51, 3), (2, 101), (300, 120)])
def test_too_many_for_bubbles_says_so(tmp_path, shape):
    note = draw_partition(np.ones(shape, int), [str(n) for n in range(shape[1])], tmp_path / "p.png")
    assert f"a heat map, because {shape[0]} clients by {shape[1]} classes are too many" in note


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.png, \.pdf, \.svg"):
        draw_partition(COUNTS, NAMES, tmp_path / "picture.gif")


def test_round_numbers():
    assert [round_down(count) for count in (1, 9, 10, 37, 3950)] == [1, 9, 10, 30, 3000]


def test_drawing_leaves_pyplot_alone(tmp_path):
    code = (
        "import sys, pathlib, numpy; from refprotofl.report.pictures import partition as pictures;"
        f"pictures.draw_partition(numpy.ones((2, 2), int), 'ab', pathlib.Path({str(tmp_path / 'p.png')!r}));"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize("title", ["/a/long/path" * 30, "$\\frac$", "[red]\x1b[31m\n"])
def test_any_title_and_class_name_can_be_drawn(tmp_path, title):
    assert "2 clients" in draw_partition(COUNTS, (title, "$x", "a\nb"), tmp_path / "picture.png", title)


def blue_areas(picture):
    """Return the pixels of each blue patch, from left to right."""
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    patches, _ = label((pixels[..., 2] - pixels[..., 0]) > 40)
    left_first = sorted(find_objects(patches), key=lambda place: place[1].start)
    return [int((patches[place] > 0).sum()) for place in left_first]


def test_panels_share_one_scale_and_one_legend(tmp_path):
    """Equal counts have equal bubbles in all panels, although one panel's largest count is four times the other's."""
    left, right = np.zeros((4, 4), int), np.zeros((6, 4), int)
    left[1, 1], right[2, 2], right[4, 0] = 250, 1000, 250
    note = draw_partitions([Panel(left, "abcd", "left"), Panel(right, "abcd", "right")], tmp_path / "p.png")
    assert note == f"{tmp_path / 'p.png'}: 4 clients and 6 clients by 4 classes."
    in_left, large, in_right, *legend = blue_areas(tmp_path / "p.png")
    assert in_left == pytest.approx(in_right, rel=0.03)
    assert large == pytest.approx(4 * in_left, rel=0.03)
    assert sorted(legend)[1:] == pytest.approx([0.2 * large, large], rel=0.05)  # 200 and 1,000; 60 is the smallest


def test_panels_of_other_classes_are_refused(tmp_path):
    with pytest.raises(InputError, match="same classes"):
        draw_partitions([Panel(COUNTS, NAMES), Panel(COUNTS, NAMES[::-1])], tmp_path / "p.png")


def test_a_panel_shows_what_a_run_would_deal_out():
    experiment = Experiment.parse({"dataset": "digits", "clients": 4, "alpha": 100.0, "public": {"per-class": 5}})
    panel = partition_panel(experiment)
    assert panel.title == "alpha = 100"
    assert np.array_equal(panel.counts, federate(experiment, load_dataset("digits")).class_counts())
    assert partition_panel(Experiment.parse({"dataset": "digits", "clients": 2, "partition": "iid"})).title == "iid"
