//! PromQL, as far as the dashboards use it: which series an expression reads, with which labels, and within what.
//!
//! What it does not know it refuses, so a misspelt function is found too. `by` stands before the parentheses.

use crate::telemetry::table::{Kind, Metric, Values};

/// Functions that turn what only rises into something to look at.
const RATES: &[&str] = &["rate", "irate", "increase"];
const QUANTILE: &str = "histogram_quantile";
const FUNCTIONS: &[&str] =
    &["abs", "count", QUANTILE, "increase", "irate", "max", "min", "rate", "scalar", "sum", "time"];
const OPERATORS: &[&str] = &["and", "or", "unless"];
const SIGNS: &[&str] = &[",", "+", "-", "*", "/", "==", "!=", "<", ">", "<=", ">="];
const MATCHES: &[&str] = &["=", "!=", "=~", "!~"];
/// The series that a histogram is, by the end of their names.
const PARTS: [&str; 3] = [BUCKET, "_sum", "_count"];
const BUCKET: &str = "_bucket";
/// Labels that the scraper adds.
const SCRAPED: [&str; 2] = ["job", "instance"];

/// What an expression reads.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) selectors: Vec<Selector>,
    /// Labels by which two sides are brought together.
    on: Vec<String>,
}

/// A series that is read.
#[derive(Debug)]
pub(super) struct Selector {
    name: String,
    matchers: Vec<Matcher>,
    has_range: bool,
    /// What it stands in, the innermost first.
    inside: Vec<Call>,
}

#[derive(Debug)]
struct Matcher {
    label: String,
    operator: String,
    value: String,
}

/// A function with what follows its `by`, or plain parentheses, which have no name.
#[derive(Clone, Debug, Default)]
struct Call {
    name: String,
    by: Vec<String>,
}

