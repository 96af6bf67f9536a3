//! Reads JSON objects field by field, and notes all that is wrong with a pointer to it, never what was found there.

use super::problem::FieldProblem;
use serde_json::{Map, Value};

/// Names that are noted of those that are unknown in one object.
const MOST_UNKNOWN: usize = 20;

/// An object being read.
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    pointer: String,
}

impl<'a> Fields<'a> {
    /// The object at a place, if it is one; names that are not `known` are noted.
    pub(crate) fn of(
        value: &'a Value,
        pointer: &str,
        known: &[&str],
        problems: &mut Vec<FieldProblem>,
    ) -> Option<Self> {
        let Value::Object(object) = value else {
            problems.push(FieldProblem::new(pointer, "must be a JSON object"));
            return None;
        };
        for name in object.keys().filter(|name| !known.contains(&name.as_str())).take(MOST_UNKNOWN) {
            let hint = format!("known here: {}", known.join(", "));
            problems.push(FieldProblem::new(join(pointer, name), "is unknown here").hint(hint));
        }
        Some(Fields { object, pointer: pointer.to_owned() })
    }

    /// The pointer to a field.
    pub(crate) fn at(&self, name: &str) -> String {
        join(&self.pointer, name)
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A text.
    pub(crate) fn text(&self, name: &str, problems: &mut Vec<FieldProblem>) -> Option<&'a str> {
        let text = self.get(name)?.as_str();
        if text.is_none() {
            problems.push(FieldProblem::new(self.at(name), "must be a text"));
        }
        text
    }

    /// A text that must be there.
    pub(crate) fn need(&self, name: &str, example: &str, problems: &mut Vec<FieldProblem>) -> Option<&'a str> {
        if self.get(name).is_none() {
            problems.push(FieldProblem::new(self.at(name), "is missing").hint(format!("such as {example}")));
            return None;
        }
        self.text(name, problems)
    }

    /// A whole number of a range.
    pub(crate) fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Vec<FieldProblem>,
    ) -> Option<u32> {
        let number = self.get(name)?.as_u64().filter(|number| range.contains(number));
        let number = number.and_then(|number| u32::try_from(number).ok());
        if number.is_none() {
            let detail = format!("must be a whole number, {} to {}", range.start(), range.end());
            problems.push(FieldProblem::new(self.at(name), detail));
        }
        number
    }

    /// Yes or no.
    pub(crate) fn flag(&self, name: &str, problems: &mut Vec<FieldProblem>) -> Option<bool> {
        let flag = self.get(name)?.as_bool();
        if flag.is_none() {
            problems.push(FieldProblem::new(self.at(name), "must be true or false"));
        }
        flag
    }

    /// A word that has a meaning of its own.
    pub(crate) fn word<T: std::str::FromStr<Err = String>>(
        &self,
        name: &str,
        problems: &mut Vec<FieldProblem>,
    ) -> Option<T> {
        match self.text(name, problems)?.parse() {
            Ok(word) => Some(word),
            Err(expected) => {
                problems.push(FieldProblem::new(self.at(name), expected));
                None
            }
        }
    }
}

/// A pointer to a field of the object at `pointer` (RFC 6901).
pub(crate) fn join(pointer: &str, name: &str) -> String {
    // A name that nobody gave a meaning may be long, or anything.
    let name: String = name.chars().take(60).collect();
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}
