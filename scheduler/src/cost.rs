//! `punctual cost`: what jobs cost in a month, before they are made. Needs no server.

use crate::dispatch::{FULL_PASS_EVERY, LAYOUT_EVERY, LOOK_EVERY, READ_AHEAD_EVERY};
use crate::listing::{lines, table};
use chrono::{DateTime, TimeDelta, Utc};
use comfy_table::{CellAlignment, Table};
use punctual_core::cost::{
    Batches, BucketReads, Class, IdleLoad, Line, Load, MONTH, Prices, Usage, idle, job_bytes, monthly, total,
    write_units,
};
use punctual_core::due::{ShardId, Shards};
use punctual_core::job::{Job, JobSpec, RETENTION, Timetable};
use punctual_core::priority::Priority;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How long a worker's receive waits.
const POLL: Duration = Duration::from_secs(5);
/// Item bytes beside the text of a job of which nothing else is known.
const BESIDE_TEXT_BYTES: f64 = 420.0;

/// Jobs of which only so much is known.
#[derive(Clone, Copy, Debug)]
pub struct Uniform {
    /// How many.
    pub jobs: u64,
    /// Time between two firings of one; none = each fires once, and as many new ones are made each month.
    pub every_s: Option<i64>,
    /// Bytes of a text.
    pub text_bytes: u32,
    /// How many fall due in the same second; none = they are spread evenly.
    pub together: Option<u64>,
}

/// What stands by.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// Shards.
    pub shards: Shards,
    /// Scheduler copies.
    pub copies: u32,
    /// Workers.
    pub workers: u32,
    /// Time between two passes over a shard.
    pub tick: Duration,
    /// Time between two renewals of a lease.
    pub renew_every: Duration,
}

/// A month of jobs that are alike.
pub fn uniform(jobs: &Uniform, shards: &Shards) -> Load {
    let (count, month_s) = (jobs.jobs as f64, MONTH.as_secs_f64());
    let (runs, last_runs, per_s) = match jobs.every_s {
        Some(every_s) => (count * month_s / every_s as f64, 0.0, count / every_s as f64),
        None => (0.0, count, count / month_s),
    };
    let together = jobs.together.map_or(per_s, |together| together as f64);
    let in_a_shard = (together / f64::from(shards.standard.max(1))).round().max(1.0);
    let job_bytes = BESIDE_TEXT_BYTES + f64::from(jobs.text_bytes);
    let class = Class { job_bytes, jobs: count, made: 0.0, runs, last_runs };
    Load::of(vec![renewed(class)], Batches::reached([in_a_shard as u64]))
}

/// The thirty days after `now` of these jobs, each firing counted, and how many of the jobs have none left.
pub fn counted(specs: &[JobSpec], now: DateTime<Utc>, world: &Timetable<'_>) -> (Load, usize) {
    let mut counting = Counting::new(now, *world);
    specs.iter().for_each(|spec| counting.add(spec));
    counting.load()
}

/// Counts the firings of jobs that come one after the other. It keeps none of them: it grows with the distinct seconds in
/// which anything is due, times shards and priorities (30 × 24 entries for all jobs that fire at nine each day).
#[derive(Debug)]
pub struct Counting<'a> {
    now: DateTime<Utc>,
    until: DateTime<Utc>,
    world: Timetable<'a>,
    classes: BTreeMap<u64, Class>,
    together: HashMap<(i64, ShardId, Priority), u64>,
    over: usize,
}

impl<'a> Counting<'a> {
    /// No jobs yet; the thirty days after `now` will be counted.
    pub fn new(now: DateTime<Utc>, world: Timetable<'a>) -> Self {
        let until = now + TimeDelta::from_std(MONTH).expect("a month is a span of time");
        Counting { now, until, world, classes: BTreeMap::new(), together: HashMap::new(), over: 0 }
    }

