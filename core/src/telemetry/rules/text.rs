//! Prometheus text as a collector reads it, and what its linter and the table find fault with.

use crate::telemetry::table::{Metric, Values, find};
use std::collections::{BTreeMap, BTreeSet};

/// A text as a collector reads it.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// The help text of each metric.
    pub help: BTreeMap<String, String>,
    /// The kind of each metric.
    pub kinds: BTreeMap<String, String>,
    /// Every sample, by name and labels as they stand.
    pub samples: BTreeMap<String, f64>,
}

impl Text {
    /// Reads a text of the format's version 0.0.4.
    ///
    /// # Errors
    /// Names the first line that is none of the format, or stands where it must not.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut read = Text::default();
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        for line in text.lines().filter(|line| !line.is_empty()) {
            if !read.add(line).ok_or_else(|| format!("no line of the format: {line}"))? {
                return Err(format!("twice, or behind its samples: {line}"));
            }
        }
        Ok(read)
    }

    /// None = no line of the format, false = not in this place.
    fn add(&mut self, line: &str) -> Option<bool> {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let is_late = |text: &Text, name: &str| text.samples.keys().any(|series| family(series) == name);
        Some(match words[..] {
            ["#", "HELP", name, help] => self.help.insert(name.to_owned(), help.to_owned()).is_none(),
            ["#", "TYPE", name, kind] => {
                !is_late(self, name) && self.kinds.insert(name.to_owned(), kind.to_owned()).is_none()
            }
            ["#", ..] => return None,
            _ => {
                let (series, value) = line.rsplit_once(' ')?;
                labels(series)?;
                self.samples.insert(series.to_owned(), value.parse().ok()?).is_none()
            }
        })
    }

    /// The samples of this name that have all of these labels.
    pub fn of<'a>(&'a self, name: &'a str, having: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = f64> + 'a {
        let is_of_it = move |series: &str| {
            let labels = labels(series).unwrap_or_default();
            name_of(series) == name && having.iter().all(|label| labels.contains(label))
        };
        self.samples.iter().filter(move |(series, _)| is_of_it(series)).map(|(_, value)| *value)
    }

    /// What `promtool check metrics` would find fault with.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |is_one: bool, name: &str, text: &str| {
            if is_one {
                faults.push(format!("{name}: {text}"));
            }
        };
        for (name, kind) in &self.kinds {
            let (is_counter, is_histogram) = (kind == "counter", kind == "histogram");
            let help = self.help.get(name).map(String::as_str).unwrap_or_default();
            fault(help.trim().is_empty(), name, "no help text");
            fault(is_counter != name.ends_with("_total"), name, "counters end in _total, and nothing else does");
            let has_suffix = ["_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix));
            fault(has_suffix, name, "a suffix of histograms");
            let words: BTreeSet<&str> = name.split('_').collect();
            for word in ["ms", "milliseconds", "minutes", "hours", "days", "kilobytes", "megabytes", "percent"] {
                fault(words.contains(word), name, "not in a base unit");
            }
            for word in ["counter", "gauge", "histogram", "summary"] {
                fault(words.contains(word), name, "its kind is in its name");
            }
            fault(name.contains(':') || name.contains(char::is_uppercase), name, "not in snake case");
            fault(!["counter", "gauge", "histogram"].contains(&&**kind), name, "of an unknown kind");
            let of_it: Vec<&String> = self.samples.keys().filter(|series| family(series) == name).collect();
            fault(of_it.is_empty(), name, "no samples");
            for series in of_it {
                let labels = labels(series).unwrap_or_default();
                let has_le = labels.iter().any(|(name, _)| *name == "le");
                let is_bucket = is_histogram && name_of(series).ends_with("_bucket");
                fault(has_le != is_bucket, series, "`le` belongs to buckets, and to nothing else");
                let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                let are_names = labels.iter().all(|(name, _)| name.chars().all(is_name));
                fault(!are_names, series, "a label's name is not valid");
            }
        }
        for series in self.samples.keys() {
            fault(!self.kinds.contains_key(family(series)), series, "no kind");
        }
        faults
    }

    /// What is not as the table says: names, kinds, help texts, labels with their values, and how many series there are.
    pub fn strangers(&self) -> Vec<String> {
        let mut strangers = Vec::new();
        let mut series_of: BTreeMap<&str, usize> = BTreeMap::new();
        for series in self.samples.keys() {
            *series_of.entry(family(series)).or_default() += 1;
            let labels = labels(series).unwrap_or_default();
            let labels: Vec<(&str, &str)> = labels.into_iter().filter(|(name, _)| *name != "le").collect();
            match find(family(series)) {
                None => strangers.push(format!("{series} is not in the table")),
                Some(metric) => strangers.extend(metric.check(&labels).err()),
            }
        }
        for (name, kind) in &self.kinds {
            let Some(metric) = find(name) else { continue };
            if *kind != metric.kind.as_str() || self.help.get(name).is_none_or(|help| help != metric.meaning) {
                strangers.push(format!("{name} has another kind or help text than in the table"));
            }
        }
        for metric in series_of.keys().filter_map(|name| find(name)) {
            let (found, most) = (series_of[metric.name], metric.most_lines());
            if found > most {
                strangers.push(format!("{} has {found} series, and at most {most} by the table", metric.name));
            }
            strangers.extend(metric.labels.iter().filter_map(|label| self.beyond(metric, label.name, label.values)));
        }
        strangers
    }

    /// More values than a label can have, of which the table does not list them.
    fn beyond(&self, metric: &Metric, label: &str, values: Values) -> Option<String> {
        let Values::UpTo { most, .. } = values else { return None };
        let of_it = self.samples.keys().filter(|series| family(series) == metric.name);
        let found: BTreeSet<&str> = of_it.filter_map(|series| value_of(series, label)).collect();
        let text = || format!("{label} of {} has {} values, and at most {most} by the table", metric.name, found.len());
        (found.len() > most).then(text)
    }
}

/// The metric that a series belongs to.
pub fn family(series: &str) -> &str {
    let name = name_of(series);
    let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    stem.unwrap_or(name)
}

fn name_of(series: &str) -> &str {
    series.split('{').next().unwrap_or_default()
}

fn value_of<'a>(series: &'a str, label: &str) -> Option<&'a str> {
    labels(series)?.into_iter().find(|(name, _)| *name == label).map(|(_, value)| value)
}

/// Name and value of each label; none for what is no series. No value of the table has a comma or a quotation mark.
fn labels(series: &str) -> Option<Vec<(&str, &str)>> {
    let Some((_, inside)) = series.split_once('{') else { return Some(Vec::new()) };
    inside
        .strip_suffix('}')?
        .split(',')
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name, value.strip_prefix('"')?.strip_suffix('"')?))
        })
        .collect()
}
