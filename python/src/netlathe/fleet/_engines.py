"""Engines: what places calls on hosts. They are never in the timing path."""

from __future__ import annotations

import concurrent.futures
import itertools
import socket
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Lost(Exception):
    """A host did not answer a call."""


class Engine(Protocol):
    """Places short calls on hosts."""

    def hosts(self) -> list[str]:
        """The names of the hosts that are there now."""

    def call(self, calls: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        """Calls functions on hosts, all at once. The results are in the same order; that of a host that does not answer
        in time is a `Lost`, and that of a function that raises is its exception."""

    def address(self) -> str:
        """The address of this host, as the others reach it."""

    def close(self) -> None:
        """Leaves the engine as it was."""


class Threads:
    """An engine of agents in this process: for trying a scenario, and for simulations."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers=min(32, len(self._hosts)))

    def hosts(self) -> list[str]:
        return list(self._hosts)

    def call(self, calls: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        futures = [self._pool.submit(function, *arguments) for _, function, arguments in calls]
        concurrent.futures.wait(futures, timeout_s)
        return [_result(future) for future in futures]

    def address(self) -> str:
        return "127.0.0.1"

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _result(future: concurrent.futures.Future[Any]) -> Any:
    if not future.done():
        future.cancel()
        return Lost("no answer in time")
    error = future.exception()
    return error if error is not None else future.result()


class Dask:
    """An engine on Dask distributed: one worker per host, named as the host is.

    `scheduler` is its address, or a `distributed.Client` or cluster that you have made: by SSH, Slurm, Kubernetes or here.
    With more than one agent per worker, for simulations, hosts are named `WORKER:1`, `WORKER:2` and so on.
    """

    def __init__(self, scheduler: Any, *, agents_per_worker: int = 1, timeout_s: float = 30.0) -> None:
        import distributed

        self._distributed: Any = distributed
        self._own = not isinstance(scheduler, distributed.Client)
        self._client: Any = self._distributed.Client(scheduler, timeout=timeout_s) if self._own else scheduler
        self._agents_per_worker = agents_per_worker
        self._numbers = itertools.count()
        self._addresses: dict[str, str] = {}

    @property
    def client(self) -> Any:
        """The `distributed.Client`."""
        return self._client

    def hosts(self) -> list[str]:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        names = {str(about["name"]): address for address, about in workers.items()}
        if self._agents_per_worker > 1:
            each = range(1, self._agents_per_worker + 1)
            names = {f"{name}:{i}": address for name, address in names.items() for i in each}
        self._addresses = names
        return sorted(names)

    def call(self, calls: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        if self._client.status != "running":
            return [Lost("the scheduler is gone")] * len(calls)
        futures: list[Any] = []
        for host, function, arguments in calls:
            address = self._addresses.get(host)
            if address is None:
                futures.append(None)
                continue
            future = self._client.submit(
                function,
                *arguments,
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
                key=f"netlathe-fleet-{id(self)}-{next(self._numbers)}",
            )
            futures.append(future)
        known = [future for future in futures if future is not None]
        try:
            self._distributed.wait(known, timeout=timeout_s)
        except (TimeoutError, self._distributed.TimeoutError):
            pass
        except self._distributed.client.FutureCancelledError:
            return [Lost("the scheduler is gone")] * len(calls)
        results: list[Any] = []
        for future in futures:
            if future is None:
                results.append(Lost("it has no worker"))
            elif future.status == "finished":
                try:
                    results.append(future.result(timeout=timeout_s))
                except Exception as error:
                    # The connection was lost while the result came.
                    results.append(Lost(str(error)))
            elif future.status == "error":
                results.append(self._failure(future))
            else:
                future.cancel()
                results.append(Lost("no answer in time"))
        return results

    def _failure(self, future: Any) -> BaseException:
        error: BaseException = future.exception()
        lost = (self._distributed.scheduler.KilledWorker, self._distributed.scheduler.NoValidWorkerError)
        return Lost(str(error)) if isinstance(error, lost) else error

    def address(self) -> str:
        address = urllib.parse.urlsplit(self._client.scheduler.address)
        family = socket.AF_INET6 if ":" in (address.hostname or "") else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing: it asks for the route.
            probe.connect((address.hostname or "127.0.0.1", address.port or 9))
            own: str = probe.getsockname()[0]
        return own

    def close(self) -> None:
        if self._own:
            self._client.close(timeout=5)
