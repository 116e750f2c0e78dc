//! Fuzzes the target `decision`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("decision", input));
