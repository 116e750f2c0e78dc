#!/usr/bin/env python3
"""What `netlathe otg` does with many flows, on a veth pair in a namespace of its own.

    bench/otg.py even [ROUNDS]       1 000 flows at 1 pps each: gaps at the receiver, asked 1 ms
    bench/otg.py speed [ROUNDS]      4 096 flows: time to configure them, and to read the metrics of all, by HTTP and gRPC
    bench/otg.py same                counters over HTTP and over gRPC, after the end of some flows

Prints JSON lines. Wants root, and NETLATHE with the program. Calls over gRPC, and `same`, want `pip install snappi`.
Times are those that a client sees, from the first byte of a request to the last byte of the answer. Those of snappi have
its own work, too: it checks every field.
"""

import http.client
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("NETLATHE", str(ROOT / "target" / "release" / "netlathe"))
SPACE = f"otgbench{os.getpid() % 10000}"
HERE = "127.0.0.1:8080"
PORTS = [{"name": "p1", "location": "p1"}, {"name": "p2", "location": "p2"}]
GAP_NS = 1_000_000
BACK_TO_BACK_NS = GAP_NS / 10


def say(**figures):
    print(json.dumps(figures), flush=True)


def ask(method, path, body=None):
    """The answer to a request, and its time in seconds."""
    text = json.dumps(body).encode() if body is not None else b""
    begin = time.perf_counter()
    server = http.client.HTTPConnection(HERE, timeout=60)
    server.request(method, path, text, {"Content-Type": "application/json"})
    answer = server.getresponse()
    data = answer.read()
    took = time.perf_counter() - begin
    if answer.status != 200:
        sys.exit(f"{method} {path}: {answer.status} {data[:500]!r}")
    return data, took


def config(flows, packets, pps):
    flow = {
        "tx_rx": {"port": {"tx_name": "p1", "rx_names": ["p2"]}},
        "packet": [{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}],
        "size": {"fixed": 128},
        "rate": {"pps": pps},
        "duration": {"fixed_packets": {"packets": packets}},
        "metrics": {"enable": True, "loss": True, "timestamps": True, "latency": {"enable": True, "mode": "cut_through"}},
    }
    captures = [{"name": "c", "port_names": ["p2"]}]
    return {"ports": PORTS, "captures": captures, "flows": [{"name": f"f{n}", **flow} for n in range(flows)]}


def transmit(state):
    ask("POST", "/control/state", {"traffic": {"flow_transmit": {"state": state}}})


def capture(state):
    ask("POST", "/control/state", {"port": {"capture": {"state": state}}})


def await_end():
    while any(m["transmit"] != "stopped" for m in json.loads(ask("POST", "/monitor/metrics", {"flow": {}})[0])["flow_metrics"]):
        time.sleep(0.5)
    time.sleep(0.2)


def even(rounds):
    for _ in range(rounds):
        ask("POST", "/config", config(1_000, 10, 1))
        capture("start")
        transmit("start")
        # Polling for the end disturbs the sender, so begin late.
        time.sleep(9)
        await_end()
        capture("stop")
        data, _ = ask("POST", "/monitor/capture", {"port_name": "p2"})
        times, at = [], 24
        while at < len(data):
            seconds, ns, length = struct.unpack_from("<III", data, at)
            times.append(seconds * 10**9 + ns)
            at += 16 + length
        gaps = [after - before for before, after in zip(times, times[1:])]
        median = statistics.median(gaps)
        within = sum(abs(gap - GAP_NS) <= GAP_NS / 100 for gap in gaps)
        say(
            what="even", frames=len(times), median_gap_ns=median, median_error_percent=100 * (median - GAP_NS) / GAP_NS,
            median_deviation_ns=statistics.median(abs(gap - GAP_NS) for gap in gaps),
            within_1_percent=100 * within / len(gaps),
            back_to_back_percent=100 * sum(gap < BACK_TO_BACK_NS for gap in gaps) / len(gaps),
            longest_gap_ns=max(gaps),
        )  # fmt: skip


