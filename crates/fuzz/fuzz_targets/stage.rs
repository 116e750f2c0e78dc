//! Fuzzes the target `stage`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("stage", input));
