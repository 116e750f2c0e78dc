//! Fuzzes the target `trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("trace", input));
