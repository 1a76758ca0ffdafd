//! A command's arguments in `COMMAND DOCS`.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Value, from_redis_value};

/// An argument in `COMMAND DOCS`.
pub struct Argument {
    name: String,
    kind: String,
    token: Option<String>,
    optional: bool,
    multiple: bool,
    /// The alternatives, or the parts of a group.
    parts: Vec<Self>,
}

impl Argument {
    fn new(mut fields: HashMap<String, Value>) -> Self {
        let flags: Vec<String> = fields.remove("flags").map(read).unwrap_or_default();
        let has = |flag: &str| flags.iter().any(|given| given == flag);
        let (optional, multiple) = (has("optional"), has("multiple"));
        let kind: String = read(fields.remove("type").expect("an argument has a type"));
        let key_spec: Option<i64> = fields.remove("key_spec_index").map(read);
        assert_eq!(key_spec, (kind == "key").then_some(0), "only keys have a key spec");
        let parts = fields.remove("arguments").map(Self::list).unwrap_or_default();
        assert_eq!(!parts.is_empty(), ["oneof", "block"].contains(&&*kind), "its parts");
        Self {
            name: read(fields.remove("name").expect("an argument has a name")),
            kind,
            token: fields.remove("token").map(read),
            optional,
            multiple,
            parts,
        }
    }

    pub fn list(arguments: Value) -> Vec<Self> {
        read::<Vec<HashMap<String, Value>>>(arguments).into_iter().map(Self::new).collect()
    }

    /// The argument as [`Expected::syntax`](super::table::Expected::syntax) writes it.
    pub fn notation(&self) -> String {
        let value = match self.kind.as_str() {
            "pure-token" => None,
            "oneof" => Some(self.notations(" | ")),
            "block" => Some(format!("{{{}}}", self.notations(" "))),
            kind => Some(format!("{}:{kind}", self.name)),
        };
        let words: Vec<String> = self.token.clone().into_iter().chain(value).collect();
        let text = format!("{}{}", words.join(" "), if self.multiple { "..." } else { "" });
        if self.optional { format!("[{text}]") } else { text }
    }

    fn notations(&self, between: &str) -> String {
        self.parts.iter().map(Self::notation).collect::<Vec<_>>().join(between)
    }

    /// What a caller may write for this argument, one entry per choice.
    fn ways(&self) -> Vec<Vec<&str>> {
        let mut ways = if self.optional { vec![vec![]] } else { vec![] };
        if self.kind == "block" {
            ways.extend(ways_to_write(&self.parts));
        } else if self.kind == "oneof" {
            let parts: Vec<_> = self.parts.iter().flat_map(Self::ways).collect();
            let with_token = |way| [self.token.as_deref().into_iter().collect(), way].concat();
            let parts: Vec<Vec<&str>> = parts.into_iter().map(with_token).collect();
            if self.multiple {
                // A call takes only one default cost: an integer or a range.
                let together = parts.iter().filter(|way| !way.contains(&"1..5"));
                ways.push(together.flatten().copied().collect());
            }
            ways.extend(parts);
        } else {
            let (values, token) = (self.values(), self.token.as_deref());
            let most = if self.multiple { values.len() } else { values.len().min(1) };
            let counts = values.len().min(1)..=most;
            let words = |count| token.into_iter().chain(values[..count].iter().copied()).collect();
            ways.extend(counts.map(words));
        }
        ways
    }

    fn values(&self) -> &'static [&'static str] {
        match (self.kind.as_str(), self.name.as_str()) {
            ("pure-token", _) => &[],
            ("key", _) => &["k"],
            ("integer", "numkeys") => &["1"],
            ("string", "name" | "policy") => &["free"],
            ("integer", "cost" | "units" | "count" | "remaining") => &["1"],
            ("integer", "max-burst" | "count-per-period" | "period-seconds" | "quantity") => &["1"],
            ("integer", "weight" | "priority") => &["3"],
            ("integer", "seconds" | "milliseconds") => &["100"],
            ("integer", "cursor") => &["0"],
            ("integer", "unix-time-microseconds") => &["1605916800000000"],
            ("unix-time", "unix-time-seconds") => tomorrow(1),
            ("unix-time", "unix-time-milliseconds") => tomorrow(1_000),
            ("pattern", "pattern") => &["user:*"],
            ("string", "period") => &["1h", "90minutes"],
            ("string", "id") => &["request-9"],
            ("string", "a..b") => &["1..5"],
            ("string", "name=cost") => &["in=1"],
            ("string", "rule") => &["5/m,name=in", "bucket:7/h"],
            ("string", "flow") => &["tenant-a"],
            ("string", "text" | "reason") => &["any bytes"],
            ("string", "effect") => &["v1:1605916800000000:0:admit:1"],
            ("string", "detail") => &["5/m", "bucket:7/h"],
            ("string", "payload") => &["any bytes"],
            (kind, name) => panic!("no example of {name}, of type {kind}"),
        }
    }
}

/// The Unix time of tomorrow, as a text that lives as long as the tests run.
fn tomorrow(units_a_second: u64) -> &'static [&'static str] {
    let at = SystemTime::now() + Duration::from_secs(86_400);
    let at_s = at.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    Box::leak(Box::new([&*(at_s * units_a_second).to_string().leak()]))
}

/// Every way to call a command with these arguments.
pub fn ways_to_write(arguments: &[Argument]) -> Vec<Vec<&str>> {
    arguments.iter().fold(vec![vec![]], |begun, argument| {
        let ways = argument.ways();
        let each = |begun: Vec<_>| -> Vec<_> {
            ways.iter().map(|way| [&begun[..], way].concat()).collect()
        };
        begun.into_iter().flat_map(each).collect()
    })
}

pub fn read<T: redis::FromRedisValue>(value: Value) -> T {
    from_redis_value(value).expect("the reply has the documented shape")
}