    /// Counts one job.
    pub fn add(&mut self, spec: &JobSpec) {
        let Ok(job) = Job::create(spec.clone(), self.now, &self.world, None, String::new(), "cost") else {
            self.over += 1;
            return;
        };
        let bytes = job_bytes(spec);
        let class = self.classes.entry(write_units(bytes) as u64).or_insert_with(none_of_size);
        class.job_bytes += (bytes - class.job_bytes) / (class.jobs + 1.0);
        class.jobs += 1.0;
        let shard = self.world.shards.of(&spec.key, spec.priority);
        let (mut next, mut left) = (job.next(), job.runs_left);
        while let Some(firing) = next {
            let due_at = spec.due_at(&firing).max(self.now);
            if due_at > self.until {
                break;
            }
            *self.together.entry((due_at.timestamp(), shard, spec.priority)).or_default() += 1;
            left = left.map(|left| left.saturating_sub(1));
            next = job.following(&firing, left, self.world.zones);
            *(if next.is_some() { &mut class.runs } else { &mut class.last_runs }) += 1.0;
        }
    }

    /// What a month of them brings, and how many of them have no firing left.
    pub fn load(self) -> (Load, usize) {
        let classes = self.classes.into_values().map(renewed).collect();
        (Load::of(classes, Batches::reached(self.together.into_values())), self.over)
    }
}

fn none_of_size() -> Class {
    Class { job_bytes: 0.0, jobs: 0.0, made: 0.0, runs: 0.0, last_runs: 0.0 }
}

/// In a month like any other as many jobs are made as end, and those that ended are still kept.
fn renewed(class: Class) -> Class {
    let kept = class.last_runs * RETENTION.as_secs_f64() / MONTH.as_secs_f64();
    Class { made: class.last_runs, jobs: class.jobs + kept, ..class }
}

/// What one shard takes in an hour in which nothing is due there: its queries and the renewals of its lease.
pub fn idle_shard_hour(tick: Duration, renew_every: Duration) -> Usage {
    let reads = BucketReads::of_loop(tick, FULL_PASS_EVERY, READ_AHEAD_EVERY);
    let (look_every, layout_every) = (LOOK_EVERY, LAYOUT_EVERY);
    let load = IdleLoad { shards: 1, copies: 0, renew_every, look_every, layout_every, reads, workers: 0, poll: POLL };
    total(&idle(&load))
}

/// What a fleet takes in a month without jobs.
pub fn standing_by(fleet: &Fleet) -> Vec<Line> {
    let load = IdleLoad {
        shards: u32::from(fleet.shards.urgent) + u32::from(fleet.shards.standard),
        copies: fleet.copies,
        renew_every: fleet.renew_every,
        look_every: LOOK_EVERY,
        layout_every: LAYOUT_EVERY,
        reads: BucketReads::of_loop(fleet.tick, FULL_PASS_EVERY, READ_AHEAD_EVERY),
        workers: fleet.workers,
        poll: POLL,
    };
    let hours = MONTH.as_secs_f64() / 3_600.0;
    idle(&load).into_iter().map(|Line { step, usage }| Line { step, usage: usage * hours }).collect()
}

/// The bill of a month, for people.
pub fn as_table(load: &Load, fleet: &Fleet, prices: &Prices) -> String {
    let (runs, idle) = (monthly(load), standing_by(fleet));
    let mut table = table(&["a month", "write units", "read units", "DynamoDB calls", "SQS requests", "$"]);
    for column in 1..=5 {
        table.column_mut(column).expect("there are six columns").set_cell_alignment(CellAlignment::Right);
    }
    add_lines(&mut table, "all runs", &runs, prices);
    table.add_row([""]);
    add_lines(&mut table, "idle", &idle, prices);
    table.add_row([""]);
    let (bytes, storage) = (load.stored_bytes(), prices.storage_dollars(load.stored_bytes()));
    let stored = format!("storage, {} GB", figure(bytes / 1e9));
    table.add_row([stored.as_str(), "", "", "", "", &cents(storage)]);
    let sum = prices.dollars(&(total(&runs) + total(&idle))) + storage;
    table.add_row(["in all", "", "", "", "", &cents(sum)]);
    format!(
        "{} jobs stored, {} runs a month\n\n{table}\n\n{}prices: {} of {}, without free tiers and taxes; no compute, no \
         gateway",
        figure(load.jobs()),
        figure(load.runs()),
        of_a_run(load, &total(&runs), prices),
        prices.region,
        prices.as_of
    )
}

