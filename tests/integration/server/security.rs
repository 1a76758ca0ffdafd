//! The recipes of SECURITY.md: who may do what, on every server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use redis::{Connection, RedisResult, Value, cmd};

use crate::support::client::{ask, command};
use crate::support::server::{self, Server};
use crate::support::users::{connect_as, has_categories, has_ratelimit_category, run};

/// A call of each command in the document, on a key that the recipes allow, with `;` between calls.
const CALLS: &str = "
    RL.CHECK rl:1 5/m; RL.MCHECK 2 rl:1 rl:2 5/m; RL.WAIT rl:1 5 5/m; RL.THROTTLE rl:t 5 5 5;
    CL.THROTTLE rl:t 5 5 5; RL.SETTLE rl:1 r; RL.RENEW rl:1 r EX 9; RL.REFUND rl:1 1;
    RL.RESET rl:1; RL.PAUSE rl:1 EX 9; RL.RESUME rl:1; RL.SYNC rl:1 REMAINING 1 5/m;
    RL.PEEK rl:1 5/m; RL.LOG rl:1; RL.INFO rl:1; RL.EXPLAIN 5/m; RL.BLOCK rl:1;
    RL.UNBLOCK rl:1; RL.EXEMPT rl:1; RL.UNEXEMPT rl:1; RL.PLAN rl:1 free; RL.UNPLAN rl:1;
    RL.BLOCKS 0; RL.TOP; RL.POLICY GET free; RL.POLICY LIST; RL.POLICY SET free 5/m;
    RL.POLICY DEL free; RL.APPLY rl:1 v1:1:0:admit:1 5/m; RL.LOAD rl:1 payload; INFO ratelimit;
    GET rl:s; SET rl:s x; DEL rl:s; DUMP rl:s; RESTORE rl:r 0 payload; KEYS rl:*; FLUSHALL;
    DEBUG SLEEP 0; EVAL return(1) 0; CLIENT LIST; CONFIG GET maxmemory; MODULE LIST;
    SLOWLOG GET; MEMORY USAGE rl:1; SCAN 0; TTL rl:1; DBSIZE; ROLE";

/// The users of the document, and the titles of their recipes.
const USERS: [(&str, &str); 3] =
    [("app", "An application"), ("oncall", "An operator"), ("monitor", "A monitor")];

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/SECURITY.md");
    fs::read_to_string(path).expect("the document")
}

/// The forms of the recipe under a title: by category, and by name. A recipe with a single form
/// serves both; that of an operator extends both of an application.
fn recipes(document: &str, title: &str) -> [Vec<String>; 2] {
    let (_, rest) = document.split_once(&format!("\n### {title}\n")).expect(title);
    let section = rest.split("\n### ").next().expect("a section");
    let lines = section.lines().filter(|line| line.starts_with("ACL SETUSER "));
    let lines: Vec<_> = lines.map(ToString::to_string).collect();
    match &lines[..] {
        [more] if more.starts_with("ACL SETUSER oncall +") => {
            let renamed = |lines: Vec<String>| lines[0].replace(" app ", " oncall ");
            recipes(document, "An application").map(|lines| vec![renamed(lines), more.clone()])
        }
        [both] => [vec![both.clone()], vec![both.clone()]],
        [by_category, by_name] => [vec![by_category.clone()], vec![by_name.clone()]],
        _ => panic!("{title}: {lines:?}"),
    }
}

/// What each command's row says of each user.
fn table(document: &str) -> BTreeMap<String, [bool; 3]> {
    let (_, rest) = document.split_once("\n### Who may do what\n").expect("the table");
    let section = rest.split("\n## ").next().expect("a section");
    let rows = section.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
        let [names, who @ ..] = &cells[..] else { return None };
        let who: [bool; 3] = who
            .iter()
            .map(|cell| match *cell {
                "yes" => true,
                "no" => false,
                other => panic!("{line}: {other}"),
            })
            .collect::<Vec<_>>()
            .try_into()
            .expect("three users");
        let names = names.split('`').filter(|name| name.starts_with(char::is_uppercase));
        Some(names.map(|name| (name.to_string(), who)).collect::<Vec<_>>())
    });
    rows.flatten().collect()
}

