//! `RL.TOP`: the keys that were denied most often.

use redis::Connection;

use crate::support::client::{ask, refusal, verdict};
use crate::support::server;

#[test]
fn keys_denied_most_often_come_first() {
    server::on_all_with(
        |builder| builder.module_args(&["top-size", "20"]),
        |server| {
            let mut c = server.connect();
            let mut pipe = redis::pipe();
            for n in 0..2_000u32 {
                let key = match n % 4 {
                    0 | 1 => "worst".to_string(),
                    2 => "bad".to_string(),
                    _ => format!("once:{n}"),
                };
                pipe.cmd("RL.CHECK").arg(key).arg("0/m").ignore();
                pipe.cmd("RL.CHECK")
                    .arg("good")
                    .arg("bucket:1000000/m")
                    .arg("fixed:9999/m")
                    .ignore();
            }
            let () = pipe.query(&mut c).unwrap();
            let top = |c: &mut Connection, options: &str| -> Vec<(String, u64, u64)> {
                ask(c, format!("RL.TOP {options}").trim_end())
            };
            let rows = top(&mut c, "");
            assert_eq!(rows.len(), 10);
            // Space-Saving overestimates by at most N/k: 2,000 denials, 20 counters.
            assert_eq!(rows[0].0, "worst");
            assert!((1_000..=1_100).contains(&rows[0].1), "{rows:?}");
            assert_eq!(rows[1].0, "bad");
            assert!((500..=600).contains(&rows[1].1), "{rows:?}");
            assert!(rows.iter().all(|(key, ..)| key != "good"));
            let (seconds, _): (u64, u64) = ask(&mut c, "TIME");
            assert!(rows.iter().all(|row| row.2.abs_diff(seconds * 1_000) < 60_000), "{rows:?}");
            assert_eq!(top(&mut c, "COUNT 1 RESET"), rows[..1]);
            assert_eq!(top(&mut c, ""), []);
            if server.flavor().is_7_or_later() {
                let _: String = ask(&mut c, "CONFIG SET ratelimit.top-size 0");
                assert_eq!(verdict(&mut c, "RL.CHECK k 0/m"), 1);
                assert_eq!(top(&mut c, ""), []);
            }
            assert!(refusal(&mut c, "RL.TOP ALL").contains("unexpected 'ALL'"));
        },
    );
}
