"""Scenarios: a path, TOML text, or the objects that `tomllib` reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Scenario: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A path, TOML text (a `str` with a line break), or a mapping with the keys of a scenario file."""

WRITTEN = "scenario.toml"


def file_of(scenario: Scenario, folder: Path) -> str:
    """Returns the path of the scenario. Text and mappings are written into `folder`."""
    if isinstance(scenario, os.PathLike) or (isinstance(scenario, str) and "\n" not in scenario):
        return os.path.abspath(scenario)
    path = folder / WRITTEN
    path.write_text(scenario if isinstance(scenario, str) else to_toml(scenario), "utf-8")
    return str(path)


def is_sweep(scenario: Scenario) -> bool:
    """Whether the scenario has a table `sweep`. Searches the text, because Python 3.10 has no TOML parser."""
    if isinstance(scenario, Mapping):
        return "sweep" in scenario
    text = scenario
    if isinstance(scenario, os.PathLike) or "\n" not in scenario:
        try:
            text = Path(scenario).read_text("utf-8")
        except (OSError, ValueError):
            return False   # the error of the program is more helpful
    return re.search(r"^\s*(\[\s*)?[\"']?sweep[\"']?\s*[].=]", str(text), re.MULTILINE) is not None


def to_toml(scenario: Mapping[str, Any]) -> str:
    """A scenario as TOML text; `tomllib.loads` of it gives an equal mapping.

    Values are texts, numbers, booleans, lists and mappings. Any other type is a TypeError.
    """
    lines = [f"{_key(key)} = {_value(value)}" for key, value in scenario.items() if not _is_tables(value)]
    for key, value in scenario.items():
        for table in value if _is_tables(value) else []:
            lines += ["", f"[[{_key(key)}]]"]
            lines += [f"{_key(name)} = {_value(entry)}" for name, entry in table.items()]
    return "\n".join(lines) + "\n"


def _is_tables(value: object) -> bool:
    return _is_list(value) and bool(value) and all(isinstance(entry, Mapping) for entry in value)  # type: ignore[attr-defined]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else _text(key)


def _text(text: str) -> str:
    # JSON strings are valid in TOML, except that TOML requires DEL to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, os.PathLike):
        return _text(os.fspath(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    raise TypeError(f"a scenario cannot hold {value!r}: write a text, a number, a boolean, a list or a mapping")
