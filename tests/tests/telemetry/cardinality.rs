//! There are as many series with 10,000 tenants and 200 hosts of webhooks as with ten and two.

use punctual_core::due::Shards;
use punctual_core::job::JobKey;
use punctual_core::memory::{Script, World};
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::Outcome;
use punctual_core::run::RunStatus;
use punctual_core::telemetry::rules::{recorder, text::Text};
use punctual_core::telemetry::table;
use punctual_core::template::Vars;
use punctual_core::turns::SlotCounts;
use punctual_tests::{Town, reminder};
use std::collections::BTreeSet;

const JOBS_OF_A_FEW: usize = 240;
const SHARDS: Shards = Shards { urgent: 1, standard: 1 };
/// 8 s after the start of time.
const DUE: &str = "at 2026-10-05T03:13:28Z";
/// Of these runs the host gives up; it fails often enough that its circuit opens.
const GIVEN_UP: usize = 12;
/// What a name of a tenant, a job, a host or a phone has in it, and nothing else.
const NAMES: [&str; 4] = ["acme-", "/bill-", "hook-", "4477009"];

fn ended(world: &World, status: RunStatus) -> usize {
    world.rows().values().filter(|row| row.status == status).count()
}

/// What one process tells that dispatches one run of each job and works on it: by turns a text message and a webhook, some
/// of which fail.
async fn told_with(jobs: usize, tenants: usize, hosts: usize) -> String {
    let (recorder, render) = recorder();
    let _heard = metrics::set_default_local_recorder(&recorder);
    let mut town = Town::new(SHARDS).await;
    (town.work.slots, town.work.prefetch) = (SlotCounts::of(200), 400);
    for n in 0..jobs {
        let mut spec = reminder("any", DUE);
        spec.key = JobKey::new(&format!("acme-{}", n % tenants), &format!("c-{n}/bill-{n}")).expect("a key");
        spec.priority = Priority::ALL[n % Priority::ALL.len()];
        let host = (n / 2) % hosts;
        spec.payload = if n % 2 == 0 {
            Payload::sms(format!("+4477009{n:05}"), "Your bill is due")
        } else {
            let url = format!("https://hook-{host}.example/{n}");
            if host == 0 && n / 2 / hosts < GIVEN_UP {
                let failed = || Outcome::Temporary { reason: "503".into(), retry_after: None };
                town.world.script(&url, (0..6).map(|_| Script::Answer(failed())));
            }
            Payload::Webhook { url, body: "{}".into(), vars: Vars::new(), secret: None }
        };
        town.add(spec).await;
    }
    town.start_scheduler("s");
    town.start_worker("w");
    let has_ended = |world: &World| ended(world, RunStatus::Succeeded) + ended(world, RunStatus::Dead) == jobs;
    assert!(town.until_ms(7_200_000, 10_000, has_ended).await, "all runs end");
    assert_eq!(ended(&town.world, RunStatus::Dead), GIVEN_UP);
    town.stop().await;
    render()
}

fn series(text: &Text) -> BTreeSet<&str> {
    text.samples.keys().map(String::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_tenants_make_the_series_of_ten_and_no_name_of_theirs_is_told() {
    let few = told_with(JOBS_OF_A_FEW, 10, 2).await;
    let many = told_with(10_000, 10_000, 200).await;
    let shown: Vec<&str> = many.lines().filter(|line| NAMES.iter().any(|name| line.contains(name))).collect();
    assert_eq!(shown, Vec::<&str>::new());
    let [few, many] = [few, many].map(|text| Text::read(&text).expect("a text of the format"));
    assert_eq!(series(&many), series(&few));
    let most: usize = table::ALL.iter().map(|metric| metric.most_lines()).sum();
    assert!((100..=most).contains(&many.samples.len()), "{} of {most}", many.samples.len());
    assert_eq!([few.strangers(), many.strangers()].concat(), Vec::<String>::new());
    // All that has names was met.
    let delivered =
        |handler| many.of("punctual_attempts_total", &[("handler", handler), ("outcome", "delivered")]).sum::<f64>();
    let failed = [("handler", "webhook"), ("outcome", "temporary")];
    let failed: f64 = many.of("punctual_attempts_total", &failed).sum();
    assert_eq!((delivered("sms"), delivered("webhook")), (5_000.0, 5_000.0 - GIVEN_UP as f64));
    assert_eq!(failed, 6.0 * GIVEN_UP as f64);
}

/// The control: what the check above would say of texts with a name in a label.
#[test]
fn a_label_for_each_tenant_would_be_found() {
    let metric = table::RUNS_DUE;
    let head = format!("# HELP {0} {1}\n# TYPE {0} counter\n", metric.name, metric.meaning);
    let line = |tenant: usize| format!("{}{{priority=\"urgent\",tenant=\"acme-{tenant}\"}} 1\n", metric.name);
    let [few, many] = [10, 10_000].map(|tenants| {
        let text: String = (0..tenants).map(line).collect();
        Text::read(&format!("{head}{text}")).expect("a text of the format")
    });
    assert_ne!(series(&many), series(&few));
    let most: usize = table::ALL.iter().map(|metric| metric.most_lines()).sum();
    assert!(many.samples.len() > most);
    assert_eq!((few.strangers().len(), many.strangers().len()), (11, 10_001));
}
