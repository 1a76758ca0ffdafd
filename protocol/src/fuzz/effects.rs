//! Effects, one a line. An effect that was read can be written and read again, and performing it
//! leaves a sound limiter.

use super::{assert_printable, sound, words};
use crate::effect::{Action, Effect, Head, read};
use ratelimit_engine::key::{Costs, Limiter, Settlement};
use ratelimit_engine::rule::{NamedCost, Rule};

/// How many effects of an input are performed at most, so that no input takes long.
const MOST: usize = 64;

pub fn run(data: &[u8]) {
    let mut limiter = Limiter::default();
    let (mut rules, mut named) = (Vec::new(), Vec::new());
    for line in data.split(|&byte| byte == b'\n').take(MOST) {
        match read(words(line), &mut rules, &mut named) {
            Ok(effect) => {
                test_written(&effect, &rules, &named);
                effect.perform(&rules, &named, &mut limiter);
                sound::test(&limiter, &rules, effect.at_us);
            }
            Err(error) => assert_printable(&error),
        }
    }
}

/// Writes the effect, and tests that it is read back.
fn test_written(effect: &Effect<'_>, rules: &[Rule], named: &[NamedCost]) {
    let head = Head::of(effect);
    let texts = effect.action.texts().into_iter().flatten();
    let mut args: Vec<Vec<u8>> = std::iter::once(head.text()).chain(texts).map(Vec::from).collect();
    args.extend(rules.iter().map(|rule| rule.to_string().into_bytes()));
    if let Action::Settle { settled, .. } = effect.action {
        args.extend(settlement(settled, named));
    }
    let (mut rules_again, mut named_again) = (Vec::new(), Vec::new());
    let again = read(args.iter().map(Vec::as_slice), &mut rules_again, &mut named_again);
    assert_eq!(again.as_ref(), Ok(effect));
    assert_eq!((&rules_again[..], &named_again[..]), (rules, named));
}

/// The arguments of a settlement.
fn settlement(settled: Settlement<Costs<'_>>, named: &[NamedCost]) -> Vec<Vec<u8>> {
    let cost = |text: String| [b"COST".to_vec(), text.into_bytes()];
    match settled {
        Settlement::AsCharged => Vec::new(),
        Settlement::Refund => vec![b"REFUND".to_vec()],
        Settlement::Cost(Costs { default, .. }) => {
            let default = default.map(|units| units.to_string());
            let named = named.iter().map(|one| format!("{}={}", one.name.as_str(), one.cost));
            default.into_iter().chain(named).flat_map(cost).collect()
        }
    }
}
