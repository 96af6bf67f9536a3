use super::*;
use crate::timetable::window;
use punctual_core::job::JobKey;
use punctual_core::missed::MissedRule;
use punctual_core::payload::Payload;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::ScheduleText;

const NOW: &str = "2026-12-01T05:30:30Z";

fn job(when: &str) -> JobSpec {
    let text = ScheduleText { when, ..ScheduleText::default() };
    let (schedule, anchor) = text.read(NOW.parse().unwrap(), &Zones::embedded()).unwrap();
    JobSpec {
        key: JobKey::new("bank", "c-1/bill").unwrap(),
        name: None,
        schedule,
        anchor,
        priority: Priority::Normal,
        payload: Payload::sms("+447700900123", "Your bill is due"),
        retry: RetryRule::default(),
        spread: None,
        missed: MissedRule::default(),
    }
}

fn sms_only(target: &Target) -> Option<u32> {
    (*target == Target::sms()).then_some(450)
}

fn forecast(jobs: &[(u64, JobSpec)]) -> Forecast<'static> {
    let (mut forecast, zones) = (Forecast::new(NOW.parse().unwrap(), sms_only), Zones::embedded());
    for (count, spec) in jobs {
        (0..*count).for_each(|_| forecast.add(spec, &zones));
    }
    forecast
}

fn due(jobs: &[(u64, JobSpec)]) -> Vec<(usize, u64)> {
    let all = forecast(jobs).all;
    all.into_iter().enumerate().filter(|(_, due)| *due > 0).collect()
}

#[test]
fn what_a_job_that_is_there_owes_or_moves_beyond_now_counts() {
    let spec = job("every 24h from 2026-12-01T05:15:00Z");
    // Half past five: its quarter past has gone by, its run of today is to start within an hour of that.
    let spread = punctual_core::spread::Spread { key: "c-1".into(), window_s: 3_600 };
    let offset_min = spread.offset().num_minutes();
    let there =
        Counted { spread: Some(&spread), next: Some("2026-12-01T05:15:00Z".parse().unwrap()), ..(&spec).into() };
    let mut forecast = Forecast::new(NOW.parse().unwrap(), sms_only);
    forecast.add_there(there, &Zones::embedded());
    let due: Vec<usize> = (0..MINUTES).filter(|minute| forecast.all[*minute] > 0).collect();
    // The first minute is 05:31.
    let today = usize::try_from(offset_min - 16).unwrap_or(0);
    assert_eq!(due.first(), Some(&today), "{due:?}");
    assert!(forecast.text(80).contains("0 jobs and 1 that are there"), "{}", forecast.text(80));
}

#[test]
fn each_firing_of_the_next_day_counts_in_its_minute() {
    // The first minute is 05:31.
    assert_eq!(due(&[(2, job("cron 0 9 * * *"))]), [(209, 2)]);
    assert_eq!(due(&[(1, job("cron 30 5 * * *"))]), [(1_439, 1)]);
    assert_eq!(due(&[(1, job("cron 31 5 * * *"))]), [(0, 1)], "not the same time of the day after");
    assert_eq!(due(&[(1, job("every 12h from 2026-12-01T06:00:00Z"))]), [(29, 1), (749, 1)]);
    assert_eq!(due(&[(1, job("at 2026-12-01T05:32:59Z"))]), [(1, 1)]);
    assert_eq!(due(&[(1, job("at 2026-12-02T05:31:00Z"))]), []);
    assert_eq!(due(&[(1, job("cron * * * * *"))]).len(), 1_440);
    let past = [(1, job("at 2026-11-01T00:00:00Z")), (1, job("at 2026-12-01T05:30:40Z"))];
    assert_eq!(due(&past), [(0, 2)], "what is due already is still to be sent");
    let mut bounded = job("cron 0 * * * *");
    bounded.schedule.max_runs = Some(3);
    assert_eq!(due(&[(1, bounded)]).len(), 3);
    assert_eq!(
        Forecast::new("2026-12-01T05:30:00Z".parse().unwrap(), sms_only).from.to_string(),
        "2026-12-01 05:30:00 UTC"
    );
}

#[test]
fn a_spread_job_counts_where_it_starts() {
    let mut spread = job("cron 0 9 * * *");
    spread.spread = window(Some("30m"), "c-10001").unwrap();
    // 1,171 s behind its time.
    assert_eq!(due(&[(1, spread)]), [(209 + 19, 1)]);
}

#[test]
fn a_peak_says_how_long_it_takes_and_which_window_would_help() {
    let peaks = forecast(&[(480_000, job("cron 0 9 * * *")), (1_000, job("cron 0 12 * * *"))]).peaks();
    let [peak] = &peaks[..] else { panic!("{peaks:?}") };
    assert_eq!(peak.to_string(), "sms: 09:00 holds 480,000: 17.8 min at 450/s; spread over 30 min?");
    assert_eq!((peak.begins_at, peak.total, peak.takes_s), (peak.at, 480_000, 1_067));
}

#[test]
fn a_backlog_is_carried_from_minute_to_minute() {
    let jobs = [
        (30_000, job("cron 0 9 * * *")),
        (40_000, job("cron 1 9 * * *")),
        (10_000, job("cron 2 9 * * *")),
        (27_000, job("cron 0 11 * * *")),
        (27_001, job("cron 0 12 * * *")),
    ];
    let peaks = forecast(&jobs).peaks();
    let shown: Vec<String> = peaks.iter().map(ToString::to_string).collect();
    let expected = [
        "sms: 09:01 holds 40,000, and 40,000 more fall due before all are sent: 3.0 min at 450/s; spread over 5 min?",
        "sms: 12:00 holds 27,001: 61 s at 450/s; spread over 5 min?",
    ];
    assert_eq!(shown, expected);
    assert_eq!((peaks[0].begins_at, peaks[0].takes_s), ("2026-12-01T09:00:00Z".parse().unwrap(), 178));
}

