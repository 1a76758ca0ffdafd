//! What to check for a request.

use http::Request;

/// What to check for one request: a key, what the request costs, and by which rules.
///
/// A `String` or `&str` becomes a check of that key, at a cost of 1, by the rules of the layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub(crate) key: Vec<u8>,
    pub(crate) cost: u64,
    pub(crate) rules: Option<Vec<String>>,
}

impl Check {
    /// A check of this key, at a cost of 1, by the rules of the layer.
    pub fn new(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), cost: 1, rules: None }
    }

    /// What the request costs, in units of the rules.
    #[must_use]
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// Other rules than those of the layer, such as `["@pro"]`.
    #[must_use]
    pub fn rules(mut self, rules: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.rules = Some(rules.into_iter().map(Into::into).collect());
        self
    }
}

impl From<String> for Check {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

impl From<&str> for Check {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

/// Finds what to check for a request. Any `Fn(&Request<B>) -> Option<impl Into<Check>>` does.
pub trait Target<B> {
    /// The check of this request; `None` lets it pass without one.
    fn check(&self, request: &Request<B>) -> Option<Check>;
}

impl<B, F, C> Target<B> for F
where
    F: Fn(&Request<B>) -> Option<C>,
    C: Into<Check>,
{
    fn check(&self, request: &Request<B>) -> Option<Check> {
        self(request).map(Into::into)
    }
}
