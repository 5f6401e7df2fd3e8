"""Statistics of the masks that the server received."""

import json

import torch

from refprotofl.methods.builtin.refprotofl.masked import Masks


def places(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def test_shares_overlap_and_ages_of_two_rounds_by_hand() -> None:
    masks = Masks({"feature": 4, "head": 2})
    masks.begin(1)
    masks.take(places(0, 1))
    masks.take(places(1, 4))
    masks.begin(2)
    masks.take(places(0, 4))
    masks.take(places(4, 5))
    statistics = masks.summary()
    assert statistics["clients"] == 2
    assert statistics["overlap"] == 0.5  # one of the two coordinates that each sent was sent by the other, too
    feature, head = statistics["parts"]["feature"], statistics["parts"]["head"]
    assert (feature["size"], feature["sent"], feature["by_anyone"]) == (4, 1, 1)
    assert (head["size"], head["sent"], head["by_anyone"]) == (2, 3, 2)
    assert feature["unsent"] == [1, 1, 0, 0, 0, 0, 0, 0]  # 0 was sent now, 1 a round ago
    assert feature["never"] == 2
    assert (head["unsent"][0], head["never"]) == (2, 0)


def test_an_age_belongs_to_the_class_that_begins_at_or_below_it() -> None:
    masks = Masks({"head": 8})
    for number, round in enumerate((1, 37, 61, 63, 64, 65)):
        masks.begin(round)
        masks.take(places(number))
    masks.begin(65)
    masks.take(places(7))
    statistics = masks.summary()
    # Ages 64, 28, 4, 2, 1, 0 and 0; number 6 was never sent.
    assert dict(zip(statistics["ages"], statistics["parts"]["head"]["unsent"], strict=True)) == {
        **{0: 2, 1: 1, 2: 1, 4: 1, 8: 0},
        **{16: 1, 32: 0, 64: 1},
    }
    assert statistics["parts"]["head"]["never"] == 1


def test_a_round_without_masks_has_no_statistics_and_one_client_has_no_overlap() -> None:
    masks = Masks({"head": 3})
    masks.begin(5)
    assert masks.summary() == {}
    masks.take(places(2))
    statistics = masks.summary()
    assert statistics["overlap"] is None
    assert statistics["since"] == 5  # what was sent before is not known


def test_a_round_takes_less_than_a_kilobyte() -> None:
    masks = Masks({"backbone": 11_000_000, "feature": 10_000, "head": 1_000})
    masks.begin(123_456)
    for _ in range(3):
        masks.take(torch.arange(11_011_000))
    assert len(json.dumps({"masks": masks.summary()})) < 1000