/// What is wrong with an expression.
pub(super) fn problems(expression: &str, table: &[&'static Metric]) -> Vec<String> {
    match read(expression) {
        Ok(query) => query.selectors.iter().flat_map(|selector| selector.problems(&query.on, table)).collect(),
        Err(problem) => vec![format!("{problem} in `{expression}`")],
    }
}

impl Query {
    /// Whether this label is left on all that comes out.
    pub(super) fn keeps(&self, label: &str) -> bool {
        let keeps = |call: &Call| call.by.iter().any(|kept| kept == label);
        self.selectors.iter().all(|selector| selector.inside.iter().any(keeps))
    }
}

impl Selector {
    /// The metric that it reads, and which part of it: nothing, or one of a histogram's.
    pub(super) fn metric(&self, table: &[&'static Metric]) -> Option<(&'static Metric, &'static str)> {
        let ends = || std::iter::once("").chain(PARTS);
        ends().find_map(|part| {
            let name = self.name.strip_suffix(part)?;
            let is_it =
                |metric: &&Metric| metric.name == name && matches!(metric.kind, Kind::Histogram(_)) != part.is_empty();
            table.iter().copied().find(is_it).map(|metric| (metric, part))
        })
    }

    fn problems(&self, on: &[String], table: &[&'static Metric]) -> Vec<String> {
        let Some((metric, part)) = self.metric(table) else { return vec![format!("there is no series {}", self.name)] };
        let mut problems = self.misuses(metric, part);
        let matched = self.matchers.iter().map(|matcher| &matcher.label);
        let grouped = self.inside.iter().flat_map(|call| &call.by);
        for label in matched.chain(grouped).chain(on) {
            let is_bound = label == "le" && part == BUCKET;
            if !is_bound && !SCRAPED.contains(&&**label) && metric.labels.iter().all(|known| known.name != label) {
                problems.push(format!("{} has no label {label}", self.name));
            }
        }
        problems.extend(self.matchers.iter().flat_map(|matcher| matcher.problems(metric)));
        problems
    }

    /// Whether it stands in what fits its kind.
    fn misuses(&self, metric: &Metric, part: &str) -> Vec<String> {
        let is_rate = |call: &Call| RATES.contains(&&*call.name);
        let is_in = |name: &str| self.inside.iter().any(|call| call.name == name);
        let mut problems = Vec::new();
        if metric.kind == Kind::Gauge {
            if self.has_range || self.inside.iter().any(is_rate) {
                problems.push(format!("{} is a gauge, and stands in a rate or has a range", self.name));
            }
        } else if !self.has_range || !self.inside.first().is_some_and(is_rate) {
            problems.push(format!("{} only rises, and stands in no rate or has no range", self.name));
        }
        if (part == BUCKET) != is_in(QUANTILE) {
            problems.push(format!("{}: {QUANTILE} is for buckets, and buckets are for it", self.name));
        }
        let keeps_bounds = |call: &Call| call.by.iter().any(|label| label == "le");
        if part == BUCKET && !self.inside.iter().any(keeps_bounds) {
            problems.push(format!("{} loses its label le", self.name));
        }
        problems
    }
}

impl Matcher {
    fn problems(&self, metric: &Metric) -> Vec<String> {
        let Some(label) = metric.labels.iter().find(|label| label.name == self.label) else { return Vec::new() };
        let Values::Listed(listed) = label.values else { return Vec::new() };
        let is_pattern = self.operator.ends_with('~');
        let values: Vec<&str> = if is_pattern { self.value.split('|').collect() } else { vec![&self.value] };
        let unknown = values.into_iter().filter(|value| !listed.contains(value));
        unknown.map(|value| format!("{} of {} is never {value:?}", label.name, metric.name)).collect()
    }
}

/// A piece of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name, a number or a duration.
    Word(&'a str),
    /// What stands in quotation marks.
    Text(&'a str),
    /// All else.
    Sign(&'a str),
}

/// The pieces of an expression.
///
/// # Errors
/// When a text does not end, or holds a backslash.
pub(super) fn tokens(expression: &str) -> Result<Vec<Token<'_>>, String> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_$.".contains(c);
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = if first == '"' {
            let (text, after) = rest[1..].split_once('"').ok_or("a text that does not end")?;
            if text.contains('\\') {
                return Err(format!("a backslash in {text:?}"));
            }
            (Token::Text(text), after)
        } else if is_of_word(first) {
            let (word, after) = rest.split_at(rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()));
            (Token::Word(word), after)
        } else {
            let two = ["=~", "!~", "!=", "==", "<=", ">="].iter().any(|sign| rest.starts_with(sign));
            let (sign, after) = rest.split_at(if two { 2 } else { first.len_utf8() });
            (Token::Sign(sign), after)
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// Reads an expression.
///
/// # Errors
/// Names the first thing that it does not know.
pub(super) fn read(expression: &str) -> Result<Query, String> {
    let mut reader = Reader { tokens: tokens(expression)?.into_iter().peekable() };
    let mut query = Query::default();
    // The parentheses that are open, and the function whose parentheses are next.
    let (mut open, mut next): (Vec<Call>, Option<Call>) = (Vec::new(), None);
    while let Some(token) = reader.tokens.next() {
        match token {
            Token::Word("by") => next.as_mut().ok_or("`by` after its parentheses")?.by = reader.labels()?,
            Token::Word("on") => query.on.extend(reader.labels()?),
            Token::Word(name) if FUNCTIONS.contains(&name) => {
                next = Some(Call { name: name.to_owned(), ..Call::default() });
            }
            Token::Word(name) if name.starts_with("punctual_") => {
                query.selectors.push(reader.selector(name, open.iter().rev().cloned().collect())?);
            }
            Token::Word(word) if OPERATORS.contains(&word) || word.parse::<f64>().is_ok() => {}
            Token::Sign("(") => open.push(next.take().unwrap_or_default()),
            Token::Sign(")") => drop(open.pop().ok_or("a parenthesis too many")?),
            Token::Sign(sign) if SIGNS.contains(&sign) => {}
            other => return Err(format!("unknown {other:?}")),
        }
    }
    if open.is_empty() && next.is_none() { Ok(query) } else { Err("a parenthesis too few".to_owned()) }
}

struct Reader<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
}

impl<'a> Reader<'a> {
    fn selector(&mut self, name: &str, inside: Vec<Call>) -> Result<Selector, String> {
        let mut matchers = Vec::new();
        if self.skips("{") {
            while !self.skips("}") {
                matchers.push(self.matcher()?);
                self.skips(",");
            }
        }
        let has_range = self.skips("[");
        if has_range {
            self.word()?;
            self.expect("]")?;
        }
        Ok(Selector { name: name.to_owned(), matchers, has_range, inside })
    }

    fn matcher(&mut self) -> Result<Matcher, String> {
        let label = self.word()?.to_owned();
        match (self.tokens.next(), self.tokens.next()) {
            (Some(Token::Sign(operator)), Some(Token::Text(value))) if MATCHES.contains(&operator) => {
                Ok(Matcher { label, operator: operator.to_owned(), value: value.to_owned() })
            }
            _ => Err(format!("no value of {label}")),
        }
    }

    fn labels(&mut self) -> Result<Vec<String>, String> {
        self.expect("(")?;
        let mut labels = Vec::new();
        while !self.skips(")") {
            labels.push(self.word()?.to_owned());
            self.skips(",");
        }
        Ok(labels)
    }

    fn word(&mut self) -> Result<&'a str, String> {
        match self.tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(format!("{other:?} instead of a word")),
        }
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.skips(sign) { Ok(()) } else { Err(format!("{:?} instead of `{sign}`", self.tokens.peek())) }
    }

    fn skips(&mut self, sign: &str) -> bool {
        self.tokens.next_if(|token| *token == Token::Sign(sign)).is_some()
    }
}
