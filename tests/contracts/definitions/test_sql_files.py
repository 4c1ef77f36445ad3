"""What a pipeline's SQL file and the contracts say of each other, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.checks.check import check
from contracts.definitions.pipelines import declared_pipelines, pipeline_files
from tests import sample

FILE = """-- The parcels that are heavy.
/*
reads: {parcels: parcels.dispatched.v1}
writes: parcels.dispatched.heavy.v1
lookups:
  - name: couriers
    dimension: couriers
    by: courier
    fields: {courier_name: name}
*/
SELECT * FROM parcels -- ; no second one
WHERE weight_grams >= 2000 AND parcel_id <> ';';
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "pipelines"
    found.mkdir()
    return found


def test_a_pipeline_is_read_from_the_header_of_a_sql_file(folder: Path) -> None:
    (folder / "mine.sql").write_text(FILE)
    (found,), problems = declared_pipelines(folder)
    assert problems == []
    assert (found.name, found.line, found.reads, found.writes) == (
        "mine",
        2,
        "PARCELS_DISPATCHED",
        ("PARCELS_DISPATCHED_HEAVY",),
    )


def test_a_branch_is_read_from_the_header_of_a_sql_file(folder: Path) -> None:
    written = "writes: {heavy: parcels.dispatched.heavy.v1, overdue: parcels.dispatched.overdue.v1}"
    (folder / "mine.sql").write_text(FILE.replace("writes: parcels.dispatched.heavy.v1", written))
    (found,), problems = declared_pipelines(folder)
    assert (found.writes, problems) == (("PARCELS_DISPATCHED_HEAVY", "PARCELS_DISPATCHED_OVERDUE"), [])


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("/*", "--", "mine.sql:1: the file has no header"),
        ("/*", "/*+", "mine.sql:1: the file has no header"),
        ("writes: parcels", "writes: Parcels", "mine.sql:4: 'writes' is 'Parcels.dispatched.heavy.v1'"),
        ("writes: parcels.dispatched.heavy.v1", "writes: {a: parcels.lost.v1}", "a branch writes two topics or more"),
        ("writes: parcels.dispatched.heavy.v1", "writes: {a: parcels.lost.v1, b: x}", "mine.sql:4: 'writes.b' is 'x'"),
        ("writes:", "wirtes:", "mine.sql:4: unknown key 'wirtes': did you mean 'writes'?"),
        ("{parcels: parcels.dispatched.v1}", "{}", "mine.sql:3: 'reads' is {}"),
        ("{parcels: parcels", "{parcels: parcels, more: parcels", "mine.sql:3: 'reads.parcels'"),
        ("    by: courier", "    by: [", "mine.sql:9: not readable as YAML"),
        ("    by: courier\n", "", "mine.sql:6: key 'lookups.0.by' is missing"),
        ("*/", "output: !!python/object/apply:os.system [ls]\n*/", "mine.sql:10: not readable as YAML"),
        ("SELECT *", "INSERT INTO x SELECT *", "mine.sql:11: INSERT is no SELECT: write one SELECT"),
        ("SELECT *", "(SELECT *", "mine.sql:11: what stands below the header is no SELECT"),
        ("';';\n", "1;\n\nDROP TABLE x", "mine.sql:14: a second statement: write one SELECT for each file"),
    ],
)
def test_a_file_without_a_readable_pipeline_is_a_problem_at_its_line(
    folder: Path, old: str, new: str, what: str
) -> None:
    assert old in FILE
    (folder / "mine.sql").write_text(FILE.replace(old, new, 1))
    found, problems = declared_pipelines(folder)
    assert found == []
    assert any(what in str(each) for each in problems), problems


def test_a_file_that_is_no_text_or_has_no_name_is_a_problem(folder: Path) -> None:
    (folder / "mine.sql").write_bytes(b"-- \xff")
    (folder / "Two-Words.sql").write_text(FILE)
    found, problems = declared_pipelines(folder)
    assert found == []
    assert [each.problem for each in problems] == ["Two-Words is no pipeline's name", "not UTF-8 at byte 3"]


def test_a_pipeline_is_written_in_one_language(folder: Path) -> None:
    (folder / "mine.sql").write_text(FILE)
    (folder / "mine.py").touch()
    assert list(pipeline_files(folder)) == ["mine"]
    found, (problem,) = declared_pipelines(folder)
    assert found == []
    assert "mine.sql:1: there is mine.py, too: give one of them another name" in str(problem)


def test_a_pipeline_that_no_contract_lists_is_a_problem_of_topics_and_dimension(folder: Path) -> None:
    (folder / "mine.sql").write_text(FILE)
    problems = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES) if "mine" in str(each)]
    assert len([each for each in problems if "pipelines/mine.sql is not among them: add mine" in each]) == 3
