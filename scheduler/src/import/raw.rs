//! The lines of a file as bytes, however they end and however long they are.
//!
//! Decides where a line ends. Never holds more of a line than it is told.

use std::io::{self, BufRead, BufReader, Read};

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RawLine {
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether it went on beyond the longest line.
    pub(super) is_cut: bool,
}

pub(super) struct RawLines<'a> {
    read: BufReader<Box<dyn Read + 'a>>,
    /// The longest line that is read, in bytes.
    longest: usize,
    number: u64,
    has_failed: bool,
}

impl<'a> RawLines<'a> {
    pub(super) fn new(read: impl Read + 'a, longest: usize) -> Self {
        let read: Box<dyn Read + 'a> = Box::new(read);
        RawLines { read: BufReader::new(read), longest, number: 0, has_failed: false }
    }

    /// How many lines were read.
    pub(super) fn lines_read(&self) -> u64 {
        self.number
    }

    fn read_line(&mut self) -> io::Result<Option<RawLine>> {
        let mut bytes = Vec::new();
        if self.up_to_the_end(&mut bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let is_cut = !bytes.ends_with(b"\n") && bytes.len() > self.longest;
        if is_cut {
            bytes.truncate(self.longest);
            let mut rest = Vec::new();
            while self.up_to_the_end(&mut rest)? > 0 && !rest.ends_with(b"\n") {
                rest.clear();
            }
        }
        for end in [&b"\n"[..], b"\r"] {
            if bytes.ends_with(end) {
                bytes.truncate(bytes.len() - 1);
            }
        }
        if self.number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        Ok(Some(RawLine { number: self.number, bytes, is_cut }))
    }

    fn up_to_the_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        // One more for the end of the line.
        self.read.by_ref().take(self.longest as u64 + 1).read_until(b'\n', bytes)
    }
}

impl Iterator for RawLines<'_> {
    type Item = io::Result<RawLine>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let line = self.read_line().transpose();
        // What cannot be read now could not be read for ever.
        self.has_failed = matches!(line, Some(Err(_)));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = 1_000;

    fn lines(file: &[u8]) -> Vec<(u64, Vec<u8>, bool)> {
        RawLines::new(file, LONGEST)
            .map(|line| line.unwrap())
            .map(|line| (line.number, line.bytes, line.is_cut))
            .collect()
    }

    #[test]
    fn a_line_ends_as_unix_windows_or_the_file_end_it() {
        let expected = ["a", "", "b"].map(|line| line.as_bytes().to_vec());
        for file in ["a\n\nb\n", "a\r\n\r\nb\r\n", "a\n\nb", "\u{feff}a\n\nb"] {
            let found: Vec<Vec<u8>> = lines(file.as_bytes()).into_iter().map(|(_, bytes, _)| bytes).collect();
            assert_eq!(found, expected, "{file:?}");
        }
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn a_line_beyond_the_longest_is_cut_and_the_next_one_is_whole() {
        let longest = vec![b'x'; LONGEST];
        let file = [&longest[..], b"\n", &longest, b"xxx", &longest, &longest, b"\nend"].concat();
        let found = lines(&file);
        assert_eq!(found[0], (1, longest.clone(), false));
        assert_eq!(found[1], (2, longest, true));
        assert_eq!(found[2], (3, b"end".to_vec(), false));
    }

    #[test]
    fn a_file_that_fails_ends_there() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let mut lines = RawLines::new(b"a\n".chain(Failing), LONGEST);
        assert_eq!(lines.next().unwrap().unwrap().bytes, b"a");
        assert!(lines.next().unwrap().is_err());
        assert!(lines.next().is_none());
    }
}