/// The bill of a month in two lines, without what stands by.
pub fn in_a_line(load: &Load, prices: &Prices) -> String {
    let Usage { write_units, read_units, dynamodb_requests, sqs_requests } = total(&monthly(load));
    let dollars = prices.dollars(&total(&monthly(load))) + prices.storage_dollars(load.stored_bytes());
    format!(
        "a month: {} runs, {} write units, {} read units, {} DynamoDB calls, {} SQS requests\n${} with storage, by the \
         prices of {} of {}; `punctual cost` says what stands by",
        figure(load.runs()),
        figure(write_units),
        figure(read_units),
        figure(dynamodb_requests),
        figure(sqs_requests),
        cents(dollars),
        prices.region,
        prices.as_of
    )
}

/// The bill of a month, for programs: one JSON object.
pub fn as_json(load: &Load, fleet: &Fleet, prices: &Prices) -> String {
    let (runs, idle, bytes) = (monthly(load), standing_by(fleet), load.stored_bytes());
    let of = |line: &Line| {
        let mut value = usage_json(&line.usage, prices);
        value["step"] = line.step.into();
        value
    };
    let all = total(&runs) + total(&idle);
    let storage = prices.storage_dollars(bytes);
    lines(std::iter::once(json!({
        "jobs": load.jobs(), "runs": load.runs(),
        "steps": runs.iter().map(of).collect::<Vec<_>>(), "all_runs": usage_json(&total(&runs), prices),
        "idle_steps": idle.iter().map(of).collect::<Vec<_>>(), "idle": usage_json(&total(&idle), prices),
        "storage": {"bytes": bytes, "dollars": storage},
        "dollars": prices.dollars(&all) + storage,
        "prices": prices,
    })))
}

fn usage_json(usage: &Usage, prices: &Prices) -> Value {
    json!({
        "write_units": usage.write_units, "read_units": usage.read_units,
        "dynamodb_requests": usage.dynamodb_requests, "sqs_requests": usage.sqs_requests,
        "dollars": prices.dollars(usage),
    })
}

fn of_a_run(load: &Load, all: &Usage, prices: &Prices) -> String {
    if load.runs() == 0.0 {
        return String::new();
    }
    let Usage { write_units, read_units, dynamodb_requests, sqs_requests } = *all * (1.0 / load.runs());
    format!(
        "a run: {write_units:.2} write units, {read_units:.2} read units, {dynamodb_requests:.2} DynamoDB calls, \
         {sqs_requests:.2} SQS requests; a million runs: ${:.2}\n",
        prices.dollars(all) / load.runs() * 1e6
    )
}

/// A row for each line that takes anything, and one for their sum.
fn add_lines(table: &mut Table, sum: &str, lines: &[Line], prices: &Prices) {
    let mut add = |name: &str, usage: &Usage| {
        let Usage { write_units, read_units, dynamodb_requests, sqs_requests } = *usage;
        let counts = [write_units, read_units, dynamodb_requests, sqs_requests];
        let cells = counts.map(|count| if count == 0.0 { String::new() } else { figure(count) });
        table.add_row(std::iter::once(name.to_owned()).chain(cells).chain([cents(prices.dollars(usage))]));
    };
    for line in lines.iter().filter(|line| line.usage != Usage::default()) {
        add(line.step, &line.usage);
    }
    add(sum, &total(lines));
}

fn cents(dollars: f64) -> String {
    format!("{dollars:.2}")
}

