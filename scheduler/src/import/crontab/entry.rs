//! One line of a crontab: what kind it is, and its parts.
//!
//! Decides where schedule, user, command and standard input begin, as cron does. Judges none of them.

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    Blank,
    Comment,
    /// `NAME=value`.
    Environment {
        name: &'a str,
        value: &'a str,
    },
    /// A schedule and a command.
    Entry(&'a str),
    /// Neither, and why.
    Refused(&'static str),
}

/// An entry, cut into its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Whether a `-` stands before the schedule: cron does not log such an entry.
    pub(super) is_unlogged: bool,
    /// A macro, a macro with its interval, or five fields.
    pub(super) schedule: Vec<&'a str>,
    pub(super) user: Option<&'a str>,
    pub(super) command: String,
    /// What the command reads.
    pub(super) stdin: Option<String>,
}

const BLANKS: [char; 2] = [' ', '\t'];

pub(super) fn read(line: &str) -> Said<'_> {
    let line = line.trim_matches(BLANKS);
    match line.chars().next() {
        None => Said::Blank,
        Some('#') => Said::Comment,
        Some(_) => environment(line).unwrap_or(Said::Entry(line)),
    }
}

/// A name, `=`, and a value, each quoted or not; none if the line is something else.
fn environment(line: &str) -> Option<Said<'_>> {
    let (name, rest) = match quoted(line) {
        Some((name, rest)) => (name, rest),
        None => line.split_at(line.find(|c: char| c == '=' || BLANKS.contains(&c))?),
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    let value = rest.trim_start_matches(BLANKS).strip_prefix('=').filter(|_| is_name)?.trim_start_matches(BLANKS);
    Some(match quoted(value) {
        None if value.starts_with(['"', '\'']) => Said::Refused("the quote that the value begins with is never closed"),
        None => Said::Environment { name, value },
        Some((value, "")) => Said::Environment { name, value },
        Some(_) => Said::Refused(
            "something follows the closing quote of the value: write comments in lines of their own, and other quotes around \
             the whole value",
        ),
    })
}

/// What stands in the quotes that a text begins with, and what follows them.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    text[1..].split_once(quote)
}

impl<'a> Entry<'a> {
    /// Cuts a line without blanks at its ends.
    ///
    /// # Errors
    /// Which part is missing.
    pub(super) fn cut(line: &'a str, with_user: bool) -> Result<Self, String> {
        let unmarked = line.strip_prefix('-');
        let (mut schedule, mut rest) = (Vec::new(), unmarked.unwrap_or(line));
        let mut wanted = if rest.starts_with('@') { 1 } else { 5 };
        while schedule.len() < wanted {
            let Some((word, after)) = word(rest) else {
                return Err(super::schedule::EXPECTED.into());
            };
            if word.eq_ignore_ascii_case("@every") {
                wanted = 2;
            }
            schedule.push(word);
            rest = after;
        }
        let user = if with_user { word(rest) } else { None };
        if let Some((_, after)) = user {
            rest = after;
        }
        let (command, stdin) = at_percent(rest);
        if command.trim().is_empty() {
            // Where a field is missing, the command was taken for one.
            let has_schedule = schedule.len() < 5 || super::schedule::can_be_shown(&schedule);
            return Err(match (has_schedule, with_user) {
                (false, _) => super::schedule::EXPECTED.into(),
                (true, false) => "the command is missing: write it behind the schedule".into(),
                (true, true) => {
                    "the command is missing: write it behind the user, or read the file as one without users".into()
                }
            });
        }
        let command = command.trim_end().to_owned();
        Ok(Entry { is_unlogged: unmarked.is_some(), schedule, user: user.map(|(user, _)| user), command, stdin })
    }
}

/// The first word of a text, and what follows it and its blanks.
fn word(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_at(text.find(BLANKS).unwrap_or(text.len()));
    (!word.is_empty()).then(|| (word, rest.trim_start_matches(BLANKS)))
}

/// Cuts at the first `%` that has no backslash: what follows is standard input, whose lines end by `%`. Backslashes before
/// others are kept; two in a row hide no `%` in a command, and one in the input, as in the cron of Debian and of the BSDs.
fn at_percent(text: &str) -> (String, Option<String>) {
    let mut command = String::with_capacity(text.len());
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '%' if is_escaped => {
                command.pop();
                command.push('%');
            }
            '%' => return (command, input(&text[at + 1..])),
            _ => command.push(c),
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    (command, None)
}

fn input(text: &str) -> Option<String> {
    let mut lines = text.replace('%', "\n").replace("\\\n", "%");
    if lines.is_empty() {
        return None;
    }
    if !lines.ends_with('\n') {
        lines.push('\n');
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_is_a_name_and_a_value_in_any_quotes() {
        for (line, name, value) in [
            ("A=b", "A", "b"),
            ("  A =\tb c  ", "A", "b c"),
            ("A=", "A", ""),
            ("MAILTO=\"\"", "MAILTO", ""),
            ("'A' = ' b '", "A", " b "),
            ("\"A\"=\"it's\"", "A", "it's"),
            ("app.name-2=x=y", "app.name-2", "x=y"),
            ("A=b # c", "A", "b # c"),
        ] {
            assert_eq!(read(line), Said::Environment { name, value }, "{line}");
        }
        for line in ["A=\"b", "A='b' # c", "A=\"b\"c"] {
            assert!(matches!(read(line), Said::Refused(_)), "{line}");
        }
        for line in ["0 0 * * * A=b c", "@daily A=b c", "export A=b", "*/5=x", "=x", "A"] {
            assert_eq!(read(line), Said::Entry(line));
        }
        assert_eq!((read(" \t"), read("\t# a=b")), (Said::Blank, Said::Comment));
    }

    #[test]
    fn an_entry_is_cut_at_its_blanks() {
        let entry = Entry::cut("*/5\t* * *   1-5  root\tcd /app  &&  ./x", true).unwrap();
        assert_eq!(entry.schedule, ["*/5", "*", "*", "*", "1-5"]);
        assert_eq!((entry.user, entry.command.as_str()), (Some("root"), "cd /app  &&  ./x"));
        let entry = Entry::cut("-@every 5m x", false).unwrap();
        assert_eq!((entry.is_unlogged, entry.schedule), (true, vec!["@every", "5m"]));
        for (line, with_user, expected) in [
            ("0 9 * *", false, "expected five fields"),
            ("@daily", false, "the command is missing: write it"),
            ("@daily root", true, "the command is missing: write it behind the user"),
            ("0 9 * * /bin/x", false, "expected five fields"),
            ("0 9 * * * %x", false, "the command is missing"),
            ("-", false, "expected five fields"),
        ] {
            let found = Entry::cut(line, with_user).unwrap_err();
            assert!(found.starts_with(expected), "{line}: {found}");
        }
    }

    #[test]
    fn a_percent_sign_ends_the_command_unless_a_backslash_hides_it() {
        for (text, command, stdin) in [
            (r"date +\%F", "date +%F", None),
            (r"a \n b\\c", r"a \n b\\c", None),
            ("mail%Dear all,%it is due%", "mail", Some("Dear all,\nit is due\n")),
            ("mail%50\\% off", "mail", Some("50% off\n")),
            ("x%", "x", None),
            (r"x\\%y", r"x\\", Some("y\n")),
        ] {
            assert_eq!(at_percent(text), (command.to_owned(), stdin.map(str::to_owned)), "{text}");
        }
    }
}
