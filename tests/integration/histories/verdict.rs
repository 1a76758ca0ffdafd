//! Searches for an order of calls that explains all replies, and reports the calls if it finds none.

use todc_utils::{Action, History, WGLChecker};

use super::model::Model;
use super::record::Seen;

/// Whether one order explains all replies of the calls that began before a time.
fn has_order(history: &[Seen], before: u64) -> bool {
    let mut actions = Vec::new();
    for (index, seen) in history.iter().enumerate().filter(|(_, seen)| seen.begin < before) {
        let end = seen.end.clone().filter(|&(end, _)| end < before);
        let (end, reply) = end.map_or((u64::MAX, None), |(end, reply)| (end, Some(reply)));
        let operation = (seen.call.clone(), reply);
        actions.push((seen.begin, index, Action::Call(operation.clone())));
        actions.push((end, index, Action::Response(operation)));
    }
    actions.sort_by_key(|&(time, ..)| time);
    let actions: Vec<_> = actions.into_iter().map(|(_, index, action)| (index, action)).collect();
    actions.is_empty() || WGLChecker::<Model>::is_linearizable(History::from_actions(actions))
}

/// How many calls without a reply a search may have. Each may have happened anywhere after its begin, so
/// with more of them a search can take minutes and gigabytes.
const MOST_UNANSWERED: usize = 8;

/// When the first call begins that is one too many without a reply.
fn end_of_search(history: &[Seen]) -> u64 {
    let unanswered = history.iter().filter(|seen| seen.end.is_none());
    let mut begins: Vec<u64> = unanswered.map(|seen| seen.begin).collect();
    begins.sort_unstable();
    begins.get(MOST_UNANSWERED).copied().unwrap_or(u64::MAX)
}

/// `None` if some order explains a history. Otherwise the calls up to the first reply that no order
/// explains.
pub fn explain(history: &[Seen]) -> Option<String> {
    let end_of_search = end_of_search(history);
    if has_order(history, end_of_search) {
        return None;
    }
    let mut ends: Vec<u64> =
        history.iter().filter_map(|seen| seen.end.as_ref()).map(|&(end, _)| end).collect();
    ends.retain(|&end| end < end_of_search);
    ends.sort_unstable();
    let explained = ends.partition_point(|&end| has_order(history, end + 1));
    let last = ends.get(explained).copied().unwrap_or(u64::MAX);
    let calls = history.iter().filter(|seen| seen.begin < last).collect();
    Some(format!("no order of these calls explains the reply at {last}:\n{}", lines(calls)))
}

/// Calls in the order in which they began.
pub fn lines(mut calls: Vec<&Seen>) -> String {
    calls.sort_by_key(|seen| seen.begin);
    let line = |seen: &&Seen| match &seen.end {
        Some((end, reply)) => {
            let confirmed = if seen.confirmed { ", confirmed" } else { "" };
            format!("{:>4}..{end:<4} {:?} -> {reply:?}{confirmed}", seen.begin, seen.call)
        }
        None => format!("{:>4}..     {:?} -> no reply", seen.begin, seen.call),
    };
    calls.iter().map(line).collect::<Vec<_>>().join("\n")
}
