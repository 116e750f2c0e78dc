//! Fuzzes the target `disk`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("disk", input));
