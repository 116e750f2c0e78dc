//! Fuzzes the target `otg_config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("otg_config", input));
