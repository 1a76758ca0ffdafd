//! Calls that take, settle and renew holds. The first byte chooses the law to test.

use super::traffic;
use arbitrary::{Result, Unstructured};
use ratelimit_engine::testing::laws::holds::as_if::{Answers, is_as_if};
use ratelimit_engine::testing::laws::holds::replica::stay_equal;
use ratelimit_engine::testing::laws::holds::returned::returns_once;
use ratelimit_engine::testing::laws::traffic::Clock;

/// The replica loads what the primary saves at every third step.
const RESYNC: usize = 3;
/// The primary loads what it saves at every fifth step.
const RESTART: usize = 5;

pub fn run(data: &[u8]) {
    // When the bytes run out, the first choice is taken.
    let _ = obeys(&mut Unstructured::new(data));
}

fn obeys(bytes: &mut Unstructured<'_>) -> Result<()> {
    let law = bytes.int_in_range(0..=3)?;
    let (traffic, result) = match law {
        0 => {
            let traffic = traffic::settled_exactly(bytes, Clock::Forward)?;
            let result = is_as_if(&traffic, Answers::Equal);
            (traffic, result)
        }
        1 => {
            let traffic = traffic::settled_exactly(bytes, Clock::StepsBack)?;
            let result = is_as_if(&traffic, Answers::NotLooser);
            (traffic, result)
        }
        2 => {
            let traffic = traffic::with_holds(bytes)?;
            let result = stay_equal(&traffic, RESYNC, RESTART);
            (traffic, result)
        }
        _ => {
            let traffic = traffic::with_holds(bytes)?;
            let result = returns_once(&traffic);
            (traffic, result)
        }
    };
    if let Err(error) = result {
        panic!("law {law}: {error}\n{traffic:?}");
    }
    Ok(())
}
