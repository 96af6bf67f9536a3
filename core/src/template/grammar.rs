//! What may stand in a text: read tag by tag, before any engine sees it.
//!
//! ```text
//! {{ path | filter | filter('text') }}      {# comment #}
//! {% if [not] path %}  {% if path op literal %}  {% elif … %}  {% else %}  {% endif %}      op: == != < <= > >=
//! ```

use super::Vars;

/// Tags in one text.
const MOST_TAGS: usize = 100;
/// Filters of one variable. Each may make its text longer, and the engine reads them by recursion.
const MOST_FILTERS: usize = 4;
/// Conditions inside conditions.
const DEEPEST: usize = 8;

const VARIABLES: [&str; 10] = [
    "run.id",
    "run.scheduled_at",
    "run.due_at",
    "run.attempt",
    "job.id",
    "job.name",
    "job.tenant",
    "local.date",
    "local.time",
    "local.weekday",
];
/// The only one that is a number.
const NUMBER: &str = "run.attempt";
const FILTERS: &str = "upper, lower, title, capitalize, trim, default('text'), tojson";
const REFUSED: [&str; 14] = [
    "for",
    "macro",
    "call",
    "set",
    "include",
    "import",
    "from",
    "extends",
    "block",
    "filter",
    "raw",
    "with",
    "do",
    "autoescape",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Text,
    Number,
    /// `==` or `!=`.
    Equal,
    /// `<`, `<=`, `>` or `>=`.
    Order,
    Dot,
    Pipe,
    Open,
    Close,
}

/// Checks a whole text.
pub(super) fn check(text: &str, vars: &Vars) -> Result<(), String> {
    let mut branches = Branches::default();
    let (mut rest, mut tags) = (text, 0);
    while let Some(at) = next_tag(rest) {
        tags += 1;
        if tags > MOST_TAGS {
            return Err(format!("the text has more than {MOST_TAGS} tags"));
        }
        let in_tag = |problem: String| format!("tag {tags} of the text: {problem}");
        let (kind, inside) = rest[at..].split_at(2);
        rest = match kind {
            "{#" => inside.split_once("#}").ok_or_else(|| in_tag("`{#` is never closed by `#}`".into()))?.1,
            _ => {
                check_word(kind, inside).map_err(in_tag)?;
                let close = if kind == "{{" { "}}" } else { "%}" };
                let (tokens, rest) = read(inside, close).map_err(in_tag)?;
                let checked = if kind == "{{" { check_value(&tokens, vars) } else { branches.check(&tokens, vars) };
                checked.map_err(in_tag)?;
                rest
            }
        };
    }
    if branches.open.is_empty() { Ok(()) } else { Err("an `{% if … %}` of the text has no `{% endif %}`".into()) }
}

/// Refuses by name what is known and not allowed, whatever follows it.
fn check_word(kind: &str, inside: &str) -> Result<(), String> {
    let begins = inside.trim_start_matches(['-', ' ', '\t', '\r', '\n']);
    let word = begins.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    if kind == "{%" && REFUSED.contains(&word) {
        return Err(format!(
            "`{word}` is not allowed: write out what it would make, or put it into a variable; allowed are if, elif, else, endif"
        ));
    }
    Ok(())
}

fn next_tag(text: &str) -> Option<usize> {
    ["{{", "{%", "{#"].iter().filter_map(|open| text.find(open)).min()
}

/// Reads the tokens of one tag; returns what follows it.
fn read<'a>(text: &'a str, close: &str) -> Result<(Vec<Token<'a>>, &'a str), String> {
    let mut rest = text.strip_prefix('-').unwrap_or(text);
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let unmarked = rest.strip_prefix('-').unwrap_or(rest);
        if let Some(after) = unmarked.strip_prefix(close) {
            return Ok((tokens, after));
        }
        let (token, length) = token(rest).ok_or_else(|| {
            format!(
                "it is never closed by `{close}`, or holds a character that has no meaning there; allowed are variables, \
                 filters ({FILTERS}) and conditions"
            )
        })?;
        tokens.push(token);
        rest = &rest[length..];
    }
}

/// The token that a text begins with, and its length in bytes.
fn token(text: &str) -> Option<(Token<'_>, usize)> {
    let length_of = |fits: fn(u8) -> bool| text.bytes().take_while(|b| fits(*b)).count();
    Some(match text.bytes().next()? {
        b'.' => (Token::Dot, 1),
        b'|' => (Token::Pipe, 1),
        b'(' => (Token::Open, 1),
        b')' => (Token::Close, 1),
        b'<' | b'>' => (Token::Order, if text[1..].starts_with('=') { 2 } else { 1 }),
        b'=' | b'!' if text[1..].starts_with('=') => (Token::Equal, 2),
        b'0'..=b'9' => {
            let length = length_of(|b| b.is_ascii_alphanumeric() || b == b'_');
            let is_small = length <= 6 && text[..length].bytes().all(|b| b.is_ascii_digit());
            is_small.then_some((Token::Number, length))?
        }
        quote @ (b'\'' | b'"') => {
            let inside = &text[1..];
            let end = inside.bytes().position(|b| b == quote)?;
            // No escapes: what is written is what is meant.
            (!inside[..end].contains('\\')).then_some((Token::Text, end + 2))?
        }
        b if b.is_ascii_alphabetic() || b == b'_' => {
            let length = length_of(|b| b.is_ascii_alphanumeric() || b == b'_');
            (Token::Word(&text[..length]), length)
        }
        _ => return None,
    })
}