/// A count with commas; with two digits behind the point below ten.
pub(crate) fn figure(count: f64) -> String {
    if count < 10.0 && count.fract() > 0.0 {
        return format!("{count:.2}");
    }
    let digits = format!("{count:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).expect("digits")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::read_jobs;
    use punctual_core::zone::Zones;

    const NOW: &str = "2026-12-01T00:00:00Z";

    fn fleet() -> Fleet {
        let s = Duration::from_secs;
        Fleet { shards: Shards::default(), copies: 3, workers: 2, tick: s(1), renew_every: s(3) }
    }

    fn of_file(rows: &str) -> (Load, usize) {
        let header = "customer,phone,kind,priority,schedule,template,max_runs,end_at";
        let (now, zones, shards) = (NOW.parse().unwrap(), Zones::embedded(), Shards::default());
        let specs = read_jobs("jobs.csv", format!("{header}\n{rows}").as_bytes(), "bank", now, &zones).unwrap();
        counted(&specs, now, &Timetable { shards: &shards, zones: &zones })
    }

    #[test]
    fn a_file_is_counted_firing_by_firing_within_its_bounds() {
        let (load, over) = of_file(
            "c-1,+447700900123,daily,normal,cron 0 9 * * *,Due,,\n\
             c-2,+447700900123,bounded,normal,cron 0 9 * * *,Due,3,\n\
             c-3,+447700900123,ending,normal,cron 0 9 * * *,Due,,2026-12-03T12:00:00Z\n\
             c-4,+447700900123,once,normal,at 2026-12-05T09:00:00Z,Due,,\n\
             c-5,+447700900123,later,normal,at 2027-12-05T09:00:00Z,Due,,\n\
             c-6,+447700900123,over,normal,cron 0 9 * * *,Due,,2026-11-03T12:00:00Z",
        );
        let [class] = load.classes[..] else { panic!("{load:?}") };
        assert_eq!((class.runs, class.last_runs, over), (30.0 + 2.0 + 2.0, 3.0, 1));
        // As many are made as end, and those are kept for two months more.
        assert_eq!((class.made, class.jobs), (3.0, 5.0 + 6.0));
    }

    #[test]
    fn what_falls_due_together_shares_calls() {
        let rows = (0..480).map(|n| format!("c-{n},+447700900123,bill,normal,cron 0 9 * * *,Due,,"));
        let (load, _) = of_file(&rows.collect::<Vec<_>>().join("\n"));
        // 480 in 24 shards: about twenty each, so three sends at most.
        assert!((6.0..10.0).contains(&load.batches.send), "{:?}", load.batches);
        let alone =
            uniform(&Uniform { jobs: 480, every_s: Some(86_400), text_bytes: 160, together: None }, &Shards::default());
        assert_eq!((load.runs(), alone.runs(), alone.batches.send), (480.0 * 30.0, 480.0 * 30.0, 1.0));
    }

    #[test]
    fn jobs_that_fire_once_are_made_each_month_and_leave_their_bucket_only() {
        let once = Uniform { jobs: 1_000, every_s: None, text_bytes: 160, together: None };
        let load = uniform(&once, &Shards::default());
        let usage = total(&monthly(&load)) * (1.0 / load.runs());
        // Three to make it, two to advance it, two at the worker.
        assert!((usage.write_units - 7.0).abs() < 1e-9, "{usage:?}");
    }

    #[test]
    fn table_and_json_say_the_same_and_name_the_prices() {
        let jobs = Uniform { jobs: 1_200_000, every_s: Some(86_400), text_bytes: 160, together: Some(480_000) };
        let (load, prices) = (uniform(&jobs, &Shards::default()), Prices::default());
        let said: Value = serde_json::from_str(&as_json(&load, &fleet(), &prices)).unwrap();
        let table = as_table(&load, &fleet(), &prices);
        let dollars = said["dollars"].as_f64().unwrap();
        assert!(table.contains(&format!("{dollars:.2}")), "{table}");
        assert!(table.contains("36,000,000 runs a month") && table.contains(&prices.as_of), "{table}");
        assert_eq!(said["all_runs"]["write_units"], 36e6 * 5.0);
        assert_eq!(said["prices"]["region"], "us-east-1");
    }

    #[test]
    fn figures_have_commas() {
        assert_eq!([0.5, 9.0, 999.4, 1_000.0, 12_345_678.0].map(figure), ["0.50", "9", "999", "1,000", "12,345,678"]);
    }
}
