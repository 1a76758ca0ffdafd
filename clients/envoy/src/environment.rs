//! The variables by which the reference is configured, and which are no options here. A variable that
//! would change who may connect, which request is denied or what it is told stops the service at its
//! start. The others change nothing that a client notices; the log names those that are set.

use std::env;

use anyhow::{Result, bail};

/// Each variable, and the values that do not need what it asks for.
pub const REFUSED: [(&str, &[&str]); 11] = [
    ("BACKEND_TYPE", &["redis"]),
    ("CONFIG_TYPE", &["FILE"]),
    ("GRPC_CLIENT_TLS_SAN", &[]),
    ("GRPC_UDS", &[]),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", FALSE),
    ("QUOTA_MODE", FALSE),
    ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", FALSE),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", &["WAIT"]),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", &["WAIT"]),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", FALSE),
    ("RESPONSE_DYNAMIC_METADATA", FALSE),
];
const FALSE: &[&str] = &["0", "f", "false"];

/// Variables, and with a `*` at their end all that begin like this, that have no effect.
pub const HARMLESS: [&str; 36] = [
    "CONFIG_GRPC_XDS_*",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "DISABLE_STATS",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "EXTRA_TAGS",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "MEMCACHE_*",
    "PROMETHEUS_*",
    "REDIS_CLUSTER_PIPELINE_PARALLELISM",
    "REDIS_PERSECOND",
    "REDIS_PERSECOND_AUTH",
    "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
    "REDIS_PERSECOND_PIPELINE_LIMIT",
    "REDIS_PERSECOND_PIPELINE_WINDOW",
    "REDIS_PERSECOND_POOL_SIZE",
    "REDIS_PERSECOND_SENTINEL_AUTH",
    "REDIS_PERSECOND_SOCKET_TYPE",
    "REDIS_PERSECOND_TIMEOUT",
    "REDIS_PERSECOND_TLS",
    "REDIS_PERSECOND_TYPE",
    "REDIS_PERSECOND_URL",
    "REDIS_PIPELINE_LIMIT",
    "REDIS_PIPELINE_WINDOW",
    "REDIS_POOL_SIZE",
    "REDIS_SENTINEL_AUTH",
    "REDIS_SOCKET_TYPE",
    "REDIS_STARTUP_*",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_WATCH_ROOT",
    "STATS*",
    "TRACING_*",
    "USE_*",
    "XDS_CLIENT_*",
];

/// An error that names a variable whose effect is missing here.
pub fn refuse() -> Result<()> {
    for (name, allowed) in REFUSED {
        let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { continue };
        if !allowed.iter().any(|allowed| value.eq_ignore_ascii_case(allowed)) {
            bail!("{name} is not supported: remove it");
        }
    }
    Ok(())
}

/// Whether a variable of this name has no effect.
pub fn is_harmless(name: &str) -> bool {
    HARMLESS.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    })
}

/// The harmless variables that are set.
pub fn without_effect() -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| is_harmless(name)).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::options::Options;

    /// Every variable that the settings of the reference read.
    const OF_THE_REFERENCE: &str = "
        HOST PORT DEBUG_HOST DEBUG_PORT GRPC_UDS GRPC_HOST GRPC_PORT GRPC_MAX_CONNECTION_AGE
        GRPC_MAX_CONNECTION_AGE_GRACE GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY
        GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN LOG_LEVEL LOG_FORMAT CONFIG_TYPE
        FORCE_START_WITHOUT_INITIAL_CONFIG CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_NODE_METADATA
        CONFIG_GRPC_XDS_SERVER_URL CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
        CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_SERVER_USE_TLS
        CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY
        CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN
        XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL
        XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES
        USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_STATSD STATSD_HOST STATSD_PORT EXTRA_TAGS
        STATS_FLUSH_INTERVAL DISABLE_STATS USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH
        PROMETHEUS_MAPPER_YAML PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS RUNTIME_ROOT
        RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT
        EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO CACHE_KEY_PREFIX
        BACKEND_TYPE STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT LIMIT_RESPONSE_HEADERS_ENABLED
        LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER
        HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED REDIS_SOCKET_TYPE REDIS_TYPE REDIS_URL
        REDIS_POOL_SIZE REDIS_AUTH REDIS_TLS REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY
        REDIS_TLS_CACERT REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_PIPELINE_WINDOW
        REDIS_PIPELINE_LIMIT REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND
        REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL
        REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_AUTH REDIS_PERSECOND_TLS REDIS_SENTINEL_AUTH
        REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_PIPELINE_WINDOW
        REDIS_PERSECOND_PIPELINE_LIMIT REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM
        REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_TIMEOUT REDIS_PERSECOND_TIMEOUT
        REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR
        REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME
        MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS
        MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT
        MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION SHADOW_MODE QUOTA_MODE RESPONSE_DYNAMIC_METADATA
        MERGE_DOMAIN_CONFIG TRACING_ENABLED TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE
        TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE";

    #[test]
    fn each_variable_of_the_reference_is_honoured_or_refused_or_harmless() {
        let command = Options::command();
        let honoured = command.get_arguments().filter_map(clap::Arg::get_env);
        let honoured = honoured.filter_map(|name| name.to_str()).collect::<Vec<_>>();
        for name in OF_THE_REFERENCE.split_whitespace() {
            let is_refused = REFUSED.iter().any(|(refused, _)| *refused == name);
            let ways = [honoured.contains(&name), is_refused, is_harmless(name)];
            let number = ways.iter().filter(|way| **way).count();
            assert_eq!(number, 1, "{name}: honoured, refused, harmless are {ways:?}");
        }
        for (name, _) in REFUSED {
            assert!(OF_THE_REFERENCE.split_whitespace().any(|known| known == name), "{name}");
        }
    }
}
