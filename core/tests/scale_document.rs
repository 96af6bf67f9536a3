//! `docs/scale.md` says what the functions say: each block of it is worked out here, and so is each number in its prose.

use punctual_core::cost::{Batches, BucketReads, Class, IdleLoad, Load, MONTH, Prices, Usage, idle, monthly, total};
use punctual_core::due::Shards;
use punctual_core::scale::{
    INDEX_WRITES, Limits, Night, PARTITION_WRITES, TABLE_WRITES, minutes_of_sending, most_keys_together,
};
use std::fmt::Write;
use std::time::Duration;

const DOCUMENT: &str = include_str!("../../docs/scale.md");
const BEGIN: &str = "<!-- computed: ";
const END: &str = "<!-- /computed -->";

const STORED: f64 = 1e9;
const DUE: f64 = 1e8;
const JOB_BYTES: f64 = 580.0;
const PROCESSORS: f64 = 2.0;
const CPU_US_PER_RUN: f64 = 500.0;
/// Three copies on the embedded stack, two processors in all, dev profile.
const MEASURED_RUNS_PER_S: f64 = 3_472.0;
const PAGE: f64 = 500.0;
const PAGE_MS: f64 = 200.0;
const GATEWAY_PER_S: f64 = 450.0;
const SENDING_H: f64 = 8.0;
const COPIES_BY_DAY: u32 = 3;
/// The shards that the document plans with.
const PLANNED: u32 = 256;
const SHARDS: [u32; 7] = [16, 24, 32, 64, 256, 1_024, 4_096];

/// Numbers of the prose that are inputs: AWS's limits, the product's times, the mission's figures.
const INPUTS: [&str; 9] = ["1,000", "1", "2", "14", "120,000", "40,000", "60", "300", "450"];

/// As much throughput as is asked for, so that shards and copies are what counts.
fn limits(shards: u32) -> Limits {
    let plenty = 2.0 * f64::from(shards) * PARTITION_WRITES;
    Limits {
        partition_writes: PARTITION_WRITES,
        shard_runs: Limits::shard_runs(PAGE, PAGE_MS),
        copy_runs: Limits::copy_runs(PROCESSORS, CPU_US_PER_RUN),
        table_writes: plenty,
        index_writes: INDEX_WRITES * plenty,
    }
}

/// A night with as many copies as its shards can keep busy.
fn night(shards: u32) -> Night {
    let alone = Night { due: DUE, shards, copies: shards, window_s: 0.0 };
    let copies = Night::copies_for(alone.runs_per_s(&limits(shards)), limits(shards).copy_runs);
    // Shards are whole: the copy that holds one more than others must not be what limits.
    let copies = (copies..=shards).find(|copies| {
        let night = Night { copies: *copies, ..alone };
        night.until_queued(&limits(shards)).1 <= alone.until_queued(&limits(shards)).1 * 1.001
    });
    Night { copies: copies.expect("a copy for each shard is enough"), ..alone }
}

/// Index throughput that is just what the night needs.
fn exact(shards: u32) -> Limits {
    let runs_per_s = night(shards).runs_per_s(&limits(shards));
    Limits { index_writes: INDEX_WRITES * runs_per_s, ..limits(shards) }
}

fn a_night() -> Load {
    let class = Class { job_bytes: JOB_BYTES, jobs: STORED, made: 0.0, runs: DUE, last_runs: 0.0 };
    let of_a_shard = (DUE / f64::from(PLANNED)) as u64;
    Load::of(vec![class], Batches::reached([of_a_shard]))
}

fn idle_hour(shards: u32, copies: u32) -> Usage {
    let s = Duration::from_secs;
    let reads = BucketReads::of_loop(s(1), s(10), s(5));
    let shards = shards + u32::from(Shards::default().urgent);
    let (renew_every, look_every, layout_every) = (s(3), s(1), s(10));
    total(&idle(&IdleLoad { shards, copies, renew_every, look_every, layout_every, reads, workers: 0, poll: s(5) }))
}

