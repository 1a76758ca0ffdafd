//! RESP2 and RESP3, written plainly and read strictly: a byte that the protocol does not allow
//! is an error, so that each wrong reply of the module is noticed.

use std::fmt::Write as _;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Resp2,
    Resp3,
}

/// The outer form of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    /// The number of elements.
    Array(usize),
    Map(usize),
    Set(usize),
    Push(usize),
    Double,
    Boolean,
    BigNumber,
    Verbatim,
}

/// A depth of nesting that no reply reaches.
const DEEPEST: usize = 32;
/// A number of elements or bytes that no reply reaches.
const MOST: i64 = 1 << 30;

/// Adds a command to what will be sent.
pub fn write(words: &[Vec<u8>], into: &mut Vec<u8>) {
    into.extend(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        into.extend(format!("${}\r\n", word.len()).as_bytes());
        into.extend(word);
        into.extend(b"\r\n");
    }
}

/// Reads one reply. Returns the reply and its length, or `None` if it is incomplete.
///
/// # Errors
/// What violates the protocol.
pub fn read(bytes: &[u8], protocol: Protocol) -> Result<Option<(Reply, usize)>, String> {
    let mut reader = Reader { bytes, at: 0, protocol };
    let reply = reader.reply(0).map_err(|why| {
        let around = &bytes[..bytes.len().min(reader.at + 40)];
        let mut shown = why;
        write!(shown, " at byte {} of «{}»", reader.at, around.escape_ascii()).expect("a string");
        shown
    })?;
    Ok(reply.map(|reply| (reply, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    protocol: Protocol,
}

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, String> {
        if depth > DEEPEST {
            return Err("too deep".into());
        }
        let Some(&kind) = self.bytes.get(self.at) else { return Ok(None) };
        if self.protocol == Protocol::Resp2 && !b"+-:$*".contains(&kind) {
            return Err(format!("RESP2 has no type '{}'", kind.escape_ascii()));
        }
        let start = self.at + 1;
        let Some(line) = self.line(start)? else { return Ok(None) };
        let after_line = start + line.len() + 2;
        match kind {
            b'+' => Ok(Some(self.ended(after_line, Reply::Status(line.into())))),
            b'-' => Ok(Some(self.ended(after_line, Reply::Error(line.into())))),
            b':' => number(line).map(|n| Some(self.ended(after_line, Reply::Integer(n)))),
            b'_' if line.is_empty() => Ok(Some(self.ended(after_line, Reply::Nil))),
            b'#' if line == b"t" || line == b"f" => {
                Ok(Some(self.ended(after_line, Reply::Boolean)))
            }
            b',' if is_double(line) => Ok(Some(self.ended(after_line, Reply::Double))),
            b'(' if is_big(line) => Ok(Some(self.ended(after_line, Reply::BigNumber))),
            b'$' | b'*' if line == b"-1" => match self.protocol {
                Protocol::Resp2 => Ok(Some(self.ended(after_line, Reply::Nil))),
                Protocol::Resp3 => Err("a null of RESP2 in RESP3".into()),
            },
            b'$' | b'=' | b'!' => self.text(kind, length(line)?, after_line),
            b'*' | b'%' | b'~' | b'>' => self.elements(kind, length(line)?, after_line, depth),
            _ => Err(format!("«{}{}»", kind.escape_ascii(), line.escape_ascii())),
        }
    }

    fn ended(&mut self, at: usize, reply: Reply) -> Reply {
        self.at = at;
        reply
    }

    /// The line that starts here, without its end. It must not contain another CR or LF.
    fn line(&self, start: usize) -> Result<Option<&'a [u8]>, String> {
        let rest = &self.bytes[start..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\r' || byte == b'\n') else {
            return Ok(None);
        };
        match (rest[end], rest.get(end + 1)) {
            (b'\r', Some(b'\n')) => Ok(Some(&rest[..end])),
            (b'\r', None) => Ok(None),
            _ => Err("a line end that is not CR LF".into()),
        }
    }

    fn text(&mut self, kind: u8, length: usize, start: usize) -> Result<Option<Reply>, String> {
        let Some(text) = self.bytes.get(start..start + length + 2) else { return Ok(None) };
        let Some(text) = text.strip_suffix(b"\r\n") else {
            return Err(format!("no CR LF behind {length} bytes"));
        };
        let reply = match kind {
            b'$' => Reply::Bulk(text.into()),
            b'!' => Reply::Error(text.into()),
            _ if text.get(3) == Some(&b':') => Reply::Verbatim,
            _ => return Err("a verbatim string without a format".into()),
        };
        Ok(Some(self.ended(start + length + 2, reply)))
    }

    fn elements(
        &mut self,
        kind: u8,
        length: usize,
        start: usize,
        depth: usize,
    ) -> Result<Option<Reply>, String> {
        let (reply, count) = match kind {
            b'*' => (Reply::Array(length), length),
            b'%' => (Reply::Map(length), length * 2),
            b'~' => (Reply::Set(length), length),
            _ if depth == 0 && length > 0 => (Reply::Push(length), length),
            _ => return Err("a push inside a reply, or an empty one".into()),
        };
        self.at = start;
        for _ in 0..count {
            if self.reply(depth + 1)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(reply))
    }
}

fn number(line: &[u8]) -> Result<i64, String> {
    let text = str::from_utf8(line).map_err(|_| "not a number".to_string())?;
    let number: i64 = text.parse().map_err(|_| format!("«{text}» is not an integer"))?;
    // The only form of a number: without a plus sign and without leading zeros.
    if number.to_string() == text { Ok(number) } else { Err(format!("«{text}» not canonical")) }
}

fn length(line: &[u8]) -> Result<usize, String> {
    let length = number(line)?;
    if (0..MOST).contains(&length) {
        return Ok(length.unsigned_abs() as usize);
    }
    Err(format!("a length of {length}"))
}

fn is_double(line: &[u8]) -> bool {
    str::from_utf8(line).is_ok_and(|text| text.parse::<f64>().is_ok())
}

fn is_big(line: &[u8]) -> bool {
    let digits = line.strip_prefix(b"-").unwrap_or(line);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[test]
fn replies_are_read_whole_or_not_at_all() {
    for (text, protocol, reply) in [
        ("+OK\r\n", Protocol::Resp2, Reply::Status(b"OK".into())),
        ("-ERR no\r\n", Protocol::Resp2, Reply::Error(b"ERR no".into())),
        (":-12\r\n", Protocol::Resp2, Reply::Integer(-12)),
        ("$4\r\na\r\nb\r\n", Protocol::Resp2, Reply::Bulk(b"a\r\nb".into())),
        ("$-1\r\n", Protocol::Resp2, Reply::Nil),
        ("*2\r\n:1\r\n*1\r\n$0\r\n\r\n", Protocol::Resp2, Reply::Array(2)),
        ("%1\r\n+a\r\n_\r\n", Protocol::Resp3, Reply::Map(1)),
        (">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n", Protocol::Resp3, Reply::Push(2)),
        (",1.5\r\n", Protocol::Resp3, Reply::Double),
        ("=5\r\ntxt:a\r\n", Protocol::Resp3, Reply::Verbatim),
    ] {
        let bytes = text.as_bytes();
        assert_eq!(read(bytes, protocol), Ok(Some((reply, bytes.len()))), "{text}");
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end], protocol), Ok(None), "{text}");
        }
    }
}

#[test]
fn bytes_outside_of_the_protocol_are_an_error() {
    for (text, protocol) in [
        ("OK\r\n", Protocol::Resp2),
        ("%0\r\n", Protocol::Resp2),
        ("_\r\n", Protocol::Resp2),
        ("+O\nK\r\n", Protocol::Resp2),
        (":01\r\n", Protocol::Resp2),
        (":+1\r\n", Protocol::Resp2),
        ("$2\r\nabc\r\n", Protocol::Resp2),
        ("$-2\r\n", Protocol::Resp2),
        ("*1\r\n>1\r\n:1\r\n", Protocol::Resp3),
        ("$-1\r\n", Protocol::Resp3),
        ("#yes\r\n", Protocol::Resp3),
    ] {
        assert!(read(text.as_bytes(), protocol).is_err(), "{text}");
    }
}
