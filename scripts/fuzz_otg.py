#!/usr/bin/env python3
"""Sends mutated requests to a running `netlathe otg`, over HTTP or gRPC.

Usage: netlathe otg --ports p1=eth1,p2=eth2 & scripts/fuzz_otg.py [--url HOST:PORT] [--count N] [--seed N] [--grpc]

Half of them are configurations, the others append, delete and change flows, start and stop them, and read metrics and
states. Fails if an answer is neither success nor a refusal of the request, if the server ends, or if a field that the
model does not have is accepted. --grpc wants `pip install snappi`.
"""

import argparse
import copy
import http.client
import json
import random
import sys

PORT = {"tx_name": "p1", "rx_names": ["p2"]}
FLOWS = [
    {"packet": [{"choice": "ethernet"}, {"choice": "ipv4", "ipv4": {"dst": {"choice": "value", "value": "10.0.0.1"}}}, {"choice": "udp"}],
     "size": {"choice": "fixed", "fixed": 128}, "rate": {"choice": "pps", "pps": 10},
     "metrics": {"enable": True, "latency": {"enable": True, "mode": "cut_through"}}},
    {"packet": [{"ethernet": {"src": {"increment": {"start": "02:00:00:00:00:01", "count": 9}}}}, {"vlan": {"id": {"values": [1, 2]}}},
                {"ipv6": {"flow_label": {"random": {"max": 99, "count": 5}}}}, {"tcp": {"checksum": {"generated": "bad"}}}],
     "size": {"increment": {"start": 100, "end": 200, "step": 3}}, "rate": {"mbps": 1},
     "duration": {"fixed_packets": {"packets": 10, "delay": {"microseconds": 5}}}},
    {"packet": [{"ethernet": {}}, {"ipv4": {"priority": {"dscp": {"phb": {"value": 46, "metric_tags": [{"name": "t"}]}}}}}, {"udp": {}},
                {"vxlan": {"vni": {"decrement": {"start": 9, "count": 3}}}}, {"ethernet": {}}, {"ipv4": {}}, {"custom": {"bytes": "0a0b"}}],
     "size": {"weight_pairs": {"custom": [{"size": 300, "weight": 2}]}}, "duration": {"burst": {"packets": 5, "bursts": 2}},
     "payload": {"fixed": {"pattern": "aa55"}}},
]  # fmt: skip
VALID = {
    "ports": [{"name": "p1", "location": "p1"}, {"name": "p2", "location": "p2"}],
    "layer1": [{"name": "l", "port_names": ["p1"], "speed": "speed_1_gbps"}],
    "captures": [{"name": "c", "port_names": ["p2"], "filters": [{"ipv4": {"dst": {"value": "0a000001"}}}]}],
    "devices": [{"name": "d", "ethernets": [{
        "name": "e", "connection": {"port_name": "p1"}, "mac": "02:00:00:00:00:01", "vlans": [{"name": "v", "id": 5}],
        "ipv4_addresses": [{"name": "i", "address": "10.0.0.1", "gateway": "10.0.0.2", "prefix": 24}]}]}],
    "flows": [{"name": f"f{n}", "tx_rx": {"choice": "port", "port": PORT}, **flow} for n, flow in enumerate(FLOWS)],
}  # fmt: skip
CHOICES = [
    ("POST", "/config", "SetConfig", "config", VALID),
    ("PATCH", "/config/append", "AppendConfig", "config_append",
     {"config_append_list": [{"choice": "flows", "flows": [{**VALID["flows"][0], "name": "new"}]}]}),
    ("PATCH", "/config/delete", "DeleteConfig", "config_delete", {"config_delete_list": [{"choice": "flows", "flows": ["new", "f1"]}]}),
    ("PATCH", "/config", "UpdateConfig", "config_update",
     {"choice": "flows", "flows": {"property_names": ["rate", "size"], "flows": [VALID["flows"][0]]}}),
    ("POST", "/control/state", "SetControlState", "control_state",
     {"choice": "traffic", "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": "start", "flow_names": ["f0"]}}}),
    ("POST", "/control/state", "SetControlState", "control_state",
     {"choice": "port", "port": {"choice": "capture", "capture": {"state": "start", "port_names": ["p2"]}}}),
    ("POST", "/monitor/metrics", "GetMetrics", "metrics_request",
     {"choice": "flow", "flow": {"flow_names": ["f0"], "metric_names": ["frames_tx"], "tagged_metrics": {"include": True}}}),
    ("POST", "/monitor/metrics", "GetMetrics", "metrics_request", {"choice": "port", "port": {"port_names": ["p1"], "column_names": ["link"]}}),
    ("POST", "/monitor/states", "GetStates", "states_request", {"choice": "ipv4_neighbors", "ipv4_neighbors": {"ethernet_names": ["e"]}}),
    ("POST", "/monitor/capture", "GetCapture", "capture_request", {"port_name": "p2"}),
]  # fmt: skip
VALUES = [None, True, False, 0, -1, 1.5, 2**32, 2**64, 1e308, "", "x", "0", "\0\u202e", "10.0.0.256", "00:00:00:00:00:0g", [], {}, [[]], [None],
          {"choice": "value"}, "a" * 5000, list(range(300))]  # fmt: skip


