//! Fuzzes the target `timeline`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("timeline", input));
