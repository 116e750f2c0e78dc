#!/bin/sh
# Sends thousands of generated requests, valid and invalid, to `netlathe serve`, and checks the answers against its OpenAPI
# document: no 5xx, and no answer that the document does not describe. NETLATHE is the program. Arguments are passed to
# schemathesis, such as -n 500. Needs PyPI, or schemathesis in PATH.
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
# Two runs for requests that need one: the first has ended, the second continues.
post() { curl -fsS -o "$folder/run" -H "Authorization: Bearer $token" --json "$1" "$url/v1/runs"; }
pipeline='{"name": "a", "stream": ["udp 10.0.0.1:1 > 10.0.0.2:9"], "rate": "1Mpps", "out": "null", "count": '
post '{"schema": 1, "pipeline": ['"$pipeline"' 1000}]}'
post '{"schema": 1, "pipeline": ['"$pipeline"' 1000000000000}]}'
# Excluded: /v1/events, which never ends; that valid data is accepted, because no schema can describe which texts are rates
# or ports; use after DELETE, because a run still exists until it has ended.
cd "$folder"
schemathesis run "$url/openapi.json" -H "Authorization: Bearer $token" --exclude-path /v1/events --no-color \
    --exclude-checks positive_data_acceptance,use_after_free --continue-on-failure "$@"
