//! What the module writes to files and replicas: values, and auxiliary data before them.
//!
//! ```text
//! RDB file, full synchronization    auxiliary payload, then a payload per value
//! DUMP                              the payload of the value
//! AOF being rewritten               RL.POLICY SET name rule ..., then RL.LOAD key payload
//! ```
//!
//! The auxiliary payload has the version of effects, and the policies:
//!
//! ```text
//! effects 2
//! free=log:20/1m;log:800/1d
//! ```
//!
//! After a snapshot, a primary sends its replica effects of this version. So a replica that cannot read
//! the version refuses the snapshot. A file that is loaded at start may have a version that cannot be
//! read: no effects follow it, except in an AOF, whose effects name their versions.
//!
//! Valkey 9.2 can save without a fork. Then another thread calls [`save`], while the server changes other
//! values, and no command changes the one being saved. A [`Limiter`] is `Sync`, and saving it reads nothing
//! else but atomics.
//!
//! Redis from 7.2 on and Valkey (`aux_save2`) write nothing if there are neither policies nor
//! limiters, so such a file loads without the module. Older servers always write the payload.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::heap::{ENCODING, NULL, borrow, new_value};
use crate::server::api::{ERROR, OK};
use crate::server::callback::guarded;
use crate::server::io;
use crate::{metrics, policy, unreadable};
use ratelimit_engine::key::{self, Limiter};
use ratelimit_engine::rule::digits;
use ratelimit_protocol::effect::VERSION as EFFECT_VERSION;

const _: () = {
    const fn is_sync<T: Sync>() {}
    is_sync::<Limiter>();
};

/// The beginning of the auxiliary payload.
const EFFECTS: &[u8] = b"effects ";

/// Loads a value. Any byte string gives a value or an error, which the server reports.
pub(super) unsafe extern "C" fn load(rdb: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    guarded(NULL, || {
        let what = ["a rate limiter", "a rate limiter's payload ends"];
        let decode =
            |payload: &[u8]| key::decode(payload).map_err(|error| unreadable::explain(&error));
        // SAFETY: `rdb` is what the server gave to this callback.
        unsafe { load_payload(rdb, encoding, what, decode) }.map_or(NULL, new_value)
    })
}

pub(super) unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server gave `rdb` and a value of this type.
    unsafe { save_payload(rdb, || borrow(value).map(key::encode)) };
}

/// Writes a value to an AOF, and the policies before the first value. The server adds the expiry.
pub(super) unsafe extern "C" fn rewrite(
    aof: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server gave `aof`, the key's name and a value of this type.
    unsafe {
        io::guarded_save(aof, || {
            for policy in policy::take_due_in_aof() {
                let name = policy.name.as_bytes();
                io::emit_texts(aof, c"RL.POLICY", c"SET", name, policy.texts.args());
            }
            if let Some(limiter) = borrow(value) {
                io::emit_payload(aof, c"RL.LOAD", key, &key::encode(limiter));
            }
        });
    }
}

pub(super) unsafe extern "C" fn load_aux(
    rdb: *mut raw::RedisModuleIO,
    encoding: c_int,
    _when: c_int,
) -> c_int {
    guarded(ERROR, || {
        let what = ["policies", "the policies end"];
        // SAFETY: `rdb` is what the server gave to this callback.
        unsafe { load_payload(rdb, encoding, what, read_aux) }.map_or(ERROR, |()| OK)
    })
}

/// For servers on which a module may leave out the auxiliary data (`aux_save2`).
pub(super) unsafe extern "C" fn save_aux_if_any(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    let any = || metrics::values() > 0 || policy::any();
    // SAFETY: the server gave `rdb`.
    unsafe { save_payload(rdb, || any().then(aux)) };
}

/// For older servers.
pub(super) unsafe extern "C" fn save_aux(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: the server gave `rdb`.
    unsafe { save_payload(rdb, || Some(aux())) };
}

/// The auxiliary payload.
fn aux() -> Vec<u8> {
    let policies = policy::save();
    [EFFECTS, EFFECT_VERSION.to_string().as_bytes(), b"\n", policies.as_bytes()].concat()
}

fn read_aux(payload: &[u8]) -> Result<(), String> {
    let (version, policies) =
        split_aux(payload).ok_or("the version of effects cannot be read, expected an integer")?;
    if unreadable::is_from_primary() && version > EFFECT_VERSION {
        return Err(format!(
            "the primary runs a newer version of the module, which writes effects of version \
             {version}, expected {EFFECT_VERSION} or older; upgrade this server first"
        ));
    }
    policy::load(policies).map_err(|error| format!("a saved policy cannot be read: {error}"))
}

