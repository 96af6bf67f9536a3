//! The operator's commands as they are started, over both ways to the API: by HTTP with a key, and within the command on the
//! store.

mod incidents;
mod retries;

use anyhow::{Context, ensure};
use punctual_core::ports::JobsUnder;
use punctual_localstack::gateway::GatewayConfig;
use punctual_localstack::multicall::SCHEDULER;
use punctual_tests::local::{Local, Process, eventually};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::time::Duration;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
/// Jobs of the import that is cut off; more by this variable.
const IMPORT_JOBS: &str = "PUNCTUAL_TEST_IMPORT_JOBS";
const SMS: &str = r#""payload": {"handler": "sms", "to": "+447700900123", "text": "Due"}"#;

/// A local stack, an API on it, and a folder for files.
struct Town {
    local: Local,
    api: Process,
    url: String,
    folder: TempDir,
}

type Settings<'a> = Vec<(&'static str, &'a str)>;

impl Town {
    async fn start() -> anyhow::Result<Self> {
        Self::with(GatewayConfig::default()).await
    }

    async fn with(gateway: GatewayConfig) -> anyhow::Result<Self> {
        let local = Local::start(PROGRAM, gateway, &[("USER", "ann")]).await?;
        local.punctual(&["setup"]).await?;
        let (api, url) = local.start_api("api", &[]).await?;
        Ok(Town { local, api, url, folder: tempfile::tempdir()? })
    }

    async fn key(&self, tenant: &str, role: &str) -> anyhow::Result<String> {
        let made = self.local.punctual(&["keys", "add", "--tenant", tenant, "--role", role, "--label", "test"]).await?;
        Ok(made.trim().to_owned())
    }

    fn far<'a>(&'a self, key: &'a str) -> Settings<'a> {
        vec![("PUNCTUAL_API_URL", self.url.as_str()), ("PUNCTUAL_API_KEY", key)]
    }

