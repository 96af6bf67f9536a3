//! Zone rules in a directory of TZif files, as systems have them.

use super::{TzVersion, ZoneDataError};
use chrono_tz::TZ_VARIANTS;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// Where systems keep their zone rules.
const SYSTEM_DIRS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/lib/zoneinfo", "/usr/share/lib/zoneinfo"];

/// The system's directory and version; none when there is no directory, or it does not say which version it has.
pub(super) fn system() -> Option<(PathBuf, TzVersion)> {
    SYSTEM_DIRS.iter().find_map(|dir| Some((PathBuf::from(dir), version_of(Path::new(dir))?)))
}

/// The version that a directory states: in the first line of `tzdata.zi`, or in `+VERSION`.
pub(super) fn version_of(dir: &Path) -> Option<TzVersion> {
    let mut first = String::new();
    if let Ok(file) = fs::File::open(dir.join("tzdata.zi")) {
        // What cannot be read says nothing.
        let _ = BufReader::new(file).read_line(&mut first);
    }
    let stated = match first.strip_prefix("# version ") {
        Some(version) => version.to_owned(),
        None => fs::read_to_string(dir.join("+VERSION")).ok()?,
    };
    Some(TzVersion::new(&stated))
}

/// Reads every zone that a directory has.
pub(super) fn read_all(dir: &Path) -> Result<HashMap<&'static str, tz::TimeZone>, ZoneDataError> {
    let mut zones = HashMap::new();
    for tz in TZ_VARIANTS {
        let path = dir.join(tz.name());
        let data = match fs::read(&path) {
            Ok(data) => data,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(ZoneDataError(format!("{} cannot be read: {error}", path.display()))),
        };
        let zone = tz::TimeZone::from_tz_data(&data)
            .map_err(|error| ZoneDataError(format!("{} is no zone in TZif format: {error}", path.display())))?;
        zones.insert(tz.name(), zone);
    }
    if zones.is_empty() {
        return Err(ZoneDataError(format!(
            "{} has no time zones: name a directory of TZif files, such as /usr/share/zoneinfo",
            dir.display()
        )));
    }
    Ok(zones)
}
