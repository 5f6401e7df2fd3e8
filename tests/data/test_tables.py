"""Tables: headers, delimiters, missing values, columns by role, and errors that name file, row and column."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import delimited_files
from refprotofl.data.reading import Roles
from refprotofl.data.table_data import read_table
from refprotofl.data.unsplit import Unsplit

CSV = "age,chol,site,sick\n63,1.5,basel,0\n67,2.5,bern,1\n41,3.5,basel,1\n"
ROLES = Roles(label="sick", client="site")


def table(folder: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(folder: Path, text: str | bytes, name: str = "a.csv", roles: Roles = ROLES) -> Unsplit:
    return read_table(table(folder, text, name), roles)


def test_columns_by_role(tmp_path: Path) -> None:
    found = read(tmp_path, CSV)
    assert found.inputs.dtype == np.float32
    assert found.inputs.tolist() == [[63, 1.5], [67, 2.5], [41, 3.5]]
    assert found.labels.tolist() == [0, 1, 1]
    assert found.clients is not None
    assert found.clients.tolist() == ["basel", "bern", "basel"]
    assert found.notes == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"\xef\xbb\xbf" + CSV.replace(",", ";").encode(), "a.csv"),  # as a spreadsheet saves it
        (CSV.replace("\n", "\r\n"), "a.csv"),
        (CSV.replace(",", "|"), "a.CSV"),
        (CSV.replace(",", "\t"), "a.tsv"),
        (CSV.replace("basel", '"basel"').replace("63,", " 63 ,") + "\n\n", "a.csv"),
        (CSV.split("\n", 1)[1], "a.csv"),
    ],
)
def test_the_same_table_in_other_writing(tmp_path: Path, text: str | bytes, name: str) -> None:
    roles = ROLES if b"age" in (text if isinstance(text, bytes) else text.encode()) else Roles(label="4", client="3")
    found, expected = read(tmp_path, text, name, roles), read(tmp_path, CSV, "b.csv")
    assert np.array_equal(found.inputs, expected.inputs)
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.clients is not None
    assert found.clients.tolist() == ["basel", "bern", "basel"]


def test_texts_split_order_and_groups(tmp_path: Path) -> None:
    text = 'when,who,say,side,mood\n2024-05-31,a,"Well, ""well""",train,glad\n2024-05-30,b,No,TEST,sad\n'
    roles = Roles(label="mood", text="say", split="side", order="when", group="who")
    found = read(tmp_path, text, roles=roles)
    assert found.inputs.tolist() == ['Well, "well"', "No"]
    assert found.test is not None
    assert found.test.tolist() == [False, True]
    assert found.order is not None
    assert found.order[0] - found.order[1] == 24 * 3600 * 1e6
    assert found.groups is not None
    assert found.groups.tolist() == [0, 1]
    assert found.labels.tolist() == ["glad", "sad"]


def test_a_quotation_mark_in_a_tsv_belongs_to_the_text(tmp_path: Path) -> None:
    found = read(tmp_path, 'site\tsick\tt\na\t0\t"Oh\nb\t1\tno\n', "a.tsv", Roles(label="sick", text="t"))
    assert found.inputs.tolist() == ['"Oh', "no"]


def test_missing_values(tmp_path: Path) -> None:
    text = "age,chol,site,sick\n63,?,basel,0\n,2.5,bern,1\n41,3.5,basel,1\n40,NaN,basel,\n"
    kept = read(tmp_path, text, roles=Roles(label="sick", client="site", missing="drop"))
    assert kept.inputs.tolist() == [[41, 3.5]]
    assert "3 rows with a missing value left out, 1 are used." in kept.notes[-1]
    without = text.rsplit("\n", 2)[0] + "\n"
    mean = read(tmp_path, without, roles=Roles(label="sick", client="site", missing="mean"))
    assert np.isnan(mean.inputs).tolist() == [[False, True], [True, False], [False, False]]


