//! Servers built without `malloc_usable_size` align allocations only to 8 bytes.

use redis::Value;

use crate::support::allocator::with_blocks_at_8_mod_16;
use crate::support::client::{ask, digest, replica_of, replicated};
use crate::support::files::{crash, saved_rdb};
use crate::support::holds::{assert_settles, settled_at_once, take};
use crate::support::policies::{known, policies, set};
use crate::support::server::all;
use crate::support::workload::Workload;

#[test]
fn the_module_works_with_allocations_at_8_mod_16() {
    for flavor in all().into_iter().filter(|flavor| flavor.has_shared_malloc()) {
        // This build checks the alignment of each pointer that it follows.
        let builder = with_blocks_at_8_mod_16(flavor.builder().faulty().allow_at());
        let mut server = builder.start();
        let replica = replica_of(&server);
        let (mut c, mut r) = (server.connect(), replica.connect());
        let mut workload = Workload::lasting(8);
        workload.with_pexpire = false;
        set(&mut c, &["free 20/m 800/d", "paid 90/m"]);
        let tally = workload.run(2_000, &mut c);
        println!("{}: {tally:?}", flavor.name);
        let _: Value = ask(&mut c, "RL.TOP");
        take(&mut c, "held");
        let settled = settled_at_once(&mut c);
        assert_settles(&mut c, "held", &settled, flavor.name);
        replicated(&mut c);
        let before = digest(&mut c);
        assert_eq!(digest(&mut r), before, "{}", flavor.name);
        saved_rdb(&server);
        crash(&mut server);
        let mut c = server.connect();
        assert_eq!(digest(&mut c), before, "{}", flavor.name);
        assert_eq!(known(&mut c), policies(&["free log:20/1m log:800/1d", "paid log:90/1m"]));
    }
}
