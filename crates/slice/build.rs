//! Compiles the kernel programs with clang, the only compiler that emits the relocations for CO-RE.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const SOURCE: &str = "bpf/slice.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("slice.bpf.o");
    // libbpf's headers select the registers by these architecture names.
    let machine = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "arm64",
        Ok("riscv64") => "riscv",
        Ok("powerpc64") => "powerpc",
        Ok("s390x") => "s390",
        _ => "x86",
    };
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-g", "-O2", "-Wall", "-Werror"])
        .arg(format!("-D__TARGET_ARCH_{machine}"))
        .args(["-c", SOURCE, "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => fail(&format!("{clang} does not compile {SOURCE}: its message is above")),
        Err(error) => fail(&format!("cannot run {clang}: {error}")),
    }
}

/// Prints the error in three lines. Cargo would bury a panic message in a backtrace.
fn fail(what: &str) -> ! {
    eprintln!("\nnetlathe slice needs clang and libbpf's headers to be built: {what}");
    eprintln!("  on Debian and Ubuntu: apt-get install clang libbpf-dev, or run scripts/setup.sh");
    eprintln!("  without it: cargo build -p netlathe-cli --no-default-features --features live\n");
    exit(1);
}
