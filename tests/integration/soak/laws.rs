//! What each rule promises, as plain arithmetic on admissions. It shares no code with the
//! limiter.
//!
//! An admission happened at some server time between two readings of `TIME`. It counts only
//! where it surely happened, so every breach is a real one.
//!
//! ```text
//! log:L/W              in no window (t - W, t] more than L units
//! fixed:L/W            in no window of the epoch, [n W, n W + W), more than L units
//! window:L/W           units of the window before, weighted by its part that still counts, and of this one: at most L
//! bucket:R/W,burst=B   in no interval of length d more than B + R d / W units
//! leaky:R/W,queue=Q    as bucket, with B = Q + 1
//! slots:N              at no time more than N units held
//! ```

/// Units that were admitted at some time between `from_us` and `to_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admission {
    pub from_us: i64,
    pub to_us: i64,
    pub units: i64,
    /// For `slots`: the time until which the units are surely held.
    pub held_until_us: i64,
    /// Whether a sync consumed the units. A pause does not deny a sync.
    pub synced: bool,
}

/// What a rule promises.
#[derive(Clone, Copy, Debug)]
pub enum Law {
    Log { limit: i64, window_us: i64 },
    Fixed { limit: i64, window_us: i64 },
    Window { limit: i64, window_us: i64 },
    Flow { burst: i64, units: i64, window_us: i64 },
    Slots { limit: i64 },
}

impl Law {
    /// The first breach by these admissions. The server forgot nothing between them.
    pub fn breach(self, admissions: &[Admission]) -> Option<String> {
        let mut sorted = admissions.to_vec();
        sorted.sort_unstable();
        let breach = match self {
            Self::Log { limit, window_us } => log(&sorted, limit, window_us),
            Self::Fixed { limit, window_us } => fixed(&sorted, limit, window_us),
            Self::Window { limit, window_us } => window(&sorted, limit, window_us),
            Self::Flow { burst, units, window_us } => flow(&sorted, burst, units, window_us),
            Self::Slots { limit } => slots(&sorted, limit),
        };
        breach.map(|(units, at_us)| format!("{units} units of {self:?} at {at_us}"))
    }
}

/// Units of a breach, and the time around which they were admitted.
type Breach = Option<(i64, i64)>;

fn log(sorted: &[Admission], limit: i64, window_us: i64) -> Breach {
    sorted.iter().enumerate().find_map(|(at, first)| {
        let ends_us = first.from_us + window_us;
        let later = sorted[at..].iter().take_while(|one| one.from_us < ends_us);
        let units: i64 = later.filter(|one| one.to_us < ends_us).map(|one| one.units).sum();
        (units > limit).then_some((units, first.from_us))
    })
}

/// The window of the epoch in which an admission surely was, if there is one.
fn window_of(one: &Admission, window_us: i64) -> Option<i64> {
    let [first, last] = [one.from_us, one.to_us].map(|us| us.div_euclid(window_us));
    (first == last).then_some(first)
}

fn fixed(sorted: &[Admission], limit: i64, window_us: i64) -> Breach {
    let surely = sorted.iter().filter_map(|one| Some((window_of(one, window_us)?, one)));
    let surely: Vec<_> = surely.collect();
    surely.chunk_by(|(one, _), (other, _)| one == other).find_map(|inside| {
        let units = inside.iter().map(|(_, one)| one.units).sum();
        (units > limit).then_some((units, inside[0].1.from_us))
    })
}

fn window(sorted: &[Admission], limit: i64, window_us: i64) -> Breach {
    let surely = sorted.iter().filter_map(|one| Some((window_of(one, window_us)?, *one)));
    let surely: Vec<_> = surely.collect();
    let (mut before, mut number_before) = (0, i64::MIN);
    for inside in surely.chunk_by(|(one, _), (other, _)| one == other) {
        let number = inside[0].0;
        if number != number_before + 1 {
            before = 0;
        }
        let start_us = number * window_us;
        for (at, (_, one)) in inside.iter().enumerate() {
            let earlier = inside[..at].iter().filter(|(_, other)| other.to_us < one.from_us);
            let units: i64 = earlier.map(|(_, other)| other.units).sum::<i64>() + one.units;
            let left_us = window_us - (one.to_us - start_us);
            if before * left_us + units * window_us > limit * window_us {
                return Some((units, one.from_us));
            }
        }
        before = inside.iter().map(|(_, one)| one.units).sum();
        number_before = number;
    }
    None
}

fn flow(sorted: &[Admission], burst: i64, units: i64, window_us: i64) -> Breach {
    // With S the units before an admission, a breach has S(j) - S(i) > B + R (t(j) - t(i)) for some i
    // before j.
    let (mut sum, mut least, mut last_us) = (0_i128, i128::MAX, i64::MIN);
    for one in sorted {
        let drained = |us: i64| i128::from(us) * i128::from(units);
        least = least.min(sum * i128::from(window_us) - drained(one.from_us));
        sum += i128::from(one.units);
        last_us = last_us.max(one.to_us);
        let most = i128::from(burst) * i128::from(window_us);
        if sum * i128::from(window_us) - drained(last_us) - least > most {
            return Some((one.units, one.from_us));
        }
    }
    None
}

fn slots(sorted: &[Admission], limit: i64) -> Breach {
    // At equal times, ends come first.
    let holds = sorted.iter().filter(|one| one.held_until_us > one.to_us);
    let mut changes: Vec<_> =
        holds.flat_map(|one| [(one.held_until_us, -one.units), (one.to_us, one.units)]).collect();
    changes.sort_unstable();
    let mut held = 0;
    changes.into_iter().find_map(|(at_us, units)| {
        held += units;
        (held > limit).then_some((held, at_us))
    })
}

#[cfg(test)]
fn at(times_us: &[i64]) -> Vec<Admission> {
    let one = |&us| Admission {
        from_us: us,
        to_us: us + 2,
        units: 1,
        held_until_us: us + 100,
        synced: false,
    };
    times_us.iter().map(one).collect()
}

#[test]
fn one_unit_too_many_is_a_breach_and_exactly_the_limit_is_not() {
    let window_us = 1_000;
    let (limit, burst, units) = (3, 3, 3);
    for (law, right, wrong) in [
        (Law::Log { limit, window_us }, vec![0, 1, 999, 1_000, 1_001], vec![0, 1, 500, 990]),
        (Law::Fixed { limit, window_us }, vec![10, 11, 997, 1_000, 1_001], vec![10, 11, 12, 997]),
        (Law::Window { limit, window_us }, vec![10, 500, 900, 1_400], vec![10, 500, 900, 1_200]),
        (Law::Flow { burst, units, window_us }, vec![0, 1, 2, 334, 667], vec![0, 1, 2, 300]),
        (Law::Slots { limit }, vec![0, 1, 2, 100, 101, 102], vec![0, 10, 20, 90]),
    ] {
        assert_eq!(law.breach(&at(&right)), None);
        assert!(law.breach(&at(&wrong)).is_some(), "{law:?}");
    }
}

#[test]
fn an_admission_that_may_belong_to_another_window_is_no_breach() {
    let law = Law::Log { limit: 3, window_us: 1_000 };
    let mut admissions = at(&[0, 1, 500, 900]);
    admissions[3].to_us = 1_100;
    assert_eq!(law.breach(&admissions), None);
}
