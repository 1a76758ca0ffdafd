//! The limiter on the server that the options name.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use redis::{Client, ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use tower_redis_ratelimit::{Builder, Engine, RateLimiter};

use crate::decision::Asks;
use crate::options::{Options, Redis};

pub fn limiter(options: &Options) -> Result<RateLimiter> {
    let Options { redis, answers, files, .. } = options;
    let single = || Ok(RateLimiter::server(client(&redis.redis_url, redis)?));
    let builder: Result<_> = if redis.is_cluster { cluster(redis) } else { single() };
    let timeout = redis.redis_timeout;
    let builder = builder?.outage(answers.outage).processes(answers.replicas).engine(files.engine);
    let builder = builder.remember_denials(answers.remembered_denials);
    Ok(builder.timeout(timeout).queue_timeout(timeout).build()?)
}

fn cluster(redis: &Redis) -> Result<Builder> {
    let nodes = redis.redis_url.split(',').map(|url| client(url.trim(), redis));
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    Ok(RateLimiter::cluster(nodes).separately(!has_one_slot(redis)))
}

fn client(url: &str, redis: &Redis) -> Result<Client> {
    let info = info(url, redis)?;
    Ok(match certificates(redis)? {
        Some(certificates) => Client::build_with_tls(info, certificates)?,
        None => Client::open(info)?,
    })
}

/// Whether all keys have the same hash tag.
fn has_one_slot(redis: &Redis) -> bool {
    let tag = redis.cache_key_prefix.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}

/// How the limiter asks about several keys.
pub fn asks(options: &Options) -> Asks {
    match options.files.engine {
        Engine::Script => Asks::TheScript,
        Engine::Module if options.redis.is_cluster && !has_one_slot(&options.redis) => {
            Asks::OneByOne
        }
        Engine::Module => Asks::AtOnce,
    }
}

fn info(url: &str, redis: &Redis) -> Result<ConnectionInfo> {
    let scheme = if redis.redis_tls { "rediss" } else { "redis" };
    let url = match url.split_once("://") {
        None if url.starts_with('/') => format!("unix://{url}"),
        None => format!("{scheme}://{url}"),
        Some(("redis", rest)) => format!("{scheme}://{rest}"),
        Some(_) => url.to_string(),
    };
    // The error does not show the URL, which may have a password.
    let info = url.into_connection_info().context("REDIS_URL")?;
    if redis.redis_auth.is_empty() {
        return Ok(info);
    }
    let (user, password) = redis.redis_auth.split_once(':').unwrap_or(("", &redis.redis_auth));
    let mut settings = info.redis_settings().clone().set_password(password);
    if !user.is_empty() {
        settings = settings.set_username(user);
    }
    Ok(info.set_redis_settings(settings))
}

fn certificates(redis: &Redis) -> Result<Option<TlsCertificates>> {
    let Redis {
        redis_tls_cacert: root, redis_tls_client_cert: own, redis_tls_client_key: key, ..
    } = redis;
    if root.is_none() && own.is_none() {
        return Ok(None);
    }
    let client_tls = own.as_ref().zip(key.as_ref()).map(|(own, key)| {
        Ok::<_, anyhow::Error>(ClientTlsConfig { client_cert: read(own)?, client_key: read(key)? })
    });
    let root_cert = root.as_ref().map(|root| read(root)).transpose()?;
    Ok(Some(TlsCertificates { client_tls: client_tls.transpose()?, root_cert }))
}

/// A file of certificates or keys.
pub fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| file.display().to_string())
}
