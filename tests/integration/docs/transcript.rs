//! The transcripts in a document: fenced blocks with what a user types, and the output.
//!
//! ```text
//! > RL.PEEK key 5/m             typed into redis-cli, in one session with the block's other lines
//! $ redis-cli -3                with these options, if the next line is typed into redis-cli
//! $ redis-cli --csv RL.TOP      typed into a shell, at the root of the repository
//! > MONITOR                     or SUBSCRIBE: listens until the next block has ended
//! ```

/// A fenced block of a document.
#[derive(Debug)]
pub struct Block {
    /// The word after the opening fence.
    pub language: String,
    /// The number of the first line inside, from 1.
    pub line: usize,
    pub text: Vec<String>,
}

/// What a user types into a block.
#[derive(Debug)]
pub enum Typed {
    Shell(Vec<Step>),
    Session {
        options: Vec<String>,
        steps: Vec<Step>,
    },
    /// One step, whose output continues during the next block.
    Listener(Step),
}

/// A typed line and the lines of its output.
#[derive(Debug)]
pub struct Step {
    pub command: String,
    pub output: Vec<String>,
}

/// All fenced blocks.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in document.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                let (language, line) = (language.to_string(), index + 2);
                open = Some(Block { language, line, text: Vec::new() });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push(line.to_string());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block without an end");
    blocks
}

impl Block {
    /// What a user types; `None` if the block is not a transcript.
    pub fn typed(&self) -> Option<Typed> {
        let (first, second) = (self.text.first()?, self.text.get(1));
        if first.starts_with("$ ") && second.is_some_and(|line| line.starts_with("> ")) {
            let options = first.strip_prefix("$ redis-cli").expect("a session of redis-cli");
            let options = options.split_whitespace().map(ToString::to_string).collect();
            return Some(Typed::Session { options, steps: steps(&self.text[1..], "> ") });
        }
        if first.starts_with("$ ") {
            return Some(Typed::Shell(steps(&self.text, "$ ")));
        }
        first.starts_with("> ").then(|| {
            let mut steps = steps(&self.text, "> ");
            if steps[0].command.starts_with("SUBSCRIBE ") {
                assert_eq!(steps.len(), 1, "a listener types one line");
                return Typed::Listener(steps.remove(0));
            }
            Typed::Session { options: Vec::new(), steps }
        })
    }
}

fn steps(text: &[String], prompt: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text {
        match (line.strip_prefix(prompt), steps.last_mut()) {
            (Some(command), _) => {
                let command = command.to_string();
                steps.push(Step { command, output: Vec::new() });
            }
            (None, Some(step)) => step.output.push(line.clone()),
            (None, None) => panic!("output before any command: {line}"),
        }
    }
    steps
}

/// Output as in a document: without colours, and without empty lines at the start and the end.
pub fn shown(output: &str) -> Vec<String> {
    let plain = |line: &str| {
        let mut parts = line.split("\x1b[");
        let mut text = parts.next().unwrap_or_default().to_string();
        for part in parts {
            text += part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
        }
        text.trim_end().to_string()
    };
    let mut lines: Vec<String> = output.lines().map(plain).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.into_iter().skip_while(String::is_empty).collect()
}
