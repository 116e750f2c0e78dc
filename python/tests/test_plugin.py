"""The pytest plugin, by tests that run pytest."""

import os
from pathlib import Path

import pytest
from conftest import INSTALLED

FAILING = """
    def test_fails(netlathe_program):
        netlathe_program.gen(out="pcap:in.pcap", stream="udp 10.0.0.1:1 > 10.0.0.2:9", count=100).wait()
        r = netlathe_program.shape(in_="pcap:in.pcap", out="wire:10G", gap="10us")
        assert r.wait().shape.out.frames == 101
"""
REFUSING = "#!/bin/sh\ncase $1 in lab) echo 'netlathe: no labs here: be root' >&2; exit 2;; esac\n"


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests that has the plugin."""
    for name in ("NETLATHE_REPORTS", "NETLATHE_SEED", "NETLATHE_REQUIRE_LAB"):
        monkeypatch.delenv(name, raising=False)
    if not INSTALLED:
        pytester.makeconftest('pytest_plugins = ["netlathe.pytest_plugin"]')
    return pytester


def _without_labs(tests: pytest.Pytester) -> str:
    program = tests.path / "refusing"
    program.write_text(REFUSING)
    program.chmod(0o755)
    return str(program)


def test_a_failure_shows_figures_command_and_page(tests: pytest.Pytester) -> None:
    tests.makepyfile(FAILING)
    result = tests.runpytest_subprocess("--netlathe-reports", "kept", "--junitxml", "junit.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*netlathe 1-gen*",
            "*netlathe 2-shape*",
            "command: * shape --json *",
            "page: */2-shape/report.html",
            "shape.out.frames = 100",
        ]
    )
    page = next((tests.path / "kept").glob("*test_fails*/2-shape/report.html"))
    assert "<html" in page.read_text()
    assert f'name="netlathe_report" value="{page}"' in (tests.path / "junit.xml").read_text()


def test_a_run_that_still_goes_on_is_ended_and_shown(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import time

        def test_fails(netlathe_program):
            r = netlathe_program.gen(out="null", stream="udp 10.0.0.1:1 > 10.0.0.2:9", rate="1Gbps", count=10**9)
            time.sleep(0.5)
            assert False, f"process {r.pid}"
        """
    )
    result = tests.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["gen.out.frames = *"])
    pid = next(line for line in result.outlines if "AssertionError: process" in line).split()[-1]
    assert not Path(f"/proc/{pid}").exists()


def test_a_refused_run_shows_the_message(tests: pytest.Pytester) -> None:
    tests.makepyfile('def test_fails(netlathe_run): netlathe_run("schema = 1\\nsead = 2\\n").wait()')
    result = tests.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*sead*is not known here*", "*netlathe 1-run*"])


def test_a_test_that_passes_shows_nothing_and_files_are_in_tmp_path(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        def test_passes(netlathe_program, tmp_path):
            netlathe_program.gen(out="pcap:in.pcap", stream="udp 10.0.0.1:1 > 10.0.0.2:9", count=100).wait()
            assert (tmp_path / "in.pcap").exists()
            assert (tmp_path / "netlathe" / "1-gen" / "report.json").exists()
        """
    )
    result = tests.runpytest_subprocess("-rA")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*1-gen*")


@pytest.mark.parametrize("by", ["option", "variable"])
def test_the_seed_is_that_of_the_session(tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    tests.makepyfile(
        """
        def test_passes(netlathe_program):
            r = netlathe_program.gen(out="null", stream="udp 10.0.0.1:1 > 10.0.0.2:9", count=1)
            assert r.arguments[r.arguments.index("--seed") + 1] == "4711"
        """
    )
    if by == "variable":
        monkeypatch.setenv("NETLATHE_SEED", "4711")
    tests.runpytest_subprocess(*(["--netlathe-seed", "4711"] if by == "option" else [])).assert_outcomes(passed=1)


def test_without_rights_a_lab_is_skipped_with_the_reason(tests: pytest.Pytester) -> None:
    tests.makepyfile("def test_lab(netlathe_lab): pass\ndef test_link(netlathe_link): pass")
    result = tests.runpytest_subprocess("-rs", "--netlathe", _without_labs(tests))
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*netlathe cannot build a lab here: no labs here: be root"])


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_required_lab_fails_instead(tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    tests.makepyfile("def test_lab(netlathe_lab): pass")
    if by == "variable":
        monkeypatch.setenv("NETLATHE_REQUIRE_LAB", "1")
    options = ["--netlathe-require-lab"] if by == "option" else []
    result = tests.runpytest_subprocess("--netlathe", _without_labs(tests), *options)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no labs here: be root*"])


def test_a_missing_program_is_an_error_not_a_skip(tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    tests.makepyfile("def test_lab(netlathe_lab): pass")
    result = tests.runpytest_subprocess("--netlathe", os.fspath(tests.path / "none"))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*which is not a program*"])


@pytest.mark.usefixtures("netlathe_lab")
def test_a_link_of_a_failed_test_shows_its_figures(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import pytest

        @pytest.mark.netlathe_lab(clients=2)
        def test_fails(netlathe_link):
            link = netlathe_link(forward="loss 100%")
            assert len(link.lab.clients) == 2
            assert link.client.call(["ping", "-c", "1", "-W", "1", link.server.address], check=False).returncode == 0
        """
    )
    result = tests.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*netlathe 1-emulate*", "forward.drops.loss = *"])
