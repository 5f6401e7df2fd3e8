"""Lists of methods with switches, as users type them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.core.errors import InputError
from refprotofl.studies.rows import Row, read_row, read_switches, split_list


@pytest.mark.parametrize(
    ("name", "method", "switches"),
    [
        ("fedavg", "fedavg", []),
        ("fedavg:share=full", "fedavg", ["share=full"]),
        (
            "refprotofl:refprotofl.erpa=off:refprotofl.apud=off",
            "refprotofl",
            ["refprotofl.erpa=off", "refprotofl.apud=off"],
        ),
        ("own_method:TrimmedMean", "own_method:TrimmedMean", []),
        ("own_method:TrimmedMean:own.trim=0.2", "own_method:TrimmedMean", ["own.trim=0.2"]),
        ("pack.age:Mine:own.trim=0.2:share=full", "pack.age:Mine", ["own.trim=0.2", "share=full"]),
        ("fedavg:model.name=mine:small", "fedavg", ["model.name=mine:small"]),
        ("fedavg:model.name=mine:small:share=full", "fedavg", ["model.name=mine:small", "share=full"]),
        ("fedavg:share=full:model.name=mine:small", "fedavg", ["share=full", "model.name=mine:small"]),
        ("fedavg:dataset=hf:owner/name:rounds=3", "fedavg", ["dataset=hf:owner/name", "rounds=3"]),
        ("fedavg:dataset=C:\\data\\a.npz", "fedavg", ["dataset=C:\\data\\a.npz"]),
        ('fedavg:dataset="odd:name=a.npz":rounds=3', "fedavg", ['dataset="odd:name=a.npz"', "rounds=3"]),
        ("fedavg:dataset='a\"b:c=d':rounds=3", "fedavg", ["dataset='a\"b:c=d'", "rounds=3"]),
        ('fedavg:model.name=["m:f", "cnn"]:rounds=3', "fedavg", ['model.name=["m:f", "cnn"]', "rounds=3"]),
        ("fedavg : share = full : train.local-epochs=2", "fedavg", ["share = full", "train.local-epochs=2"]),
        ("fedavg:dataset=/home/o'neill/a.npz:rounds=3", "fedavg", ["dataset=/home/o'neill/a.npz", "rounds=3"]),
    ],
)
def test_switches(name: str, method: str, switches: list[str]) -> None:
    assert read_switches(name) == (method, switches)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("local", ["local"]),
        (" local , fedavg:share=full,", ["local", "fedavg:share=full"]),
        ('fedavg:model.name=["cnn","mlp"],local', ['fedavg:model.name=["cnn","mlp"]', "local"]),
        ("fedavg:public.classes=[0,1],local", ["fedavg:public.classes=[0,1]", "local"]),
        (
            "fedavg:model.name={cnn=[0, 1], mlp=[2, 3]},fedavg:model.name={cnn=1}",
            ["fedavg:model.name={cnn=[0, 1], mlp=[2, 3]}", "fedavg:model.name={cnn=1}"],
        ),
        ('a:dataset="x,y]",b', ['a:dataset="x,y]"', "b"]),
        ("a:dataset='x,[y',b", ["a:dataset='x,[y'", "b"]),
        ('a:dataset="x\\",y",b', ['a:dataset="x\\",y"', "b"]),
        ("a:dataset=o'x,b:dataset=o'y", ["a:dataset=o'x", "b:dataset=o'y"]),
        ("a:dataset=x],b", ["a:dataset=x]", "b"]),
        (",", []),
        ("", []),
    ],
)
def test_lists(text: str, names: list[str]) -> None:
    assert split_list(text) == names


keys = st.from_regex(r"[a-z][a-z-]{0,5}(\.[a-z-]{1,5})?", fullmatch=True)
bare = st.from_regex(r"[a-z0-9./:]{1,8}", fullmatch=True)
quoted = st.text("ab,:=[]{}' ").map(lambda inner: f'"{inner}"')
values = st.one_of(bare, quoted, st.lists(st.one_of(bare, quoted)).map(lambda parts: f"[{','.join(parts)}]"))
choices = st.tuples(st.sampled_from(["fedavg", "my.module:Class"]), st.lists(st.tuples(keys, values)))


@given(st.lists(choices))
def test_what_was_joined_comes_apart_again(wanted: list[tuple[str, list[tuple[str, str]]]]) -> None:
    expected = [(method, [f"{key}={value}" for key, value in switches]) for method, switches in wanted]
    text = ",".join(":".join([method, *switches]) for method, switches in expected)
    assert [read_switches(name) for name in split_list(text)] == expected


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9 .%+,-]{0,12}", fullmatch=True), choices)
def test_a_row_may_have_a_name(name: str, wanted: tuple[str, list[tuple[str, str]]]) -> None:
    method, switches = wanted
    asked = ":".join([method, *(f"{key}={value}" for key, value in switches)])
    assert read_row(asked) == Row(asked, asked)
    (named,) = split_list(f'"{name}" = {asked}')
    assert read_row(named) == Row(name.strip(), asked)
    if "," not in name:
        assert read_row(f"{name}={asked}") == Row(name.strip(), asked)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ('"a" vs "b" = fedavg', '"a" vs "b"'),
        (r'"5\" disk" = fedavg', '5" disk'),
        ("'lr: 0.1' = fedavg", "lr: 0.1"),
    ],
)
def test_quotes_around_a_whole_name_are_no_part_of_it(asked: str, name: str) -> None:
    assert read_row(asked) == Row(name, "fedavg")


@pytest.mark.parametrize("wrong", ["=fedavg", " = fedavg:share=full", "whole =", '"" = fedavg'])
def test_a_name_or_method_that_is_not_there_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="write a name, = and a method"):
        read_row(wrong)
