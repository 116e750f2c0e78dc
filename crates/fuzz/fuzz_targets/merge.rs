//! Fuzzes the target `merge`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("merge", input));
