//! Fuzzes the target `stack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("stack", input));
