//! Replies of RESP2: where one ends, and what it says.

/// A complete reply. `first` is its first line without the type; for an array, the first line of its
/// first element.
#[derive(Debug, PartialEq)]
pub struct Reply<'a> {
    pub first: &'a [u8],
    pub is_error: bool,
    length: usize,
}

impl<'a> Reply<'a> {
    /// The reply at the start of the bytes, if all of it is there.
    pub fn at(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, mut length) = (&bytes[1..end], end + 2);
        let count =
            || str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
        let (mut first, mut is_error) = (line, bytes[0] == b'-');
        match bytes[0] {
            b'$' if count() >= 0 => {
                length += usize::try_from(count()).ok()? + 2;
                first = bytes.get(end + 2..length - 2)?;
            }
            b'*' => {
                for number in 0..count() {
                    let element = Self::at(&bytes[length..])?;
                    if number == 0 {
                        first = element.first;
                    }
                    is_error |= element.is_error;
                    length += element.length;
                }
            }
            _ => {}
        }
        (length <= bytes.len()).then_some(Self { first, is_error, length })
    }
}

#[cfg(test)]
mod tests {
    use super::Reply;

    #[test]
    fn an_incomplete_reply_is_not_read() {
        for (bytes, first, is_error) in [
            ("+PONG\r\n", "PONG", false),
            (":-7\r\n", "-7", false),
            ("$5\r\na\r\nbc\r\n", "a\r\nbc", false),
            ("$-1\r\n", "-1", false),
            ("*0\r\n", "0", false),
            ("*2\r\n:1\r\n*2\r\n:2\r\n$1\r\nx\r\n", "1", false),
            ("*2\r\n*1\r\n:3\r\n:1\r\n", "3", false),
            ("-ERR no\r\n", "ERR no", true),
            ("*2\r\n:0\r\n-ERR no\r\n", "0", true),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(Reply::at(&bytes.as_bytes()[..cut]), None, "{:?}", &bytes[..cut]);
            }
            let more = format!("{bytes}+OK\r\n");
            let reply = Reply::at(more.as_bytes()).expect("a whole reply");
            assert_eq!(
                (reply.first, reply.is_error, reply.length),
                (first.as_bytes(), is_error, bytes.len())
            );
        }
    }
}
