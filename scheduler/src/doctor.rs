//! `punctual doctor`: what this program works with on this machine.

use crate::listing::table;
use punctual_core::zone::{ZoneSource, Zones, embedded_version};

/// What is in use, as a table.
pub fn report(zones: &Zones) -> String {
    let mut table = table(&["what", "found"]);
    let mut say = |what: &str, found: String| {
        table.add_row([what.to_owned(), found]);
    };
    say("punctual", env!("CARGO_PKG_VERSION").into());
    say("zone rules in use", format!("{} ({})", zones.version(), zones.source()));
    say("zone rules embedded", embedded_version().to_string());
    let system = zones.system().map(|(dir, version)| format!("{version} ({})", dir.display()));
    say("zone rules of the system", system.unwrap_or_else(|| "none that say their version".into()));
    if zones.filled_in() > 0 {
        say("filled in", format!("{} zones that the directory has not are the embedded ones", zones.filled_in()));
    }
    if matches!(zones.source(), ZoneSource::Embedded) {
        say("to use others", "set PUNCTUAL_TZDIR to a directory of TZif files".into());
    }
    table.to_string()
}