    async fn run(&self, settings: &[(&'static str, &str)], words: &str) -> anyhow::Result<Output> {
        let words: Vec<&str> = words.split(' ').collect();
        self.local.run_with(settings, &words).await
    }

    /// Runs a command that must end with this code; returns what it says on both ways.
    async fn ends(&self, settings: &[(&'static str, &str)], code: i32, words: &str) -> anyhow::Result<String> {
        let output = self.run(settings, words).await?;
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        ensure!(output.status.code() == Some(code), "`{words}` ended with {:?}: {said}", output.status.code());
        Ok(said)
    }

    async fn json(&self, settings: &[(&'static str, &str)], words: &str) -> anyhow::Result<Value> {
        let output = self.run(settings, words).await?;
        let json = serde_json::from_slice(&output.stdout);
        json.with_context(|| format!("`{words}`: {}{}", text(&output.stdout), text(&output.stderr)))
    }

    fn file(&self, name: &str, content: &str) -> anyhow::Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content)?;
        Ok(path.display().to_string())
    }

    async fn stop(self) -> anyhow::Result<()> {
        assert_eq!(self.api.errors(), [""; 0]);
        self.api.stop().await?;
        self.local.stack.stop().await;
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(path: &Path) -> anyhow::Result<usize> {
    Ok(std::fs::read_to_string(path)?.lines().count())
}

/// One after the other, all words that work on a job.
async fn a_life(town: &Town, settings: &[(&'static str, &str)], id: &str) -> anyhow::Result<()> {
    let on = |words: &str| format!("jobs {words} --tenant bank");
    let payload = ["--to", "+447700900123", "--text", "Due", "--schedule", "cron H 9 * * *", "--tz", "Asia/Kolkata"];
    let add = [&["jobs", "add", "--tenant", "bank", "--id", id], &payload[..]].concat();
    for expected in ["made (cron ", "is there already, the same"] {
        let added = town.local.run_with(settings, &add).await?;
        ensure!(text(&added.stdout).contains(expected), "{}{}", text(&added.stdout), text(&added.stderr));
    }
    let other = [&add[..add.len() - 1], &["Asia/Tokyo"]].concat();
    let different = town.local.run_with(settings, &other).await?;
    ensure!(different.status.code() == Some(1) && text(&different.stderr).contains("another content"));
    let shown = town.json(settings, &on(&format!("show {id} --json"))).await?;
    ensure!(shown["payload"]["to"] == "+447700900123" && shown["version"] == 1, "{shown}");
    let table = town.ends(settings, 0, &on(&format!("show {id}"))).await?;
    ensure!(table.contains(&format!("bank/{id}")) && !table.contains("7700"), "{table}");
    ensure!(town.ends(settings, 0, &on(&format!("show {id} --payload"))).await?.contains("+447700900123"));

    let edited = town.ends(settings, 0, &on(&format!("edit {id} --spread 30m --priority bulk"))).await?;
    ensure!(edited.contains("changed: active, version 2, its next run is due at "), "{edited}");
    let again = town.ends(settings, 0, &on(&format!("edit {id} --priority bulk"))).await?;
    ensure!(again.contains("is as asked already: active, version 2"), "{again}");
    let conflict = town.ends(settings, 1, &on(&format!("edit {id} --name x --if-version 1"))).await?;
    ensure!(conflict.contains("has version 2 by now"), "{conflict}");
    let refused = town.ends(settings, 2, &on(&format!("edit {id} --priority urgent"))).await?;
    ensure!(refused.contains("--spread: urgent jobs are never spread"), "{refused}");

    let run = on(&format!("run {id} --idempotency-key k-{id}"));
    ensure!(town.ends(settings, 0, &run).await? == town.ends(settings, 0, &run).await?);
    ensure!(town.ends(settings, 0, &on(&format!("pause {id}"))).await?.contains("changed: paused"));
    ensure!(town.ends(settings, 0, &on(&format!("pause {id}"))).await?.contains("is as asked already: paused"));
    ensure!(town.ends(settings, 1, &on(&format!("run {id}"))).await?.contains("resume it first"));
    ensure!(town.ends(settings, 0, &on(&format!("resume {id}"))).await?.contains("changed: active"));
    let listed = town.json(settings, &on(&format!("list --prefix {id} --state active --json"))).await?;
    ensure!(listed["id"] == *id && listed["schedule"]["tz"] == "Asia/Kolkata", "{listed}");
    let changes = town.ends(settings, 0, &on(&format!("changes {id}"))).await?;
    ensure!(changes.contains("priority, spread") && changes.contains("state"), "{changes}");
    ensure!(town.ends(settings, 0, &format!("runs list {id} --tenant bank")).await?.contains("attempts"));
    let no_run = town.ends(settings, 1, &format!("runs show {id} 1791171000 --tenant bank")).await?;
    ensure!(no_run.contains("there is no run"), "{no_run}");
    let deleted = town.ends(settings, 0, &on(&format!("delete {id}"))).await?;
    ensure!(deleted.contains("erased"), "{deleted}");
    ensure!(town.ends(settings, 1, &on(&format!("show {id}"))).await?.contains("there is no job"));
    Ok(())
}

async fn both_ways() -> anyhow::Result<()> {
    let town = Town::start().await?;
    let operator = town.key("*", "operate").await?;
    let (near, far) = (Settings::new(), town.far(&operator));
    for (settings, id) in [(&near, "near/bill"), (&far, "far/bill")] {
        a_life(&town, settings, id).await.with_context(|| id.to_owned())?;
        for (words, expected) in [
            ("hold tenant bank --why rehearsal", "tenant bank is held: within 5 s"),
            ("hold tenant bank --why rehearsal", "tenant bank is held already"),
            ("hold list", "rehearsal"),
            ("release tenant bank", "nothing is held any more"),
            ("release tenant bank", "tenant bank was not held"),
            ("rates set webhook/hooks.example.com 20", "20 calls a second, within 10 s"),
            ("rates set webhook/hooks.example.com 20", "20 calls a second, already"),
            ("rates unset webhook/hooks.example.com", "no limit, within 10 s"),
            ("status", "0023"),
        ] {
            let said = town.ends(settings, 0, words).await?;
            ensure!(said.contains(expected), "{words}: {said}");
        }
    }
    town.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_do_the_same_over_http_and_on_the_store() {
    both_ways().await.expect("everything comes to its end");
}

async fn exit_codes() -> anyhow::Result<()> {
    let town = Town::start().await?;
    let (bank, reader) = (town.key("bank", "write").await?, town.key("bank", "read").await?);
    let (far, looks) = (town.far(&bank), town.far(&reader));
    let job = town
        .file("job.ndjson", &format!("{{\"id\": \"c-1/bill\", \"schedule\": {{\"cron\": \"0 9 * * *\"}}, {SMS}}}\n"))?;
    // A key of one tenant needs no name of it, but an import chooses by it.
    ensure!(town.ends(&far, 2, &format!("jobs import {job}")).await?.contains("--tenant"));
    ensure!(town.ends(&far, 0, &format!("jobs import {job} --tenant bank")).await?.contains("1 jobs made"));
    ensure!(town.ends(&far, 0, "jobs list").await?.contains("c-1/bill"));
    for (settings, code, words, expected) in [
        (&far, 1, "jobs show c-2/bill", "there is no job c-2/bill"),
        (&far, 1, "jobs list --tenant other", "this key is for the tenant bank"),
        (&far, 1, "status", "concerns all tenants"),
        (&looks, 1, "jobs pause c-1/bill", "needs the role write"),
        (&looks, 0, "jobs show c-1/bill", "bank/c-1/bill"),
        (&town.far("punctual_wrong"), 1, "jobs list", "unknown or revoked"),
        (&vec![("PUNCTUAL_API_URL", town.url.as_str())], 2, "jobs list", "PUNCTUAL_API_KEY"),
        (&vec![("PUNCTUAL_API_URL", "nowhere"), ("PUNCTUAL_API_KEY", "x")], 2, "jobs list", "PUNCTUAL_API_URL"),
        (&far, 2, "jobs add --id c-3/bill --noop --schedule soon", "--schedule"),
        (&far, 2, "jobs list --prefix /x", "--prefix"),
        (&far, 2, "jobs delete c-1/", "one job"),
        (&far, 0, "doctor", "ready"),
    ] {
        let said = town.ends(settings, code, words).await?;
        ensure!(said.contains(expected), "{words}: {said}");
    }
    let key_file = town.file("key", &format!("{bank}\n"))?;
    let by_file = vec![("PUNCTUAL_API_URL", town.url.as_str())];
    ensure!(town.ends(&by_file, 0, &format!("jobs list --api-key-file {key_file}")).await?.contains("c-1/bill"));
    for shell in ["bash", "zsh", "fish"] {
        ensure!(town.ends(&by_file, 0, &format!("completions {shell}")).await?.contains("import"));
    }
    town.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_ends_with_a_code_that_says_whose_fault_it_is() {
    exit_codes().await.expect("everything comes to its end");
}

/// Lines of JSON of so many jobs of a customer.
fn ndjson(customer: &str, jobs: usize) -> String {
    let line = |n| format!("{{\"id\": \"{customer}/{n}\", \"schedule\": {{\"every\": \"24h\"}}, {SMS}}}\n");
    (0..jobs).map(line).collect()
}

async fn prefixes() -> anyhow::Result<()> {
    let town = Town::start().await?;
    let operator = town.key("*", "operate").await?;
    for (settings, customer) in [(Settings::new(), "near"), (town.far(&operator), "far")] {
        let file = town.file("jobs.ndjson", &(ndjson(customer, 30) + &ndjson(&format!("{customer}-too"), 2)))?;
        let on = |words: &str| format!("jobs {words} {customer}/ --tenant bank");
        town.ends(&settings, 0, &format!("jobs import {file} --tenant bank")).await?;
        town.ends(&settings, 0, &format!("jobs pause {customer}/7 --tenant bank")).await?;
        let run = town.ends(&settings, 3, &on("run")).await?;
        ensure!(run.contains("29 in their queues, 0 as asked already, 1 refused") && run.contains("resume"), "{run}");
        let paused = town.ends(&settings, 0, &on("pause")).await?;
        ensure!(paused.contains(&format!("under {customer}/: 29 changed, 1 as asked already, 0 refused")), "{paused}");
        ensure!(town.ends(&settings, 0, &on("resume")).await?.contains("30 changed"));
        let cancelled = town.json(&settings, &format!("{} --json", on("cancel"))).await?;
        ensure!(cancelled["changed"] == 30 && cancelled["refused"] == 0, "{cancelled}");
        let left = town.ends(&settings, 0, "jobs list --tenant bank --state active").await?;
        ensure!(left.contains(&format!("{customer}-too/1")) && !left.contains(&format!("{customer}/")), "{left}");
        let again = town.ends(&settings, 0, &format!("jobs import {file} --tenant bank")).await?;
        ensure!(again.contains("0 jobs made, 2 there already, 0 changed, 30 cancelled before and left so"), "{again}");
    }
    town.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_jobs_under_a_prefix_are_changed_by_one_command_and_counted() {
    prefixes().await.expect("everything comes to its end");
}

const CRONTAB: &str = "\
MAILTO=ops@example.com
*/5 * * * * /opt/probe
0 9 * * 1-5 /opt/bill --all
@reboot /opt/start
0 25 * * * /opt/late
";

async fn files() -> anyhow::Result<()> {
    let town = Town::start().await?;
    let operator = town.key("*", "operate").await?;
    let settings = town.far(&operator);
    let header = "customer,phone,kind,priority,schedule,template";
    let row = |n: usize, text: &str| format!("c-{n},+447700900123,bill,normal,cron 0 9 * * *,{text}\n");
    let rows: String = (0..40).map(|n| row(n, "Due")).collect();
    let csv = town.file("jobs.csv", &format!("{header}\n{rows}"))?;

    let look = town.ends(&settings, 0, &format!("jobs import {csv} --tenant bank --dry-run")).await?;
    for expected in
        ["40 jobs, 0 of them as they are", "40 new", "and 20 more", "09:00", "write units", "nothing was changed"]
    {
        ensure!(look.contains(expected), "{expected}: {look}");
    }
    ensure!(!look.contains("7700"), "{look}");
    ensure!(!town.ends(&settings, 0, "jobs list --tenant bank").await?.contains("c-1/bill"));
    let done = town.ends(&settings, 0, &format!("jobs import {csv} --tenant bank")).await?;
    ensure!(done.contains("40 jobs made, 0 there already, 0 changed"), "{done}");
    let spread = town.ends(&settings, 0, &format!("jobs import {csv} --tenant bank --spread-over 30m")).await?;
    ensure!(spread.contains("0 jobs made, 0 there already, 40 changed"), "{spread}");
    let wrong =
        town.file("wrong.csv", &format!("{header}\n{}c-x,0770,bill,normal,cron 0 9 * * *,Due\n", row(50, "Due")))?;
    let refused = town.ends(&settings, 2, &format!("jobs import {wrong} --tenant bank")).await?;
    ensure!(refused.contains("line 3, column phone") && !refused.contains("0770"), "{refused}");
    let skipped = town.ends(&settings, 3, &format!("jobs import {wrong} --tenant bank --skip-refused")).await?;
    ensure!(skipped.contains("1 jobs made") && skipped.contains("1 line was refused"), "{skipped}");

    // Beside what the file brings, what is there: 41 jobs at nine, of which the file names 40.
    let look = format!("jobs import {csv} --tenant bank --dry-run");
    let alone = town.ends(&settings, 0, &look).await?;
    ensure!(alone.contains("40 jobs; 40 runs fall due"), "{alone}");
    let beside = town.ends(&settings, 0, &format!("{look} --with-stored")).await?;
    ensure!(beside.contains("40 jobs and 1 that are there; 41 runs fall due"), "{beside}");

    // What was written is what is there; what is left out of the file is gone.
    let all = town.folder.path().join("all.ndjson");
    let export = format!("jobs export --tenant bank --output {}", all.display());
    ensure!(town.ends(&settings, 0, &export).await?.contains("41 jobs written"));
    let again = town.ends(&settings, 0, &format!("jobs import {} --tenant bank", all.display())).await?;
    ensure!(again.contains("0 jobs made, 41 there already, 0 changed"), "{again}");
    let one = format!("{{\"id\": \"g/kept\", \"schedule\": {{\"every\": \"24h\"}}, {SMS}}}\n");
    let (both, kept) =
        (town.file("both.ndjson", &(one.replace("kept", "gone") + &one))?, town.file("kept.ndjson", &one)?);
    town.ends(&settings, 0, &format!("jobs import {both} --tenant bank")).await?;
    let look = town.ends(&settings, 0, &format!("jobs import {kept} --tenant bank --gone-under g/ --dry-run")).await?;
    ensure!(look.contains("1 not in the file any more\n  g/gone"), "{look}");
    let cancelled =
        town.ends(&settings, 0, &format!("jobs import {kept} --tenant bank --gone-under g/ --cancel-gone")).await?;
    ensure!(cancelled.contains("1 not in the file any more and cancelled"), "{cancelled}");
    ensure!(town.ends(&settings, 0, "jobs show --tenant bank g/gone").await?.contains("cancelled"));

    let crontab = town.file("ops.crontab", CRONTAB)?;
    let import = format!("jobs import {crontab} --tenant bank --tz Europe/Berlin --map *=>noop");
    let taken = town.ends(&settings, 3, &import).await?;
    for expected in ["2 jobs made", "line 4", "line 5", "MAILTO in line 1", "2 lines were refused"] {
        ensure!(taken.contains(expected), "{expected}: {taken}");
    }
    let listed = town.ends(&settings, 0, "jobs list --tenant bank --prefix cron/ops/").await?;
    ensure!(listed.contains("Europe/Berlin") && listed.contains("cron/ops/bill-"), "{listed}");
    let fewer = town.file("ops.crontab", "*/5 * * * * /opt/probe\n")?;
    let fewer = format!("jobs import {fewer} --tenant bank --tz Europe/Berlin --map *=>noop --cancel-gone");
    let gone = town.ends(&settings, 0, &fewer).await?;
    ensure!(
        gone.contains("0 jobs made, 1 there already, 0 changed, 1 not in the file any more and cancelled"),
        "{gone}"
    );
    ensure!(
        town.ends(&settings, 2, &format!("jobs import {csv} --tenant bank --map *=>noop")).await?.contains("--map")
    );
    town.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_each_kind_are_looked_through_and_imported() {
    files().await.expect("everything comes to its end");
}

async fn cut_off() -> anyhow::Result<()> {
    let jobs: usize = std::env::var(IMPORT_JOBS).ok().map_or(Ok(3_000), |jobs| jobs.parse())?;
    let town = Town::start().await?;
    let (near, file) = (Settings::new(), town.file("jobs.ndjson", &ndjson("c", jobs))?);
    let import = ["jobs", "import", &file];
    let process = town.local.start_process("import", SCHEDULER, &import)?;
    let is_any_there = async || {
        let of = JobsUnder::tenant("default");
        let mut page = town.local.ports.jobs.list(&of, None, 1).await?;
        while page.jobs.is_empty()
            && let Some(next) = page.next.take()
        {
            page = town.local.ports.jobs.list(&of, Some(next), 1).await?;
        }
        Ok(!page.jobs.is_empty())
    };
    eventually("the first jobs are made", PATIENCE * 5, is_any_there).await?;
    process.kill().await?;
    let exported = town.folder.path().join("out.ndjson");
    let export = format!("jobs export --output {}", exported.display());
    town.ends(&near, 0, &export).await?;
    let before = lines(&exported)?;
    ensure!(0 < before && before < jobs, "{before} of {jobs} jobs are made: the import was not cut off under way");
    let again = town.ends(&near, 0, &format!("jobs import {file}")).await?;
    ensure!(again.contains(&format!("{} jobs made, {before} there already, 0 changed", jobs - before)), "{again}");
    town.ends(&near, 0, &export).await?;
    ensure!(lines(&exported)? == jobs);
    town.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_was_killed_is_repeated_and_makes_each_job_once() {
    cut_off().await.expect("everything comes to its end");
}
