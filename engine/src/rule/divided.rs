//! A rule's limit, divided among programs that cannot ask one server.

use super::Rule;
use core::num::NonZeroU32;

impl Rule {
    /// The rule of one of `among` programs that share its limit. Limit, burst and queue are
    /// divided, rounded down, but a value of 1 or more never becomes 0. The identity stays.
    #[must_use]
    pub fn divided(&self, among: NonZeroU32) -> Self {
        let part = |units: u32| units.min(1).max(units / among);
        let (params, limit) = (self.params.divided(part), part(self.limit));
        let Self { capacity, .. } = Self::new(params, limit, self.period_us);
        Self { params, limit, capacity, ..*self }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn each_program_gets_its_part_and_at_least_one_unit() {
        for (whole, among, part) in [
            ("9/m", 3, "log:3/1m"),
            ("10/m", 3, "log:3/1m"),
            ("2/m", 3, "log:1/1m"),
            ("0/m", 3, "log:0/1m"),
            ("9/m,name=a,count=all,cost=2,ban=1h", 1, "log:9/1m,name=a,count=all,cost=2,ban=1h"),
            ("bucket:12/s,burst=40", 4, "bucket:3/1s,burst=10"),
            ("bucket:0/s,burst=1", 4, "bucket:0/1s,burst=1"),
            ("leaky:8/s,queue=2", 4, "leaky:2/1s,queue=1"),
            ("leaky:8/s,queue=0", 4, "leaky:2/1s,queue=0"),
            ("window:60/m,res=6", 4, "window:15/1m,res=6"),
            ("fixed:60/d,tz=+02:00,keep=3", 4, "fixed:15/1d,tz=+02:00,keep=3"),
            ("slots:20", 8, "slots:2"),
        ] {
            let [whole, part] = [whole, part].map(|text| Rule::from_text(text.as_bytes()).unwrap());
            let divided = whole.divided(NonZeroU32::new(among).unwrap());
            assert_eq!(divided, part, "{divided}");
            assert!(divided.same_identity(&whole));
        }
    }
}
