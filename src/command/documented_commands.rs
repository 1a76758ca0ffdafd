//! Tests that docs/reference/commands.md has the words of each command.

use super::TABLE;
use crate::server::commands::Audience;
use std::collections::BTreeSet;

const COMMANDS: &str = include_str!("../../docs/reference/commands.md");

/// The words in capitals, which callers send literally.
fn capitals(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter(|word| word.len() > 1 && word.bytes().all(|c| c.is_ascii_uppercase())).collect()
}

/// The entry of one command in the list of commands.
fn entry<'a>(name: &str, list: &'a str) -> &'a str {
    let start = list.find(&format!("{name} ")).unwrap_or_else(|| panic!("{name} is missing"));
    let (_, entry) = list[start..].split_at(name.len());
    let end = entry.find("RL.").or_else(|| entry.find("INFO ")).unwrap();
    &entry[..end]
}

/// The words of a command's options. The item of an option names the only commands that have it, or
/// those that lack it.
fn options<'a>(name: &str, text: &'a str) -> BTreeSet<&'a str> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("- `")?.split(':').next());
    let has_it = |head: &&str| match head.contains("(only ") {
        true => head.contains(name),
        false => !head.contains(name),
    };
    heads.filter(has_it).flat_map(capitals).collect()
}

#[test]
fn each_command_is_documented_with_its_words() {
    let (list, rest) =
        COMMANDS.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```\n")).unwrap();
    let (options_text, _) = rest.split_once("Keys are not patterns").unwrap();
    for command in TABLE.iter().filter(|command| command.audience != Audience::Internal) {
        let name = command.name.to_str().unwrap().to_uppercase();
        let (name, sub) = name.split_once('|').unwrap_or((&name, "HELP"));
        if name == "RL.POLICY" {
            let subcommands = capitals(entry(name, list));
            assert!(sub == "HELP" || subcommands.contains(sub), "{name} {sub} is missing");
        } else if name != "CL.THROTTLE" {
            let entry = entry(name, list);
            let mut documented = capitals(entry);
            if entry.contains("[options]") {
                documented.extend(options(name, options_text));
            }
            assert_eq!(documented, capitals(command.syntax), "{name}");
        }
    }
}
