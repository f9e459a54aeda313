import csv
import gzip
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.errors import DataError
from benchmarks.fastmri_plus import COLUMNS, ORGANS, by_volume, duplicates, read_table, read_tables
from benchmarks.fastmri_plus_stats import PUBLISHED_TOTALS, count

DATA = Path(__file__).parents[1] / "data/fastmri_plus"
# Counted independently of this project's code and handed over with the tables: brain, knee, both.
COUNTS = {
    "rows": (8213, 16167, 24380),
    "study-level rows": (643, 13, 656),
    "rows with a box": (7570, 16154, 23724),
    "slices with a box": (3621, 9581, 13202),
    "files with any row": (997, 974, 1971),
    "files with a box": (476, 969, 1445),
    "files with study-level rows only": (521, 5, 526),
    "labels": (30, 22, None),
    "labels of boxes": (21, 21, None),
    "highest slice (from 0)": (15, 45, 45),
    "most boxes on a slice": (19, 9, 19),
    "most boxes in a file": (118, 87, 118),
    "boxes without area": (2, 1, 3),
    "boxes that begin at -1": (0, 6, 6),
    "rows that repeat an earlier one": (1, 5, 6),
    "boxes beyond 256 pixels": (1337, None, None),
    "files with boxes beyond 256 pixels": (151, None, None),
    "boxes on slice 0": (677, 0, 677),
    "slices 0 with a box": (344, 0, 344),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The whole tables, unpacked."""
    folder = tmp_path_factory.mktemp("annotations")
    for organ in ORGANS:
        (folder / f"{organ}.csv").write_bytes(gzip.decompress((DATA / f"{organ}.csv.gz").read_bytes()))
    return folder


def test_the_whole_tables_hold_what_was_counted_elsewhere(whole):
    tables = read_tables(whole)
    counts = [count(rows) for rows in (tables["brain"], tables["knee"], [*tables["brain"], *tables["knee"]])]
    assert set(counts[0]) == set(COUNTS)
    for name, expected in COUNTS.items():
        for ours, theirs in zip(counts, expected, strict=True):
            assert theirs is None or ours[name] == theirs, name


def test_the_papers_totals_stand_beside_ours_and_the_one_difference_is_marked(whole, capsys):
    assert main(["stats", "fastmri_plus", str(whole)]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {name: line.split()[-3:] for name in PUBLISHED_TOTALS for line in lines if line.startswith(name)}
    assert found == {
        "rows with a box": ["23,724", "23,724", "agrees"],
        "slices with a box": ["13,202", "13,202", "agrees"],
        "files with any row": ["differs", "by", "+1"],
    }
    assert lines[:2] == ["brain.csv: the table of commit 67ed9a6", "knee.csv: the table of commit 67ed9a6"]
    assert lines[-1].startswith("next: ")


def test_another_table_is_said_to_be_another(capsys):
    assert main(["stats", "fastmri_plus", str(DATA / "cut")]) == 0
    assert "brain.csv: not the table of commit 67ed9a6" in capsys.readouterr().out


def test_the_cut_is_part_of_the_whole(whole):
    for organ in ORGANS:
        all_rows = (whole / f"{organ}.csv").read_text().splitlines()
        assert set((DATA / f"cut/{organ}.csv").read_text().splitlines()) <= set(all_rows)


def test_reading_loses_nothing_but_blanks_at_the_ends_of_labels(whole):
    for organ in ORGANS:
        path = whole / f"{organ}.csv"
        with path.open(newline="") as stream:
            raw = list(csv.reader(stream))[1:]
        back = [
            [row.volume, str(row.index), "Yes" if row.study_level else "No", *map(str, row.box or ("",) * 4), row.label]
            for row in read_table(path)
        ]
        assert back == [[*cells[:-1], cells[-1].strip()] for cells in raw]
    assert sum(cells[-1] == "Joint Effusion " for cells in raw) == 1311


def test_known_quirks_are_told_by_the_rows():
    rows = read_tables(DATA / "cut")
    assert {(r.volume, r.index, r.box[2:]) for t in rows.values() for r in t if r.empty} == {
        ("file_brain_AXT1_202_2020089", 10, (0, 0)),
        ("file_brain_AXFLAIR_202_6000476", 10, (1, 0)),
        ("file1002097", 27, (18, 0)),
    }
    assert [(r.volume, r.index, r.box[1]) for r in rows["knee"] if r.outside] == [("file1000990", 13, -1)]
    assert [r.index for r in duplicates(rows["knee"])] == [21, 22, 23, 24, 25]
    assert [r.volume for r in duplicates(rows["brain"])] == ["file_brain_AXFLAIR_203_6000890"]


def test_rows_of_a_volume_stay_in_file_order():
    rows = read_table(DATA / "cut/knee.csv")
    groups = by_volume(rows)
    assert list(groups) == sorted({row.volume for row in rows})
    for volume, mine in groups.items():
        assert mine == [row for row in rows if row.volume == volume]


GOOD = "file1,3,No,1,2,3,4,Mass"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("file1,3,No,1,2,3,Mass", "7 cells for 8 columns"),
        ("file 1,3,No,1,2,3,4,Mass", "column 'file': 'file 1' is not"),
        ("../x,3,No,1,2,3,4,Mass", "column 'file': '../x' is not"),
        ("file1,3.0,No,1,2,3,4,Mass", "column 'slice': '3.0' is not an integer"),
        ("file1,-1,No,1,2,3,4,Mass", "column 'slice': -1 is negative"),
        ("file1,3,no,1,2,3,4,Mass", "column 'study_level': 'no'"),
        ("file1,3,No,1,2,3,4, ", "column 'label' is empty"),
        ("file1,3,No,1,2,x,4,Mass", "column 'width': 'x' is not an integer"),
        ("file1,3,No,1,,3,4,Mass", "the box has only x, width, height"),
        ("file1,3,No,1,2,-3,4,Mass", "the box is -3 wide and 4 high"),
        ("file1,0,Yes,1,2,3,4,Mass", "a study-level row has a box"),
        ("file1,3,Yes,,,,,Mass", "a study-level row has a box or another slice"),
        ("file1,3,No,,,,,Mass", "a row that is not study level has no box"),
    ],
)
def test_a_faulty_row_is_named_with_its_file_and_number(tmp_path, row, message):
    path = tmp_path / "knee.csv"
    path.write_text("\n".join([",".join(COLUMNS), GOOD, row, GOOD]) + "\n")
    with pytest.raises(DataError, match=message.replace("(", "\\(")) as caught:
        read_table(path)
    assert caught.value.where == f"{path} row 2"


def test_all_faults_come_in_one_message(tmp_path):
    path = tmp_path / "knee.csv"
    path.write_text("\n".join([",".join(COLUMNS), "a", GOOD, "b"]) + "\n")
    with pytest.raises(DataError, match=r"(?s)row 1.*row 3.*2 faults"):
        read_table(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the columns are nothing"),
        (b"file,slice\n", "the columns are file,slice"),
        (b"\xff\xfe", "not a CSV file in UTF-8"),
        (None, "does not exist"),
    ],
    ids=["empty", "columns", "bytes", "missing"],
)
def test_what_is_not_a_table_is_refused(tmp_path, data, message):
    if data is not None:
        (tmp_path / "brain.csv").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_tables(tmp_path)


def test_a_volume_in_both_tables_is_refused(tmp_path):
    for organ in ORGANS:
        (tmp_path / f"{organ}.csv").write_text(",".join(COLUMNS) + f"\n{GOOD}\n")
    with pytest.raises(DataError, match=r"volume file1 is in brain\.csv and in knee\.csv"):
        read_tables(tmp_path)
