//! Fuzzes the target `stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("stream", input));