/// Splits the auxiliary payload into the version of effects and the policies.
fn split_aux(payload: &[u8]) -> Option<(u64, &[u8])> {
    let mut parts = payload.strip_prefix(EFFECTS)?.splitn(2, |&byte| byte == b'\n');
    Some((digits(parts.next()?)?, parts.next()?))
}

/// Saves a payload if there is one.
///
/// # Safety
/// `rdb` is what the server gave to the callback that is running.
unsafe fn save_payload(rdb: *mut raw::RedisModuleIO, payload: impl FnOnce() -> Option<Vec<u8>>) {
    // SAFETY: the caller's promise.
    unsafe {
        io::guarded_save(rdb, || {
            if let Some(payload) = payload() {
                io::save(rdb, &payload);
            }
        });
    }
}

/// Reads a payload with this encoding, or logs why it cannot be read. `what` has two texts for the log:
/// the name of the contents, and what ends early in a file that is cut short.
///
/// # Safety
/// `rdb` is what the server gave to the callback that is running.
unsafe fn load_payload<T>(
    rdb: *mut raw::RedisModuleIO,
    encoding: i32,
    what: [&str; 2],
    read: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Option<T> {
    let [of, ends] = what;
    let loaded = match raw::load_string_buffer(rdb) {
        _ if encoding != ENCODING => {
            Err(format!("encoding {encoding} of {of}, expected {ENCODING}"))
        }
        Err(_) => Err(format!("{ends} too early")),
        Ok(payload) => read(payload.as_ref()),
    };
    // SAFETY: the caller's promise.
    loaded.inspect_err(|why| unsafe { io::log_error(rdb, why) }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::heap::from_raw;
    use ratelimit_engine::check::Bounds;
    use ratelimit_engine::key::Check;
    use ratelimit_engine::rule::{Name, Rule};
    use std::ffi::c_char;
    use std::ptr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    static SAVED_BYTES: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn count_bytes(_: *mut raw::RedisModuleIO, _: *const c_char, len: usize) {
        SAVED_BYTES.fetch_add(len, Ordering::Relaxed);
    }

    fn check(limiter: &mut Limiter, now_us: u64) {
        let rules = ["9/s", "bucket:1000000/s", "window:1000000/m"];
        let rules = rules.map(|text| Rule::from_text(text.as_bytes()).unwrap());
        let (check, bounds) =
            (Check::new(&rules, 1, now_us), Bounds { max_states: 9, max_holds: 9 });
        let outcome = limiter.check_within(bounds, &check, &mut Vec::new()).unwrap();
        assert!(outcome.changed());
    }

    /// `scripts/asan threads` looks for data races in it.
    #[test]
    fn a_thread_saves_values_while_others_change() {
        const VALUES: usize = 2_000;
        // SAFETY: no other test saves, and the thread starts later.
        unsafe { raw::RedisModule_SaveStringBuffer = Some(count_bytes) };
        let mut limiter = Limiter::default();
        (1..50).for_each(|n| check(&mut limiter, 1_000_000 * n));
        let expected = VALUES * key::encode(&limiter).len();
        let values: Vec<_> =
            (0..VALUES).map(|_| new_value(limiter.clone()).expose_provenance()).collect();
        thread::scope(|scope| {
            let saved = scope.spawn(|| {
                for &value in &values {
                    // SAFETY: a value of this type, which nothing changes.
                    unsafe { save(ptr::null_mut(), ptr::with_exposed_provenance_mut(value)) };
                }
            });
            let name = Name::new(b"beside-a-save").unwrap();
            for n in 50.. {
                check(&mut limiter, 1_000_000 * n);
                metrics::CHECKS.add(1);
                // SAFETY: a value that is used no more.
                drop(unsafe { from_raw(new_value(limiter.clone())) });
                policy::set(name, &[Rule::from_text(b"9/s").unwrap()]);
                if saved.is_finished() {
                    break;
                }
            }
        });
        assert_eq!(SAVED_BYTES.load(Ordering::Relaxed), expected);
        for value in values {
            // SAFETY: a value from above, which is used no more.
            drop(unsafe { from_raw(ptr::with_exposed_provenance_mut(value)) });
        }
    }

    #[test]
    fn a_payload_is_split_into_version_and_policies() {
        for (payload, parts) in
            [(&b"effects 2\n"[..], (2, &b""[..])), (b"effects 30\nfree=5/h\n", (30, b"free=5/h\n"))]
        {
            assert_eq!(split_aux(payload), Some(parts));
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
            assert!(split_aux(payload.as_bytes()).is_none(), "{payload}");
        }
    }
}
