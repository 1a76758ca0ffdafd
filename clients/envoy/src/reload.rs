//! Follows changes of the configuration.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tower_redis_ratelimit::RateLimiter;

use crate::config::{Config, Texts, texts};
use crate::confirm::{Answer, Ask, confirm};
use crate::metering;
use crate::options::Files;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads the configuration.
pub struct Reader {
    pub files: Files,
    pub limiter: RateLimiter,
    pub prefix: String,
}

impl Reader {
    /// The limits of these texts, if the server accepts them or is away.
    pub async fn read(&self, texts: &Texts) -> Result<Config> {
        let read = Config::of(texts, &self.files)?;
        let answer = confirm(&read, &self.limiter, &self.prefix, Ask::AllButPolicies).await?;
        if let Answer::Away(why) = answer {
            let why = why.map_or(String::new(), |error| error.to_string());
            tracing::warn!(why, "no server said whether it accepts the configuration");
        }
        Ok(read)
    }

    /// Reads the configuration again when the texts of its files have changed. It compares texts
    /// because Kubernetes changes links, and some disks report no changes. A broken configuration
    /// changes nothing.
    pub async fn follow(self, mut known: Option<Texts>, config: watch::Sender<Arc<Config>>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let found = texts(&self.files);
            if found.as_ref().ok() == known.as_ref() {
                continue;
            }
            known = found.as_ref().ok().cloned();
            let read = match found {
                Ok(texts) => self.read(&texts).await,
                Err(error) => Err(error),
            };
            match read {
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
}
