# Kept thin on purpose: each target is one line that could also be typed by hand.
.PHONY: fuzz-service test-page demo weak-network pictures test test-python bench bench-paper bench-receiver bench-limit bench-control bench-slices bench-search format lint doc setup fuzz fuzz-planted chaos soak test-nic site deny package miri

export PATH := $(PATH):$(HOME)/.cargo/bin

test: setup   ## all tests; tests that need a lab print SKIP if the machine does not permit one
	cargo test --workspace

test-python: setup  ## checks types and runs the tests and notebooks of the Python package in a virtual environment; SKIP without PyPI; 1 minute
	cargo build -p netlathe-cli && scripts/test_python.sh

fuzz-service: setup  ## sends generated requests to netlathe serve with schemathesis from PyPI; 2 minutes
	cargo build -p netlathe-cli && scripts/schemathesis.sh

test-page: setup  ## clicks through the web page of netlathe serve; needs Chromium; 30 seconds
	cargo build -p netlathe-cli && python3 scripts/service_page.py

demo: setup   ## runs unmodified programs through netlathe and compares asked with got; under 1 minute
	cargo build --release -p netlathe-cli && python3 scripts/demo.py

weak-network: setup  ## runs ping, iperf3 and downloads over bad networks in a lab, and uses a slow disk; 5 minutes
	cargo build --release -p netlathe-cli && python3 scripts/weak_network.py

pictures: setup  ## redraws the screenshots in docs/images; needs Chromium and pngquant
	cargo build --release -p netlathe-cli && python3 scripts/pictures.py

bench:        ## benchmarks, each beside a limit or a peer measured in the same run; 15 minutes
	@scripts/setup.sh bench
	cargo bench -p netlathe-cli --bench virtual_time --bench real_time
	cargo bench -p netlathe-engine --bench classes --bench held

bench-paper: setup  ## repeats the tables and figures of the LightShaper paper beside netlathe's; 10 minutes
	cargo build --release -p netlathe-cli && python3 bench/paper

bench-receiver: setup  ## measures what a Linux receiver takes, where it loses frames and what its monitor advises; 2 minutes
	cargo build --release -p netlathe-cli && python3 bench/receiver.py

bench-control: setup  ## measures what control clients cost a run, and how fast a change reaches the receiver; 3 minutes
	cargo build --release -p netlathe-cli && python3 bench/control.py

bench-limit: setup   ## repeats the experiment of reference 001; writes to bench/results
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 cargo bench -p netlathe-engine --bench limit && cc -O3 $$(pkg-config --cflags libdpdk) bench/rte_meter.c -o target/rte_meter $$(pkg-config --libs libdpdk) && target/rte_meter | tee bench/results/rte_meter.txt

bench-search:    ## compares the total trial time of MLRsearch with the reference library's; writes bench/results/mlrsearch.json; 1 minute
	cargo build -p netlathe-engine --example search && python3 bench/mlrsearch.py

bench-slices: setup  ## measures the cost and accuracy of slices; writes bench/results/slices.json; 10 minutes
	cargo build --release -p netlathe-cli && loops=$$(cargo bench -p netlathe-slice --bench loops --no-run 2>&1 | grep -o 'target/[^)]*') && for part in "loops $$loops" "probes $$loops" table 'table veth' cost-one cost-two throughput; do python3 bench/slices.py $$part || exit 1; done
	python3 bench/slices.py pipeline && python3 bench/slices.py whole

format:        ## formats every Rust file, including modules that a macro declares, which cargo fmt does not find
	rustfmt --edition 2024 $$(git ls-files "*.rs")

fuzz: setup    ## runs each fuzz target for T seconds (60): make fuzz T=3600 TARGETS="capture frame"
	scripts/fuzz.sh

fuzz-planted: setup  ## checks that each fuzz target finds a planted bug within T seconds (60)
	scripts/fuzz.sh planted

chaos: setup   ## makes RUNS random runs (200) with kills, stops, link flaps, full disks and missing resources; SEED=N repeats them
	cargo build --release -p netlathe-cli && nice python3 scripts/chaos.py

test-nic: setup  ## tests PCI NICs in emulated guests: binding, links, fillers, kills, a virtual function; 6 minutes
	cargo build --release -p netlathe-cli && python3 scripts/nic_lab/run.py $(GUESTS)

soak: setup    ## sends for T seconds (600) at RATE (200kpps) through gen, emulate and measure, and checks that their memory does not grow
	cargo build --release -p netlathe-cli && python3 scripts/soak.py

miri:          ## looks for undefined behaviour in the tests of CRATES (units packet measure); needs a nightly toolchain with miri; 30 minutes
	for crate in $${CRATES:-units packet measure}; do MIRIFLAGS=-Zmiri-disable-isolation nice -n 19 cargo +nightly miri test -p netlathe-$$crate --lib -- $(TESTS) || exit 1; done

lint: setup   ## checks format and lints; warnings are errors
	rustfmt --edition 2024 --check $$(git ls-files "*.rs") && cargo clippy --workspace --all-targets -- -D warnings && for features in "" live slice; do cargo clippy -p netlathe-cli --no-default-features --features "$$features" -- -D warnings || exit 1; done

doc: setup    ## builds the documentation of the crates in target/doc
	cargo doc --workspace --no-deps

site:         ## builds the documents as a web site in target/site/html and checks its links; needs mdbook
	python3 scripts/site.py

package: setup ## builds the .deb, the static binary, the Python wheel and the crates in target/package and tries each in a clean root; 10 minutes
	scripts/package.sh

deny:         ## checks licences, sources and advisories of all dependencies; needs cargo-deny
	cargo deny check

setup:        ## installs what the other targets need; does nothing if it is present
	@scripts/setup.sh
