//! Fuzzes the target `capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("capture", input));
