//! What a person sees of a demo while it runs: figures in, lines of text out. No colour, no control characters.

use super::lags::Lag;
use chrono::TimeDelta;
use punctual_core::ports::QueueDepth;
use punctual_core::priority::Priority;

/// Bars shorter than this tell nothing.
const SHORTEST_BAR: usize = 5;

/// A demo at a moment. What the queues took is counted by the queues, what was delivered by the gateway.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// Reminders.
    pub(super) jobs: u64,
    /// Since they were due; below zero before.
    pub(super) since_due: TimeDelta,
    /// Runs of which a message is in its queue, or was.
    pub(super) enqueued: u64,
    /// References that the gateway accepted.
    pub(super) delivered: u64,
    /// How many more of them a second, of late.
    pub(super) enqueued_per_s: u64,
    pub(super) delivered_per_s: u64,
    /// From due to visible in the queue, if there is one.
    pub(super) dispatch_lag: Option<Lag>,
    /// From due to the first call, if there was one.
    pub(super) start_lag: Option<Lag>,
    /// As they were last seen, in the order of [`Priority::ALL`].
    pub(super) queues: Option<[QueueDepth; 3]>,
    /// Processes that run.
    pub(super) schedulers: usize,
    pub(super) workers: usize,
    /// Names of those that were killed.
    pub(super) killed: Vec<String>,
}

/// The lines of a screen, none longer than `width`.
pub(super) fn screen(figures: &Figures, width: usize) -> Vec<String> {
    let mut lines = vec![
        labelled("due", &since(figures)),
        labelled("enqueued", &progress(figures.enqueued, figures.enqueued_per_s, figures.jobs, width)),
        labelled("delivered", &progress(figures.delivered, figures.delivered_per_s, figures.jobs, width)),
        labelled("dispatch lag", &lag(figures.dispatch_lag)),
        labelled("start lag", &lag(figures.start_lag)),
        labelled("not enqueued", &format!("{:>9}   of what is due", grouped(figures.not_enqueued()))),
        labelled("queues", &format!("{:>9}   {:>9}   {:>9}", "visible", "in flight", "delayed")),
    ];
    for (n, priority) in Priority::ALL.into_iter().enumerate() {
        let of = |count: fn(&QueueDepth) -> u64| match &figures.queues {
            Some(depths) => grouped(count(&depths[n])),
            None => "?".to_owned(),
        };
        let (visible, in_flight, delayed) = (of(|d| d.visible), of(|d| d.in_flight), of(|d| d.delayed));
        lines.push(labelled(
            &format!("  {}", priority.as_str()),
            &format!("{visible:>9}   {in_flight:>9}   {delayed:>9}"),
        ));
    }
    lines.push(labelled("processes", &processes(figures)));
    lines.iter().map(|line| line.chars().take(width).collect::<String>().trim_end().to_owned()).collect()
}

/// The same in one line, for a log.
pub(super) fn summary_line(figures: &Figures) -> String {
    let (jobs, enqueued, delivered) = (grouped(figures.jobs), grouped(figures.enqueued), grouped(figures.delivered));
    let late = figures.start_lag.map_or("none".to_owned(), |lag| format!("{} ms", grouped(lag.p99_ms)));
    let queued = figures.queues.map_or("?".to_owned(), |depths| {
        grouped(depths.iter().map(|depth| depth.visible + depth.in_flight + depth.delayed).sum())
    });
    format!(
        "due {}: enqueued {enqueued} of {jobs} ({}/s), delivered {delivered} ({}/s), start lag p99 {late}, in queues {queued}; {}",
        since(figures),
        grouped(figures.enqueued_per_s),
        grouped(figures.delivered_per_s),
        processes(figures),
    )
}

impl Figures {
    fn not_enqueued(&self) -> u64 {
        if self.since_due < TimeDelta::zero() { 0 } else { self.jobs.saturating_sub(self.enqueued) }
    }
}

fn labelled(label: &str, text: &str) -> String {
    format!("  {label:<15} {text}")
}

