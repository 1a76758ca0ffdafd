use super::*;

fn rule(text: &str) -> Rule {
    Rule::from_text(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_algorithm_is_explained() {
    for (text, explained) in [
        (
            "20/m",
            "log:20/1m: at most 20 requests in any minute, wherever it begins (sliding log, \
             exact). Worst burst: 20 requests at once, and never more in any minute. \
             Memory: 52 bytes, and 4 per remembered request, up to 80; 4 more per request \
             if costs differ; one log serves all log rules of a key.",
        ),
        (
            "window:100/m",
            "window:100/1m: about 100 requests in any minute, counted by sub-intervals of 1 \
             minute: the oldest counts with the share of it that is still in the window, as if \
             its requests had come evenly (sliding window counter). Worst burst: 100 \
             requests at once, and up to 199 in one minute, if they crowd at the end of a \
             sub-interval and again 1 minute later. Memory: 36 bytes, and 6 for each of 2 \
             counters. Identity: the algorithm, period and res, so the limit may change and \
             what was consumed is kept.",
        ),
        (
            "window:100/m,res=2,name=web",
            "window:100/1m,res=2,name=web: about 100 requests in any minute, counted by \
             sub-intervals of 30 seconds: the oldest counts with the share of it that is \
             still in the window, as if its requests had come evenly (sliding window counter). \
             Worst burst: 100 requests at once, and up to 199 in one minute, if they crowd \
             at the end of a sub-interval and again 1 minute later, but never more than 100 \
             in 30 seconds. Memory: 36 bytes, and 6 for each of 3 counters. Identity: the \
             name 'web', so limit, period and options may change and what was consumed is \
             kept.",
        ),
        (
            "fixed:100/m",
            "fixed:100/1m: at most 100 requests in each minute, counted from 1970-01-01 \
             00:00 UTC (fixed window). Worst burst: 200 requests within a moment, 100 at \
             the end of a window and 100 at the start of the next. Memory: 48 bytes, \
             however many requests come. Identity: the algorithm, period, align and tz, so \
             the limit and keep may change and what was consumed is kept.",
        ),
        (
            "bucket:20/m,burst=50",
            "bucket:20/1m,burst=50: a bucket of 50 tokens, full at first; a request takes \
             one, and they come back evenly, one in 3 seconds (token bucket). Worst burst: \
             50 requests at once, and up to 69 in one minute. Memory: 48 bytes, however \
             many requests come. Identity: the algorithm, period and refill, so the limit \
             and burst may change and what was consumed is kept.",
        ),
        (
            "leaky:20/m",
            "leaky:20/1m: requests proceed one by one, one in 3 seconds; 20 more can wait \
             for their turn, and the reply's wait_ms says how long (leaky \
             bucket). Worst burst: 21 requests admitted at once, but they proceed 3 seconds \
             apart if they wait their turn. Memory: 48 bytes, however many requests come. \
             Identity: the algorithm and period, so the limit and queue may change and what \
             was consumed is kept.",
        ),
        (
            "slots:8",
            "slots:8: at most 8 requests at once: each takes a slot with HOLD, and gives it \
             back when its hold is settled or lapses (concurrency limit). Worst burst: 8 at \
             once, as often as holds are settled. Memory: 60 to 67 bytes a hold with an id \
             of up to 22 bytes. Identity: the algorithm, so the limit may change and what \
             was consumed is kept.",
        ),
    ] {
        assert_eq!(explain(&rule(text)), explained);
    }
}

#[test]
fn options_bounds_and_plurals_are_explained() {
    for (text, part) in [
        ("0/m", "the limit 0 denies every request"),
        ("bucket:0/m,burst=5", "Worst burst: none. Memory: none"),
        ("1/s", "at most 1 request in any second,"),
        ("1/90s", "1 request at once, and never more in any 90 seconds."),
        ("1/s", "and 4 per remembered request, up to 4; 4 more per request if"),
        ("5/m,name=a", " The name 'a' labels it; all log rules read the key's one log."),
        ("window:1/m", "Worst burst: 1 request at once, and never more in any minute."),
        ("window:9/m,res=7", "sub-intervals of about 8571 milliseconds:"),
        ("window:9/m,res=7", "never more than 9 in about 51428 milliseconds."),
        ("window:9/5ms,res=7", "sub-intervals of about 714 microseconds:"),
        ("fixed:5/7d", "in each week, counted from 1970-01-01 00:00 UTC"),
        ("fixed:5/w", "in each week, from Monday at 00:00 UTC"),
        ("fixed:5/2w,tz=-03:30", "in each 2 weeks, counted from Monday 1970-01-05 00:00 UTC-03:30"),
        ("fixed:5/month,tz=+02:00", "in each calendar month, from the 1st at 00:00 UTC+02:00"),
        ("fixed:5/m,align=first", "in each window of 1 minute, opened by the first request"),
        ("fixed:5/m,align=first", "9 requests within a moment, 4 at the end of a window and 5"),
        ("fixed:1/m,align=first", "1 request at once, and never more in any minute."),
        ("800/d", "52 bytes, and 4 to 5 per remembered request, up to 4000;"),
        ("9/30d", "52 bytes, and 4 to 6 per remembered request, up to 54;"),
        ("fixed:5/m,keep=1", "48 bytes, and up to 16 bytes for 1 past window kept for graphs."),
        ("fixed:5/m,keep=24", "up to 384 bytes for 24 past windows kept"),
        ("bucket:1/m", "a bucket of 1 token, full at first; a request takes one, and they come"),
        ("bucket:1/m", "one in 1 minute (token bucket). Worst burst: 1 request at once, and never"),
        ("bucket:7/m", "one in about 8571 milliseconds"),
        ("bucket:300000/m", "one in 200 microseconds"),
        ("bucket:350000/m", "one in about 171 microseconds"),
        ("bucket:1000000000/s", "one in less than 1 microsecond"),
        ("bucket:1000000000/s", "up to 1999999000 in one second"),
        ("bucket:5/m,refill=interval", "all come back at once, 1 minute after the first was taken"),
        ("bucket:5/m,refill=interval", "9 requests within a moment, 4 just before the tokens"),
        ("leaky:5/s,queue=0", "nobody waits, and a request that comes sooner is denied"),
        ("leaky:5/s,queue=0", "1 request at once, the next 200 milliseconds later."),
        ("leaky:5/s,queue=1", "2 requests admitted at once, but they proceed 200 milliseconds"),
        ("slots:1,name=gpu", "at most 1 request at once: each takes a slot with HOLD,"),
        ("slots:1,name=gpu", " Identity: the name 'gpu', so limit, period and options may"),
        ("slots:20,cost=1", " A check takes 1 unit of it, whatever COST n says."),
        ("slots:0", "slots:0: the limit 0 denies every request"),
        ("5/m,count=all", " Denied requests are charged too:"),
        ("50/m,cost=1", " A check takes 1 unit of it, whatever COST n says."),
        ("5/m,cost=0", " A check takes nothing of it, whatever COST n says."),
        (
            "5/m,cost=20,name=in",
            " A check takes 20 units of it, whatever COST n says; COST in=n takes n.",
        ),
        ("5/m,ban=36h", " A denial by it blocks the key for 36 hours."),
        (
            "5/m,ban=1m:10m:1h",
            " A denial by it blocks the key for 1 minute, then 10 minutes, then 1 hour each time; \
             bans are forgotten 1 hour after the last one ends.",
        ),
        (
            "5/m,ban=1h:1m",
            " A denial by it blocks the key for 1 hour, then 1 minute each time; bans are \
             forgotten 1 hour after the last one ends.",
        ),
        ("5/m,ban=1m:1h,shadow", " Its ban never sets in while it is on trial. On trial (shadow):"),
        ("5/m,ban=1h,shadow", " Its ban never sets in while it is on trial. On trial (shadow):"),
    ] {
        let explained = explain(&rule(text));
        assert!(explained.contains(part), "{explained}");
    }
}

/// Tries every sequence of admissions, for windows of a few microseconds.
struct Brute {
    limit: u64,
    period: usize,
    res: usize,
    /// Units admitted at each microsecond so far.
    admitted: Vec<u64>,
    worst: u64,
    worst_short: u64,
}

impl Brute {
    fn worst(limit: u64, period: usize, res: usize) -> (u64, u64) {
        let admitted = Vec::new();
        let mut brute = Self { limit, period, res, admitted, worst: 0, worst_short: 0 };
        brute.extend();
        (brute.worst, brute.worst_short)
    }

    /// The units that count now, each weighted in ticks of `1/res` microsecond: with the whole window,
    /// or in the oldest sub-interval with what is left of it.
    fn load(&self) -> u64 {
        let now = self.admitted.len();
        let part_of = |t: usize| t * self.res / self.period;
        let elapsed = now * self.res % self.period;
        let counted = |(t, &units): (usize, &u64)| match part_of(now) - part_of(t) {
            age if age < self.res => units * self.period as u64,
            age if age == self.res => units * (self.period - elapsed) as u64,
            _ => 0,
        };
        self.admitted.iter().enumerate().map(counted).sum()
    }

    fn extend(&mut self) {
        let newest = |n: usize| self.admitted.iter().rev().take(n).sum();
        let (in_period, in_short) = (
            newest(self.period),
            // Whole microseconds in `(t - (W-w), t]`.
            newest((self.period * (self.res - 1)).div_ceil(self.res)),
        );
        self.worst = self.worst.max(in_period);
        self.worst_short = self.worst_short.max(in_short);
        if self.admitted.len() >= 2 * self.period + self.period.div_ceil(self.res) {
            return;
        }
        let room = (self.limit * self.period as u64).saturating_sub(self.load());
        for units in 0..=room / self.period as u64 {
            self.admitted.push(units);
            self.extend();
            self.admitted.pop();
        }
    }
}

#[test]
fn no_sequence_of_admissions_exceeds_the_worst_burst_of_windows() {
    for (limit, period, res) in [
        (1, 4, 1),
        (2, 4, 1),
        (3, 4, 1),
        (4, 3, 1),
        (2, 6, 1),
        (3, 6, 1),
        (1, 6, 2),
        (2, 6, 2),
        (3, 6, 2),
        (2, 5, 2),
        (3, 5, 2),
        (2, 7, 2),
        (2, 6, 3),
        (3, 7, 3),
        (2, 8, 3),
    ] {
        let (worst, short) = Brute::worst(limit, period, res);
        let stated =
            crate::algorithm::window::worst(limit, period as u64, u8::try_from(res).unwrap());
        assert_eq!(worst, stated, "limit {limit}, period {period} us, res {res}");
        assert!(short <= limit, "limit {limit}, period {period} us, res {res}");
    }
}
