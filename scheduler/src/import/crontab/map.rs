//! Rules that say what a command becomes: `PATTERN=>TARGET`.
//!
//! Decides which commands a rule means and where their runs go. What a pattern captures gets into the path and the query of an
//! address only, and can neither leave its place there nor change the rest.

use punctual_core::address::read_url;
use punctual_core::payload::Payload;
use punctual_core::template::Vars;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What is written in place of a rule that cannot be read.
const EXAMPLE: &str = "`/opt/bill *=>webhook:https://hooks.example.com/bill?args=$1`";

/// What a command becomes: a pattern over the whole command, and a target.
#[derive(Clone, PartialEq, Eq)]
pub struct MapRule {
    /// What stands before, between and behind its stars.
    literals: Vec<String>,
    target: To,
}

#[derive(Clone, PartialEq, Eq)]
enum To {
    Noop,
    Webhook(Address),
    Queue(Address),
}

/// An address with places for what stars stand for.
#[derive(Clone, PartialEq, Eq)]
struct Address(Vec<Part>);

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// The n-th star, from 0 on.
    Star(usize),
}

/// What a run tells its handler of the command.
#[derive(Serialize)]
pub(super) struct Told<'a> {
    pub(super) command: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stdin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<&'a str>,
    pub(super) env: &'a BTreeMap<String, String>,
}

impl Told<'_> {
    /// As JSON that no template begins in: a brace before another or before `%` is followed by an escape.
    fn body(&self) -> String {
        let json = serde_json::to_string(self).expect("texts are JSON");
        json.replace("{{", "{\\u007b").replace("{%", "{\\u0025")
    }
}

impl MapRule {
    /// What the command becomes; none where the rule does not mean it.
    ///
    /// # Errors
    /// Why what a star stands for cannot be put into the address.
    pub(super) fn apply(&self, told: &Told<'_>) -> Option<Result<Payload, String>> {
        let stars = self.stars(told.command)?;
        let payload = match &self.target {
            To::Noop => Ok(Payload::Noop),
            To::Webhook(address) => address.with(&stars).map(|url| {
                let vars = Vars::new();
                Payload::Webhook { url, body: told.body(), vars, secret: None }
            }),
            To::Queue(address) => address.with(&stars).map(|url| {
                let vars = Vars::new();
                Payload::Queue { url, body: told.body(), vars }
            }),
        };
        Some(payload)
    }

    /// What each star stands for: as little as possible, the last one all that is left.
    fn stars<'a>(&self, command: &'a str) -> Option<Vec<&'a str>> {
        let [first, others @ ..] = &self.literals[..] else { return None };
        let Some((last, between)) = others.split_last() else { return (first == command).then(Vec::new) };
        let mut rest = command.strip_prefix(first.as_str())?.strip_suffix(last.as_str())?;
        let mut stars = Vec::with_capacity(others.len());
        for literal in between {
            let (star, behind) = rest.split_once(literal.as_str())?;
            stars.push(star);
            rest = behind;
        }
        stars.push(rest);
        Some(stars)
    }
}

impl FromStr for MapRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, target) =
            text.rsplit_once("=>").ok_or_else(|| format!("a rule is a pattern, `=>` and a target: {EXAMPLE}"))?;
        let (pattern, target) = (pattern.trim(), target.trim());
        if pattern.is_empty() {
            return Err(format!("the pattern is empty: write `*` for any command, or {EXAMPLE}"));
        }
        let literals: Vec<String> = pattern.split('*').map(str::to_owned).collect();
        let stars = literals.len() - 1;
        let target = match target.split_once(':') {
            None if target == "noop" => To::Noop,
            Some(("webhook", url)) => To::Webhook(Address::read(url, stars)?),
            Some(("queue", url)) => To::Queue(Address::read(url, stars)?),
            _ => {
                return Err(format!(
                    "a target is `webhook:` and an address, `queue:` and an address, or `noop`: {EXAMPLE}"
                ));
            }
        };
        Ok(MapRule { literals, target })
    }
}

impl fmt::Debug for MapRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapRule({} stars, redacted)", self.literals.len() - 1)
    }
}

impl Address {
    fn read(text: &str, stars: usize) -> Result<Self, String> {
        let mut pieces = text.split('$');
        let mut parts = vec![Part::Literal(pieces.next().unwrap_or_default().to_owned())];
        for piece in pieces {
            match piece.chars().next().and_then(|c| c.to_digit(10)).filter(|n| *n > 0) {
                Some(n) if n as usize > stars => {
                    return Err(format!("`${n}` of the address has no `*` in the pattern: it has {stars}"));
                }
                Some(n) => parts.extend([Part::Star(n as usize - 1), Part::Literal(piece[1..].to_owned())]),
                None => parts.push(Part::Literal(format!("${piece}"))),
            }
        }
        let address = Address(parts);
        let [a, b] = ["a", "b"].map(|any| address.with(&vec![any; stars]).and_then(|url| read_url(&url)));
        let (a, b) = (a?, b?);
        if (a.scheme(), a.host_str(), a.port()) != (b.scheme(), b.host_str(), b.port()) {
            return Err(
                "`$1` to `$9` may stand in the path and the query of an address only: write its host out".into()
            );
        }
        Ok(address)
    }