fn since(figures: &Figures) -> String {
    match figures.since_due.num_milliseconds() {
        // Rounded up, so that it is due when it says 0.
        ms if ms < 0 => format!("in {} s", grouped(ms.unsigned_abs().div_ceil(1_000))),
        ms => format!("{} s ago", grouped(ms.unsigned_abs() / 1_000)),
    }
}

/// Count, bar, share and rate.
fn progress(count: u64, per_s: u64, jobs: u64, width: usize) -> String {
    let of = grouped(jobs);
    let counted = format!("{:>digits$} / {of}", grouped(count), digits = of.len().max(4));
    // Rounded down: only all of them are 100 %.
    let share = count.saturating_mul(100).checked_div(jobs).unwrap_or(100).min(100);
    let rate = format!("{:>7}/s", grouped(per_s));
    let taken = labelled("", &format!("{counted}  []  {share:>3} %  {rate}")).len();
    let bar = match width.saturating_sub(taken) {
        room if room >= SHORTEST_BAR => format!("  [{:-<room$}]", "#".repeat(room * share as usize / 100)),
        _ => String::new(),
    };
    format!("{counted}{bar}  {share:>3} %  {rate}")
}

fn lag(lag: Option<Lag>) -> String {
    let Some(Lag { p50_ms, p99_ms, max_ms }) = lag else { return "none yet".to_owned() };
    let [p50, p99, max] = [p50_ms, p99_ms, max_ms].map(grouped);
    format!("p50 {p50:>9} ms   p99 {p99:>9} ms   max {max:>9} ms")
}

fn processes(figures: &Figures) -> String {
    let so_many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let run = format!("{}, {}", so_many(figures.schedulers, "scheduler"), so_many(figures.workers, "worker"));
    if figures.killed.is_empty() { run } else { format!("{run}; killed: {}", figures.killed.join(", ")) }
}

