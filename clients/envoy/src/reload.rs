//! Follows changes of the configuration.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::{Config, Texts, texts};
use crate::metering;
use crate::options::Files;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads the configuration again when the texts of its files have changed. It compares texts
/// because Kubernetes changes links, and some disks report no changes. A broken configuration
/// changes nothing.
pub async fn follow(files: Files, mut known: Option<Texts>, config: watch::Sender<Arc<Config>>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let found = texts(&files);
        if found.as_ref().ok() == known.as_ref() {
            continue;
        }
        known = found.as_ref().ok().cloned();
        match found.and_then(|texts| Config::of(&texts, &files)) {
            Ok(read) => {
                metering::loaded("success");
                tracing::info!("the configuration was read again");
                config.send_replace(Arc::new(read));
            }
            Err(error) => {
                metering::loaded("error");
                tracing::error!("the old configuration stays: {error:#}");
            }
        }
    }
}
