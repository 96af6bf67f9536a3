//! Step 8, *deliver*: texts with variables, and what may stand in them.
//!
//! A text without `{{` and `{%` is taken as it is. Everything else is checked when its job is made: it may name variables,
//! pass them through a few filters, and hold simple conditions. Loops, calls and arithmetic are refused, a variable has at most
//! four filters, and JSON is made of it once: what a text costs to render grows with its length alone, whoever wrote it.
//! Errors name places, never what was found: texts are personal data.

mod grammar;

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, UndefinedBehavior, context, filters};
use std::collections::BTreeMap;
use std::io;

/// What a job says of its texts besides the texts: values by name.
pub type Vars = BTreeMap<String, String>;

/// The most variables of one job.
pub const MOST_VARS: usize = 20;
/// The longest value of one, in bytes.
pub const LONGEST_VAR_BYTES: usize = 500;
const LONGEST_NAME: usize = 32;
/// The longest JSON of one value, in bytes: no finished text may be longer.
const LONGEST_JSON_BYTES: usize = 16_384;

/// What a text can say of the run it is made for.
#[derive(Clone, PartialEq, Eq)]
pub struct Values<'a> {
    /// `run.id`.
    pub run_id: String,
    /// `run.scheduled_at`.
    pub scheduled_at: DateTime<Utc>,
    /// `run.due_at`.
    pub due_at: DateTime<Utc>,
    /// `run.attempt`; the first is 1.
    pub attempt: u32,
    /// `job.id`, without its tenant.
    pub job_id: &'a str,
    /// `job.name`; empty where the job has none.
    pub job_name: &'a str,
    /// `job.tenant`.
    pub tenant: &'a str,
    /// `local.date`, `local.time` and `local.weekday`: scheduled_at on the clock of the job's zone.
    pub local: NaiveDateTime,
    /// `vars.` and a name.
    pub vars: &'a Vars,
}

/// Whether a text holds variables or conditions.
pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// Checks the names and values that a job gives to its texts.
///
/// # Errors
/// Says what is allowed, never a value.
pub fn check_vars(vars: &Vars) -> Result<(), String> {
    if vars.len() > MOST_VARS {
        return Err(format!("there are {} variables: {MOST_VARS} are allowed", vars.len()));
    }
    let is_name = |name: &str| {
        name.len() <= LONGEST_NAME
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    if !vars.keys().all(|name| is_name(name)) {
        return Err(format!(
            "a variable's name is a small letter, and small letters, digits and `_` after it, at most {LONGEST_NAME} in all, such \
             as `amount`"
        ));
    }
    match vars.iter().find(|(_, value)| value.len() > LONGEST_VAR_BYTES) {
        Some((name, value)) => Err(format!(
            "variable `{name}` has {} bytes: {LONGEST_VAR_BYTES} are allowed; write long texts into the template",
            value.len()
        )),
        None => Ok(()),
    }
}

/// Checks a text: that it holds nothing but what is allowed, and that each variable it names is there.
///
/// # Errors
/// Names the place of the first tag that is wrong, and what to write instead.
pub fn check(text: &str, vars: &Vars) -> Result<(), String> {
    if is_template(text) { grammar::check(text, vars) } else { Ok(()) }
}

/// Puts the values into a text. What comes out has at most `longest_bytes` bytes.
///
/// # Errors
/// As [`check`], and when the text grows too long.
pub fn render(text: &str, values: &Values<'_>, longest_bytes: usize) -> Result<String, String> {
    let too_long = || format!("with its variables put in, the text has more than {longest_bytes} bytes");
    if !is_template(text) {
        return if text.len() <= longest_bytes { Ok(text.to_owned()) } else { Err(too_long()) };
    }
    grammar::check(text, values.vars)?;
    let environment = environment();
    let template = environment.template_from_str(text).map_err(|error| problem(&error))?;
    let mut out = Bounded { bytes: Vec::new(), longest: longest_bytes, is_full: false };
    let rendered = template.render_captured_to(values.context(), &mut out).map(|_| ());
    match rendered {
        _ if out.is_full => Err(too_long()),
        Err(error) => Err(problem(&error)),
        Ok(()) => String::from_utf8(out.bytes).map_err(|_| "the text is not UTF-8 when rendered".into()),
    }
}

/// What the engine says, without what it quotes.
fn problem(error: &minijinja::Error) -> String {
    format!("the text cannot be rendered: {}", error.kind())
}

fn environment<'a>() -> Environment<'a> {
    let mut environment = Environment::empty();
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("its delimiters are the usual ones"));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("upper", filters::upper);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("title", filters::title);
    environment.add_filter("capitalize", filters::capitalize);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("default", filters::default);
    environment.add_filter("tojson", to_json);
    environment
}

fn to_json(value: &Value) -> Result<String, minijinja::Error> {
    let unfit = || minijinja::Error::from(minijinja::ErrorKind::BadSerialization);
    let mut out = Bounded { bytes: Vec::new(), longest: LONGEST_JSON_BYTES, is_full: false };
    serde_json::to_writer(&mut out, value).map_err(|_| unfit())?;
    String::from_utf8(out.bytes).map_err(|_| unfit())
}

impl Values<'_> {
    fn context(&self) -> Value {
        let instant = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        context! {
            run => context! {
                id => self.run_id.as_str(), scheduled_at => instant(self.scheduled_at), due_at => instant(self.due_at),
                attempt => self.attempt,
            },
            job => context! { id => self.job_id, name => self.job_name, tenant => self.tenant },
            local => context! {
                date => self.local.format("%Y-%m-%d").to_string(), time => self.local.format("%H:%M").to_string(),
                weekday => self.local.format("%A").to_string(),
            },
            vars => self.vars,
        }
    }
}

/// Takes so many bytes, and fails at the first one more.
struct Bounded {
    bytes: Vec<u8>,
    longest: usize,
    is_full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.longest {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