fn is_denied(reply: RedisResult<Value>) -> bool {
    reply.is_err_and(|error| error.code() == Some("NOPERM"))
}

fn calls() -> impl Iterator<Item = &'static str> {
    CALLS.split(';').map(str::trim)
}

/// The name of a call's command, with that of its subcommand.
fn name(call: &str) -> &str {
    const CONTAINERS: [&str; 8] =
        ["ACL", "CLIENT", "CLUSTER", "CONFIG", "MEMORY", "MODULE", "RL.POLICY", "SLOWLOG"];
    let mut spaces = call.match_indices(' ').map(|(at, _)| at);
    let first = spaces.next().unwrap_or(call.len());
    let has_subcommand = CONTAINERS.contains(&&call[..first]);
    &call[..if has_subcommand { spaces.next().unwrap_or(call.len()) } else { first }]
}

/// The commands that this user may call.
fn allowed(server: &Server, user: &str) -> BTreeSet<&'static str> {
    let mut c = server.connect();
    let () =
        cmd("AUTH").arg(user).arg("secret").query(&mut c).expect("the recipe has the password");
    let mut allowed = BTreeSet::new();
    for call in calls() {
        if !is_denied(command(call).query(&mut c)) {
            allowed.insert(name(call));
        }
    }
    allowed
}

fn module_commands(c: &mut Connection) -> BTreeSet<String> {
    let all: Vec<Vec<Value>> = ask(c, "COMMAND");
    let names = all.into_iter().map(|mut info| -> String {
        redis::from_redis_value(info.swap_remove(0)).expect("a name")
    });
    names.filter(|name| name.starts_with("rl.") || name.starts_with("cl.")).collect()
}

#[test]
fn each_recipe_allows_what_the_document_says() {
    let document = document();
    let table = table(&document);
    let called: BTreeSet<_> = calls().map(name).collect();
    assert_eq!(table.keys().map(String::as_str).collect::<BTreeSet<_>>(), called);
    server::on_all(|server| {
        let mut c = server.connect();
        let of_module: BTreeSet<String> = called
            .iter()
            .filter_map(|name| Some(name.split(' ').next()?.to_lowercase()))
            .filter(|name| name.contains('.'))
            .collect();
        assert_eq!(module_commands(&mut c), of_module, "the document names each command");
        for (place, (user, title)) in USERS.into_iter().enumerate() {
            let [by_category, by_name] = recipes(&document, title);
            let mut forms = vec![by_name];
            if has_ratelimit_category(server.flavor()) {
                forms.push(by_category);
            }
            for form in forms {
                form.iter().for_each(|line| ask(&mut c, line));
                let expected = table.iter().filter(|(_, who)| who[place]);
                let expected: BTreeSet<_> = expected.map(|(name, _)| name.as_str()).collect();
                assert_eq!(allowed(server, user), expected, "{form:?}");
                let mut user_c = server.connect();
                let () = cmd("AUTH").arg(user).arg("secret").query(&mut user_c).unwrap();
                assert!(is_denied(command("RL.PEEK other 5/m").query(&mut user_c)), "{form:?}");
                let _: i64 = ask(&mut c, &format!("ACL DELUSER {user}"));
            }
        }
    });
}

