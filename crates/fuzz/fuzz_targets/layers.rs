//! Fuzzes the target `layers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("layers", input));
