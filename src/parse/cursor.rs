//! A cursor over a command's arguments: one argument is in sight, and is taken
//! by whoever knows what to do with it.

use super::error::ParseError;
use crate::rule::{Excerpt, digits};
use std::ops::RangeInclusive;

/// Arguments not yet taken, the first of them in sight.
pub struct Cursor<'a, I> {
    sight: Option<&'a [u8]>,
    rest: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    pub fn new(mut args: I) -> Self {
        Self { sight: args.next(), rest: args }
    }

    /// The argument in sight, left where it is.
    #[must_use]
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.sight
    }

    /// Takes the argument in sight.
    pub fn take(&mut self) -> Option<&'a [u8]> {
        let taken = self.sight;
        if taken.is_some() {
            self.sight = self.rest.next();
        }
        taken
    }

    /// Takes the argument in sight if it is this word, in whatever case.
    pub fn keyword(&mut self, word: &str) -> bool {
        let found = self.sight.is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        if found {
            self.sight = self.rest.next();
        }
        found
    }

    /// Takes an argument the command cannot do without.
    ///
    /// # Errors
    /// [`ParseError::Arity`] if there is none.
    pub fn required(&mut self) -> Result<&'a [u8], ParseError> {
        let Some(arg) = self.take() else { return Err(ParseError::Arity) };
        Ok(arg)
    }

    /// Takes an integer the command cannot do without.
    ///
    /// # Errors
    /// [`ParseError::Arity`] if there is none, [`ParseError::Number`] if it is
    /// no integer within bounds.
    #[inline]
    pub fn integer<T: TryFrom<u64>>(
        &mut self,
        what: &'static str,
        bounds: RangeInclusive<u64>,
    ) -> Result<T, ParseError> {
        integer(self.required()?, what, bounds)
    }

    /// Takes the integer that follows an option's word.
    ///
    /// # Errors
    /// [`ParseError::NoValue`] if there is none, [`ParseError::Number`] if it
    /// is no integer within bounds.
    pub fn value<T: TryFrom<u64>>(
        &mut self,
        option: &'static str,
        bounds: RangeInclusive<u64>,
    ) -> Result<T, ParseError> {
        match self.take() {
            Some(arg) => integer(arg, option, bounds),
            None => Err(ParseError::NoValue { option, min: *bounds.start(), max: *bounds.end() }),
        }
    }

    /// The check that nothing is left over.
    ///
    /// # Errors
    /// [`ParseError::Unexpected`] naming what is, and what could have stood in
    /// its place.
    pub fn finish(self, expected: &'static str) -> Result<(), ParseError> {
        match self.sight {
            None => Ok(()),
            Some(arg) => Err(ParseError::Unexpected { given: Excerpt::new(arg), expected }),
        }
    }
}

#[inline]
fn integer<T: TryFrom<u64>>(
    arg: &[u8],
    what: &'static str,
    bounds: RangeInclusive<u64>,
) -> Result<T, ParseError> {
    digits(arg)
        .filter(|number| bounds.contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| out_of_bounds(arg, what, &bounds))
}

#[cold]
fn out_of_bounds(arg: &[u8], what: &'static str, bounds: &RangeInclusive<u64>) -> ParseError {
    let given = Excerpt::new(arg);
    ParseError::Number { what, given, min: *bounds.start(), max: *bounds.end() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor<'a>(args: &'a [&'a str]) -> Cursor<'a, impl Iterator<Item = &'a [u8]>> {
        Cursor::new(args.iter().map(|arg| arg.as_bytes()))
    }

    #[test]
    fn words_match_in_any_case_and_only_whole() {
        let mut args = cursor(&["fUlL", "FULLY", "x"]);
        assert!(!args.keyword("COST"));
        assert!(args.keyword("FULL"));
        assert!(!args.keyword("FULL"));
        assert_eq!(args.peek(), Some(&b"FULLY"[..]));
        assert_eq!(args.take(), Some(&b"FULLY"[..]));
        assert_eq!(args.take(), Some(&b"x"[..]));
        assert_eq!(args.take(), None);
        assert_eq!(args.take(), None);
        assert!(!args.keyword("FULL"));
        assert_eq!(args.required(), Err(ParseError::Arity));
    }

    #[test]
    fn bounds_are_exact() {
        for (text, within) in [("4", false), ("5", true), ("255", true), ("256", false)] {
            let taken = cursor(&[text]).integer::<u8>("n", 5..=300);
            assert_eq!(taken.is_ok(), within, "{text}");
        }
        assert_eq!(
            cursor(&["301"]).integer::<u32>("n", 5..=300).unwrap_err().to_string(),
            "n is '301', expected an integer 5..300"
        );
        assert_eq!(
            cursor(&[]).value::<u32>("COST", 5..=300).unwrap_err().to_string(),
            "COST has no value, expected an integer 5..300"
        );
    }

    #[test]
    fn nothing_may_be_left_over() {
        let mut args = cursor(&["a", "b"]);
        args.take();
        let error = args.finish("the end").unwrap_err();
        assert_eq!(error.to_string(), "unexpected 'b', expected the end");
        assert_eq!(cursor(&[]).finish("the end"), Ok(()));
    }
}
