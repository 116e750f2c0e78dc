"""Runs in virtual time: reports, errors, scenarios."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

import netlathe
from netlathe import ExpectationMissed, Failed, Program, Refused, Scenario, to_toml


SCENARIO: dict[str, Any] = {
    "schema": 1,
    "seed": 7,
    "pipeline": [
        {
            "name": "down",
            "stream": "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B",
            "count": 1000,
            "stages": ["delay 20ms", "loss 10%"],
            "gap": "10us",
            "out": "wire:10G",
        }
    ],
    "expect": [{"that": "down.in.frames == 1000"}],
}


def _read(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML").loads(text)
    return parsed


def test_a_shaped_capture_has_its_gaps(program: Program) -> None:
    report = program.shape(in_="pcap:in.pcap", out="wire:10G,pcap=out.pcap", gap="fixed 10us").wait()
    assert report.shape.out.frames == 1000
    assert report.shape.gap.mean == 10e-6
    assert report.shape.gap.error.p99 == report.shape.lateness.max == 0.0
    assert report.command == "shape" and report.warnings == []


@pytest.mark.parametrize("form", ["path", "text", "mapping"])
def test_scenarios_are_paths_texts_or_mappings(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = to_toml(SCENARIO)
    (tmp_path / "some.toml").write_text(text)
    # The path of a scenario is relative to Python's folder. Paths in it are relative to the program's folder.
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    scenario: Scenario = {"path": "some.toml", "text": text, "mapping": SCENARIO}[form]  # type: ignore[assignment]
    with Program(cwd=elsewhere).run(scenario) as r:
        r.wait()
        down = r.report.down
    assert down.delay.mean == pytest.approx(0.02)
    assert 50 < down.drops.loss < 150
    assert down.in_.frames == down.out.frames + down.drops.loss


def test_options_without_a_value_do_not_take_the_scenario() -> None:
    assert netlathe.run(SCENARIO, slices=True).wait().down.slices


@pytest.mark.parametrize(
    "scenario",
    [
        SCENARIO,
        {"a": 'quote " and \\ and \t', "b": [1, 2.5, True], "c": {"d e": "é", "f": [{"g": 1}]}, "t": [{"x": []}, {}]},
        {"del": "\x7f\x01", "empty": []},
    ],
)
def test_written_scenarios_read_the_same(scenario: dict[str, Any]) -> None:
    assert _read(to_toml(scenario)) == scenario


def test_a_scenario_cannot_hold_other_types() -> None:
    with pytest.raises(TypeError, match="bytes|b'x'"):
        to_toml({"a": b"x"})


def test_check_prints_the_long_form_or_all_problems() -> None:
    assert _read(netlathe.check(SCENARIO))["pipeline"][0]["name"] == "down"
    with pytest.raises(Refused) as error:
        netlathe.check("schema = 1\nsead = 7\n")
    assert "scenario.toml:2:1: 'sead' is not known here" in error.value.message
    assert error.value.status == 2


def test_a_refused_command_says_why_and_runs_nothing() -> None:
    with pytest.raises(Refused) as error:
        netlathe.gen(out="null", stream="udp 10.0.0.1:1 > 10.0.0.2:9", rate="10").wait()
    assert error.value.status == 2 and error.value.report is None
    assert "has no unit" in error.value.message and not error.value.message.startswith("netlathe:")
    assert error.value.arguments[1] == "gen"


def test_a_missed_expectation_has_the_report() -> None:
    missed = {**SCENARIO, "expect": [{"that": "down.in.frames == 1001"}]}
    run = netlathe.run(missed)
    with pytest.raises(ExpectationMissed, match=r"expected down.in.frames == 1001: it is 1000") as error:
        run.wait()
    assert error.value.status == 1
    assert error.value.report is not None and error.value.report.down.in_.frames == 1000
    # After an error was raised once, the report can be read.
    assert run.report == error.value.report


def test_report_raises_an_error_that_was_not_seen() -> None:
    missed = {**SCENARIO, "expect": [{"that": "down.in.frames == 1001"}]}
    with pytest.raises(ExpectationMissed):
        netlathe.run(missed).report


def test_a_run_that_ended_early_has_its_figures(program: Program, tmp_path: Path) -> None:
    whole = (tmp_path / "in.pcap").read_bytes()
    (tmp_path / "cut.pcap").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Failed, match="ends within a record") as error:
        program.shape(in_="pcap:cut.pcap", out="null").wait()
    assert error.value.status == 2
    assert error.value.report is not None and 0 < error.value.report.shape.out.frames < 1000


def test_the_end_of_the_block_stops_the_run() -> None:
    # 1e9 frames would take minutes.
    with pytest.raises(TimeoutError, match="still runs after 0.5 s"):
        with netlathe.gen(out="null", stream="udp 10.0.0.1:1 > 10.0.0.2:9", count=10**9, rate="1Gbps") as r:
            r.wait(timeout=0.5)
    assert not r.running
    assert 0 < r.report.gen.out.frames < 10**9


def test_a_forgotten_run_ends_with_python(tmp_path: Path) -> None:
    script = (
        "import netlathe; r = netlathe.gen(out='null', stream='udp 10.0.0.1:1 > 10.0.0.2:9', count=10**9, rate='1Gbps');"
        "import time; time.sleep(0.5); print(r.pid)"
    )
    pid = netlathe.Program(sys.executable).command("-c", script)
    assert not Path(f"/proc/{pid.strip()}").exists()


def test_progress_needs_an_interval(program: Program) -> None:
    with pytest.raises(ValueError, match="stats_every='500ms'"):
        next(program.shape(in_="pcap:in.pcap", out="null").progress())


def test_a_disk_is_slow_until_the_end_of_the_block(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "slow").mkdir()
    (tmp_path / "data" / "file").write_text("text")
    try:
        with Program(cwd=tmp_path).disk(backing="data", mount="slow", delay="read 50ms") as r:
            r.ready()
            before = time.monotonic()
            assert (tmp_path / "slow" / "file").read_text() == "text"
            assert time.monotonic() - before >= 0.05
    except Refused as error:
        pytest.skip(error.message)
    assert not (tmp_path / "slow" / "file").exists()
    assert r.report.command == "disk"


def test_search_and_limit_have_reports(program: Program) -> None:
    found = program.search(dut="limit key dst-ip rate 50Mbps mode police", trial="100ms", width="5%", max="1Mpps").wait()
    assert found.searches[0].goals[0].verdict
    limited = program.limit(in_="pcap:in.pcap", out="null", key="dst-ip", rate="1Mbps", mode="police").wait()
    assert limited.pipelines[0].drops.policed > 0
