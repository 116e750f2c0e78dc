//! Fuzzes the target `clock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("clock", input));
