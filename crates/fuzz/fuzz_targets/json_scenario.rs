//! Fuzzes the target `json_scenario`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::run("json_scenario", input));
