"""Access to the program's report."""

from __future__ import annotations

import json
import keyword
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, overload

SCHEMA = 2

# Lists of these entries can be searched by name. Others, such as histograms, are plain lists.
_NAMED = "name"


class Item(Mapping[str, Any]):
    """An object of a report.

    `item["p99_ns"]` is the value as it stands in the JSON. As an attribute:

    - `item.p99_ns` is the same value.
    - `item.p99` is the time of `p99_ns` **in seconds**. This holds for every name that ends in `_ns`, and for no other
      unit: a rate is `mean_bps`, a share is `loss_ratio`.
    - `-` is written `_`, and a word of Python gets `_` at its end: `item.too_long`, `item.in_`.

    In `drops`, a reason that did not occur is 0. Any other name that the report does not have raises an AttributeError
    that lists the names that are there.
    """

    def __init__(self, data: Mapping[str, Any], path: str = "", reasons: Callable[[], frozenset[str]] | None = None):
        self._data = data
        self._path = path
        self._reasons = reasons

    def __getitem__(self, key: str) -> Any:
        return self._wrap(key, self._data[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for key in _spellings(name):
            if key in self._data:
                return self[key]
        for key in _spellings(name):
            if isinstance(value := self._data.get(f"{key}_ns"), int | float):
                return value / 1e9
        found = self._named(name)
        if found is not None:
            return found
        reasons = self._reasons() if self._reasons and self._path.rpartition(".")[2] == "drops" else frozenset()
        if reasons.intersection(_spellings(name)):
            return 0
        place = self._path or "the report"
        raise AttributeError(f"{place} has no `{name}`; it has {', '.join(self.__dir__()) or 'nothing'}")

    def __dir__(self) -> list[str]:
        names = [f"{key}_" if keyword.iskeyword(key) else key.replace("-", "_") for key in self._data]
        return names + [entry for entries in self._lists() for entry in entries.names()]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path or 'of a run'}: {', '.join(self.__dir__())}>"

    def figures(self) -> dict[str, int | float]:
        """All figures below this object by their path, as `[[expect]]` names them: `{"down.gap.mean_ns": 10000.0, …}`."""
        figures = dict(_figures(self._data, ""))
        figures.pop("schema", None)
        return figures

    def _lists(self) -> list[Items]:
        return [self[key] for key in ("pipelines", "classes") if isinstance(self._data.get(key), list)]

    def _named(self, name: str) -> Any:
        for entries in self._lists():
            for key in _spellings(name):
                if key in entries.names():
                    return entries[key]
        return None

    def _wrap(self, key: str, value: Any) -> Any:
        path = f"{self._path}.{key}" if self._path else key
        if isinstance(value, Mapping):
            return Item(value, path, self._reasons)
        if isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            return Items([Item(entry, _entry_path(path, i, entry), self._reasons) for i, entry in enumerate(value)])
        return value


class Items(Sequence[Item]):
    """A list of objects: `report.pipelines[0]`, or `report.pipelines["down"]` if they have names."""

    def __init__(self, entries: list[Item]):
        self._entries = entries

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: str) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Item]: ...
    def __getitem__(self, key: int | str | slice) -> Item | Sequence[Item]:
        if not isinstance(key, str):
            return self._entries[key]
        for entry in self._entries:
            if entry.get(_NAMED) == key:
                return entry
        raise KeyError(f"{key}: there is only {', '.join(self.names()) or 'no named entry'}")

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Items) and self._entries == other._entries

    def __repr__(self) -> str:
        return repr(self._entries)

    def names(self) -> list[str]:
        """The names of the entries, in order."""
        return [entry[_NAMED] for entry in self._entries if isinstance(entry.get(_NAMED), str)]


class Report(Item):
    """The report of a run. Pipelines and directions are attributes by name: `report.down.delay.p99`.

    It is a mapping over the program's JSON report: `report["pipelines"][0]["gap"]["p99_ns"]`. `docs/reference/report.md`
    defines every field. See `Item` for how attributes are written.
    """

    def __init__(self, data: Mapping[str, Any], reasons: Callable[[], frozenset[str]] | None = None):
        if data.get("schema") != SCHEMA:
            raise ValueError(
                f"this report has schema {data.get('schema')}, and this package reads schema {SCHEMA}: "
                "use the netlathe and the Python package of one release"
            )
        super().__init__(data, "", reasons)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Reads a report that `--json` or `--report` wrote."""
        return cls(json.loads(Path(path).read_text("utf-8")))

    def json(self, indent: int | None = None) -> str:
        """The report as JSON, as the program wrote it."""
        return json.dumps(self._data, indent=indent, ensure_ascii=False)

    @property
    def warnings(self) -> list[str]:
        """What the figures cannot show, one sentence per limitation. Empty if there is none."""
        return list(self._data.get("warnings", []))

    def dataframe(self) -> Any:
        """The figures as a `pandas.DataFrame`, one row for each pipeline. pandas must be installed."""
        pandas = import_module("pandas")
        pipelines = self._data.get("pipelines", [])
        rows = {entry[_NAMED]: dict(_figures(entry, "")) for entry in pipelines}
        return pandas.DataFrame.from_dict(rows, orient="index")


def _spellings(name: str) -> list[str]:
    plain = name.removesuffix("_") if keyword.iskeyword(name.removesuffix("_")) else name
    return list(dict.fromkeys([plain, plain.replace("_", "-")]))


def _entry_path(path: str, index: int, entry: Mapping[str, Any]) -> str:
    name = entry.get(_NAMED)
    return name if isinstance(name, str) else f"{path}[{index}]"


def _figures(data: Mapping[str, Any], path: str) -> Iterator[tuple[str, int | float]]:
    for key, value in data.items():
        below = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from _figures(value, below)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield below, value
        elif key in ("pipelines", "classes") and isinstance(value, list):
            for entry in value:
                yield from _figures(entry, f"{path}.{entry[_NAMED]}" if path else entry[_NAMED])
        elif key == "segments" and isinstance(value, list):
            for number, entry in enumerate(value):
                yield from _figures(entry, f"{below}.{number}")
