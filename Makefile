# Thin on purpose: each target is one line of real work, fit to be typed by hand.
.PHONY: fuzz-service test-page demo weak-network pictures test test-python bench bench-paper bench-receiver bench-limit bench-control bench-slices bench-search format lint doc setup fuzz fuzz-planted chaos soak test-nic site deny package miri

export PATH := $(PATH):$(HOME)/.cargo/bin

test: setup   ## every test; labs say SKIP where the machine does not permit them
	cargo test --workspace

test-python: setup  ## the Python package in a virtual environment: types, tests, notebooks; SKIP without PyPI; a minute
	cargo build -p netlathe-cli && scripts/test_python.sh

fuzz-service: setup  ## generated requests against netlathe serve, by schemathesis of PyPI; two minutes
	cargo build -p netlathe-cli && scripts/schemathesis.sh

test-page: setup  ## clicks through the page of netlathe serve; wants Chromium; half a minute
	cargo build -p netlathe-cli && python3 scripts/service_page.py

demo: setup   ## unmodified programs through netlathe, asked against got, in under a minute
	cargo build --release -p netlathe-cli && python3 scripts/demo.py

weak-network: setup  ## ping, iperf3 and downloads over bad networks in a lab, and a slow disk, five minutes
	cargo build --release -p netlathe-cli && python3 scripts/weak_network.py

pictures: setup  ## the pictures of pages in docs/images; wants Chromium and pngquant besides
	cargo build --release -p netlathe-cli && python3 scripts/pictures.py

bench:        ## figures beside a limit or a peer of the same run, fifteen minutes
	@scripts/setup.sh bench
	cargo bench -p netlathe-cli --bench virtual_time --bench real_time
	cargo bench -p netlathe-engine --bench classes --bench held

bench-paper: setup  ## the LightShaper paper's tables and figures again, beside ours, ten minutes
	cargo build --release -p netlathe-cli && python3 bench/paper

bench-receiver: setup  ## what a Linux receiver takes, where it loses frames, what its monitor advises, two minutes
	cargo build --release -p netlathe-cli && python3 bench/receiver.py

bench-control: setup  ## what clients cost a run, and how fast a change shows at the receiver, three minutes
	cargo build --release -p netlathe-cli && python3 bench/control.py

bench-limit: setup   ## the experiment of reference 001, in bench/results
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 cargo bench -p netlathe-engine --bench limit && cc -O3 $$(pkg-config --cflags libdpdk) bench/rte_meter.c -o target/rte_meter $$(pkg-config --libs libdpdk) && target/rte_meter | tee bench/results/rte_meter.txt

bench-search:    ## total trial time of MLRsearch beside the reference library's, in bench/results/mlrsearch.json, a minute
	cargo build -p netlathe-engine --example search && python3 bench/mlrsearch.py

bench-slices: setup  ## what slices cost and how exact they are, in bench/results/slices.json, ten minutes
	cargo build --release -p netlathe-cli && loops=$$(cargo bench -p netlathe-slice --bench loops --no-run 2>&1 | grep -o 'target/[^)]*') && for part in "loops $$loops" "probes $$loops" table 'table veth' cost-one cost-two throughput; do python3 bench/slices.py $$part || exit 1; done
	python3 bench/slices.py pipeline && python3 bench/slices.py whole

format:        ## every file, those that lists of modules name in a macro included, which cargo fmt does not see
	rustfmt --edition 2024 $$(git ls-files "*.rs")

fuzz: setup    ## each fuzz target for T seconds (60): make fuzz T=3600 TARGETS="capture frame"
	scripts/fuzz.sh

fuzz-planted: setup  ## each fuzz target finds a planted bug within T seconds (60)
	scripts/fuzz.sh planted

chaos: setup   ## RUNS random runs (200) under kills, stops, flaps, full disks and missing resources; SEED=N repeats them
	cargo build --release -p netlathe-cli && nice python3 scripts/chaos.py

test-nic: setup  ## NICs on PCI in guests of an emulator: binding, links, fillers, kills, a virtual function; six minutes
	cargo build --release -p netlathe-cli && python3 scripts/nic_lab/run.py $(GUESTS)

soak: setup    ## T seconds (600) at RATE (200kpps) through gen, emulate and measure: their memory stays as it is
	cargo build --release -p netlathe-cli && python3 scripts/soak.py

miri:          ## undefined behaviour in tests of CRATES (units packet measure), slow: half an hour; wants a nightly toolchain with miri
	for crate in $${CRATES:-units packet measure}; do MIRIFLAGS=-Zmiri-disable-isolation nice -n 19 cargo +nightly miri test -p netlathe-$$crate --lib -- $(TESTS) || exit 1; done

lint: setup   ## format and lints, warnings are errors
	rustfmt --edition 2024 --check $$(git ls-files "*.rs") && cargo clippy --workspace --all-targets -- -D warnings && for features in "" live slice; do cargo clippy -p netlathe-cli --no-default-features --features "$$features" -- -D warnings || exit 1; done

doc: setup    ## the crates' documentation, in target/doc
	cargo doc --workspace --no-deps

site:         ## the documents as a web site, in target/site/html, its links checked; wants mdbook
	python3 scripts/site.py

package: setup ## the .deb, the static binary, the Python wheel and the crates, in target/package, each tried in a clean root; ten minutes
	scripts/package.sh

deny:         ## licences, sources and advisories of all dependencies; wants cargo-deny
	cargo deny check

setup:        ## what the others need; does nothing when it is there
	@scripts/setup.sh
