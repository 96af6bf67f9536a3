use super::init_logs;
use std::fs::File;
use std::process::{Command, Stdio};

const CHILD: &str = "PUNCTUAL_TEST_LOGS";

/// Logs in a process of its own, whose standard error is this; what it prints then.
fn goes_on_with(standard_error: Stdio) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "process::tests::a_log_that_cannot_be_written_stops_nothing", "--nocapture"]);
    child.env(CHILD, "1").env_remove("PUNCTUAL_LOG").stdin(Stdio::null()).stderr(standard_error);
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    if std::env::var_os(CHILD).is_some() {
        init_logs("info");
        // More than a pipe holds.
        for n in 0..20_000 {
            tracing::error!(n, "nobody sees this");
        }
        println!("it goes on");
        return;
    }
    let full_disk = File::options().write(true).open("/dev/full").unwrap();
    assert!(goes_on_with(full_disk.into()).contains("it goes on"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(goes_on_with(writer.into()).contains("it goes on"));
    let (_stalled_reader, writer) = std::io::pipe().unwrap();
    assert!(goes_on_with(writer.into()).contains("it goes on"));
}
