//! Bounds how long something may take.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

const PARTS: u32 = 10;
/// The shortest part: long enough to read what has come.
const LEAST: Duration = Duration::from_millis(1);

/// The output, if it comes within this time. It is awaited in parts, so that time in which this process
/// itself did not run is not the server's: an answer that has come meanwhile is read before time is up.
pub async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, began, mut left) = (pin!(work), Instant::now(), time);
    for parts in (1..=PARTS).rev() {
        let part = left.checked_div(parts).unwrap_or_default();
        if let Ok(output) = timeout(part.max(LEAST), work.as_mut()).await {
            return Some(output);
        }
        left = time.saturating_sub(began.elapsed());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tokio::time::sleep;

    #[tokio::test]
    async fn endless_work_takes_all_of_the_time() {
        let (start, time) = (Instant::now(), Duration::from_millis(100));
        assert_eq!(within(time, std::future::pending::<()>()).await, None);
        assert!(start.elapsed() >= time);
    }

    #[tokio::test]
    async fn a_paused_process_still_gets_its_answer() {
        let time = Duration::from_millis(500);
        let answer = tokio::spawn(sleep(Duration::from_millis(1)));
        // Both timers are over when this thread goes on.
        let stands = async move {
            thread::sleep(2 * time);
            answer.await.is_ok()
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { tell.send(stands.await) });
        assert_eq!(within(time, told).await, Some(Ok(true)));
    }
}
