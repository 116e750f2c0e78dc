//! Fuzzes the target `sync`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("sync", input));
