//! Compiles the shim against the DPDK that `pkg-config` finds and links the libraries it uses.

use std::env;
use std::process::{Command, exit};

const OLDEST: (u32, u32) = (22, 11);

/// The libraries that the shim calls. EAL loads PMDs from its plugin folder, so the only PMD here is `net_ring`, whose
/// ports the shim creates by a function call.
const LIBRARIES: [&str; 7] =
    ["rte_ethdev", "rte_eventdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal", "rte_net_ring"];

fn main() {
    println!("cargo:rerun-if-changed=shim/shim.c");
    println!("cargo:rerun-if-changed=shim/events.c");
    println!("cargo:rerun-if-changed=shim/shim.h");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");

    let version = pkg_config(&["--modversion", "libdpdk"]);
    let mut parts = version.split(['.', '-']).map(|p| p.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < OLDEST {
        fail(&format!("DPDK {version} is too old: netlathe needs 22.11 or later"));
    }

    let mut build = cc::Build::new();
    // An undeclared function would be called with the wrong argument types, so it must be an error.
    build
        .files(["shim/shim.c", "shim/events.c"])
        .warnings(true)
        .extra_warnings(true)
        .flag("-Werror=implicit-function-declaration");
    // Pass all flags: `-include rte_config.h` and the `-march` of DPDK's own build determine the layout of the structs
    // that the inlined functions read.
    let cflags = pkg_config(&["--cflags", "libdpdk"]);
    let mut words = cflags.split_whitespace();
    while let Some(flag) = words.next() {
        if let Some(folder) = flag.strip_prefix("-I") {
            // DPDK's headers would trigger our warnings.
            build.flag("-isystem").flag(folder);
        } else if flag == "-include" || flag == "-isystem" {
            build.flag(flag).flag(words.next().unwrap_or_default());
        } else {
            build.flag(flag);
        }
    }
    build.compile("netlathe_shim");

    let folder = pkg_config(&["--variable=libdir", "libdpdk"]);
    println!("cargo:rustc-link-search=native={folder}");
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:version={version}");
}

fn pkg_config(arguments: &[&str]) -> String {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    match Command::new(&program).args(arguments).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            fail(&format!("{program} does not find libdpdk: {}", said.lines().next().unwrap_or("no reason given")))
        }
        Err(error) => fail(&format!("cannot run {program}: {error}")),
    }
}

/// Prints the error in three lines. Cargo would bury a panic message in a backtrace.
fn fail(what: &str) -> ! {
    eprintln!("\nnetlathe needs DPDK to be built: {what}");
    eprintln!("  on Debian and Ubuntu: apt-get install libdpdk-dev pkg-config, or run scripts/setup.sh");
    eprintln!("  without it: cargo build -p netlathe-cli --no-default-features\n");
    exit(1);
}
