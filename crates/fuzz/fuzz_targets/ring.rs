//! Fuzzes the target `ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("ring", input));
