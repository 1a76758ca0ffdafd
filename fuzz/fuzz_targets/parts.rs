#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_ratelimit::fuzz::parts::run;

fuzz_target!(|data: &[u8]| run(data));
