//! The options, each a flag or a variable of the environment. Options that the reference also has
//! keep the reference's names.

use std::env;
use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser};
use tower_redis_ratelimit::{Engine, Outage};
use tracing::level_filters::LevelFilter;

/// The names of the reference's log, and our own.
const LEVELS: [(&str, LevelFilter); 9] = [
    ("off", LevelFilter::OFF),
    ("panic", LevelFilter::ERROR),
    ("fatal", LevelFilter::ERROR),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("warning", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];
const ENGINES: [(&str, Engine); 2] = [("module", Engine::Module), ("script", Engine::Script)];
const OUTAGES: [(&str, Outage); 4] = [
    ("error", Outage::Raise),
    ("allow", Outage::Allow),
    ("deny", Outage::Deny),
    ("local", Outage::Local),
];

/// Reads one of these names, in any case.
fn one_of<T: Copy + Send + Sync + 'static>(
    named: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(named.iter().map(|(name, _)| *name)).try_map(|given| {
        let found = named.iter().find(|(name, _)| name.eq_ignore_ascii_case(&given));
        found.map(|(_, value)| *value).ok_or("unknown")
    })
}

/// A rate limit service for Envoy, decided by the redis-ratelimit module in Redis or Valkey.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Options {
    /// Print the limits of the configuration, or its error, and exit.
    #[arg(long)]
    pub check_config: bool,
    #[command(flatten)]
    pub files: Files,
    #[command(flatten)]
    pub redis: Redis,
    #[command(flatten)]
    pub answers: Answers,
    #[command(flatten)]
    pub listen: Listen,
    #[arg(long, env, default_value = "info", ignore_case = true, value_parser = one_of(&LEVELS))]
    pub log_level: LevelFilter,
    #[arg(long = "log-format", env = "LOG_FORMAT", default_value = "text", ignore_case = true)]
    #[arg(action = ArgAction::Set, value_parser = one_of(&[("text", false), ("json", true)]))]
    pub is_json: bool,
}

