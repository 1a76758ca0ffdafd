//! The service as a process, and Envoy in front of it.

pub mod envoy;
pub mod service;

use std::io::{Read, Write};
use std::net::TcpStream;

/// The answer to a request for a page of the service.
pub fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}