    /// The address with these texts put in.
    fn with(&self, stars: &[&str]) -> Result<String, String> {
        let put_in = |part: &Part| match part {
            Part::Literal(text) => text.clone(),
            Part::Star(n) => stars.get(*n).map(|text| percent_encoded(text)).unwrap_or_default(),
        };
        let url: String = self.0.iter().map(put_in).collect();
        let path = url.split(['?', '#']).next().unwrap_or_default();
        if path.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
            return Err(
                "a part of the address's path is `.` or `..`, and would lead elsewhere: match the command by another \
                        pattern"
                    .into(),
            );
        }
        Ok(url)
    }
}

/// All but letters, digits and `-._~` (RFC 3986, 2.3).
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stars<'a>(pattern: &str, command: &'a str) -> Option<Vec<&'a str>> {
        format!("{pattern}=>noop").parse::<MapRule>().unwrap().stars(command)
    }

    fn url(rule: &str, command: &str) -> Result<String, String> {
        let env = BTreeMap::new();
        let told = Told { command, stdin: None, user: None, env: &env };
        let payload = rule.parse::<MapRule>()?.apply(&told).ok_or("does not match")?;
        payload.map(|payload| match payload {
            Payload::Webhook { url, .. } | Payload::Queue { url, .. } => url,
            _ => "noop".into(),
        })
    }

    #[test]
    fn a_pattern_means_the_whole_command() {
        for (pattern, command, expected) in [
            ("*", "any thing", Some(vec!["any thing"])),
            ("*", "", Some(vec![""])),
            ("a", "a", Some(vec![])),
            ("a", "ab", None),
            ("a*", "ab", Some(vec!["b"])),
            ("*a", "ab", None),
            ("a*a", "a", None),
            ("a*a", "aa", Some(vec![""])),
            ("cd * && *", "cd /x && y && z", Some(vec!["/x", "y && z"])),
            ("*b*b", "abcb", Some(vec!["a", "c"])),
            ("*b*b", "abc", None),
            ("**", "x", Some(vec!["", "x"])),
            ("[a-z]?", "a", None),
            ("x => *", "x => y", Some(vec!["y"])),
        ] {
            assert_eq!(stars(pattern, command), expected, "{pattern} {command}");
        }
    }

    #[test]
    fn what_a_star_stands_for_stays_in_its_place_of_the_address() {
        let rule = "/opt/* *=>webhook:https://hooks.example.com/run/$1?args=$2&cost=$";
        for (command, expected) in [
            ("/opt/bill -v", "https://hooks.example.com/run/bill?args=-v&cost=$"),
            ("/opt/a/b?c#d x=y&z", "https://hooks.example.com/run/a%2Fb%3Fc%23d?args=x%3Dy%26z&cost=$"),
            ("/opt/é \\..\\", "https://hooks.example.com/run/%C3%A9?args=%5C..%5C&cost=$"),
        ] {
            assert_eq!(url(rule, command).as_deref(), Ok(expected), "{command}");
        }
        for command in ["/opt/.. x", "/opt/. x"] {
            assert!(url(rule, command).unwrap_err().contains("would lead elsewhere"), "{command}");
        }
    }

    #[test]
    fn a_rule_that_cannot_be_read_says_how_one_looks() {
        for (rule, expected) in [
            ("x", "a rule is a pattern, `=>` and a target"),
            ("=>noop", "the pattern is empty"),
            ("*=>", "a target is `webhook:`"),
            ("*=>mail:x", "a target is `webhook:`"),
            ("*=>noop:x", "a target is `webhook:`"),
            ("*=>webhook:", "expected an address"),
            ("*=>webhook:ftp://a.example/", "only http and https"),
            ("*=>webhook:https://a.example/$2", "`$2` of the address has no `*` in the pattern: it has 1"),
            ("x=>webhook:https://a.example/$1", "it has 0"),
            ("*=>webhook:https://$1.example/", "may stand in the path and the query"),
            ("*=>webhook:https://a.example:$1/", "expected an address"),
            ("*=>webhook:https://a.example$1/x", "may stand in the path and the query"),
            ("*=>queue:$1", "expected an address"),
            ("*=>webhook:https://a.example/../$1", "would lead elsewhere"),
        ] {
            let found = rule.parse::<MapRule>().unwrap_err();
            assert!(found.contains(expected), "{rule}: {found}");
        }
    }

    #[test]
    fn no_command_is_taken_for_a_template() {
        let env = [("A".to_owned(), "{{{%".to_owned())].into();
        let command = "echo {{ vars.x }} {% if x %} {{{{ {%% {#";
        let told = Told { command, stdin: Some("{{\n"), user: Some("{{"), env: &env };
        let body = told.body();
        assert!(!punctual_core::template::is_template(&body), "{body}");
        let read: serde_json::Value = serde_json::from_str(&body).unwrap();
        let expected = serde_json::json!({"command": command, "stdin": "{{\n", "user": "{{", "env": {"A": "{{{%"}});
        assert_eq!(read, expected);
    }
}
