//! Fuzzes the target `record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("record", input));
