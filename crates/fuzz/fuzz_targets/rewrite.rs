//! Fuzzes the target `rewrite`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("rewrite", input));
