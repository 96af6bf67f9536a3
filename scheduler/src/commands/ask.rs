//! How commands ask the API, and what they say when it refuses.

use super::{CommandError, bad, failed, layout_of, open, user};
use crate::api::LARGEST_PAGE;
use crate::cli::ApiAccess;
use crate::client::{Ask, Client, ClientError, OnStore};
use crate::listing::list;
use chrono::{DateTime, Utc};
use indicatif::{ProgressBar, ProgressStyle};
use punctual_core::address::AllowList;
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::zone::{Tz, Zones, parse_name};
use serde_json::Value;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

/// What asking needs.
pub(super) struct Asker {
    names: Names,
    access: ApiAccess,
    pub(super) zones: Arc<Zones>,
}

impl Asker {
    pub(super) fn new(names: Names, access: ApiAccess, zones: Zones) -> Self {
        Asker { names, access, zones: Arc::new(zones) }
    }

    /// Whether the API is asked over a network, with a key.
    pub(super) fn is_far(&self) -> bool {
        address(&self.access).is_some()
    }

    /// The API that the settings name.
    pub(super) async fn client(&self) -> Result<Client, CommandError> {
        self.client_allowing("").await
    }

    /// The same; on the store, jobs may name these hosts whatever their addresses are.
    pub(super) async fn client_allowing(&self, allowed: &str) -> Result<Client, CommandError> {
        if let Some(url) = address(&self.access) {
            return Client::over_http(url, &key(&self.access)?).map_err(asked);
        }
        let allowed: AllowList = allowed.parse().map_err(|e| bad(format!("PUNCTUAL_WEBHOOK_ALLOW: {e}")))?;
        let aws = open(self.names.clone()).await?;
        let ports = aws.ports();
        // Its answer sets the clock, and says whether there is anything to ask.
        layout_of(&ports).await?;
        Ok(Client::on_store(OnStore::new(ports, aws.clock.clone(), self.zones.clone(), allowed, &user())))
    }
}

/// Where the API is, if it is far.
pub(super) fn address(access: &ApiAccess) -> Option<&str> {
    access.api_url.as_deref().filter(|url| !url.is_empty())
}

fn key(access: &ApiAccess) -> Result<String, CommandError> {
    if let Some(path) = &access.api_key_file {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| bad(format!("--api-key-file: {} cannot be read: {e}", path.display())))?;
        return Ok(text.trim().to_owned());
    }
    let key = std::env::var("PUNCTUAL_API_KEY").unwrap_or_default();
    if key.trim().is_empty() {
        return Err(bad("the API needs a key: put it into PUNCTUAL_API_KEY, or into a file named by --api-key-file"));
    }
    Ok(key)
}

/// The time by the client, or by this host where there is none: for what is wrong whatever the time.
pub(super) fn now(client: &Result<Client, CommandError>) -> DateTime<Utc> {
    client.as_ref().map_or_else(|_| SystemClock::new().now(), Client::now)
}

/// What to say of a request that came to nothing.
pub(super) fn asked(error: ClientError) -> CommandError {
    let text = error.text(option_of);
    if error.is_input() { bad(text) } else { failed(text) }
}

/// The option that says what the API calls so; an empty one for what options say together.
pub(super) fn option_of(pointer: &str) -> Option<&'static str> {
    Some(match pointer {
        "/id" => "--id",
        "/name" => "--name",
        "/priority" => "--priority",
        "/schedule" | "/schedule/cron" | "/schedule/every" | "/schedule/from" | "/schedule/at" => "--schedule",
        "/schedule/tz" => "--tz",
        "/schedule/dst_gap" => "--dst-gap",
        "/schedule/dst_repeat" => "--dst-repeat",
        "/schedule/start_at" => "--start-at",
        "/schedule/end_at" => "--end-at",
        "/schedule/max_runs" => "--max-runs",
        "/schedule/hash_key" | "/spread/key" => "--spread-key",
        "/spread" | "/spread/window_s" => "--spread",
        "/missed" | "/missed/start_within_s" => "--start-within",
        "/missed/many" => "--missed",
        "/missed/until_local" => "--until-local",
        "/retry" | "/retry/max_attempts" => "--max-attempts",
        "/retry/base_s" => "--retry-base",
        "/retry/cap_s" => "--retry-cap",
        "/retry/waits_s" => "--retry-waits",
        "/payload/to" => "--to",
        "/payload/subject" => "--subject",
        "/payload/text" => "--text",

        "/payload/body" => "--body",
        "/payload/secret" => "--secret-file",
        "/payload/vars" => "--var",
        "/why" => "--why",
        "punctual-tenant" => "--tenant",
        "if-match" => "--if-version",
        "idempotency-key" => "--idempotency-key",
        "prefix" => "--prefix",
        "/payload" | "/payload/url" => "",
        _ => return None,
    })
}

/// A listing, page by page.
pub(super) struct Pages<'a> {
    client: &'a Client,
    ask: Ask,
    cursor: Option<String>,
    has_ended: bool,
}

impl<'a> Pages<'a> {
    pub(super) fn of(client: &'a Client, ask: Ask) -> Self {
        Pages { client, ask, cursor: None, has_ended: false }
    }

    /// The next entries, at most so many; none at the end.
    pub(super) async fn next(&mut self, most: usize) -> Result<Option<Vec<Value>>, CommandError> {
        if self.has_ended {
            return Ok(None);
        }
        let mut ask = self.ask.clone().query("limit", most.clamp(1, LARGEST_PAGE));
        if let Some(cursor) = &self.cursor {
            ask = ask.query("cursor", cursor);
        }
        let page = self.client.request(&ask).await.map_err(asked)?.json;
        self.cursor = page["next_cursor"].as_str().map(str::to_owned);
        self.has_ended = self.cursor.is_none();
        Ok(Some(list(&page, "items").to_vec()))
    }

    /// All entries up to a limit, and whether there are more.
    pub(super) async fn up_to(mut self, most: usize) -> Result<(Vec<Value>, bool), CommandError> {
        let mut items = Vec::new();
        // One more shows whether there are more.
        while items.len() <= most
            && let Some(page) = self.next(most + 1 - items.len()).await?
        {
            items.extend(page);
        }
        let more = items.len() > most;
        items.truncate(most);
        Ok((items, more))
    }
}

/// When a job is due next, by UTC and on its own clock.
pub(super) fn due_next(job: &Value, zones: &Zones) -> Option<String> {
    let due = job["next_due_at"].as_str()?;
    let tz = job["schedule"]["tz"].as_str().and_then(|name| parse_name(name).ok()).unwrap_or(Tz::UTC);
    let at = due.parse::<DateTime<Utc>>().ok().filter(|_| tz != Tz::UTC);
    let local = at.map(|at| format!(", {} in {tz}", zones.wall(tz, at))).unwrap_or_default();
    Some(format!("{due}{local}"))
}

/// A bar that counts on a terminal, and is nowhere else.
pub(super) fn progress(whole: Option<u64>, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match whole {
        Some(whole) => (ProgressBar::new(whole), "{msg} {wide_bar} {human_pos}/{human_len} ({per_sec}, {eta} left)"),
        None => (ProgressBar::new_spinner(), "{msg} {human_pos} ({per_sec})"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = bar.with_style(style).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;

    #[test]
    fn every_field_of_a_document_that_options_say_has_its_option() {
        for field in document::FIELDS.iter().filter(|field| **field != "payload") {
            assert!(option_of(&format!("/{field}")).is_some_and(|option| option.starts_with("--")), "{field}");
        }
        assert_eq!(option_of("/payload"), Some(""));
        assert_eq!(option_of("/something"), None);
    }
}
