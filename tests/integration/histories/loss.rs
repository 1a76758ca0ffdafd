//! What a failover loses. Replication is asynchronous, so a promoted replica may lack calls that its
//! primary had answered, and no order explains the replies of both. The documents promise that it
//! lacks only the last calls, and no call that `WAIT` confirmed. So the checker looks for an order
//! of the primary's calls, and for a cut in this order: the replica goes on from the state at the cut.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use todc_utils::{Action, History, Specification, WGLChecker};

use super::call::{Call, KEYS};
use super::model::{Model, Reply, State};
use super::record::Failover;
use super::verdict::lines;

/// The most that the primary had answered and the replica did not receive. If several cuts explain the
/// replies, the search finds the earliest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loss {
    /// Units of each key, under the rule that lost the most.
    pub units: [i64; KEYS],
    /// The holds by key and id.
    pub holds: BTreeSet<(usize, u8)>,
    pub calls: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Servers {
    /// The state of the server that clients call.
    now: State,
    /// The state at the cut.
    cut: Option<State>,
    /// How many confirmed calls came before the cut.
    confirmed: usize,
    /// The changes by answered calls since the cut.
    units: [Vec<i64>; KEYS],
    holds: BTreeSet<(usize, u8)>,
    calls: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Call {
        call: Call,
        reply: Option<Reply>,
        confirmed: bool,
    },
    /// The replica receives no call after this step. The number says how many confirmed calls come
    /// before the step.
    Cut(usize),
    /// The replica takes over. The search writes here the loss of each order that it tries. The
    /// last one is the loss of the order that it finds.
    Promotion(Rc<RefCell<Loss>>),
}

impl Servers {
    fn count(&mut self, before: &State) {
        self.calls += 1;
        let (old, new) = (before.counts(), self.now.counts());
        for (key, units) in self.units.iter_mut().enumerate() {
            units.resize(new[key].len(), 0);
            let changes = new[key].iter().zip(&old[key]).map(|(new, old)| new - old);
            units.iter_mut().zip(changes).for_each(|(units, change)| *units += change);
        }
        let (old, new) = (before.holds(), self.now.holds());
        self.holds.retain(|hold| new.contains(hold));
        self.holds.extend(new.difference(&old));
    }

    fn loss(&self) -> Loss {
        let most = |units: &Vec<i64>| units.iter().copied().max().unwrap_or(0).max(0);
        let units = self.units.each_ref().map(most);
        Loss { units, holds: self.holds.clone(), calls: self.calls }
    }
}

struct FailoverModel;

impl Specification for FailoverModel {
    type State = Servers;
    type Operation = Step;

    fn init() -> Servers {
        Servers {
            now: Model::init(),
            cut: None,
            confirmed: 0,
            units: Default::default(),
            holds: BTreeSet::new(),
            calls: 0,
        }
    }

    fn apply(step: &Step, servers: &Servers) -> (bool, Servers) {
        let mut next = servers.clone();
        let fits = match step {
            Step::Call { call, reply, confirmed } => {
                let (fits, now) = Model::apply(&(call.clone(), reply.clone()), &servers.now);
                next.now = now;
                match &servers.cut {
                    Some(_) if reply.is_some() => next.count(&servers.now),
                    Some(_) => {}
                    None => next.confirmed += usize::from(*confirmed),
                }
                fits
            }
            Step::Cut(confirmed) => {
                next.cut = Some(servers.now.clone());
                servers.confirmed == *confirmed
            }
            Step::Promotion(loss) => {
                let fits = servers.cut.is_some();
                if fits {
                    loss.replace(servers.loss());
                }
                next = Self::init();
                next.now = servers.cut.clone().unwrap_or_else(Model::init);
                fits
            }
        };
        (fits, next)
    }
}

/// What a failover lost, or an error if the documents allow no loss that explains the replies.
pub fn loss(Failover { calls, killed }: &Failover) -> Result<Loss, String> {
    let loss = Rc::default();
    let confirmed = || calls.iter().filter(|seen| seen.confirmed);
    let mut steps: Vec<(u64, u64, Step)> = Vec::new();
    for seen in calls {
        let (end, reply) = match &seen.end {
            // A client may read a reply after the server that sent it is dead.
            Some((end, reply)) if seen.begin < *killed => (*end.min(killed), Some(reply.clone())),
            Some((end, reply)) => (*end, Some(reply.clone())),
            None => (*killed, None),
        };
        let (call, confirmed) = (seen.call.clone(), seen.confirmed);
        steps.push((seen.begin, end, Step::Call { call, reply, confirmed }));
    }
    let cut = confirmed().map(|seen| seen.begin).max().unwrap_or(0);
    steps.push((cut, *killed, Step::Cut(confirmed().count())));
    steps.push((*killed, *killed, Step::Promotion(Rc::clone(&loss))));

    let mut actions = Vec::new();
    for (index, (begin, end, step)) in steps.into_iter().enumerate() {
        actions.push((begin, index, Action::Call(step.clone())));
        actions.push((end, index, Action::Response(step)));
    }
    actions.sort_by_key(|&(time, ..)| time);
    let actions = actions.into_iter().map(|(_, index, action)| (index, action)).collect();
    if WGLChecker::<FailoverModel>::is_linearizable(History::from_actions(actions)) {
        return Ok(loss.take());
    }
    let calls: Vec<_> = calls.iter().collect();
    Err(format!("no cut explains what the replica replies after {killed}:\n{}", lines(calls)))
}

#[cfg(test)]
mod tests {
    use super::super::record::Seen;
    use super::*;

    fn decision(remaining: i64) -> Reply {
        Reply::Decision { verdict: 0, limit: 5, remaining, wait_days: 0, chosen: None }
    }

    /// The primary admits a confirmed unit, then two more, confirmed or not. Then the replica replies
    /// that `left` of five units are left.
    fn failover(last_is_confirmed: bool, left: i64) -> Result<Loss, String> {
        let key = 1;
        let check = |cost| Call::Check { key, cost, rules: vec![0] };
        let peek = Call::Peek { key, cost: 1, rules: vec![0] };
        let one = |begin, call, reply, confirmed| Seen {
            call,
            begin,
            end: Some((begin + 1, reply)),
            confirmed,
        };
        let calls = vec![
            one(0, check(1), decision(4), true),
            one(2, check(2), decision(2), last_is_confirmed),
            one(5, peek, decision(left), false),
        ];
        loss(&Failover { calls, killed: 4 })
    }

    #[test]
    fn the_checker_counts_what_a_failover_lost() {
        let nothing = Loss::default();
        assert_eq!(failover(false, 2), Ok(nothing.clone()));
        assert_eq!(failover(true, 2), Ok(nothing));
        let two = Loss { units: [0, 2], calls: 1, ..Loss::default() };
        assert_eq!(failover(false, 4), Ok(two));
        for (last_is_confirmed, left) in [(true, 4), (false, 5), (false, 3), (false, 1)] {
            assert!(failover(last_is_confirmed, left).is_err(), "{last_is_confirmed}, {left}");
        }
    }
}