#[test]
fn all_but_dangerous_includes_commands_of_operators_before_7_2() {
    server::on_all(|server| {
        let mut c = connect_as(server, "broad", &["~*", "+@all", "-@admin", "-@dangerous"]);
        for call in ["RL.BLOCK rl:1", "RL.EXEMPT rl:1", "RL.POLICY LIST"] {
            let denied = is_denied(command(call).query(&mut c));
            assert_eq!(denied, has_categories(server.flavor()), "{call}");
        }
        let mut c = connect_as(server, "writer", &["~*", "+@write"]);
        let denied = is_denied(run(&mut c, &["RL.CHECK", "rl:1", "5/m"]));
        assert_eq!(denied, !has_categories(server.flavor()));
        // For servers before 7.2, the document takes these rights away by name.
        let rights = "-rl.block -rl.unblock -rl.exempt -rl.unexempt -rl.plan -rl.unplan -rl.blocks \
                      -rl.top -rl.policy";
        assert!(document().replace('\n', " ").contains(rights));
        let rights: Vec<_> = ["~*", "+@all"].into_iter().chain(rights.split(' ')).collect();
        let mut c = connect_as(server, "careful", &rights);
        let taken = |call: &&str| {
            let name = call.split(' ').next().expect("a command").to_lowercase();
            rights.contains(&format!("-{name}").as_str())
        };
        let taken: Vec<_> = calls().filter(taken).collect();
        assert_eq!(taken.len(), 12, "9 commands");
        for call in taken {
            assert!(is_denied(command(call).query(&mut c)), "{call}");
        }
        assert!(!is_denied(command("RL.CHECK rl:1 5/m").query(&mut c)));
    });
}

/// The commands that a page names, with their subcommands. A word in capitals after a command is its argument.
fn named(page: &str, commands: &BTreeSet<String>) -> BTreeSet<String> {
    let (words, mut named, mut inside) =
        (page.split_whitespace().collect::<Vec<_>>(), BTreeSet::new(), false);
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_string();
    for (place, word) in words.iter().enumerate() {
        let (bare_word, ends) = (bare(word), !word.ends_with(|c: char| c.is_ascii_alphanumeric()));
        let is_upper = bare_word.chars().all(|c| c.is_ascii_uppercase() || c == '.');
        let is_command = is_upper && !inside && commands.contains(&bare_word.to_lowercase());
        if is_command {
            let next = words.get(place + 1).filter(|_| !ends).map_or(String::new(), |w| bare(w));
            named.insert(name(&format!("{bare_word} {next} ")).trim().to_string());
        }
        inside = (inside || is_command) && is_upper && !ends;
    }
    named
}

#[test]
fn an_operator_may_send_what_the_pages_and_the_alerts_tell() {
    // What changes a server is for its administrator. The pages also name other things, such as the error READONLY.
    const OTHERS: &str = "ACL BGREWRITEAOF CLIENT_PAUSE CLIENT_UNBLOCK CLUSTER CONFIG_REWRITE CONFIG_SET DEL DUMP ECHO EVAL \
                          FAILOVER MIGRATE MODULE_LOAD MONITOR PING READONLY REPLICAOF RL.APPLY RL.POLICY_SET SET RESTORE SAVE SHUTDOWN SUBSCRIBE SYNC WAIT";
    let read = |path: &str| {
        fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).expect("a file")
    };
    let table = table(&document());
    let all: Vec<Vec<Value>> = ask(&mut server::one().start().connect(), "COMMAND");
    let name_of =
        |mut info: Vec<Value>| redis::from_redis_value(info.swap_remove(0)).expect("a name");
    let commands: BTreeSet<String> = all.into_iter().map(name_of).collect();
    let pages = ["docs/operate/run.md", "INSTALL.md", "docs/operate/outages.md"];
    let pages = pages.map(read).concat();
    let wrong = |name: &String| {
        let is_operators = table.get(name).is_some_and(|[_, operator, _]| *operator);
        let (whole, first) = (name.replace(' ', "_"), name.split(' ').next().expect("a word"));
        let mut others = OTHERS.split_whitespace();
        is_operators == others.any(|other| other == whole || other == first)
    };
    let mut named = named(&(pages + &read("monitoring/ratelimit.rules.yml")), &commands);
    named.retain(wrong);
    assert!(named.is_empty(), "which are the operator's? {named:?}");
}
