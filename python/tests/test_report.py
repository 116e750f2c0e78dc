"""One rule for names: `_ns` may be left out and gives seconds; everything else is as in the JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from netlathe import Report

DATA: dict[str, Any] = {
    "schema": 2,
    "command": "run",
    "pipelines": [
        {
            "name": "down",
            "in": {"frames": 3, "bytes": 300},
            "drops": {"too-long": 2},
            "gap": {"mean_ns": 10_000.0, "p99_ns": 12_500.0, "histogram": [[1.0, 3]]},
            "rate": {"mean_bps": 5e6, "mean_pps": 100.0},
            "classes": [{"name": "web", "out": {"frames": 1, "bytes": 100}}],
        },
        {"name": "up-return", "held": 0},
    ],
}


@pytest.fixture
def report() -> Report:
    return Report(DATA, lambda: frozenset({"loss", "too-long"}))


def test_items_are_those_of_the_json(report: Report) -> None:
    assert report["pipelines"][0]["gap"]["p99_ns"] == 12_500.0
    assert json.loads(report.json()) == DATA
    assert dict(report.down["in"]) == {"frames": 3, "bytes": 300}


def test_times_are_seconds_without_their_unit_and_as_written_with_it(report: Report) -> None:
    assert report.down.gap.p99 == 12.5e-6
    assert report.down.gap.p99_ns == 12_500.0


def test_no_other_unit_is_left_out(report: Report) -> None:
    assert report.down.rate.mean_bps == 5e6
    with pytest.raises(AttributeError, match="down.rate has no `mean`; it has mean_bps, mean_pps"):
        report.down.rate.mean


def test_hyphens_and_words_of_python_have_a_spelling(report: Report) -> None:
    assert report.down.drops.too_long == 2
    assert report.down.in_.frames == 3
    assert report.up_return.held == 0


def test_named_entries_are_found_by_name_and_by_position(report: Report) -> None:
    assert report.pipelines["up-return"] == report.pipelines[1] == report.up_return
    assert report.down.web.out.frames == report.down.classes[0].out.frames == 1
    with pytest.raises(KeyError, match="there is only down, up-return"):
        report.pipelines["sideways"]


def test_a_reason_that_did_not_occur_is_0_and_an_unknown_one_an_error(report: Report) -> None:
    assert report.down.drops.loss == 0
    with pytest.raises(AttributeError, match="down.drops has no `los`"):
        report.down.drops.los


def test_a_name_that_is_not_there_lists_those_that_are(report: Report) -> None:
    with pytest.raises(AttributeError, match="down has no `fit`; it has name, in_, drops, gap, rate, classes, web"):
        report.down.fit


def test_figures_have_the_paths_of_expectations(report: Report) -> None:
    figures = report.figures()
    assert figures["down.gap.mean_ns"] == 10_000.0
    assert figures["down.web.out.frames"] == 1
    assert "down.name" not in figures and "schema" not in figures


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 99"):
        Report({"schema": 99})


def test_reports_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(DATA))
    assert Report.load(tmp_path / "report.json") == Report(DATA)


def test_figures_become_a_table_of_pandas(report: Report) -> None:
    pytest.importorskip("pandas")
    table = report.dataframe()
    assert list(table.index) == ["down", "up-return"]
    assert table.loc["down", "gap.p99_ns"] == 12_500.0
