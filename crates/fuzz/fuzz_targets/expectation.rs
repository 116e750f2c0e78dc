//! Fuzzes the target `expectation`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("expectation", input));
