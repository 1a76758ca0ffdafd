//! Commands as a template, and the bytes that one request sends.

use std::io::Write;

/// Stands for a random key: a different key in each place of a command.
const KEY: &str = "__rand_int__";
/// Stands for a number that no earlier request had.
const ID: &str = "__id__";

/// A request is one command, or several in turn. Later commands get the keys and the id of the first.
pub struct Template {
    commands: Vec<Vec<String>>,
    keys: u64,
}

impl Template {
    /// `words` are the words of the commands, separated by the word `--then`.
    pub fn new(words: &[String], keys: u64) -> Self {
        let commands = words.split(|word| word == "--then").map(<[String]>::to_vec).collect();
        Self { commands, keys }
    }

    pub fn commands(&self) -> usize {
        self.commands.len()
    }

    /// Writes one of the commands.
    pub fn write(&self, step: usize, id: u64, bytes: &mut Vec<u8>) {
        let words = &self.commands[step];
        let _ = write!(bytes, "*{}\r\n", words.len());
        // The keys of a command are equally far apart, so all differ.
        let apart =
            self.keys / (words.iter().filter(|word| word.contains(KEY)).count() as u64).max(1);
        let mut key = mixed(id) % self.keys;
        for word in words {
            let mut word = word.replace(ID, &format!("{id:012}"));
            if word.contains(KEY) {
                word = word.replace(KEY, &format!("{key:012}"));
                key = (key + apart) % self.keys;
            }
            let _ = write!(bytes, "${}\r\n{word}\r\n", word.len());
        }
    }
}

/// The finalizer of SplitMix64: numbers in sequence become random ones.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Template;

    #[test]
    fn the_commands_of_a_request_share_key_and_id() {
        let words = ["TAKE k:__rand_int__ k:__rand_int__ __id__", "GIVE k:__rand_int__ __id__"]
            .join(" --then ");
        let words: Vec<_> = words.split(' ').map(String::from).collect();
        let template = Template::new(&words, 1_000_000);
        let text = |step, id| {
            let mut bytes = Vec::new();
            template.write(step, id, &mut bytes);
            let lines = String::from_utf8(bytes).expect("text");
            lines.split("\r\n").skip(2).step_by(2).map(String::from).collect::<Vec<_>>()
        };
        let (take, give) = (text(0, 7), text(1, 7));
        assert_eq!((&take[0][..], &give[0][..], template.commands()), ("TAKE", "GIVE", 2));
        assert_eq!(take[1], give[1]);
        assert_eq!((take[3].as_str(), give[2].as_str()), ("000000000007", "000000000007"));
        assert_ne!(take[1], take[2]);
        assert_ne!(text(0, 8)[1], take[1]);
    }
}
