//! Fuzzes the target `wave`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("wave", input));
