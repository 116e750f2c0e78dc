//! Fuzzes the target `rule`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("rule", input));
