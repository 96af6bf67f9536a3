//! The ids of jobs that come from crontabs.
//!
//! Decides what of a command stands in an id, which logs and errors show: names of programs, never their arguments.

use sha2::{Digest, Sha256};
use std::path::Path;

/// The longest name of a command within an id, and of a file within a prefix.
const LONGEST_NAME: usize = 40;

/// Programs whose first word behind them is another program.
const INTERPRETERS: [&str; 10] = ["sh", "bash", "dash", "ksh", "zsh", "php", "python", "perl", "ruby", "node"];

/// What ids of a file's jobs begin with, by the file's name: `cron/backup/` for `/etc/backup.crontab`.
pub fn default_prefix(file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    match plain(&stem) {
        stem if stem.is_empty() => "cron/".into(),
        stem => format!("cron/{stem}/"),
    }
}

/// What names a command of a user: the same whatever its schedule is.
pub(super) fn name(user: Option<&str>, command: &str) -> String {
    let digest =
        Sha256::new().chain_update(user.unwrap_or_default()).chain_update([0]).chain_update(command).finalize();
    let hex: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{hex}", slug(command))
}

/// The program, and the script that it runs.
fn slug(command: &str) -> String {
    let is_assignment = |word: &&str| word.contains('=');
    let mut words = command.split_whitespace().skip_while(is_assignment);
    let program = words.next().map(basename).unwrap_or_default();
    let runs_scripts =
        INTERPRETERS.iter().any(|name| program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') == *name);
    let is_script = |word: &&str| runs_scripts && !word.starts_with('-');
    let script = words.next().filter(is_script).map(basename).unwrap_or_default();
    let slug = plain(&format!("{program}-{script}"));
    if slug.is_empty() { "command".into() } else { slug }
}

fn basename(word: &str) -> &str {
    word.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Letters, digits, `-` and `_`, at most forty; one `-` for all else, and none at the ends.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            _ if c.is_ascii_alphanumeric() || c == '_' => plain.push(c),
            _ if plain.is_empty() || plain.ends_with('-') => {}
            _ => plain.push('-'),
        }
    }
    plain.truncate(LONGEST_NAME);
    plain.truncate(plain.trim_end_matches('-').len());
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_the_program_and_never_its_arguments() {
        for (command, expected) in [
            ("/usr/local/bin/backup.sh --full", "backup-sh"),
            ("php /var/www/app/artisan schedule:run", "php-artisan"),
            ("run-parts --report /etc/cron.daily", "run-parts"),
            ("cd / && run-parts /etc/cron.daily", "cd"),
            ("RAILS_ENV=production TOKEN=a/b bin/rails runner", "rails"),
            ("curl https://user:hunter2@example.com/hunter2", "curl"),
            ("mysql hunter2", "mysql"),
            ("/usr/bin/python3.11 /opt/report.py", "python3-11-report-py"),
            ("sh -c 'echo hunter2'", "sh"),
            ("tar /home/hunter2", "tar"),
            ("[ -x /usr/lib/php/sessionclean ] && /usr/lib/php/sessionclean", "command"),
            ("日本 x", "command"),
            ("A=b", "command"),
        ] {
            assert_eq!(slug(command), expected, "{command}");
        }
        assert_eq!(slug(&"x".repeat(99)).len(), 40);
    }

    #[test]
    fn a_name_tells_users_and_commands_apart_and_never_changes() {
        // Worked out by another implementation (sha256sum).
        assert_eq!(name(Some("root"), "/bin/x -a"), "x-8f0c3ded");
        assert_eq!(name(None, "/bin/x -a"), "x-d9a07095");
        assert_ne!(name(Some("root"), "x"), name(Some("ro"), "otx"));
    }

    #[test]
    fn a_prefix_is_made_of_the_name_of_the_file() {
        for (file, expected) in [
            ("/etc/backup.crontab", "cron/backup/"),
            ("/etc/crontab", "cron/crontab/"),
            ("my jobs (old).txt", "cron/my-jobs-old/"),
            ("-", "cron/"),
            ("日本", "cron/"),
        ] {
            assert_eq!(default_prefix(Path::new(file)), expected);
        }
    }
}