def places(value, found):
    """Every (container, key) in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        places(inner, found)
    return found


def mutate(rng, valid):
    """A request, and whether it has a field that no model has."""
    request = copy.deepcopy(valid)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        found = places(request, [])
        if not found:
            break
        container, key = rng.choice(found)
        what = rng.randrange(6)
        if what == 0 and isinstance(container[key], dict):
            container[key]["not_in_the_model"] = copy.deepcopy(rng.choice(VALUES))
        elif what == 1 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif what == 2:
            del container[key]
        elif what == 3:
            other, at = rng.choice(places(request, []))
            container[key] = copy.deepcopy(other[at])
        else:
            container[key] = copy.deepcopy(rng.choice(VALUES))
    return request, any(key == "not_in_the_model" for _, key in places(request, []))


class Http:
    """Statuses: 200 is success, 400 a refusal."""

    success, refusal = 200, 400

    def __init__(self, url):
        self.server = http.client.HTTPConnection(url, timeout=30)

    def send(self, rng, choice, request, unknown):
        method, path, *_ = choice
        text = json.dumps(request)
        if rng.randrange(50) == 0:
            cut = rng.randrange(len(text))
            text, unknown = text[:cut] + rng.choice(["", "}", '"', "\x01"]) + text[cut + 1 :], False
        self.server.request(method, path, text.encode(), {"Content-Type": "application/json"})
        answer = self.server.getresponse()
        return answer.status, answer.read()[:300], unknown, text


class Grpc:
    """Statuses: OK is success, INVALID_ARGUMENT a refusal."""

    success, refusal = "OK", "INVALID_ARGUMENT"

    def __init__(self, url):
        import grpc
        from google.protobuf import json_format
        from snappi import otg_pb2

        self.grpc, self.json_format, self.messages = grpc, json_format, otg_pb2
        self.channel = grpc.insecure_channel(url)

    def messages_in(self, message, found):
        found.append(message)
        for field, value in message.ListFields():
            if field.message_type is not None:
                for inner in value if field.is_repeated else [value]:
                    self.messages_in(inner, found)
        return found

    def send(self, rng, choice, request, _):
        _, _, call, field, valid = choice
        kind = getattr(self.messages, f"{call}Request")
        message = kind()
        try:
            self.json_format.ParseDict({field: request}, message, ignore_unknown_fields=True)
        except (self.json_format.ParseError, ValueError, TypeError, AttributeError):
            # JSON of other types has no message.
            message = self.json_format.ParseDict({field: valid}, kind())
        inner = self.messages_in(message, [])
        unknown = rng.randrange(4) == 0 and len(inner) > 1
        if unknown:
            # A number that the model does not have, as a whole number or as a text.
            rng.choice(inner[1:]).MergeFromString(rng.choice([b"\xf8\xf9\x01\x01", b"\xfa\xf9\x01\x01x"]))
        data = message.SerializeToString()
        if data and not unknown and rng.randrange(3) == 0:
            at = rng.randrange(len(data))
            data = data[:at] + rng.choice([b"", bytes([rng.randrange(256)]), rng.randbytes(9)]) + data[at + 1 :]
        try:
            self.channel.unary_unary(f"/otg.Openapi/{call}")(data, timeout=30)
            return self.success, b"", unknown, data.hex()
        except self.grpc.RpcError as error:
            return error.code().name, error.details().encode()[:300], unknown, data.hex()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:8080")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grpc", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    server = Grpc(options.url) if options.grpc else Http(options.url)
    seen, refused = {}, 0
    for n in range(options.count):
        choice = rng.choice(CHOICES[:1] * (len(CHOICES) - 1) + CHOICES[1:])
        status, text, unknown, sent = server.send(rng, choice, *mutate(rng, choice[-1]))
        seen[choice[2], status] = seen.get((choice[2], status), 0) + 1
        refused += unknown
        if status not in (server.success, server.refusal) or (unknown and status == server.success):
            sys.exit(f"request {n} (seed {options.seed}), {choice[2]}: status {status} {text!r}\n{sent[:3000]}")
    status, text, *_ = server.send(random.Random(5), CHOICES[0], VALID, False)
    if status != server.success:
        sys.exit(f"the valid configuration at the end: {status} {text!r}")
    print(f"{options.count} requests (seed {options.seed}), of which {refused} had an unknown field and were refused:")
    for (call, status), count in sorted(seen.items()):
        print(f"  {call}: {status} {count}")


if __name__ == "__main__":
    main()
