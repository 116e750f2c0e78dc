"""The control socket of a run: HTTP on a socket in the file system."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from netlathe._errors import Refused

_PATIENCE_S = 10.0   # to wait for an answer
_LOOK_S = 0.02

RUN = "/v1/runs/1"
EVENTS = "/v1/events"


class Control:
    """Requests to the control socket of a run that has been started, and may not listen yet."""

    def __init__(self, socket_path: Path, goes_on: Callable[[], bool]) -> None:
        self.path = socket_path
        self._goes_on = goes_on

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None, timeout: float = 30.0) -> Any:
        """Sends a request and returns the answer, as JSON. Waits up to `timeout` seconds for a run that is starting. Raises `Refused`."""
        for answer in self.tries(method, path, body, timeout):
            if answer is not None:
                return answer
            time.sleep(_LOOK_S)
        raise AssertionError("tries() ends with an answer or raises")

    def tries(
        self, method: str, path: str, body: Mapping[str, object] | None = None, timeout: float = 30.0
    ) -> Iterator[Any]:
        """Sends the request once per item. Yields None while the run is starting, then the answer."""
        deadline = time.monotonic() + timeout
        while True:
            # Read before the request, so that a run that ends meanwhile gets one more request.
            goes_on = self._goes_on()
            try:
                answer, is_early = self._exchange(method, path, body)
            except (FileNotFoundError, ConnectionRefusedError):
                answer, is_early = None, True
            if not is_early:
                yield answer
                return
            if not goes_on:
                raise Refused("the run has ended: start another one")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run has not started after {timeout} s")
            yield None

    def _exchange(self, method: str, path: str, body: Mapping[str, object] | None) -> tuple[Any, bool]:
        """Sends one request. Returns the answer, and whether to send it again later."""
        connection = Connection(self.path, _PATIENCE_S)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read()
        except (http.client.HTTPException, ConnectionResetError, BrokenPipeError):
            if self._goes_on():
                raise
            raise Refused("the run has ended: start another one") from None
        finally:
            connection.close()
        if response.status < 400:
            return json.loads(text), False
        if response.getheader("Retry-After"):
            return None, True
        raise Refused(problem(text), arguments=[method, path])

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the kind and the data of each event until the run ends."""
        self.ask("GET", RUN)
        connection = Connection(self.path, None)
        try:
            connection.request("GET", EVENTS)
            response = connection.getresponse()
            if response.status != 200:
                raise Refused(problem(response.read()))
            reader = EventReader()
            for line in response:
                event = reader.line(line.decode())
                if event is not None:
                    yield event
        except (http.client.IncompleteRead, ConnectionResetError):
            pass   # the run has ended
        finally:
            connection.close()


class EventReader:
    """Reads server-sent events line by line."""

    def __init__(self) -> None:
        self._kind = ""

    def line(self, line: str) -> tuple[str, dict[str, Any]] | None:
        """Returns the event that this line completes, if any."""
        line = line.rstrip("\r\n")
        if line.startswith("event: "):
            self._kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return self._kind, json.loads(line.removeprefix("data: "))
        return None


class Connection(http.client.HTTPConnection):
    """HTTP on a socket in the file system."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("localhost")
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connects to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(os.fspath(self._path))


def problem(text: bytes) -> str:
    """Returns the text of an error: where it is, what is wrong, and the remedy."""
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError):
        return text.decode("utf-8", "replace")
    where = f"{error['where']}: " if error.get("where") else ""
    return f"{where}{error['message']}: {error['remedy']}"


def change_of(
    path: str | Mapping[str, str], value: str | None, at: float | None
) -> dict[str, object]:
    """Returns the request body of a change. `at` is in seconds."""
    if isinstance(path, str):
        if value is None:
            raise TypeError("set() wants a path and a value, or a mapping: set('down.rate', '20Mbps')")
        changes: Mapping[str, str] = {path: value}
    elif value is not None:
        raise TypeError("set() wants a path and a value, or a mapping: set({'down.rate': '20Mbps'}, at=10)")
    else:
        changes = path
    wrong = next((f"{name} = {value!r}" for name, value in changes.items() if not isinstance(value, str)), None)
    if wrong:
        raise TypeError(f"{wrong}: a value is a text with its unit, such as '20Mbps'")
    body: dict[str, object] = {"set": dict(changes)}
    if at is not None:
        body["at_ns"] = round(at * 1e9)
    return body
