//! Calls on one limiter, compared with the naive models: any rules, and a clock that steps
//! both ways.

use super::traffic;
use crate::tests::laws::models;
use crate::tests::naive::model::Model;
use arbitrary::Unstructured;

pub fn run(data: &[u8]) {
    let Ok(traffic) = traffic::of_any_rules(&mut Unstructured::new(data)) else { return };
    if let Err(error) = models::equals(Model::default(), &traffic) {
        panic!("{error}\n{traffic:?}");
    }
}
