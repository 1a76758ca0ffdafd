//! Values with wildcards.

/// A value in which each `*` stands for any characters, or none.
#[derive(Debug)]
pub struct Pattern {
    first: String,
    middle: Vec<String>,
    last: String,
}

impl Pattern {
    /// `None`: the value has no wildcard.
    pub fn of(value: &str) -> Option<Self> {
        let (first, rest) = value.split_once('*')?;
        let (middle, last) = rest.rsplit_once('*').unwrap_or_default();
        let last = if rest.contains('*') { last } else { rest };
        let middle = middle.split('*').filter(|part| !part.is_empty()).map(String::from).collect();
        Some(Self { first: first.to_string(), middle, last: last.to_string() })
    }

    pub fn matches(&self, value: &str) -> bool {
        let rest = value.strip_prefix(&*self.first);
        let Some(mut rest) = rest.and_then(|rest| rest.strip_suffix(&*self.last)) else {
            return false;
        };
        self.middle.iter().all(|part| {
            let Some((_, after)) = rest.split_once(&**part) else { return false };
            rest = after;
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        let cases = [
            ("value*", "value", true),
            ("value*", "value1", true),
            ("value*", "a value", false),
            ("*", "", true),
            ("/api/*/action", "/api/123/action", true),
            ("/api/*/action", "/api/a/b/action", true),
            ("/api/*/action", "/api/123/other", false),
            ("/api/*/action", "/api/action", false),
            ("/api/*/resource/*/action", "/api/v1/resource/9/action", true),
            ("/api/*/resource/*/action", "/api/v1/action", false),
            ("ab*ba", "aba", false),
            ("a*b*b", "ab", false),
            ("a**b", "ab", true),
        ];
        for (pattern, value, expected) in cases {
            let pattern = Pattern::of(pattern).unwrap();
            assert_eq!(pattern.matches(value), expected, "{pattern:?} {value}");
        }
        assert!(Pattern::of("plain").is_none());
    }
}
