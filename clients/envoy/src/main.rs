#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod connect;
mod decision;
mod leases;
mod metering;
mod options;
mod reload;
mod request;
mod response;
mod serve;
mod service;

use std::process::ExitCode;

use clap::Parser;

use crate::config::{Config, texts};
use crate::options::Options;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<()> {
    options.start_log();
    if options.check_config {
        print!("{}", Config::of(&texts(&options.files)?, &options.files)?);
        return Ok(());
    }
    serve::serve(options).await
}
