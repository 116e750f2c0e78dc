#!/usr/bin/env bash
# Fuzzes each target of crates/fuzz for T seconds (60 unless set). `fuzz.sh planted` checks the fuzzer itself: each
# parser has a planted bug, which its target must find within T seconds.
# A finding ends the script with status 1 and is kept in crates/fuzz/artifacts. Fix the code, and add the input to
# crates/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${T:-60}
features=libfuzzer
[ "${1:-}" != planted ] || features=libfuzzer,planted
only=${TARGETS:-}

command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
rustc +nightly --version >/dev/null 2>&1 || {
    echo "fuzz: coverage needs a nightly toolchain: rustup toolchain install nightly" >&2
    exit 2
}

# LTO, which the release profile enables, takes minutes for each target.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
options=(--fuzz-dir crates/fuzz --sanitizer none --features "$features")
[ -n "$only" ] || only=$(cargo fuzz list --fuzz-dir crates/fuzz)
missed=0
for target in $only; do
    found=target/fuzz/$features/$target
    mkdir -p "$found"
    if cargo +nightly fuzz run "${options[@]}" "$target" "$found" "crates/fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -timeout=1 -rss_limit_mb=2048 >"$found.log" 2>&1; then
        outcome=$(grep -o 'Done [0-9]* runs' "$found.log" || echo 'no run')
        [ "$features" = libfuzzer ] || { missed=1; outcome="MISSED the planted bug: $outcome"; }
    elif [ "$features" != libfuzzer ] && grep -q 'the planted bug' "$found.log"; then
        outcome='found the planted bug'
        rm -rf "crates/fuzz/artifacts/$target"
    else
        missed=1
        outcome="FAILED: see $found.log"
    fi
    printf '%-12s %s\n' "$target" "$outcome"
done
exit $missed
