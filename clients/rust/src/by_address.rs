//! Whom to count if the application does not say: the network of the client's address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Extensions, Request};
use redis::RedisResult;

use crate::address::{network, network_of};
use crate::check::Check;
use crate::layer::{Limits, RateLimitLayer, Target};
use crate::limiter::RateLimiter;
use crate::rules::Rules;
use crate::script;
use crate::value::misuse;

/// Limits each client's network by rules; [`RateLimitLayer::by_address`] makes it.
#[derive(Clone, Debug)]
pub struct ByAddress {
    rules: Rules,
    prefix: u8,
    /// Whether the warning about clients without an address was logged.
    warned: Arc<AtomicBool>,
}

impl RateLimitLayer<ByAddress> {
    /// Limits each client by these rules. Its key is `ip:` and the [network](network_of) of its
    /// address, which the request must carry in its extensions: axum's `ConnectInfo<SocketAddr>`,
    /// with the feature `axum`, or a plain `SocketAddr`. Requests without an address share the key
    /// `ip:unknown`, so any of their clients can use up the limit of all. The log warns of this once.
    /// Behind a proxy, and on a Unix socket, give [`Self::new`] a function that reads the proxy's
    /// field.
    ///
    /// # Errors
    /// A rule that cannot be read, or one of `slots`, which only a [hold](RateLimiter::hold) takes.
    pub fn by_address(limiter: RateLimiter, rules: impl Into<Rules>) -> RedisResult<Self> {
        let rules = rules.into();
        rules.refuse_none()?;
        rules.validate()?;
        Rules::refuse_slots(rules.texts().iter().map(String::as_str))?;
        if limiter.asker().script.is_some() {
            rules.texts().iter().try_for_each(|text| script::knows(text))?;
        }
        let warned = Arc::default();
        let target = ByAddress { rules: rules.clone(), prefix: 64, warned };
        Ok(Self::of(Limits::new(limiter, target, rules)))
    }
}

impl<F: Clone> RateLimitLayer<ByAddress, F> {
    /// The length of the network's prefix in IPv6, 0 to 128: 64 by default.
    ///
    /// # Errors
    /// A prefix above 128.
    pub fn prefix(self, prefix: u8) -> RedisResult<Self> {
        if prefix > 128 {
            return Err(misuse(format!("the prefix is {prefix}, expected 0 to 128")));
        }
        let limits = self.limits();
        let target = ByAddress { prefix, ..limits.target };
        Ok(Self::of(Limits { target, ..limits }))
    }
}

impl<B> Target<B> for ByAddress {
    fn check(&self, request: &Request<B>) -> RedisResult<Option<Check>> {
        let network = match address_of(request.extensions()) {
            Some(address) => network_of(address.ip(), self.prefix),
            None => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "requests carry no address of their clients, which share the limit of \
                         ip:unknown: serve axum by into_make_service_with_connect_info::<SocketAddr>() \
                         and with the feature axum, insert a SocketAddr into the request's \
                         extensions, or give RateLimitLayer::new a function"
                    );
                }
                network("", self.prefix)
            }
        };
        Ok(Some(Check::new(format!("ip:{network}"), &self.rules)))
    }
}

fn address_of(found: &Extensions) -> Option<SocketAddr> {
    #[cfg(feature = "axum")]
    if let Some(info) = found.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(info.0);
    }
    found.get::<SocketAddr>().copied()
}