/// Checks `path | filter | …`.
fn check_value(tokens: &[Token<'_>], vars: &Vars) -> Result<(), String> {
    let (path, mut rest) = path(tokens)?;
    let filters = format!("after a variable come filters, such as `{{{{ job.name | upper }}}}`: {FILTERS}");
    let (mut has_default, mut count) = (false, 0);
    while !rest.is_empty() {
        count += 1;
        if count > MOST_FILTERS {
            return Err(format!("it has more than {MOST_FILTERS} filters: leave out what changes nothing"));
        }
        rest = match rest {
            // Each doubles the quotes and backslashes of the one before.
            [Token::Pipe, Token::Word("tojson"), Token::Pipe, ..] => {
                return Err("`tojson` comes last, and once: write the other filters before it".into());
            }
            [Token::Pipe, Token::Word("default"), Token::Open, Token::Text, Token::Close, rest @ ..] => {
                has_default = true;
                rest
            }
            [Token::Pipe, Token::Word("upper" | "lower" | "title" | "capitalize" | "trim" | "tojson"), rest @ ..] => {
                // Of a value that is not there, only `default` can make something.
                check_known(&path, vars, has_default)?;
                rest
            }
            _ => return Err(filters),
        };
    }
    check_known(&path, vars, has_default)
}

/// A variable, and what follows it.
fn path<'a, 'b>(tokens: &'b [Token<'a>]) -> Result<(String, &'b [Token<'a>]), String> {
    match tokens {
        [Token::Word(of), Token::Dot, Token::Word(name), rest @ ..] => Ok((format!("{of}.{name}"), rest)),
        _ => Err(format!(
            "it must begin with a variable, such as `local.date`; there are {} and `vars.` with a name; what is to stand as \
             it is, is written outside of tags",
            VARIABLES.join(", ")
        )),
    }
}

fn check_known(path: &str, vars: &Vars, has_default: bool) -> Result<(), String> {
    let is_known = match path.strip_prefix("vars.") {
        Some(name) => has_default || vars.contains_key(name),
        None => VARIABLES.contains(&path),
    };
    if is_known {
        return Ok(());
    }
    let own: Vec<String> = vars.keys().map(|name| format!("vars.{name}")).collect();
    let own = if own.is_empty() { "the job has no `vars`".to_owned() } else { own.join(", ") };
    Err(format!(
        "there is no such variable: there are {}; {own}; `{{{{ vars.name | default('text') }}}}` does without",
        VARIABLES.join(", ")
    ))
}

/// The conditions that are open; each says whether its `else` was there.
#[derive(Default)]
struct Branches {
    open: Vec<bool>,
}

impl Branches {
    fn check(&mut self, tokens: &[Token<'_>], vars: &Vars) -> Result<(), String> {
        let no_if = || "it belongs to no `{% if … %}`, or comes after its `{% else %}`".to_owned();
        match tokens {
            [Token::Word("if"), condition @ ..] => {
                self.open.push(false);
                if self.open.len() > DEEPEST {
                    return Err(format!("conditions stand more than {DEEPEST} deep in each other"));
                }
                check_condition(condition, vars)
            }
            [Token::Word("elif"), condition @ ..] => {
                self.open.last().filter(|had_else| !**had_else).ok_or_else(no_if)?;
                check_condition(condition, vars)
            }
            [Token::Word("else")] => {
                let had_else = self.open.last_mut().filter(|had_else| !**had_else).ok_or_else(no_if)?;
                *had_else = true;
                Ok(())
            }
            [Token::Word("endif")] => self.open.pop().map(|_| ()).ok_or_else(no_if),
            _ => Err("it begins with none of if, elif, else, endif, or has more words than these take".into()),
        }
    }
}

/// Checks `[not] path` or `path op literal`.
fn check_condition(tokens: &[Token<'_>], vars: &Vars) -> Result<(), String> {
    let (is_negated, tokens) = match tokens {
        [Token::Word("not"), rest @ ..] => (true, rest),
        tokens => (false, tokens),
    };
    let (path, rest) = path(tokens)?;
    check_known(&path, vars, false)?;
    match rest {
        [] => Ok(()),
        [Token::Equal | Token::Order, Token::Number] if !is_negated && path == NUMBER => Ok(()),
        [Token::Equal, Token::Text] if !is_negated && path != NUMBER => Ok(()),
        _ => Err(format!(
            "a condition is a variable, `not` and a variable, a variable `==` or `!=` a 'text', or `{NUMBER}` compared to a \
             number; more is written as a condition inside a condition"
        )),
    }
}