/// With a comma between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(visible: u64, in_flight: u64, delayed: u64) -> QueueDepth {
        QueueDepth { visible, in_flight, delayed }
    }

    fn in_the_middle() -> Figures {
        Figures {
            jobs: 2_000,
            since_due: TimeDelta::milliseconds(2_900),
            enqueued: 2_000,
            delivered: 1_234,
            enqueued_per_s: 1_000,
            delivered_per_s: 449,
            dispatch_lag: Some(Lag { p50_ms: 190, p99_ms: 230, max_ms: 234 }),
            start_lag: Some(Lag { p50_ms: 1_900, p99_ms: 2_800, max_ms: 2_871 }),
            queues: Some([depth(0, 3, 0), depth(512, 20, 0), depth(231, 0, 0)]),
            schedulers: 3,
            workers: 2,
            killed: vec!["s2".to_owned()],
        }
    }

    fn at_the_start() -> Figures {
        Figures {
            since_due: TimeDelta::milliseconds(-12_001),
            enqueued: 0,
            delivered: 0,
            enqueued_per_s: 0,
            delivered_per_s: 0,
            dispatch_lag: None,
            start_lag: None,
            queues: None,
            workers: 1,
            killed: Vec::new(),
            ..in_the_middle()
        }
    }

    /// As large as they get: a million reminders, of which the last ones wait for more than half an hour.
    fn largest() -> Figures {
        let lag = Some(Lag { p50_ms: 2_300_000, p99_ms: 4_600_000, max_ms: 4_623_456 });
        Figures {
            jobs: 1_000_000,
            since_due: TimeDelta::seconds(4_624),
            enqueued: 1_000_000,
            delivered: 1_000_000,
            enqueued_per_s: 100_000,
            delivered_per_s: 500,
            dispatch_lag: lag,
            start_lag: lag,
            queues: Some([depth(1_000_000, 120_000, 1_000_000); 3]),
            schedulers: 16,
            workers: 16,
            killed: vec!["w16".to_owned(), "s16".to_owned()],
        }
    }

    #[test]
    fn a_screen_says_how_far_how_fast_how_late_and_what_waits() {
        let expected = "
  due             2 s ago
  enqueued        2,000 / 2,000  [###########################]  100 %    1,000/s
  delivered       1,234 / 2,000  [################-----------]   61 %      449/s
  dispatch lag    p50       190 ms   p99       230 ms   max       234 ms
  start lag       p50     1,900 ms   p99     2,800 ms   max     2,871 ms
  not enqueued            0   of what is due
  queues            visible   in flight     delayed
    urgent                0           3           0
    normal              512          20           0
    bulk                231           0           0
  processes       3 schedulers, 2 workers; killed: s2";
        assert_eq!(format!("\n{}", screen(&in_the_middle(), 80).join("\n")), expected);
    }

    #[test]
    fn before_anything_happened_a_screen_has_as_many_lines_and_makes_nothing_up() {
        let lines = screen(&at_the_start(), 80);
        assert_eq!(lines.len(), screen(&in_the_middle(), 80).len());
        assert_eq!(lines[0], "  due             in 13 s");
        assert!(lines[1].contains("    0 / 2,000  [---") && lines[1].contains("  0 %"), "{}", lines[1]);
        assert!(lines[3].ends_with("none yet") && lines[4].ends_with("none yet"), "{lines:?}");
        assert!(lines[5].contains(" 0 "), "nothing is due: {}", lines[5]);
        assert!(lines[7..10].iter().all(|line| line.matches('?').count() == 3), "{lines:?}");
        assert_eq!(lines[10], "  processes       3 schedulers, 1 worker");
    }

    #[test]
    fn what_is_due_and_not_enqueued_is_the_rest_from_the_moment_on_at_which_it_is_due() {
        let at = |since_due: TimeDelta| Figures { since_due, enqueued: 1_400, ..in_the_middle() }.not_enqueued();
        assert_eq!([at(TimeDelta::milliseconds(-1)), at(TimeDelta::zero())], [0, 600]);
    }

    #[test]
    fn the_largest_figures_fit_eighty_columns_whole() {
        let (whole, fitted) = (screen(&largest(), 1_000), screen(&largest(), 80));
        for (whole, fitted) in whole.iter().zip(&fitted) {
            assert!(fitted.len() <= 80, "{fitted}");
            let without_bar = |line: &str| line.replace(['#', '-'], "");
            assert_eq!(without_bar(whole), without_bar(fitted), "something is cut off");
        }
        assert!(fitted[1].contains("[###"), "{}", fitted[1]);
        assert!(summary_line(&largest()).len() <= 200, "{}", summary_line(&largest()));
    }

    #[test]
    fn lines_are_plain_text_and_no_longer_than_the_screen_is_wide() {
        for figures in [at_the_start(), in_the_middle(), largest()] {
            for width in 0..=120 {
                for line in screen(&figures, width) {
                    assert!(line.len() <= width && line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line:?}");
                }
            }
            assert!(summary_line(&figures).bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }

    #[test]
    fn only_all_of_them_are_a_hundred_percent() {
        let of = |count, jobs| progress(count, 0, jobs, 80);
        assert!(of(1_999, 2_000).contains(" 99 %") && !of(1_999, 2_000).contains("#]"), "{}", of(1_999, 2_000));
        assert!(of(2_000, 2_000).contains(" 100 %") && !of(2_000, 2_000).contains('-'));
        assert!(of(7, 5).contains(" 100 %"), "a figure that is wrong spoils no screen");
    }

    #[test]
    fn a_log_gets_the_same_in_one_line() {
        assert_eq!(
            summary_line(&in_the_middle()),
            "due 2 s ago: enqueued 2,000 of 2,000 (1,000/s), delivered 1,234 (449/s), start lag p99 2,800 ms, in queues 766; \
             3 schedulers, 2 workers; killed: s2"
        );
        assert!(summary_line(&at_the_start()).contains("start lag p99 none, in queues ?;"));
    }

    #[test]
    fn thousands_are_set_apart() {
        let shown = [0, 999, 1_000, 12_345, 999_999, 1_000_000].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "999,999", "1,000,000"]);
    }
}
