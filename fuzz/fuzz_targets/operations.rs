#![no_main]

use libfuzzer_sys::fuzz_target;
use ratelimit_protocol::fuzz::operations::run;

fuzz_target!(|data: &[u8]| run(data));
