//! Fuzzes the target `scenario`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("scenario", input));