impl Options {
    /// The options of the process. A variable that is empty counts as not set.
    pub fn read() -> Self {
        let command = Self::command().mut_args(|arg| {
            let value = arg.get_env().and_then(env::var_os);
            let is_empty = value.is_some_and(|value| value.is_empty());
            if is_empty { arg.env(None::<&'static str>) } else { arg }
        });
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    pub fn start_log(&self) {
        let log = tracing_subscriber::fmt().with_max_level(self.log_level);
        let log = log.with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
        if self.is_json { log.json().init() } else { log.init() }
    }
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Configuration")]
pub struct Files {
    /// The folder that contains the configuration's folder.
    #[arg(long, env, default_value = "/srv/runtime_data/current")]
    pub runtime_root: PathBuf,
    /// A folder in --runtime-root, or none.
    #[arg(long, env, default_value = "")]
    pub runtime_subdirectory: String,
    /// A folder in --runtime-subdirectory: each of its files *.yaml and *.yml is read.
    #[arg(long, env, default_value = "config")]
    pub runtime_appdirectory: String,
    /// Let several files set limits of the same domain.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub merge_domain_config: bool,
    /// Let no `rate_limit` charge several hits at once that are not within the limit, as with
    /// `all_or_nothing`.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub stop_cache_key_increment_when_overlimit: bool,
    /// Whether the module or the script decides. The script is for servers that cannot load the module.
    #[arg(long, env, default_value = "module", ignore_case = true, value_parser = one_of(&ENGINES))]
    pub engine: Engine,
}

impl Files {
    /// Whether a `rate_limit` charges several hits at once, whatever is left.
    pub const fn counts_reports(&self) -> bool {
        !self.stop_cache_key_increment_when_overlimit
    }

    pub fn folder(&self) -> PathBuf {
        let inside = [&self.runtime_subdirectory, &self.runtime_appdirectory];
        inside.into_iter().fold(self.runtime_root.clone(), |folder, name| {
            folder.join(name.trim_start_matches('/'))
        })
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Redis or Valkey")]
#[allow(clippy::struct_field_names, reason = "they name the options")]
pub struct Redis {
    /// host:port, a redis:// or rediss:// URL, or the path of a socket. For a cluster: several,
    /// separated by commas.
    #[arg(long, env, default_value = "localhost:6379")]
    pub redis_url: String,
    /// Whether the server is a cluster.
    #[arg(long = "redis-type", env = "REDIS_TYPE", ignore_case = true, default_value = "single")]
    #[arg(action = ArgAction::Set, value_parser = one_of(&[("single", false), ("cluster", true)]))]
    pub is_cluster: bool,
    /// The password, or user:password.
    #[arg(long, env, default_value = "", hide_env_values = true)]
    pub redis_auth: String,
    /// Use TLS.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub redis_tls: bool,
    /// A file with the authorities to trust, instead of the public ones.
    #[arg(long, env)]
    pub redis_tls_cacert: Option<PathBuf>,
    /// A file with the client's certificate. Its key is in another one.
    #[arg(long, env, requires = "redis_tls_client_key")]
    pub redis_tls_client_cert: Option<PathBuf>,
    #[arg(long, env, requires = "redis_tls_client_cert")]
    pub redis_tls_client_key: Option<PathBuf>,
    /// How long a command may wait for its turn, and how long it may then take, including connecting.
    /// Keep it below the time-out of Envoy's filter.
    #[arg(long, env, value_parser = humantime::parse_duration, default_value = "15ms")]
    pub redis_timeout: Duration,
    /// A text before each key. With a hash tag, such as {limits}, a cluster decides over several limits at once.
    #[arg(long, env, default_value = "")]
    pub cache_key_prefix: String,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Answers")]
pub struct Answers {
    /// What to answer while the server gives no decision. With `error` Envoy's `failure_mode_deny` decides.
    #[arg(long, env, default_value = "error", ignore_case = true, value_parser = one_of(&OUTAGES))]
    pub outage: Outage,
    /// The number of replicas of this service. With `--outage local` each keeps to its part of every limit.
    #[arg(long, env, default_value_t = 1)]
    pub replicas: u32,
    /// The number of keys whose denials are remembered, and repeated without asking the server
    /// until a request may pass, even after `RL.RESET`, `RL.EXEMPT` or a refund.
    #[arg(long, env, default_value_t = 0)]
    pub remembered_denials: usize,
    /// Let every request pass, but check, count and report it as always.
    #[arg(long = "shadow-mode", env = "SHADOW_MODE", value_parser = BoolishValueParser::new())]
    pub shadow: bool,
    /// Tell clients their limit: `RateLimit-Limit`, `-Remaining` and `-Reset`.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub limit_response_headers_enabled: bool,
    #[arg(long, env, default_value = "RateLimit-Limit")]
    pub limit_limit_header: String,
    #[arg(long, env, default_value = "RateLimit-Remaining")]
    pub limit_remaining_header: String,
    #[arg(long, env, default_value = "RateLimit-Reset")]
    pub limit_reset_header: String,
    /// The part of a limit above which the metric `near_limit` counts hits.
    #[arg(long, env, default_value_t = 0.8)]
    pub near_limit_ratio: f64,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Listening")]
pub struct Listen {
    #[arg(long, env, default_value = "0.0.0.0")]
    pub grpc_host: IpAddr,
    #[arg(long, env, default_value_t = 8081)]
    pub grpc_port: u16,
    /// Use TLS for gRPC, with the certificate and key of the next two options.
    #[arg(long, env, value_parser = BoolishValueParser::new())]
    pub grpc_server_use_tls: bool,
    #[arg(long, env)]
    pub grpc_server_tls_cert: Option<PathBuf>,
    #[arg(long, env)]
    pub grpc_server_tls_key: Option<PathBuf>,
    /// Accept only clients with a certificate of the authorities in this file.
    #[arg(long, env)]
    pub grpc_client_tls_cacert: Option<PathBuf>,
    /// How long a connection may last before Envoy is asked to open another one.
    #[arg(long, env, value_parser = humantime::parse_duration, default_value = "24h")]
    pub grpc_max_connection_age: Duration,
    /// The address of /healthcheck and /metrics.
    #[arg(long, env, default_value = "0.0.0.0")]
    pub host: IpAddr,
    #[arg(long, env, default_value_t = 8080)]
    pub port: u16,
}
