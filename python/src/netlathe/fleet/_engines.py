"""Engines, which place calls on hosts. They are never in the timing path."""

from __future__ import annotations

import asyncio
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
        """Returns the names of the available hosts."""

    def call(self, calls: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        """Calls functions on hosts, all at once. The results are in the same order; that of a host that does not answer
        in time is a `Lost`, and that of a function that raises is its exception."""

    def address(self) -> str:
        """Returns the address at which other hosts reach this one."""

    def close(self) -> None:
        """Releases what the engine has made."""


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


# The exceptions by which Dask ends a wait when the scheduler is lost.
_CANCELLED = (concurrent.futures.CancelledError, asyncio.CancelledError)


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
        except _CANCELLED:
            # Releases of Dask differ in the exception, so check whether the future was cancelled.
            pass
        # All at once: a result may be on a host whose network was lost, and waits for such hosts must not add up.
        with concurrent.futures.ThreadPoolExecutor(max_workers=min(16, len(futures)) or 1) as pool:
            return list(pool.map(lambda future: self._result(future, timeout_s), futures))

    def _result(self, future: Any, timeout_s: float) -> Any:
        if future is None:
            return Lost("it has no worker")
        if future.status == "error":
            return self._failure(future)
        if future.status in ("cancelled", "lost"):
            gone = self._client.status != "running"
            return Lost("the scheduler is gone" if gone else "the call was cancelled")
        if future.status != "finished":
            future.cancel()
            return Lost("no answer in time")
        try:
            return future.result(timeout=timeout_s)
        except (Exception, *_CANCELLED) as error:
            # The connection was lost during the transfer of the result.
            return Lost(str(error) or type(error).__name__)

    def _failure(self, future: Any) -> BaseException:
        error: BaseException = future.exception()
        lost = (self._distributed.scheduler.KilledWorker, self._distributed.scheduler.NoValidWorkerError)
        return Lost(str(error)) if isinstance(error, lost) else error

    def address(self) -> str:
        address = urllib.parse.urlsplit(self._client.scheduler.address)
        family = socket.AF_INET6 if ":" in (address.hostname or "") else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Connecting a UDP socket sends nothing. It only looks up the route.
            probe.connect((address.hostname or "127.0.0.1", address.port or 9))
            own: str = probe.getsockname()[0]
        return own

    def close(self) -> None:
        if self._own:
            self._client.close(timeout=5)


class Ray:
    """An engine on Ray: one actor per node, named as the node is (`ray start --node-name HOST`).

    `address` is that of the head, as `ray.init` takes it. If Ray is connected already, its cluster is used and kept.
    """

    def __init__(self, address: str | None = None, *, threads: int = 4, timeout_s: float = 60.0) -> None:
        import ray

        self._ray: Any = ray
        self._own = not ray.is_initialized()
        if self._own:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        self._threads = threads
        self._timeout_s = timeout_s
        self._actors: dict[str, Any] = {}

    def hosts(self) -> list[str]:
        return sorted(self._nodes())

    def _nodes(self) -> dict[str, str]:
        return {node["NodeName"]: node["NodeID"] for node in self._ray.nodes() if node["Alive"]}

    def call(self, calls: Sequence[tuple[str, Callable[..., Any], tuple[Any, ...]]], timeout_s: float) -> list[Any]:
        nodes = self._nodes() if any(host not in self._actors for host, _, _ in calls) else {}
        futures: list[Any] = []
        for host, function, arguments in calls:
            actor = self._actors.get(host) or self._place(host, nodes)
            futures.append(actor.call.remote(function, arguments) if actor else None)
        known = [future for future in futures if future is not None]
        done: set[Any] = set()
        if known:
            done = set(self._ray.wait(known, num_returns=len(known), timeout=timeout_s)[0])
        return [self._result(future, future in done) for future in futures]

    def _place(self, host: str, nodes: dict[str, str]) -> Any:
        """Creates the actor that makes the calls on a node. Their state exists as long as its process."""
        node = nodes.get(host)
        if node is None:
            return None
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        options = {"num_cpus": 0, "max_concurrency": self._threads, "max_restarts": 0, "scheduling_strategy": strategy}
        self._actors[host] = self._ray.remote(_Caller).options(**options).remote()
        return self._actors[host]

    def _result(self, future: Any, done: bool) -> Any:
        if future is None:
            return Lost("it has no node")
        if not done:
            self._ray.cancel(future)
            return Lost("no answer in time")
        try:
            return self._ray.get(future, timeout=self._timeout_s)
        except self._ray.exceptions.RayTaskError as error:
            return error.cause or error
        except self._ray.exceptions.RayError as error:
            return Lost(str(error).splitlines()[0])

    def address(self) -> str:
        own: str = self._ray.util.get_node_ip_address()
        return own

    def close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._own:
            self._ray.shutdown()


class _Caller:
    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)