def test_labels_keep_their_names(tmp_path: Path) -> None:
    text = "".join(f"{number},{number % 6 + 1}\n" for number in range(12))
    assert sorted(set(read(tmp_path, "x,label\n" + text, roles=Roles()).labels.tolist())) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "changes", "complaint"),
    [
        ("67,2.5,bern,1", {}, None),
        ("67,high,bern,1", {}, r"row 2 \(line 3\), column 'chol': 'high' is not a number: correct it, or leave the"),
        ("67,'2,5',bern,1", {}, r"row 2 \(line 3\) has 5 fields, the first line 4"),
        ('67,"2,5",bern,1', {}, "column 'chol': '2,5' is not a number: write it with a decimal point"),
        (
            "67,,bern,1",
            {},
            r"row 2 \(line 3\), column 'chol' has no value: fill it in, or set data\.missing = \"drop\"",
        ),
        ("67,inf,bern,1", {}, "column 'chol': 'inf' is infinite or beyond float32"),
        ("67,1e39,bern,1", {}, "is infinite or beyond float32"),
        ("67,2.5,bern,", {}, r"row 2 \(line 3\), column 'sick' is empty"),
        ("67,2.5,bern,", {"missing": "mean"}, "column 'sick' is empty"),
        ("67,2.5,,1", {}, "column 'site' is empty"),
        ("67,2.5,bern,0.5", {}, "column 'sick': the label '0.5' is a fraction"),
        (
            "67,2.5,bern,1",
            {"client": "sites"},
            r"data\.client = 'sites': .* has no such column\. Did you mean 'site'\?",
        ),
        ("67,2.5,bern,1", {"label": ""}, r"set data\.label to the column with the classes\. Its columns: age, chol"),
        ("67,2.5,bern,1", {"split": "site"}, r"row 1 \(line 2\), column 'site': 'basel' is neither train nor test"),
        ("67,2.5,bern,1", {"order": "site", "client": ""}, r"column 'site': data\.order needs numbers, or dates"),
        ("67,2.5,bern,1", {"ignore": ("age", "chol")}, "no column is left for the features"),
    ],
)
def test_errors_name_file_row_and_column(
    tmp_path: Path, text: str, changes: dict[str, Any], complaint: str | None
) -> None:
    lines = CSV.splitlines()
    whole = "\n".join([*lines[:2], text, lines[3]]) + "\n"
    roles = Roles(**{"label": "sick", "client": "site", **changes})
    if complaint is None:
        assert len(read(tmp_path, whole, roles=roles).labels) == 3
        return
    with pytest.raises((DataError, InputError), match=complaint) as refusal:
        read(tmp_path, whole, roles=roles)
    assert "a.csv" in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"age,chol,site,sick\n", "has no rows"),
        (CSV.encode("utf-16"), "is UTF-16 text: save it as UTF-8"),
        (CSV.replace("basel", "zürich").encode("latin-1"), "is not UTF-8 text .*: save it as UTF-8"),
        (b",age,site,sick\n0,1,a,1\n", r"column 1 has no name.*to_csv\(index=False\)"),
        (b"age,age,site,sick\n0,1,a,1\n", "two columns are called 'age'"),
        (b"age,chol,site,sick\n1,,a,0\n2,,b,1\n", "column 'chol' has no values"),
    ],
)
def test_files_that_are_not_tables(tmp_path: Path, content: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read(tmp_path, content, roles=Roles(label="sick", client="site", missing="mean"))


def test_a_constant_column_is_noted(tmp_path: Path) -> None:
    notes = read(tmp_path, CSV.replace("67", "63").replace("41", "63")).notes
    assert "age is constant and does not distinguish classes" in notes[0]


def test_rows_are_numbered_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited_files, "BLOCK", 2)
    text = "x,label\n" + "".join(f"{number},{number % 2}\n" for number in range(7))
    assert read(tmp_path, text, roles=Roles()).inputs[:, 0].tolist() == list(range(7))
    with pytest.raises(DataError, match=r"row 6 \(line 7\), column 'x': 'five'"):
        read(tmp_path, text.replace("5,1", "five,1"), roles=Roles())


def test_a_table_that_does_not_fit_into_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refprotofl.data.array_files.machine_memory", lambda: 10)
    with pytest.raises(DataError, match="more than the memory of this machine"):
        read(tmp_path, CSV)


def test_parquet_reads_like_csv(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"age": [63, None, 41], "chol": [1.5, 2.5, 3.5], "site": ["basel", "bern", "basel"], "sick": [0, 1, 1]}
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    roles = Roles(label="sick", client="site", missing="mean")
    found = read_table(tmp_path / "a.parquet", roles)
    assert np.array_equal(found.inputs, [[63, 1.5], [np.nan, 2.5], [41, 3.5]], equal_nan=True)
    assert found.labels.tolist() == [0, 1, 1]
    assert found.clients is not None
    assert found.clients.tolist() == ["basel", "bern", "basel"]
    with pytest.raises(DataError, match=r"a\.parquet, row 2, column 'age' has no value"):
        read_table(tmp_path / "a.parquet", ROLES)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(DataError, match="cannot be read as a Parquet file"):
        read_table(tmp_path / "b.parquet", ROLES)


def test_a_parquet_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"x": np.zeros(20_000_000, np.int8), "label": np.zeros(20_000_000, np.int8)}),
        tmp_path / "a.parquet",
    )
    assert (tmp_path / "a.parquet").stat().st_size < 1_000_000
    with pytest.raises(DataError, match="decompression bomb"):
        read_table(tmp_path / "a.parquet", Roles())
