//! Calls on one limiter, compared with the naive models: any rules, and a clock that steps
//! both ways.

use super::traffic;
use arbitrary::Unstructured;
use ratelimit_engine::testing::laws::models;
use ratelimit_engine::testing::naive::model::Model;

pub fn run(data: &[u8]) {
    let Ok(traffic) = traffic::of_any_rules(&mut Unstructured::new(data)) else { return };
    if let Err(error) = models::equals(Model::default(), &traffic) {
        panic!("{error}\n{traffic:?}");
    }
}
