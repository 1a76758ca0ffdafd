//! Words that no command expects.

use fastrand::Rng;

/// Numbers at the limits of types, and words that only look like numbers.
const NUMBERS: [&str; 40] = [
    "0",
    "1",
    "2",
    "-1",
    "-0",
    "00",
    "+1",
    " 1",
    "1 ",
    "01",
    "0x10",
    "1.5",
    "1e9",
    "nan",
    "inf",
    "-inf",
    "",
    "63",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "1000000000",
    "1000000001",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "4102444800000000",
    "253402300799999999",
    "253402300800000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "99999999999999999999999999999999999999999999999999999999999999",
];

/// Words of the grammar, where they are not expected.
const GRAMMAR: [&str; 44] = [
    "COST",
    "META",
    "HOLD",
    "EX",
    "PX",
    "AT",
    "FULL",
    "NEXT",
    "REFUND",
    "REASON",
    "FOR",
    "EXAT",
    "PXAT",
    "COUNT",
    "MATCH",
    "RESET",
    "SET",
    "GET",
    "DEL",
    "LIST",
    "HELP",
    "@",
    "@p0",
    "@p9",
    "1..5",
    "5..1",
    "..",
    "a=1",
    "=",
    "in=0",
    "log:",
    "bucket:1/",
    "slots:3",
    "slots:1/s",
    "fixed:1/month,keep=366",
    "window:9/m,res=60",
    "leaky:1/s,queue=0",
    "1/s,",
    "1/s,,",
    "1/s,ban=1s:1s:1s:1s:1s:1s:1s:1s:1s",
    "1/s,name=a,name=a",
    "bucket:1/s,burst=0",
    "1000000000/366d",
    "0/1ms",
];

pub const MEGABYTE: usize = 1 << 20;

/// A word that may break a command.
pub fn word(rng: &mut Rng) -> Vec<u8> {
    match rng.u32(0..2_000) {
        0 => vec![rng.u8(..); rng.usize(MEGABYTE / 2..MEGABYTE * 2)],
        1..20 => bytes(rng, 5_000),
        20..400 => bytes(rng, 40),
        400..500 => vec![0; rng.usize(1..20)],
        500..1_300 => number(rng),
        _ => rng.choice(GRAMMAR.iter()).expect("some").as_bytes().to_vec(),
    }
}

pub fn number(rng: &mut Rng) -> Vec<u8> {
    match rng.u32(0..4) {
        0 => rng.i64(..).to_string().into_bytes(),
        1 => rng.i64(-200..200).to_string().into_bytes(),
        _ => rng.choice(NUMBERS.iter()).expect("some").as_bytes().to_vec(),
    }
}

/// At most `most` bytes of any value.
pub fn bytes(rng: &mut Rng, most: usize) -> Vec<u8> {
    let length = rng.usize(0..=most);
    (0..length).map(|_| rng.u8(..)).collect()
}

/// Changes, adds or removes a few bytes.
pub fn damage(rng: &mut Rng, word: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..=3) {
        let at = rng.usize(0..=word.len());
        match rng.u32(0..6) {
            0 => word.insert(at, rng.u8(..)),
            1 if at < word.len() => drop(word.remove(at)),
            2 => word.truncate(at),
            3 if at < word.len() => word[at] ^= 1 << rng.u32(0..8),
            4 => {
                let number = number(rng);
                drop(word.splice(at..at, number));
            }
            _ if at < word.len() => {
                word[at] = *rng.choice(b",:/=@.-+0919 \0\xff".iter()).expect("one");
            }
            _ => {}
        }
    }
}