fn figure(count: f64) -> String {
    let digits = format!("{count:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).expect("digits")).collect();
    groups.join(",")
}

fn minutes(seconds: f64) -> String {
    format!("{:.1}", seconds / 60.0)
}

fn inputs() -> String {
    let Prices { as_of, region, write_units_per_million, read_units_per_million, storage_per_gb_month, .. } =
        Prices::default();
    format!(
        "- {} jobs stored, {} of them due in the same instant, and again a day later\n\
         - an item of {JOB_BYTES} bytes: a text of 160 bytes, no name\n\
         - a copy with {PROCESSORS} processors, {CPU_US_PER_RUN} µs of one for each run: {} runs/s. Assumed; in \
         the demo, {} runs/s took two processors at most, store and queue included: {:.0} µs\n\
         - a page of {PAGE} entries takes {PAGE_MS} ms from its query to its last advance: {} runs/s and shard. Assumed\n\
         - a gateway that takes {GATEWAY_PER_S} calls a second\n\
         - list prices of {region}, {as_of}: ${write_units_per_million} and ${read_units_per_million} for a million write \
         and read units, ${storage_per_gb_month} for a gigabyte and month, ${:.2} for a million requests of SQS\n",
        figure(STORED),
        figure(DUE),
        figure(Limits::copy_runs(PROCESSORS, CPU_US_PER_RUN)),
        figure(MEASURED_RUNS_PER_S),
        2e6 / MEASURED_RUNS_PER_S,
        figure(Limits::shard_runs(PAGE, PAGE_MS)),
        Prices::default().sqs_requests_per_million,
    )
}

fn shards() -> String {
    let mut rows = String::from(
        "| shards | jobs of the fullest | minutes until the last is queued | runs/s | copies for that | minutes if hot \
         buckets are not moved apart |\n|---:|---:|---:|---:|---:|---:|\n",
    );
    for shards in SHARDS {
        let night = night(shards);
        let (_, seconds) = night.until_queued(&limits(shards));
        writeln!(
            rows,
            "| {} | {} | {} | {} | {} | {} |",
            figure(shards.into()),
            figure(night.fullest_shard()),
            minutes(seconds),
            figure(night.runs_per_s(&limits(shards))),
            figure(night.copies.into()),
            minutes(night.until_queued_unmoved(&exact(shards)))
        )
        .expect("text takes any text");
    }
    rows
}

fn throughput() -> String {
    let mut rows = String::from(
        "| shards | writes/s, table jobs | writes/s, index due | reads/s, table jobs | sends/s | idle, $ a month | idle \
         with the night's copies, $ an hour |\n|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let prices = Prices::default();
    for shards in SHARDS {
        let night = night(shards);
        let runs = night.runs_per_s(&limits(shards));
        let month = idle_hour(shards, COPIES_BY_DAY) * (MONTH.as_secs_f64() / 3_600.0);
        writeln!(
            rows,
            "| {} | {} | {} | {} | {} | {} | {:.2} |",
            figure(shards.into()),
            figure(runs * TABLE_WRITES),
            figure(runs * INDEX_WRITES),
            figure(runs),
            figure(runs / 10.0),
            figure(prices.dollars(&month)),
            prices.dollars(&idle_hour(shards, night.copies))
        )
        .expect("text takes any text");
    }
    rows
}

fn copies() -> String {
    const COPIES: [u32; 5] = [3, 16, 64, 128, 256];
    let head = COPIES.map(|copies| format!(" {copies} copies |")).concat();
    let mut rows = format!("| shards |{head}\n|---:|{}\n", "---:|".repeat(COPIES.len()));
    for shards in SHARDS {
        let cells = COPIES.map(|copies| {
            let (limit, seconds) = Night { copies, ..night(shards) }.until_queued(&limits(shards));
            format!(" {}, {limit} |", minutes(seconds))
        });
        writeln!(rows, "| {} |{}", figure(shards.into()), cells.concat()).expect("text takes any text");
    }
    rows
}

fn untouched() -> String {
    let new = |shards: u32| Limits { table_writes: 4e3, index_writes: 4e3, ..limits(shards) };
    let unasked = |shards: u32| Limits { table_writes: 4e4, index_writes: 4e4, ..limits(shards) };
    let said = |limits: Limits| {
        let (limit, seconds) = night(PLANNED).until_queued(&limits);
        format!("{} minutes ({limit})", figure(seconds / 60.0))
    };
    format!(
        "- a new table and index, warm for {} writes/s each, until they have grown: {}\n\
         - {} writes/s each, what an account may use without asking: {}\n",
        figure(4e3),
        said(new(PLANNED)),
        figure(4e4),
        said(unasked(PLANNED)),
    )
}

fn finer() -> String {
    let index_writes = exact(PLANNED).index_writes;
    let partitions = index_writes / PARTITION_WRITES;
    let mut rows = format!(
        "Index throughput of {} writes/s, {} partitions:\n\n| shards | hot buckets | most in one partition | minutes if they \
         stay there |\n|---:|---:|---:|---:|\n",
        figure(index_writes),
        figure(partitions)
    );
    for shards in [PLANNED, 512, 1_024, 2_048, 4_096] {
        let night = night(shards);
        writeln!(
            rows,
            "| {} | {} | {} | {} |",
            figure(shards.into()),
            figure(night.hot_keys()),
            most_keys_together(night.hot_keys(), partitions),
            minutes(night.until_queued_unmoved(&Limits { index_writes, ..limits(shards) }))
        )
        .expect("text takes any text");
    }
    rows
}

fn window() -> String {
    let standard = u32::from(Shards::default().standard);
    let burst = night(standard).until_queued(&limits(standard)).1;
    let mut lines = String::new();
    for window_s in [0.0, 1_800.0, 3_600.0, 7_200.0] {
        let night = Night { window_s, copies: night(standard).copies, ..night(standard) };
        let lag = night.lag_s(&limits(standard));
        writeln!(
            lines,
            "- {standard} shards, a window of {:.0} minutes: the last run is queued after {} minutes, {} minutes late",
            window_s / 60.0,
            minutes(night.until_queued(&limits(standard)).1),
            minutes(lag)
        )
        .expect("text takes any text");
    }
    writeln!(lines, "- a window from {:.0} minutes on needs no more than these shards", (burst / 60.0).ceil())
        .expect("text takes any text");
    lines
}

fn sending() -> String {
    let for_night = DUE / (SENDING_H * 3_600.0);
    format!(
        "- {} sends to SQS, ten runs each\n\
         - at {GATEWAY_PER_S} calls a second the last is sent after {} minutes: {:.1} hours\n\
         - to send all within {SENDING_H} hours, gateways must take {} calls a second together, and the table of rows {} \
         writes/s\n",
        figure(DUE / 10.0),
        figure(minutes_of_sending(DUE, GATEWAY_PER_S)),
        minutes_of_sending(DUE, GATEWAY_PER_S) / 60.0,
        figure(for_night),
        figure(2.0 * for_night),
    )
}

fn dollars() -> String {
    let (prices, load) = (Prices::default(), a_night());
    let lines = monthly(&load);
    let mut rows =
        String::from("| a night | write units | read units | SQS requests | $ |\n|---|---:|---:|---:|---:|\n");
    let mut add = |name: &str, usage: &Usage| {
        let counts = [usage.write_units, usage.read_units, usage.sqs_requests].map(figure);
        writeln!(rows, "| {name} | {} | {:.2} |", counts.join(" | "), prices.dollars(usage))
            .expect("text takes any text");
    };
    for line in lines.iter().filter(|line| line.usage != Usage::default()) {
        add(line.step, &line.usage);
    }
    add("all", &total(&lines));
    let nights = Load { classes: vec![Class { runs: 30.0 * DUE, ..load.classes[0] }], ..load.clone() };
    let (night, bytes) = (prices.dollars(&total(&lines)), nights.stored_bytes());
    let making = Load { classes: vec![Class { runs: 0.0, made: STORED, ..load.classes[0] }], ..load };
    let idle = prices.dollars(&(idle_hour(PLANNED, COPIES_BY_DAY) * (MONTH.as_secs_f64() / 3_600.0)));
    writeln!(
        rows,
        "\n- a month of such nights: ${}; {PLANNED} shards and {COPIES_BY_DAY} copies that stand by: ${}\n\
         - stored then, with the rows of 60 days: {} GB, ${} a month\n\
         - making {} jobs, once: ${}",
        figure(30.0 * night),
        figure(idle),
        figure(bytes / 1e9),
        figure(prices.storage_dollars(bytes)),
        figure(STORED),
        figure(prices.dollars(&total(&monthly(&making)))),
    )
    .expect("text takes any text");
    rows
}

#[test]
fn every_block_of_the_document_is_what_the_functions_say() {
    let blocks = [
        ("inputs", inputs()),
        ("shards", shards()),
        ("copies", copies()),
        ("throughput", throughput()),
        ("untouched", untouched()),
        ("finer", finer()),
        ("window", window()),
        ("sending", sending()),
        ("dollars", dollars()),
    ];
    assert_eq!(DOCUMENT.matches(BEGIN).count(), blocks.len(), "a block that nothing works out");
    let mut wrong = String::new();
    for (name, expected) in blocks {
        let begin = format!("{BEGIN}{name} -->\n");
        let (_, rest) = DOCUMENT.split_once(&begin).unwrap_or_else(|| panic!("block {name} is missing"));
        let (found, _) = rest.split_once(END).unwrap_or_else(|| panic!("block {name} has no end"));
        if found.trim() != expected.trim() {
            write!(wrong, "{begin}{}\n{END}\n\n", expected.trim()).expect("text takes any text");
        }
    }
    assert!(wrong.is_empty(), "docs/scale.md must say:\n\n{wrong}");
}

#[test]
fn every_other_number_of_the_document_is_a_known_input() {
    let mut rest = DOCUMENT;
    let mut prose = String::new();
    while let Some((before, block)) = rest.split_once(BEGIN) {
        prose.push_str(before);
        rest = block.split_once(END).expect("a block ends").1;
    }
    prose.push_str(rest);
    let is_part = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let numbers = prose.split(|c: char| !is_part(c)).map(|word| word.trim_matches([',', '.']));
    for number in numbers.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
        assert!(
            INPUTS.contains(&number),
            "`{number}` stands in the prose: work it out in a block, or name it an input"
        );
    }
}
