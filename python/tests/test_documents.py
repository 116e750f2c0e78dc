"""The examples in the documents run as printed."""

import re
from pathlib import Path

import pytest
from conftest import INSTALLED

import netlathe

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/guide/python.md"]


def _blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = [block for block in _blocks(page) if "def test_" not in block]
    assert examples
    for example in examples:
        if "netlathe.lab(" in example:
            request.getfixturevalue("netlathe_lab")
        exec(compile(example, page, "exec"), names)


@pytest.mark.usefixtures("netlathe_lab")
def test_tests_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    if not INSTALLED:
        pytester.makeconftest('pytest_plugins = ["netlathe.pytest_plugin"]')
    pytester.makepyfile("\n".join(block for block in _blocks("docs/guide/python.md") if "def test_" in block))
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_the_readmes_example_has_ten_lines() -> None:
    (example,) = _blocks("README.md")
    assert len(example.splitlines()) <= 10


def test_everything_public_is_documented() -> None:
    bare = [name for name in netlathe.__all__ if not getattr(netlathe, name).__doc__ and name != "Scenario"]
    for name in ("Run", "Report", "Item", "Program", "Lab", "Link", "Node"):
        members = vars(getattr(netlathe, name)).items()
        bare += [f"{name}.{key}" for key, f in members if not key.startswith("_") and not (f.__doc__ or key == "line")]
    assert bare == []
