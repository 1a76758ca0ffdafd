//! Whom to count if the application does not say: the network of the client's address.

use std::net::SocketAddr;

use http::{Extensions, Request};
use redis::{ErrorKind, RedisResult};

use crate::layer::Limits;
use crate::{Check, RateLimitLayer, RateLimiter, Rules, Target, network_of};

/// Limits each client's network by rules; [`RateLimitLayer::by_address`] makes it.
#[derive(Clone, Debug)]
pub struct ByAddress {
    rules: Rules,
    prefix: u8,
}

impl RateLimitLayer<ByAddress> {
    /// Limits each client by these rules. Its key is `ip:` and the [network](network_of) of its address,
    /// which the request must carry in its extensions: axum's `ConnectInfo<SocketAddr>`, with the feature
    /// `axum`, or a plain `SocketAddr`. A request without one is answered with 500. Behind a proxy this
    /// would be the proxy's address: give [`Self::new`] a function that reads the proxy's field.
    pub fn by_address(limiter: RateLimiter, rules: impl Into<Rules>) -> Self {
        Self::new(limiter, ByAddress { rules: rules.into(), prefix: 64 })
    }
}

impl<F: Clone> RateLimitLayer<ByAddress, F> {
    /// The length of the network's prefix in IPv6: 64 by default.
    #[must_use]
    pub fn prefix(self, prefix: u8) -> Self {
        let limits = self.limits();
        let target = ByAddress { prefix, ..limits.target };
        Self::of(Limits { target, ..limits })
    }
}

impl<B> Target<B> for ByAddress {
    fn check(&self, request: &Request<B>) -> RedisResult<Option<Check>> {
        if self.rules.texts().is_empty() {
            return Ok(None);
        }
        let Some(address) = address_of(request.extensions()) else {
            return Err((
                ErrorKind::InvalidClientConfig,
                "a request carries no address of its client",
                "serve axum by into_make_service_with_connect_info::<SocketAddr>() and with the \
                 feature axum, or insert a SocketAddr into the request's extensions"
                    .to_string(),
            )
                .into());
        };
        let key = format!("ip:{}", network_of(address.ip(), self.prefix));
        Ok(Some(Check::new(key, &self.rules)))
    }
}

fn address_of(found: &Extensions) -> Option<SocketAddr> {
    #[cfg(feature = "axum")]
    if let Some(info) = found.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(info.0);
    }
    found.get::<SocketAddr>().copied()
}
