//! What the RDB file holds beside the keys, before any of them: the version of
//! effects, and the policies.
//!
//! ```text
//! effects 2
//! free=log:20/1m;log:800/1d
//! ```
//!
//! A snapshot for a replica is followed by effects of the version it names, so a
//! replica that cannot read them refuses the snapshot. A file that is loaded at
//! start is followed by nothing, or by an AOF that names its versions itself.
//! Files of before this line was introduced have the policies alone.
//!
//! Servers that know how (Redis 7.2, Valkey 8) write nothing where there is neither
//! a policy nor a limiter, so that such a file can be loaded without the module;
//! the others always write.

use std::ffi::c_int;

use redis_module::raw;

use super::ENCODING;
use crate::effect::VERSION as EFFECT_VERSION;
use crate::rule::digits;
use crate::server::callback::guarded;
use crate::server::io::{self, Payload};
use crate::server::status::{ERROR, OK};
use crate::{metrics, newer, policy};

/// How the line of the version begins. No policy has a space in its name.
const EFFECTS: &[u8] = b"effects ";

pub(super) unsafe extern "C" fn load(
    rdb: *mut raw::RedisModuleIO,
    encoding: c_int,
    _when: c_int,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: `rdb` is what the server gave to this callback.
        let payload = unsafe { Payload::load(rdb) };
        let loaded = match payload {
            _ if encoding != ENCODING => {
                Err(format!("encoding {encoding} of policies, expected {ENCODING}"))
            }
            None => Err(String::from("the policies end too early")),
            Some(payload) => read(payload.bytes()),
        };
        match loaded {
            Ok(()) => OK,
            Err(why) => {
                // SAFETY: as above.
                unsafe { io::log_error(rdb, &why) };
                ERROR
            }
        }
    })
}

fn read(payload: &[u8]) -> Result<(), String> {
    let (version, policies) = split(payload)?;
    if newer::is_from_primary() && version.is_some_and(|version| version > EFFECT_VERSION) {
        let version = version.unwrap_or_default();
        return Err(format!(
            "the primary runs a newer version of the module, which writes effects of version \
             {version}, expected {EFFECT_VERSION} or older; upgrade this server first"
        ));
    }
    policy::load(policies).map_err(|error| format!("a saved policy cannot be read: {error}"))
}

/// The version of effects, and the policies.
fn split(payload: &[u8]) -> Result<(Option<u64>, &[u8]), String> {
    let Some(rest) = payload.strip_prefix(EFFECTS) else { return Ok((None, payload)) };
    let end = rest.iter().position(|&byte| byte == b'\n');
    let line = end.and_then(|end| Some((rest.get(..end)?, rest.get(end.saturating_add(1)..)?)));
    match line.and_then(|(number, policies)| Some((digits(number)?, policies))) {
        Some((version, policies)) => Ok((Some(version), policies)),
        None => Err(String::from("the version of effects cannot be read, expected an integer")),
    }
}

fn saved() -> Vec<u8> {
    let policies = policy::saved();
    [EFFECTS, EFFECT_VERSION.to_string().as_bytes(), b"\n", &policies].concat()
}

/// For servers that take nothing for an answer.
pub(super) unsafe extern "C" fn save_if_any(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: the server gave us `rdb`.
    unsafe {
        io::guarded_save(rdb, || {
            if metrics::values() > 0 || policy::any() {
                io::save(rdb, &saved());
            }
        });
    }
}

/// For the others.
pub(super) unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: the server gave us `rdb`.
    unsafe { io::guarded_save(rdb, || io::save(rdb, &saved())) };
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn the_version_of_effects_comes_before_the_policies() {
        for (payload, parts) in [
            (&b""[..], (None, &b""[..])),
            (b"free=5/h\n", (None, b"free=5/h\n")),
            (b"effects=5/h\n", (None, b"effects=5/h\n")),
            (b"effects 2\n", (Some(2), b"")),
            (b"effects 30\nfree=5/h\n", (Some(30), b"free=5/h\n")),
        ] {
            assert_eq!(split(payload), Ok(parts));
        }
        for payload in ["effects ", "effects 2", "effects \n", "effects x\n", "effects -1\n"] {
            assert!(split(payload.as_bytes()).is_err(), "{payload}");
        }
    }
}
