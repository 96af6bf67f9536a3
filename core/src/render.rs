//! Step 8, *deliver*: what a run's call carries, made of what its job says.

use crate::job::JobSpec;
use crate::message::Message;
use crate::payload::{LONGEST_PAYLOAD_BYTES, LONGEST_SUBJECT_BYTES, LONGEST_TEXT_BYTES, Payload};
use crate::retry::MOST_ATTEMPTS;
use crate::run::{RunId, RunKey};
use crate::template::{self, Values, Vars};
use crate::zone::Zones;
use chrono::DateTime;

/// The instant that a job's texts are tried with when it is made.
const SAMPLE_S: i64 = 1_796_441_400;
/// One on a Wednesday, which has the longest name.
const LONGEST_S: i64 = 1_796_787_000;
/// More replays of one run than anybody asks for.
const LAST_REPLAY: u32 = 999;

/// What attempt `attempt` of a message's run carries: texts with everything put in, checked as they will be sent.
///
/// # Errors
/// Why it can never be sent, without personal data.
pub fn render(spec: &JobSpec, message: &Message, attempt: u32, zones: &Zones) -> Result<Payload, String> {
    let values = Values {
        run_id: message.run_id().to_string(),
        scheduled_at: message.scheduled_at,
        due_at: message.due_at,
        attempt,
        local: zones.wall(spec.schedule.tz, message.scheduled_at),
        ..sample(spec)
    };
    finished(spec, &values)
}

/// Checks what a job says by putting an example's values in, and then the longest that each variable can have: what fits on a
/// Saturday must fit on a Wednesday. Which branches other values take is not tried.
///
/// # Errors
/// What is wrong, without personal data.
pub fn check(spec: &JobSpec) -> Result<(), String> {
    finished(spec, &sample(spec))?;
    let finished = finished(spec, &longest(spec));
    finished.map(|_| ()).map_err(|reason| format!("with the longest values that a run can have, {reason}"))
}

/// A job's payload as one of its runs would carry it, for whoever wants to know its size.
pub fn example(spec: &JobSpec) -> Option<Payload> {
    finished(spec, &sample(spec)).ok()
}

static NO_VARS: Vars = Vars::new();

fn sample(spec: &JobSpec) -> Values<'_> {
    let at = DateTime::from_timestamp(SAMPLE_S, 0).expect("it is in range");
    Values {
        run_id: format!("{}:{SAMPLE_S}", spec.key),
        scheduled_at: at,
        due_at: at,
        attempt: 1,
        job_id: spec.key.id(),
        job_name: spec.name.as_deref().unwrap_or_default(),
        tenant: spec.key.tenant(),
        local: at.naive_utc(),
        vars: spec.payload.vars().unwrap_or(&NO_VARS),
    }
}

/// A run by hand, replayed again and again, at its last attempt.
fn longest(spec: &JobSpec) -> Values<'_> {
    let at = DateTime::from_timestamp(LONGEST_S, 0).expect("it is in range");
    let run_key = RunKey::manual(at, &"f".repeat(40)).replay(LAST_REPLAY);
    Values {
        run_id: RunId { job_key: spec.key.clone(), run_key }.to_string(),
        scheduled_at: at,
        due_at: at,
        attempt: MOST_ATTEMPTS,
        local: at.naive_utc(),
        ..sample(spec)
    }
}

fn finished(spec: &JobSpec, values: &Values<'_>) -> Result<Payload, String> {
    let put_in = |text: &str, longest| template::render(text, values, longest);
    let payload = match &spec.payload {
        Payload::Sms { to, text, .. } => {
            Payload::Sms { to: to.clone(), text: put_in(text, LONGEST_TEXT_BYTES)?, vars: Vars::new() }
        }
        Payload::Email { to, subject, text, .. } => Payload::Email {
            to: to.clone(),
            subject: put_in(subject, LONGEST_SUBJECT_BYTES)?,
            text: put_in(text, LONGEST_PAYLOAD_BYTES)?,
            vars: Vars::new(),
        },
        Payload::Webhook { url, body, secret, .. } => Payload::Webhook {
            url: url.clone(),
            body: put_in(body, LONGEST_PAYLOAD_BYTES)?,
            vars: Vars::new(),
            secret: secret.clone(),
        },
        Payload::Queue { url, body, .. } => {
            Payload::Queue { url: url.clone(), body: put_in(body, LONGEST_PAYLOAD_BYTES)?, vars: Vars::new() }
        }
        Payload::Noop => Payload::Noop,
        Payload::Unread(_) => return Err("the payload was not read".into()),
    };
    payload.check_finished()?;
    Ok(payload)
}

#[cfg(test)]
mod tests;
