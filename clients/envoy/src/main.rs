#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod confirm;
mod connect;
mod decision;
mod environment;
mod grpc;
mod leases;
mod metering;
mod options;
mod reload;
mod request;
mod response;
mod rpc;
mod serve;
mod service;
mod wire;

use std::process::ExitCode;

use anyhow::Context;

use crate::config::{Config, texts, within_defaults};
use crate::confirm::{Answer, Ask, confirm};
use crate::options::Options;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::read()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<()> {
    options.start_log();
    environment::refuse()?;
    if options.check_config { check(&options).await } else { serve::serve(options).await }
}

/// Prints the limits, after the server has accepted them.
async fn check(options: &Options) -> anyhow::Result<()> {
    let config = Config::of(&texts(&options.files)?, &options.files)?;
    let (limiter, prefix) = (connect::limiter(options)?, &options.redis.cache_key_prefix);
    if let Answer::Away(why) = confirm(&config, &limiter, prefix, Ask::Everything).await? {
        for (place, rules) in config.rules() {
            within_defaults(rules).context(place)?;
        }
        let why = why.map_or(String::new(), |error| format!(": {error}"));
        eprintln!("No server answered, so its settings and policies were not asked{why}");
    }
    print!("{config}");
    Ok(())
}
