#!/bin/sh
# Sends thousands of generated requests to `netlathe serve`, right and wrong, and checks the answers against its OpenAPI document:
# no 5xx, no answer that the document does not describe. NETLATHE is the program; arguments go to schemathesis, such as -n 500.
# It wants PyPI, or schemathesis in the PATH.
set -eu
netlathe=${NETLATHE:-target/debug/netlathe}
folder=$(mktemp -d)
trap 'kill "$service" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
service=
if ! command -v schemathesis >/dev/null; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q schemathesis
    PATH=$folder/venv/bin:$PATH
fi
"$netlathe" serve --listen 127.0.0.1:0 --token "$folder/token" 2>"$folder/said" &
service=$!
url=
for _ in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5
    url=$(sed -n 's|^netlathe: note: listening on |http://|p' "$folder/said")
    [ -z "$url" ] || break
done
[ -n "$url" ] || { cat "$folder/said"; exit 1; }
token=$(cat "$folder/token")
# Runs for the requests that need one: one that has ended, one that goes on.
post() { curl -fsS -o "$folder/run" -H "Authorization: Bearer $token" --json "$1" "$url/v1/runs"; }
pipeline='{"name": "a", "stream": ["udp 10.0.0.1:1 > 10.0.0.2:9"], "rate": "1Mpps", "out": "null", "count": '
post '{"schema": 1, "pipeline": ['"$pipeline"' 1000}]}'
post '{"schema": 1, "pipeline": ['"$pipeline"' 1000000000000}]}'
# /v1/events has no end. That valid data is taken cannot be asked: no schema can say which texts are rates or ports. A run that goes
# on is still there after DELETE, until it has ended.
cd "$folder"
schemathesis run "$url/openapi.json" -H "Authorization: Bearer $token" --exclude-path /v1/events --no-color \
    --exclude-checks positive_data_acceptance,use_after_free --continue-on-failure "$@"
