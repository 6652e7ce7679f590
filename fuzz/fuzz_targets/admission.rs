#![no_main]
#![allow(dead_code, reason = "each target uses its own part")]

#[path = "../../api/tests/dockerfile_reader/mod.rs"]
mod dockerfile_reader;
#[path = "../../webhook/tests/fake/mod.rs"]
mod fake;
#[path = "../../webhook/tests/fuzzed/mod.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::admission(data));
