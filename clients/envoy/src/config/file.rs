//! The format of a configuration file.

use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub domain: String,
    pub descriptors: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "a file has them")]
pub struct Descriptor {
    pub key: String,
    pub value: Option<String>,
    pub rate_limit: Option<RateLimit>,
    pub rules: Option<Vec<String>>,
    pub policy: Option<String>,
    pub plan: Option<String>,
    pub lease: Option<u64>,
    #[serde(default)]
    pub shadow_mode: bool,
    /// Whether several hits at once are charged only if they are within the limit.
    #[serde(default)]
    pub all_or_nothing: bool,
    pub descriptors: Option<Vec<Self>>,
    // The reference has these options too; this service refuses them.
    #[serde(default)]
    quota_mode: bool,
    #[serde(default)]
    detailed_metric: bool,
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    share_threshold: bool,
    metadata: Option<IgnoredAny>,
}

impl Descriptor {
    /// The first option given that this service does not support.
    pub fn unsupported(&self) -> Option<&'static str> {
        let given = [
            ("quota_mode", self.quota_mode),
            ("detailed_metric", self.detailed_metric),
            ("value_to_metric", self.value_to_metric),
            ("share_threshold", self.share_threshold),
            ("metadata", self.metadata.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub unit: Option<String>,
    pub requests_per_unit: Option<u32>,
    #[serde(default)]
    pub unlimited: bool,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub replaces: Vec<Replaced>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    pub name: String,
}
