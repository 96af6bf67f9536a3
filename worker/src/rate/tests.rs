use super::*;
use punctual_core::clock::{Stopwatch, TokioClock};
use punctual_core::steering::Steering;

const S: fn(u64) -> Duration = Duration::from_secs;

/// Permits of a worker that knows the limits and trusts its shares for an hour.
struct Bench {
    clock: Arc<dyn Clock>,
    steered: Arc<Steered>,
    permits: Permits,
}

impl Bench {
    fn with(sharing: Sharing) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(chrono::DateTime::UNIX_EPOCH));
        let steered = Arc::new(Steered::new(clock.clone()));
        let permits = Permits::new(clock.clone(), steered.clone(), sharing);
        Bench { clock, steered, permits }
    }

    fn new(shares: u32) -> Self {
        let bench = Bench::with(Sharing::Leased);
        bench.steer(&Steering::default());
        bench.grant(shares);
        bench
    }

    /// Operators have just said this.
    fn steer(&self, steering: &Steering) {
        self.steered.note(steering.clone(), Stopwatch::start(&*self.clock));
    }

    fn limit(&self, per_second: u32) {
        self.steer(&Steering::default().with_limit(Target::sms(), per_second).unwrap());
    }

    fn grant(&self, shares: u32) {
        let trust = Trust { since: Stopwatch::start(&*self.clock), lasts: S(3_600) };
        self.permits.grant(&Target::sms(), shares, Some(trust));
    }

    /// When permits were to be had within this time, by somebody who always wants one.
    async fn taken(&self, within: Duration) -> Vec<Duration> {
        let until = self.clock.monotonic() + within;
        let mut taken = Vec::new();
        while self.clock.monotonic() < until {
            // Limits are read again all the time.
            self.steer(&self.steered.current().map(|steering| (*steering).clone()).unwrap_or_default());
            match self.permits.try_permit(&Target::sms()) {
                Permit::Ready => taken.push(self.clock.monotonic()),
                Permit::At(at) => tokio::time::sleep(at.min(until).saturating_sub(self.clock.monotonic())).await,
                Permit::Never => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        taken
    }
}

/// The most of these instants within any second.
fn most_in_a_second(at: &[Duration]) -> usize {
    (0..at.len()).map(|i| at[i..].partition_point(|t| *t < at[i] + S(1))).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn no_second_sees_more_than_the_limit_and_a_twentieth_and_nearly_all_of_it_is_used() {
    for (shares, rate) in [(60, 450), (30, 225), (12, 90)] {
        let taken = Bench::new(shares).taken(S(20)).await;
        let most = most_in_a_second(&taken);
        assert!(most <= rate + rate / 20 && most < rate + 4, "{shares} shares: {most} in one second");
        assert!(taken.len() * 1_000 >= 20 * rate * 985, "{shares} shares: {} of {}", taken.len(), 20 * rate);
        assert!(most_in_a_second(&taken[..rate]) <= rate, "the first second is as any other");
    }
}

// The control.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_starts_full_lets_twice_the_limit_through_in_its_first_second() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(chrono::DateTime::UNIX_EPOCH));
    let full = Limiter::direct_with_clock(Quota::per_second(NonZeroU32::new(450).unwrap()), Monotonic(clock.clone()));
    let mut taken = Vec::new();
    while clock.monotonic() < S(2) {
        match full.check() {
            Ok(()) => taken.push(clock.monotonic()),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    assert!(most_in_a_second(&taken) > 850, "{}", most_in_a_second(&taken));
}

#[tokio::test(start_paused = true)]
async fn shares_that_come_and_go_never_let_more_through_than_the_most_there_were() {
    let bench = Bench::new(12);
    let mut taken = Vec::new();
    for shares in [12, 30, 31, 60, 0, 60, 59, 60, 1, 60, 60, 20, 40, 60] {
        bench.grant(shares);
        taken.extend(bench.taken(Duration::from_millis(170)).await);
    }
    let most = most_in_a_second(&taken);
    assert!(most <= 450 + 4, "{most} in one second");
    // What was gained is used: the second is more than the least of its shares.
    assert!(most > 200, "{most}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_is_in_force_at_the_next_permit_and_never_above_the_larger_one() {
    let bench = Bench::new(60);
    let mut taken = Vec::new();
    for limit in [450, 100, 450, 30, 450] {
        bench.limit(limit);
        let now = bench.taken(S(1)).await;
        assert!(now.len() <= limit as usize && now.len() + 8 >= limit as usize * 98 / 100, "{} of {limit}", now.len());
        taken.extend(now);
    }
    assert!(most_in_a_second(&taken) <= 454, "{}", most_in_a_second(&taken));
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_one_a_second_for_a_worker_is_kept_as_well() {
    let bench = Bench::new(1);
    bench.limit(10);
    let taken = bench.taken(S(61)).await;
    assert_eq!(taken.iter().map(Duration::as_secs).collect::<Vec<_>>(), [6, 12, 18, 24, 30, 36, 42, 48, 54, 60]);
}

#[tokio::test(start_paused = true)]
async fn without_trusted_shares_there_is_no_permit_and_one_in_hand_is_not_valid() {
    let bench = Bench::new(60);
    let (sms, since) = (Target::sms(), Stopwatch::start(&*bench.clock));
    bench.permits.grant(&sms, 60, Some(Trust { since, lasts: S(8) }));
    assert!(bench.taken(S(7)).await.len() > 3_000);
    assert!(bench.permits.try_permit(&sms) != Permit::Never && bench.permits.still_valid(&sms));
    tokio::time::sleep(S(1)).await;
    assert!(bench.permits.try_permit(&sms) == Permit::Never && !bench.permits.still_valid(&sms));
    bench.grant(60);
    assert!(bench.permits.still_valid(&sms));
    bench.permits.lower(&sms, 0);
    assert!(bench.permits.try_permit(&sms) == Permit::Never && !bench.permits.still_valid(&sms));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_the_limits_are_not_known() {
    let bench = Bench::with(Sharing::Leased);
    let hook = Target::webhook("hooks.example.com");
    assert_eq!((bench.permits.try_permit(&hook), bench.permits.wanted()), (Permit::Never, None));
    bench.steer(&Steering::default());
    assert!(bench.permits.try_permit(&hook) == Permit::Ready && bench.permits.still_valid(&hook), "it has no limit");
    tokio::time::sleep(S(10)).await;
    assert!(bench.permits.try_permit(&hook) == Permit::Never && !bench.permits.still_valid(&hook));
}

#[tokio::test(start_paused = true)]
async fn shares_are_wanted_of_text_messages_always_and_of_others_for_a_while() {
    let bench = Bench::with(Sharing::Leased);
    let hook = Target::webhook("hooks.example.com");
    let steering = Steering::default().with_limit(hook.clone(), 5).unwrap();
    bench.steer(&steering);
    assert_eq!(bench.permits.wanted(), Some(vec![Target::sms()]));
    assert_eq!(bench.permits.try_permit(&hook), Permit::Never);
    assert_eq!(bench.permits.wanted(), Some(vec![Target::sms(), hook]));
    tokio::time::sleep(INTEREST).await;
    bench.steer(&steering);
    assert_eq!(bench.permits.wanted(), Some(vec![Target::sms()]));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_of_new_shares_and_all_come_in_order() {
    let bench = Arc::new(Bench::new(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (bench, order) = (bench.clone(), order.clone());
        waiting.spawn(async move {
            bench.permits.next(&Target::sms()).await;
            order.lock().unwrap().push(n);
        });
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(S(3)).await;
    assert_eq!(waiting.try_join_next().map(|_| ()), None);
    let told = tokio::spawn({
        let bench = bench.clone();
        async move {
            bench.permits.changed().await;
            bench.permits.changed().await;
        }
    });
    let began = bench.clock.monotonic();
    bench.grant(60);
    while waiting.join_next().await.is_some() {}
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    assert!(bench.clock.monotonic() - began < Duration::from_millis(150));
    // The first grant, of no shares, changed nothing; the second did, once.
    assert!(!told.is_finished());
    bench.grant(30);
    tokio::time::timeout(S(1), told).await.expect("it is told of each change").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fixed_part_needs_no_shares_and_starts_empty() {
    let bench = Bench::with(Sharing::Static(NonZeroU32::new(9).unwrap()));
    bench.steer(&Steering::default());
    let taken = bench.taken(S(10)).await;
    assert!(taken.len() > 490 && most_in_a_second(&taken) <= 52, "{}", taken.len());
    assert!(bench.permits.still_valid(&Target::sms()));
    assert!(taken[0] >= Duration::from_millis(20));
}

/// Lets runs in for twenty seconds that take up to 100 ms each to begin, and once all of them 400 ms; returns when they
/// went out.
async fn begun_unevenly(by_the_door: bool) -> Vec<Duration> {
    let bench = Arc::new(Bench::new(60));
    let out = Arc::new(Mutex::new(Vec::new()));
    let (mut calls, began) = (tokio::task::JoinSet::new(), bench.clock.monotonic());
    let mut n = 0;
    while bench.clock.monotonic() < began + S(20) {
        bench.steer(&Steering::default());
        bench.permits.next(&Target::sms()).await;
        let stall = (began + S(10) + Duration::from_millis(400)).saturating_sub(bench.clock.monotonic());
        let stall = if bench.clock.monotonic() > began + S(10) { stall } else { Duration::ZERO };
        n += 1;
        let takes = Duration::from_millis(n * 37 % 100).max(stall);
        let (bench, out) = (bench.clone(), out.clone());
        calls.spawn(async move {
            tokio::time::sleep(takes).await;
            if by_the_door {
                bench.permits.depart(&Target::sms()).await;
            }
            out.lock().unwrap().push(bench.clock.monotonic());
        });
    }
    tokio::time::sleep(S(1)).await;
    let mut out = out.lock().unwrap().clone();
    out.sort();
    out
}

#[tokio::test(start_paused = true)]
async fn what_the_store_bunches_up_leaves_at_the_pace_of_the_limit_and_no_permit_is_lost() {
    let out = begun_unevenly(true).await;
    assert!(most_in_a_second(&out) <= 454, "{}", most_in_a_second(&out));
    assert!(out.len() * 1_000 >= 9_000 * 985, "{} of 9000", out.len());
}

// The control.
#[tokio::test(start_paused = true)]
async fn without_the_door_a_stall_of_the_store_breaks_the_limit() {
    assert!(most_in_a_second(&begun_unevenly(false).await) > 550);
}
