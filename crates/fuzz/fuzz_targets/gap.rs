//! Fuzzes the target `gap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("gap", input));
