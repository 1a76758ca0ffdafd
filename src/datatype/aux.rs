//! The auxiliary data that an RDB file has before the keys: the version of effects, and the
//! policies.
//!
//! ```text
//! effects 1
//! free=log:20/1m;log:800/1d
//! ```
//!
//! Effects of the version named follow a snapshot for a replica, so a replica that cannot read that
//! version refuses the snapshot. Nothing follows a file that is loaded at start, except an AOF
//! whose effects name their versions.
//!
//! Redis from 7.2 and Valkey from 8 on (`aux_save2`) write nothing if there are neither policies
//! nor limiters, so such a file loads without the module. Older servers always write.

use std::ffi::c_int;

use redis_module::raw;

use super::value::load_payload;
use crate::server::api::{ERROR, OK};
use crate::server::callback::guarded;
use crate::server::io;
use crate::{metrics, newer_data, policy};
use ratelimit_core::effect::VERSION as EFFECT_VERSION;
use ratelimit_core::rule::digits;

/// The beginning of the first line.
const EFFECTS: &[u8] = b"effects ";

pub(super) unsafe extern "C" fn load(
    rdb: *mut raw::RedisModuleIO,
    encoding: c_int,
    _when: c_int,
) -> c_int {
    guarded(ERROR, || {
        let what = ["policies", "the policies end"];
        // SAFETY: `rdb` is what the server gave to this callback.
        unsafe { load_payload(rdb, encoding, what, read) }.map_or(ERROR, |()| OK)
    })
}

fn read(payload: &[u8]) -> Result<(), String> {
    let (version, policies) =
        split(payload).ok_or("the version of effects cannot be read, expected an integer")?;
    if newer_data::is_from_primary() && version > EFFECT_VERSION {
        return Err(format!(
            "the primary runs a newer version of the module, which writes effects of version \
             {version}, expected {EFFECT_VERSION} or older; upgrade this server first"
        ));
    }
    policy::load(policies).map_err(|error| format!("a saved policy cannot be read: {error}"))
}

/// Splits a payload into the version of effects and the policies.
fn split(payload: &[u8]) -> Option<(u64, &[u8])> {
    let rest = payload.strip_prefix(EFFECTS)?;
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let (number, policies) = rest.split_at_checked(end)?;
    Some((digits(number)?, policies.get(1..)?))
}

fn payload() -> Vec<u8> {
    let policies = policy::save();
    [EFFECTS, EFFECT_VERSION.to_string().as_bytes(), b"\n", &policies].concat()
}

/// For servers that let a module write nothing.
pub(super) unsafe extern "C" fn save_if_any(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: the server gave `rdb`.
    unsafe {
        io::guarded_save(rdb, || {
            if metrics::values() > 0 || policy::any() {
                io::save(rdb, &payload());
            }
        });
    }
}

/// For older servers.
pub(super) unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: the server gave `rdb`.
    unsafe { io::guarded_save(rdb, || io::save(rdb, &payload())) };
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_payload_is_split_into_version_and_policies() {
        for (payload, parts) in
            [(&b"effects 2\n"[..], (2, &b""[..])), (b"effects 30\nfree=5/h\n", (30, b"free=5/h\n"))]
        {
            assert_eq!(split(payload), Some(parts));
        }
        for payload in [
            "",
            "free=5/h\n",
            "effects=5/h\n",
            "effects ",
            "effects 2",
            "effects \n",
            "effects x\n",
            "effects -1\n",
        ] {
            assert!(split(payload.as_bytes()).is_none(), "{payload}");
        }
    }
}
