//! A network whose links can be cut and slowed down: each host is a network namespace of Linux
//! behind a router, which is another namespace.
//!
//! ```text
//!   host 1 ─┐
//!   host 2 ─┼─ router     a packet from host a to host b passes, or meets a rule of the router
//!   host 3 ─┘             that drops it: `cut(a, b)` cuts one direction
//! ```
//!
//! A thread enters a host with [`Host::within`]. Sockets and processes that it makes there stay
//! there, so a connection made within a host can be used anywhere.
//!
//! A namespace lives as long as the process that holds it, a `cat` that ends when its input does.
//! So nothing remains after a test, not even after one that was killed, and nothing outside of the
//! namespaces changes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A router and some hosts, which end with this value.
pub struct Network {
    router: Namespace,
    hosts: Vec<Host>,
}

/// A host with one address.
pub struct Host {
    namespace: Namespace,
    number: usize,
}

struct Namespace {
    file: File,
    holder: Child,
}

impl Network {
    /// Makes hosts that all reach each other.
    pub fn new(hosts: usize) -> Self {
        let router = Namespace::new();
        router.within(|| {
            run("ip link set lo up");
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("the router may forward");
        });
        let hosts = (1..=hosts).map(|number| Host::new(number, &router)).collect();
        Self { router, hosts }
    }

    pub fn hosts<const N: usize>(&self) -> [&Host; N] {
        std::array::from_fn(|index| &self.hosts[index])
    }

    /// Drops each packet from one host to another, and reports no error to either.
    pub fn cut(&self, from: &Host, to: &Host) {
        self.rule("add", from, to);
    }

    /// Ends [`Self::cut`].
    pub fn mend(&self, from: &Host, to: &Host) {
        self.rule("del", from, to);
    }

    fn rule(&self, change: &str, from: &Host, to: &Host) {
        let (from, to) = (from.address(), to.address());
        self.router.within(|| run(&format!("ip rule {change} from {from} to {to} blackhole")));
    }

    /// Lets this many bytes a second reach a host. The router delays further ones and drops none.
    pub fn slow_down(&self, to: &Host, bytes_per_s: u32) {
        let (number, bits) = (to.number, bytes_per_s * 8);
        let queue = "burst 2000 limit 100000000";
        self.router.within(|| {
            run(&format!("tc qdisc replace dev to{number} root tbf rate {bits}bit {queue}"));
        });
    }

    /// Ends [`Self::slow_down`], and drops what is still delayed.
    pub fn speed_up(&self, to: &Host) {
        self.router.within(|| run(&format!("tc qdisc del dev to{} root", to.number)));
    }
}

impl Host {
    fn new(number: usize, router: &Namespace) -> Self {
        let host = Self { namespace: Namespace::new(), number };
        let (address, gateway) = (host.address(), format!("10.77.{number}.1"));
        let pid = host.namespace.holder.id();
        router.within(|| {
            run(&format!("ip link add to{number} type veth peer name eth0 netns {pid}"));
            run(&format!("ip address add {gateway}/24 dev to{number}"));
            run(&format!("ip link set to{number} up"));
        });
        host.within(|| {
            run("ip link set lo up");
            run(&format!("ip address add {address}/24 dev eth0"));
            run("ip link set eth0 up");
            run(&format!("ip route add default via {gateway}"));
        });
        host
    }

    pub fn address(&self) -> String {
        format!("10.77.{}.2", self.number)
    }

    /// Runs a body in a thread on this host.
    pub fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        self.namespace.within(body)
    }
}

impl Namespace {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let holder = command.stderr(Stdio::piped()).spawn().expect("unshare, of util-linux");
        Self::held_by(holder).unwrap_or_else(|why| {
            panic!("no network namespace can be made here ({why}): run `make test-partitions`")
        })
    }

    /// The namespace of `holder`. The process is in its own namespace as soon as it answers.
    fn held_by(mut holder: Child) -> Result<Self, String> {
        // If the process has ended already, the empty reply shows that.
        let _ = holder.stdin.as_mut().expect("piped").write_all(b"there\n");
        let mut line = String::new();
        let _ = BufReader::new(holder.stdout.as_mut().expect("piped")).read_line(&mut line);
        if line != "there\n" {
            let mut why = String::new();
            let _ = holder.stderr.take().expect("piped").read_to_string(&mut why);
            let _ = holder.wait();
            return Err(why.trim_end().to_string());
        }
        let file = File::open(format!("/proc/{}/ns/net", holder.id()));
        Ok(Self { file: file.map_err(|error| error.to_string())?, holder })
    }

    fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.file.as_fd(), kind).expect("the namespace lets us in");
        };
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter();
                body()
            });
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs a command that must succeed.
fn run(line: &str) {
    let mut words = line.split(' ');
    let program = words.next().expect("a program");
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|why| panic!("{program}, of iproute2, is needed: {why}"));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {why}");
}
