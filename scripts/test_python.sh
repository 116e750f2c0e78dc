#!/usr/bin/env bash
# Installs the Python package into a new virtual environment, then checks its types and runs its tests and notebooks.
# NETLATHE names the program; the default is the one that cargo built. Without PyPI it prints SKIP and the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
NETLATHE=$(realpath "${NETLATHE:-$target/debug/netlathe}")
export NETLATHE PYTHONDONTWRITEBYTECODE=1
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT

if ! python3 -m venv "$venv" >"$venv.log" 2>&1 || ! "$venv/bin/pip" install --quiet 'hatchling>=1.18,<2' >>"$venv.log" 2>&1; then
    echo "SKIP: there is no virtual environment with packages of PyPI: $(tail -1 "$venv.log")"
    rm -f "$venv.log"
    exit 0
fi
rm -f "$venv.log"

# A PATH without cargo, because the package must install without building the program.
echo "test-python: pip install ./python"
PATH="$venv/bin:/usr/bin:/bin" "$venv/bin/pip" install --quiet './python[test]'
cd python
echo "test-python: mypy --strict"
"$venv/bin/mypy" --cache-dir "$venv/mypy"
echo "test-python: pytest"
"$venv/bin/python" -m pytest -q -p no:cacheprovider -rs
# Runs the copy in the package, with no other netlathe to find.
cd "$venv"
env -u NETLATHE PATH=/nonexistent "$venv/bin/python" -c 'import netlathe; assert netlathe.Program().binary.startswith("'"$venv"'"), netlathe.Program().binary; print(netlathe.command("--version"), end="")'