def by_grpc():
    """Calls with the messages of snappi, or None without it."""
    try:
        import grpc
        from google.protobuf import json_format
        from snappi import otg_pb2
    except ImportError:
        return None
    channel = grpc.insecure_channel(HERE, options=[("grpc.max_receive_message_length", 64 << 20)])

    def call(name, request, answer):
        return channel.unary_unary(
            f"/otg.Openapi/{name}", request_serializer=lambda m: m.SerializeToString(), response_deserializer=answer.FromString
        )  # fmt: skip

    set_config = call("SetConfig", otg_pb2.SetConfigRequest, otg_pb2.SetConfigResponse)
    get_metrics = call("GetMetrics", otg_pb2.GetMetricsRequest, otg_pb2.GetMetricsResponse)

    def configure(body):
        request = json_format.ParseDict({"config": body}, otg_pb2.SetConfigRequest())
        begin = time.perf_counter()
        set_config(request)
        return time.perf_counter() - begin

    def metrics(choice):
        request = json_format.ParseDict({"metrics_request": {"choice": choice, choice: {}}}, otg_pb2.GetMetricsRequest())
        begin = time.perf_counter()
        answer = get_metrics(request)
        took = time.perf_counter() - begin
        fields = json_format.MessageToDict(answer, preserving_proto_field_name=True)
        return fields["metrics_response"][f"{choice}_metrics"], took

    return configure, metrics


def speed(rounds):
    body, grpc = config(4_096, 1, 1), by_grpc()
    for _ in range(rounds):
        _, configured = ask("POST", "/config", body)
        transmit("start")
        data, read = ask("POST", "/monitor/metrics", {"flow": {}})
        assert len(json.loads(data)["flow_metrics"]) == 4_096
        transmit("stop")
        say(what="speed", by="HTTP", configure_s=configured, metrics_s=read)
        if grpc:
            configured = grpc[0](body)
            transmit("start")
            flows, read = grpc[1]("flow")
            assert len(flows) == 4_096
            transmit("stop")
            say(what="speed", by="gRPC", configure_s=configured, metrics_s=read)
    if grpc:
        import snappi

        for transport, location in [("http", f"http://{HERE}"), ("grpc", HERE)]:
            api = snappi.api(location=location, transport=transport)
            wanted = api.config()
            wanted.deserialize(json.dumps(body))
            begin = time.perf_counter()
            api.set_config(wanted)
            configured = time.perf_counter() - begin
            request = api.metrics_request()
            request.flow.flow_names = []
            begin = time.perf_counter()
            assert len(api.get_metrics(request).flow_metrics) == 4_096
            say(what="speed", by=f"snappi, {transport}", configure_s=configured, metrics_s=time.perf_counter() - begin)


def same():
    import snappi

    body = config(20, 50, 500)
    tags = [{"name": "port", "offset": 0, "length": 16}]
    body["flows"][0]["packet"][2] = {"udp": {"dst_port": {"choice": "values", "values": [1, 2, 3], "metric_tags": tags}}}
    ask("POST", "/config", body)
    transmit("start")
    await_end()
    # Rates are those of the last second.
    time.sleep(2)
    answers = []
    for transport, location in [("http", f"http://{HERE}"), ("grpc", HERE)]:
        api = snappi.api(location=location, transport=transport)
        for choose in ("flow", "port"):
            request = api.metrics_request()
            if choose == "flow":
                request.flow.flow_names = []
                request.flow.tagged_metrics.include = True
            else:
                request.port.port_names = []
            answers.append(json.loads(api.get_metrics(request).serialize()))
    by_http, by_grpc_calls = answers[:2], answers[2:]
    figures = sum(len(one) for part in by_http for rows in part.values() if isinstance(rows, list) for one in rows)
    say(what="same", figures=figures, equal=by_http == by_grpc_calls)
    if by_http != by_grpc_calls:
        sys.exit(f"HTTP {by_http}\ngRPC {by_grpc_calls}")


def main():
    parts = {"even": even, "speed": speed, "same": lambda _: same()}
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    if os.environ.get("OTG_BENCH_INSIDE"):
        return parts[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    for line in [f"netns add {SPACE}", f"-n {SPACE} link set lo up", f"-n {SPACE} link add va type veth peer name vb"]:
        subprocess.run(["ip", *line.split()], check=True)
    inside = ["ip", "netns", "exec", SPACE]
    otg = None
    try:
        for end in ("va", "vb"):
            subprocess.run([*inside, "sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"], check=True)
            subprocess.run(["ip", "-n", SPACE, "link", "set", end, "up"], check=True)
        otg = subprocess.Popen([*inside, PROGRAM, "otg", "-v", "--listen", HERE, "--ports", "p1=va,p2=vb"], stderr=subprocess.PIPE)
        while b"serves" not in otg.stderr.readline():
            if otg.poll() is not None:
                sys.exit("netlathe otg has ended")
        done = subprocess.run([*inside, sys.executable, *sys.argv], env={**os.environ, "OTG_BENCH_INSIDE": "1"}, check=False)
        sys.exit(done.returncode)
    finally:
        if otg:
            otg.terminate()
            otg.wait(10)
        subprocess.run(["ip", "netns", "del", SPACE], check=True)


if __name__ == "__main__":
    main()
