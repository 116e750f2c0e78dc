"""One experiment over many hosts: armed everywhere, then started at one instant by compared clocks.

    from netlathe import fleet

    clients = fleet.Role("client", hosts=3, command=["gen", "--out", "eth0", "--rate", "10kpps", "--stream", "…"])
    scenario = fleet.Scenario([fleet.Phase("run", [clients], duration_s=10)])
    result = fleet.run(scenario, fleet.Dask("tcp://scheduler:8786"))
    print(result.report("client").client.out.frames, result.missing)

An engine places the agents: `Dask` (a worker per host, by SSH, Slurm, Kubernetes or here; `pip install netlathe[fleet]`),
`Ray` (`pip install ray`), or `Threads` in this process. Your own engine implements the four functions of `Engine`. The engine is never in the timing path: programs wait,
armed, for an absolute instant of their host's clock. An agent ends its program by itself when its lease is not renewed.
"""

from netlathe.fleet._control import FleetResult, HostResult, Phase, Role, Scenario, on_terminal, run
from netlathe.fleet._engines import Dask, Engine, Lost, Ray, Threads

__all__ = [
    "Dask",
    "Engine",
    "FleetResult",
    "HostResult",
    "Lost",
    "Phase",
    "Ray",
    "Role",
    "Scenario",
    "Threads",
    "on_terminal",
    "run",
]
