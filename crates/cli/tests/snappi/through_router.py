"""Two ports with a Linux router between them: devices that the router resolves, and flows of IPv4 and IPv6 through it.

Usage: through_router.py HOST:PORT

The router has 10.1.0.1/24 and fd01::1/64 at the port tx, 10.2.0.1/24 and fd02::1/64 at the port rx.
"""

import struct
import sys
import time

import snappi

MAC = {"tx": "00:00:01:01:01:01", "rx": "00:00:01:01:01:02"}
http = snappi.api(location="http://" + sys.argv[1], version_check=True)
grpc = snappi.api(location=sys.argv[1], transport="grpc", version_check=True)


def wait(what, condition):
    end = time.time() + 40
    while not condition():
        assert time.time() < end, what
        time.sleep(0.05)


def new_config(api):
    config = api.config()
    config.ports.port(name="tx", location="p1").port(name="rx", location="p2")
    capture = config.captures.capture(name="capture")[-1]
    capture.port_names, capture.format = ["rx"], capture.PCAP
    only = capture.filters.ethernet()[-1]
    only.dst.value = MAC["rx"].replace(":", "")
    for net, port in [(1, "tx"), (2, "rx")]:
        ethernet = config.devices.device(name=f"d-{port}")[-1].ethernets.ethernet(name=f"e-{port}", mac=MAC[port])[-1]
        ethernet.connection.port_name = port
        ethernet.ipv4_addresses.ipv4(name=f"4-{port}", address=f"10.{net}.0.2", gateway=f"10.{net}.0.1", prefix=24)
        ethernet.ipv6_addresses.ipv6(name=f"6-{port}", address=f"fd0{net}::2", gateway=f"fd0{net}::1", prefix=64)
    return config


def new_flow(config, name, version, sender, receiver):
    flow = config.flows.flow(name=name)[-1]
    flow.tx_rx.device.tx_names, flow.tx_rx.device.rx_names = [f"{version}-{sender}"], [f"{version}-{receiver}"]
    nets = {"tx": 1, "rx": 2}
    if version == 4:
        ip = flow.packet.ethernet().ipv4()[-1]
        ip.src.value, ip.dst.value = f"10.{nets[sender]}.0.2", f"10.{nets[receiver]}.0.2"
        ip.priority.dscp.phb.value = 46
        ip.time_to_live.value = 33
    else:
        ip = flow.packet.ethernet().ipv6()[-1]
        ip.src.value, ip.dst.value = f"fd0{nets[sender]}::2", f"fd0{nets[receiver]}::2"
        ip.hop_limit.value = 33
    udp = flow.packet.udp()[-1]
    udp.src_port.increment.start, udp.src_port.increment.count, udp.dst_port.value = 5000, 10, 6000
    flow.size.increment.start, flow.size.increment.end, flow.size.increment.step = 128, 1400, 100
    flow.rate.pps, flow.duration.fixed_packets.packets = 300, 150
    flow.metrics.enable = flow.metrics.loss = flow.metrics.timestamps = flow.metrics.latency.enable = True


def neighbours(api, version):
    request = api.states_request()
    getattr(request, f"ipv{version}_neighbors").ethernet_names = ["e-tx", "e-rx"]
    return getattr(api.get_states(request), f"ipv{version}_neighbors")


def metrics(api):
    request = api.metrics_request()
    request.flow.flow_names = []
    return api.get_metrics(request).flow_metrics


def ping(api, version, source, destination):
    action = api.control_action()
    getattr(action.protocol, f"ipv{version}").ping.requests.add(src_name=source, dst_ip=destination)
    (answer,) = getattr(api.set_control_action(action).response.protocol, f"ipv{version}").ping.responses
    return answer.result


def run(api):
    config = new_config(api)
    new_flow(config, "four", 4, "tx", "rx")
    new_flow(config, "four-back", 4, "rx", "tx")
    new_flow(config, "six", 6, "tx", "rx")
    new_flow(config, "six-back", 6, "rx", "tx")
    api.set_config(config)
    for version in (4, 6):
        wait(f"ipv{version}_neighbors", lambda: all(n.link_layer_address for n in neighbours(api, version)))
        found = {n.ethernet_name: getattr(n, f"ipv{version}_address") for n in neighbours(api, version)}
        assert found == ({"e-tx": "10.1.0.1", "e-rx": "10.2.0.1"} if version == 4 else {"e-tx": "fd01::1", "e-rx": "fd02::1"}), found
    # The far device answers through the router, and an address without a device does not.
    assert [ping(api, 4, "4-tx", "10.2.0.2"), ping(api, 6, "6-rx", "fd01::2")] == ["succeeded", "succeeded"]
    assert ping(api, 4, "4-tx", "10.2.0.9") == "failed"
    for choose in (lambda control: control.port.capture, lambda control: control.traffic.flow_transmit):
        control = api.control_state()
        choose(control).state = "start"
        api.set_control_state(control)
    wait("the end", lambda: all(m.transmit == m.STOPPED and m.frames_rx >= 150 for m in metrics(api)))
    control = api.control_state()
    control.port.capture.state = control.port.capture.STOP
    api.set_control_state(control)
    for m in metrics(api):
        assert m.frames_tx == m.frames_rx == 150 and m.bytes_tx == m.bytes_rx and m.loss == 0, m
        assert 0 < m.latency.minimum_ns <= m.latency.average_ns <= m.latency.maximum_ns, m
        assert m.timestamps.first_timestamp_ns < m.timestamps.last_timestamp_ns, m
    request = api.capture_request()
    request.port_name = "rx"
    data, at, seen = api.get_capture(request).read(), 24, {4: 0, 6: 0}
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        # The router has decremented the TTL, and has set its own MAC address and that of the device.
        if frame[12:14] == b"\x08\x00" and frame[23] == 17:
            assert (frame[22], frame[15] >> 2) == (32, 46), frame[:40]
            seen[4] += 1
        elif frame[12:14] == b"\x86\xdd" and frame[20] == 17:
            assert frame[21] == 32, frame[:60]
            seen[6] += 1
    assert seen == {4: 150, 6: 150}, seen


def figures(api):
    # Rates change with time.
    return [(m.name, m.frames_tx, m.frames_rx, m.bytes_rx, m.loss, m.latency.maximum_ns, m.timestamps.last_timestamp_ns) for m in metrics(api)]


for name, api in [("http", http), ("grpc", grpc)]:
    run(api)
    assert figures(http) == figures(grpc)
    print(name, "passed", flush=True)
print("all checks passed")