#[test]
fn a_window_is_suggested_where_it_fits_and_is_enough() {
    let advice = |jobs: &[(u64, JobSpec)]| forecast(jobs).peaks()[0].advice;
    let with = |when: &str, change: &dyn Fn(&mut JobSpec)| {
        let mut spec = job(when);
        change(&mut spec);
        spec
    };
    let nine = "cron 0 9 * * *";
    let urgent = || with(nine, &|spec| spec.priority = Priority::Urgent);
    let spread = || with(nine, &|spec| spec.spread = window(Some("1m"), "c-1").unwrap());
    assert_eq!(advice(&[(100_000, job(nine))]), Advice::Spread(5));
    assert_eq!(advice(&[(150_000, job(nine))]), Advice::Spread(10));
    assert_eq!(advice(&[(400_000, job(nine))]), Advice::Spread(15));
    assert_eq!(advice(&[(1_600_000, job(nine))]), Advice::Spread(60));
    assert_eq!(advice(&[(1_700_000, job(nine))]), Advice::Move);
    assert_eq!(advice(&[(100_000, urgent())]), Advice::Nothing);
    assert_eq!(advice(&[(100_000, spread())]), Advice::Nothing);
    assert_eq!(advice(&[(60_000, urgent()), (70_000, job(nine))]), Advice::Spread(5));
    assert_eq!(advice(&[(70_000, urgent()), (60_000, job(nine))]), Advice::Nothing);
    // Five minutes fit between two of these, and are not enough; ten do not fit.
    assert_eq!(advice(&[(130_000, job("cron */5 9 * * *"))]), Advice::Spread(5));
    assert_eq!(advice(&[(140_000, job("cron */5 9 * * *"))]), Advice::Move);
    assert_eq!(advice(&[(30_000, job("cron * 9 * * *"))]), Advice::Nothing);
}

#[test]
fn only_what_has_a_limit_can_exceed_it() {
    let mut noop = job("cron 0 9 * * *");
    noop.payload = Payload::Noop;
    let found = forecast(&[(100_000, noop.clone())]);
    assert_eq!(found.peaks(), []);
    assert!(found.text(80).ends_with("\nnone of their targets has a limit"), "{}", found.text(80));
    let found = forecast(&[(100_000, noop), (27_000, job("cron 0 9 * * *"))]);
    assert!(found.text(80).ends_with("\nno limit is exceeded"), "{}", found.text(80));
    assert_eq!(found.json()["unlimited"], serde_json::json!({"noop": 100_000}));
}

#[test]
fn the_chart_fits_eighty_columns_and_marks_what_is_too_much() {
    let found = forecast(&[(480_000, job("cron 0 9 * * *")), (9_000, job("cron 30 14 * * *"))]);
    let text = found.text(80);
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "489,000 jobs; 489,000 runs fall due in the 24 hours from 2026-12-01 05:31 UTC on");
    assert_eq!(lines[2], "05:31           0");
    assert_eq!(lines[6], format!("09:00     480,000 ! {}", "#".repeat(60)));
    assert_eq!(lines[11], "14:00       9,000   ##");
    let around = lines.iter().position(|line| *line == "around 09:00, sms").unwrap();
    assert_eq!(around, 2 + 25 + 1);
    let quarters: Vec<&str> = lines[around + 1..around + 9].iter().map(|line| &line[..line.len().min(19)]).collect();
    let expected =
        ["08:30           0", "08:45           0", "09:00     480,000 !", "09:15           0 !", "09:30           0"];
    assert_eq!(quarters[..5], expected);
    assert_eq!(lines.last(), Some(&"! sms: 09:00 holds 480,000: 17.8 min at 450/s; spread over 30 min?"));
    assert!(found.chart(10).lines().all(|line| line.len() <= 30), "{}", found.chart(10));
}

#[test]
fn json_says_the_same() {
    let found = forecast(&[(480_000, job("cron 0 9 * * *"))]).json();
    assert_eq!((&found["from"], &found["due"]), (&"2026-12-01T05:31:00Z".into(), &480_000.into()));
    assert_eq!(
        found["hours"][4],
        serde_json::json!({"at": "2026-12-01T09:00:00Z", "due": 480_000, "over_limit": true})
    );
    assert_eq!(found["limited"][0], serde_json::json!({"target": "sms", "limit_per_s": 450, "due": 480_000}));
    assert_eq!(
        found["peaks"][0],
        serde_json::json!({
            "target": "sms", "limit_per_s": 450, "at": "2026-12-01T09:00:00Z", "due": 480_000,
            "begins_at": "2026-12-01T09:00:00Z", "total": 480_000, "takes_s": 1_067, "advice": "spread", "spread_min": 30,
        })
    );
}

#[test]
fn the_memo_is_bounded() {
    let (mut memo, zones, now) = (Memo::default(), Zones::embedded(), NOW.parse().unwrap());
    let schedule = job("cron */2 * * * *").schedule;
    for second in 0..2_000 {
        let end_at = Some(now + TimeDelta::days(30) + TimeDelta::seconds(second));
        let firings = memo.firings(&Schedule { end_at, ..schedule.clone() }, now, now + TimeDelta::days(1), &zones);
        assert_eq!(firings.at.len(), 720);
    }
    assert!(memo.known.len() < 2_000 && memo.kept <= MOST_KEPT + 800, "{}", memo.kept);
}
