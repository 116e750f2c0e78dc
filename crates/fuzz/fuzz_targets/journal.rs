//! Fuzzes the target `journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("journal", input));
