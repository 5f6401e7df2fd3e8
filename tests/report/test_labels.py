"""Names of a picture's points: inside it, and none upon another."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from refprotofl.report.pictures.labels import Named, name_points


def drawn(points: list[Named]) -> tuple[Figure, dict[str, Annotation]]:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    name_points(figure, axes, points)
    return figure, {one.get_text(): one for one in axes.texts if isinstance(one, Annotation) and one.get_text()}


def test_names_of_points_side_by_side_do_not_meet() -> None:
    points = [Named(5 + 0.1 * number, 5, 4.5, 5.5, f"method number {number}", number == 2) for number in range(4)]
    figure, texts = drawn(points)
    figure.draw_without_rendering()  # as it will be written
    boxes = [text.get_window_extent() for text in texts.values()]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert [name for name, text in texts.items() if text.get_fontweight() == "bold"] == [next(iter(texts))]  # to choose


def test_a_name_that_fits_only_farther_away_is_led_to_its_point() -> None:
    points = [Named(9, 5 + 0.05 * number, 3, 7, f"a method with a long name, {number}") for number in range(6)]
    figure, texts = drawn(points)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in texts.values()]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    far = [text for text in texts.values() if max(map(abs, text.xyann)) > 18]
    lines = [one for one in figure.axes[0].texts if isinstance(one, Annotation) and not one.get_text()]
    assert far
    assert [line.xyann for line in lines] == [text.xyann for text in far]


def test_a_name_at_the_edge_is_inside() -> None:
    figure, texts = drawn([Named(9.8, 9.9, 9.8, 9.99, "a name that is rather long")])
    figure.draw_without_rendering()
    box, axes = texts["a name that is rather long"].get_window_extent(), figure.axes[0].bbox
    assert axes.x0 <= box.x0 < box.x1 <= axes.x1
    assert axes.y0 <= box.y0 < box.y1 <= axes.y1


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=30))
def test_every_point_has_its_name(places: list[tuple[float, float]]) -> None:
    """Also in a crowded picture."""
    points = [Named(x, y, y, y, f"point {number}") for number, (x, y) in enumerate(places)]
    assert drawn(points)[1].keys() == {one.name for one in points}
