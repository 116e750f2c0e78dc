"""Two ports back to back, through snappi alone: what its objects say is what netlathe sends, counts and captures.

Usage: back_to_back.py URL
"""

import struct
import sys
import time

import snappi

api = snappi.api(location=sys.argv[1], version_check=True)


def new_config():
    config = api.config()
    config.ports.port(name="tx", location="p1").port(name="rx", location="p2")
    # snappi also sends the defaults of layer 1.
    layer = config.layer1.layer1(name="l1")[-1]
    layer.port_names, layer.speed = ["tx", "rx"], layer.SPEED_1_GBPS
    capture = config.captures.capture(name="capture")[-1]
    capture.port_names, capture.format = ["tx", "rx"], capture.PCAP
    return config


def new_flow(config, name, packets=100, pps=1000, size=128):
    flow = config.flows.flow(name=name)[-1]
    flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = "tx", ["rx"]
    flow.size.fixed, flow.rate.pps = size, pps
    flow.duration.fixed_packets.packets = packets
    flow.metrics.enable = flow.metrics.loss = flow.metrics.timestamps = True
    return flow


def set_state(choose, state):
    control = api.control_state()
    choose(control).state = state
    api.set_control_state(control)


def transmit(state):
    set_state(lambda control: control.traffic.flow_transmit, state)


def capture(state):
    set_state(lambda control: control.port.capture, state)


def metrics():
    request = api.metrics_request()
    request.flow.flow_names = []
    return api.get_metrics(request).flow_metrics


def run(config, packets):
    """Runs a configuration to its end, and returns the frames that arrived."""
    api.set_config(config)
    capture("start")
    transmit("start")
    end = time.time() + 30
    while any(m.transmit != m.STOPPED or m.frames_rx < packets for m in metrics()):
        assert time.time() < end, metrics()
        time.sleep(0.05)
    capture("stop")
    for m in metrics():
        assert m.frames_tx == m.frames_rx == packets and m.loss == 0, m
    request = api.capture_request()
    request.port_name = "rx"
    data, at, frames = api.get_capture(request).read(), 24, []
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames


def test_every_header():
    for headers in [
        "ethernet ipv4 udp", "ethernet vlan ipv4 tcp", "ethernet ipv6 udp", "ethernet ipv4 icmp", "ethernet ipv6 icmpv6",
        "ethernet ipv4 udp vxlan ethernet ipv6 tcp", "ethernet mpls ipv4 udp", "ethernet ipv4 gre ipv4 udp",
        "ethernet ipv4 udp gtpv1 ipv4 udp", "ethernet arp", "ethernetpause", "pfcpause",
    ]:  # fmt: skip
        config = new_config()
        packet = new_flow(config, "f", packets=20, size=200).packet
        for header in headers.split():
            packet = getattr(packet, header)()
        frames = [frame for frame in run(config, 20) if len(frame) == 200]
        assert len(frames) == 20, headers


def test_patterns():
    config = new_config()
    flow = new_flow(config, "f")
    ethernet, ip, udp = flow.packet.ethernet().ipv4().udp()
    ethernet.src.value = "00:00:01:01:01:01"
    ip.src.increment.start, ip.src.increment.step, ip.src.increment.count = "10.0.0.1", "0.0.0.1", 5
    ip.priority.dscp.phb.values = [10, 46]
    ip.header_checksum.generated = ip.header_checksum.BAD
    udp.src_port.decrement.start, udp.src_port.decrement.step, udp.src_port.decrement.count = 5000, 2, 10
    udp.dst_port.random.min, udp.dst_port.random.max, udp.dst_port.random.seed, udp.dst_port.random.count = 1, 9, 3, 50
    udp.checksum.custom = 0x1234
    frames = [frame for frame in run(config, 100) if frame[6:12] == bytes([0, 0, 1, 1, 1, 1])]
    for n, frame in enumerate(frames):
        source, destination = struct.unpack_from(">HH", frame, 34)
        assert (frame[29], frame[15] >> 2, source) == (1 + n % 5, [10, 46][n % 2], 5000 - 2 * (n % 10)), n
        assert 1 <= destination <= 9 and frame[40:42] == b"\x12\x34"
    assert len(frames) == 100 and len({frame[36:38] for frame in frames}) > 4


def test_sizes_rates_and_durations():
    config = new_config()
    flow = new_flow(config, "f")
    flow.packet.ethernet().ipv4().udp()
    flow.size.increment.start, flow.size.increment.end, flow.size.increment.step = 100, 190, 10
    flow.rate.mbps = 1
    frames = [frame for frame in run(config, 100) if len(frame) >= 100]
    assert sorted({len(frame) for frame in frames}) == list(range(100, 200, 10))
    # 100 frames of 145 B on average at 1 Mbit/s.
    spread = metrics()[0].timestamps.last_timestamp_ns - metrics()[0].timestamps.first_timestamp_ns
    assert 0.08e9 < spread < 0.4e9, spread
    config = new_config()
    flow = new_flow(config, "f")
    flow.packet.ethernet().ipv4().udp()
    flow.size.weight_pairs.predefined = flow.size.weight_pairs.IMIX
    flow.rate.percentage, flow.duration.fixed_seconds.seconds = 1, 0.5
    api.set_config(config)
    transmit("start")
    time.sleep(1)
    # 1 % of 1 Gbit/s at a mean size of 354 B, with preamble and gap.
    assert abs(metrics()[0].frames_tx - 1671) < 50, metrics()


def test_devices():
    config = new_config()
    for n, port, other in [(1, "tx", 2), (2, "rx", 1)]:
        device = config.devices.device(name=f"d{n}")[-1]
        ethernet = device.ethernets.ethernet(name=f"e{n}", mac=f"00:00:01:01:01:0{n}")[-1]
        ethernet.connection.port_name = port
        ethernet.ipv4_addresses.ipv4(name=f"i{n}", address=f"1.1.1.{n}", gateway=f"1.1.1.{other}")
    flow = config.flows.flow(name="f")[-1]
    flow.tx_rx.device.tx_names, flow.tx_rx.device.rx_names = ["i1"], ["i2"]
    flow.packet.ethernet().ipv4()
    flow.duration.fixed_packets.packets = 50
    flow.metrics.enable = flow.metrics.loss = True
    run(config, 50)
    request = api.states_request()
    request.ipv4_neighbors.ethernet_names = ["e1"]
    (neighbour,) = api.get_states(request).ipv4_neighbors
    assert (neighbour.ipv4_address, neighbour.link_layer_address) == ("1.1.1.2", "00:00:01:01:01:02")
    action = api.control_action()
    action.protocol.ipv4.ping.requests.add(src_name="i1", dst_ip="1.1.1.2")
    (answer,) = api.set_control_action(action).response.protocol.ipv4.ping.responses
    assert answer.result == answer.SUCCEEDED


def test_what_is_not_served_is_named():
    config = new_config()
    config.devices.device(name="d")[-1].bgp.router_id = "1.1.1.1"
    try:
        api.set_config(config)
    except Exception as refused:
        assert "devices[0].bgp" in str(refused), refused
    else:
        raise AssertionError("a configuration with BGP was accepted")


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, "passed", flush=True)
print("all checks passed")
