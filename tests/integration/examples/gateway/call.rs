//! A client of the gateway: one HTTP request on one connection.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a client waits for the next line.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub id: String,
    pub words: u64,
    pub max_tokens: u64,
    /// How many tokens the model will make, at most `max_tokens`.
    pub length: u64,
    pub streams: bool,
}

/// An answer that has begun.
pub struct Answer {
    from: BufReader<TcpStream>,
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Asked {
    /// Sends the request, and reads the head of the answer.
    pub fn send(&self, port: u16) -> Result<Answer> {
        let mut to = TcpStream::connect(("127.0.0.1", port))?;
        to.set_read_timeout(Some(PATIENCE))?;
        let Self { id, words, max_tokens, length, streams } = self;
        let prompt = vec!["word"; *words as usize].join(" ");
        let body = format!(
            r#"{{"prompt":"{prompt}","max_tokens":{max_tokens},"length":{length},"stream":{streams}}}"#
        );
        write!(
            to,
            "POST /v1/chat HTTP/1.1\r\nX-Tenant: t7\r\nIdempotency-Key: {id}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        Answer::of(to)
    }
}

impl Answer {
    fn of(connection: TcpStream) -> Result<Self> {
        let mut answer = Self { from: BufReader::new(connection), status: 0, headers: Vec::new() };
        let first = answer.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        // A killed gateway sends no status.
        answer.status = status.ok_or_else(|| std::io::Error::other("no answer"))?;
        loop {
            let line = answer.line()?;
            let Some((name, value)) = line.split_once(": ") else { return Ok(answer) };
            answer.headers.push((name.to_string(), value.to_string()));
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Reads the rest. An answer that is cut off gives an error.
    pub fn rest(mut self) -> Result<String> {
        let mut rest = String::new();
        self.from.read_to_string(&mut rest)?;
        let is_whole = self.header("Transfer-Encoding").is_none() || rest.ends_with("0\r\n\r\n");
        if is_whole { Ok(rest) } else { Err(std::io::Error::other("the answer was cut off")) }
    }

    /// Reads the first tokens of a stream.
    pub fn tokens(&mut self, count: u64) -> Result<()> {
        let mut seen = 0;
        while seen < count {
            seen += u64::from(self.line()?.starts_with("data: "));
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err(std::io::Error::other("the gateway hung up"));
        }
        Ok(line.trim_end().to_string())
    }
}
