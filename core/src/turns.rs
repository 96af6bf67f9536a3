//! Who goes next: the slots of one worker, shared by weight, and the runs that wait for one.
//!
//! Of every ten runs that the shared slots take, six are urgent, three normal and one bulk, as long as each has some that
//! may go; what one has not goes to the others. A few slots take urgent runs only, so that one need never wait for a slow
//! call of another kind. Slots are used in turn, so the shares are the same whether slots or permits are scarce. A host
//! that answers slowly gets only so many slots. Among those that wait for one target, tenants take turns. Nothing here reads a clock or knows what a run is.

use crate::priority::{Priority, Weights};
use crate::target::Target;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeBounds;

/// What a slot takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// Runs of every priority, by weight.
    Shared,
    /// Urgent runs only.
    UrgentOnly,
}

impl Slot {
    /// Both.
    pub const ALL: [Slot; 2] = [Slot::Shared, Slot::UrgentOnly];

    /// The word for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Slot::Shared => "shared",
            Slot::UrgentOnly => "urgent_only",
        }
    }
}

/// How many calls may be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCounts {
    /// In all.
    pub all: usize,
    /// Of these, for urgent runs only.
    pub urgent_only: usize,
    /// To all webhooks together.
    pub webhooks: usize,
    /// To the webhooks of one host.
    pub host: usize,
}

impl SlotCounts {
    /// `all` slots: a fifth for urgent runs only, at most half for webhooks and a quarter for one host's, but always one.
    pub fn of(all: usize) -> Self {
        SlotCounts { all, urgent_only: all / 5, webhooks: (all / 2).max(1), host: (all / 4).max(1) }
    }
}

/// The name of one that waits; unique within its worker.
pub type Ticket = u64;

/// A place for one call, to be given back by [`Turns::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose turn it is.
    pub ticket: Ticket,
    /// Of which priority.
    pub priority: Priority,
    /// Whom it calls.
    pub target: Target,
    /// The slot it has.
    pub slot: Slot,
}

/// All slots, and all that wait for one.
#[derive(Debug)]
pub struct Turns {
    counts: SlotCounts,
    free: VecDeque<Slot>,
    weights: Weights,
    waiting: BTreeMap<Priority, Lines>,
    in_flight: BTreeMap<Target, usize>,
    /// Targets that get one call at a time, to see how they are.
    probed: BTreeSet<Target>,
}

/// Those of one priority, a line for each target.
#[derive(Debug, Default)]
struct Lines {
    by_target: BTreeMap<Target, Line>,
    served: u64,
}

#[derive(Debug, Default)]
struct Line {
    /// Those of each tenant; the tenant that is first is next, and then last.
    tenants: VecDeque<(String, VecDeque<Ticket>)>,
    /// Of the targets of a priority, the one that was served longest ago is next.
    last_served: u64,
}

impl Line {
    fn add(&mut self, tenant: &str, ticket: Ticket) {
        match self.tenants.iter_mut().find(|(known, _)| known == tenant) {
            Some((_, tickets)) => tickets.push_back(ticket),
            None => self.tenants.push_back((tenant.to_owned(), VecDeque::from([ticket]))),
        }
    }

    fn remove(&mut self, ticket: Ticket) {
        self.tenants.iter_mut().for_each(|(_, tickets)| tickets.retain(|waiting| *waiting != ticket));
        self.tenants.retain(|(_, tickets)| !tickets.is_empty());
    }

    fn take_first(&mut self) -> Option<Ticket> {
        let (tenant, mut tickets) = self.tenants.pop_front()?;
        let first = tickets.pop_front();
        if !tickets.is_empty() {
            self.tenants.push_back((tenant, tickets));
        }
        first
    }
}

impl Turns {
    /// Free slots, and nobody waiting.
    pub fn new(counts: SlotCounts) -> Self {
        let urgent = std::iter::repeat_n(Slot::UrgentOnly, counts.urgent_only);
        let shared = std::iter::repeat_n(Slot::Shared, counts.all - counts.urgent_only);
        Turns {
            counts,
            free: urgent.chain(shared).collect(),
            weights: Weights::default(),
            waiting: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            probed: BTreeSet::new(),
        }
    }

    /// Stands in line.
    pub fn wait(&mut self, ticket: Ticket, priority: Priority, target: &Target, tenant: &str) {
        let lines = self.waiting.entry(priority).or_default();
        let line = lines.by_target.entry(target.clone()).or_insert_with(|| Line {
            // Whoever comes anew is no further ahead than those who were served just now, and not behind them.
            last_served: lines.served,
            ..Line::default()
        });
        line.add(tenant, ticket);
    }

    /// Leaves the line; does nothing if it stands in none.
    pub fn leave(&mut self, ticket: Ticket, priority: Priority, target: &Target) {
        let Some(lines) = self.waiting.get_mut(&priority) else { return };
        let Some(line) = lines.by_target.get_mut(target) else { return };
        line.remove(ticket);
        if line.tenants.is_empty() {
            lines.by_target.remove(target);
        }
    }

    /// Whether another call to `target` would have a shared slot, were one free.
    pub fn has_room(&self, target: &Target) -> bool {
        self.has_part(target) && (!target.is_webhook() || self.webhooks() < self.counts.webhooks)
    }

    /// Whether `target` has not its own part of the slots.
    fn has_part(&self, target: &Target) -> bool {
        let most = match target.is_webhook() {
            _ if self.probed.contains(target) => 1,
            true => self.counts.host,
            false => return true,
        };
        self.busy_for(target) < most
    }

    fn busy_for(&self, target: &Target) -> usize {
        self.in_flight.get(target).copied().unwrap_or(0)
    }

    /// Calls to webhooks under way.
    fn webhooks(&self) -> usize {
        self.in_flight.iter().filter(|(target, _)| target.is_webhook()).map(|(_, count)| count).sum()
    }

    /// Whether another run of `priority` for `target` would wait behind as many as are of use.
    pub fn is_crowded(&self, priority: Priority, target: &Target) -> bool {
        self.are_too_many(priority, target, 1)
    }

    /// Whether more wait with a run of `priority` for `target` than are of use, and it may as well leave.
    pub fn is_in_excess(&self, priority: Priority, target: &Target) -> bool {
        self.are_too_many(priority, target, 0)
    }

    /// A target that has its part needs as many in line as keep it busy. Where all webhooks together have theirs, half as
    /// many wait as may be under way; as many again may be the first of hosts that have nothing, for they are next.
    fn are_too_many(&self, priority: Priority, target: &Target, more: usize) -> bool {
        let waiting = self.waiting(..=priority, |other| other == target) + more;
        if !self.has_part(target) {
            return waiting > self.counts.host;
        }
        if self.has_room(target) {
            return false;
        }
        let of_all = self.waiting(..=priority, Target::is_webhook) + more;
        let is_first = self.busy_for(target) == 0 && waiting <= 1;
        of_all > if is_first { self.counts.webhooks } else { self.counts.webhooks / 2 }
    }

    /// How many wait with one of these priorities for targets that match.
    pub fn waiting(&self, priorities: impl RangeBounds<Priority>, matches: impl Fn(&Target) -> bool) -> usize {
        let lines = self.waiting.range(priorities).flat_map(|(_, lines)| &lines.by_target);
        let tenants = lines.filter(|(target, _)| matches(target)).flat_map(|(_, line)| &line.tenants);
        tenants.map(|(_, tickets)| tickets.len()).sum()
    }

    /// The targets that someone waits for who could go, were there a permit: the ones for which a permit is of use.
    pub fn wanted(&self) -> BTreeSet<Target> {
        let takes = |slot: Slot, priority: Priority, target: &Target| match slot {
            Slot::Shared => self.has_room(target),
            // The part of all webhooks is one of the shared slots: these are kept for what must not wait for that.
            Slot::UrgentOnly => priority == Priority::Urgent && self.has_part(target),
        };
        let slots: BTreeSet<Slot> = self.free.iter().copied().collect();
        let waiting =
            self.waiting.iter().flat_map(|(priority, lines)| lines.by_target.keys().map(move |t| (*priority, t)));
        let wanted = waiting.filter(|(priority, target)| slots.iter().any(|slot| takes(*slot, *priority, target)));
        wanted.map(|(_, target)| target.clone()).collect()
    }

    /// Gives the next turn to one that waits for a target with a permit; none when nobody can go.
    pub fn pick(&mut self, has_permit: impl Fn(&Target) -> bool) -> Option<Turn> {
        let for_shared = |target: &Target| has_permit(target) && self.has_room(target);
        let for_urgent = |target: &Target| has_permit(target) && self.has_part(target);
        let has_any = |lines: &Lines, may_go: &dyn Fn(&Target) -> bool| lines.by_target.keys().any(may_go);
        let ready = self.waiting.iter().filter(|(_, lines)| has_any(lines, &for_shared));
        let ready: Vec<Priority> = ready.map(|(priority, _)| *priority).collect();
        let urgent_ready = self.waiting.get(&Priority::Urgent).is_some_and(|lines| has_any(lines, &for_urgent));
        let place = self.free.iter().position(|slot| match slot {
            Slot::Shared => !ready.is_empty(),
            Slot::UrgentOnly => urgent_ready,
        })?;
        let slot = self.free[place];
        let may_go: &dyn Fn(&Target) -> bool = if slot == Slot::Shared { &for_shared } else { &for_urgent };
        let targets = self.waiting.values().flat_map(|lines| lines.by_target.keys());
        let of_targets: BTreeSet<Target> = targets.filter(|target| may_go(target)).cloned().collect();
        let priority = match slot {
            Slot::UrgentOnly => Priority::Urgent,
            Slot::Shared => self.weights.next(&ready)?,
        };
        self.free.remove(place);
        let (ticket, target) = self.take_first(priority, &of_targets);
        *self.in_flight.entry(target.clone()).or_default() += 1;
        Some(Turn { ticket, priority, target, slot })
    }

    /// Frees a turn's slot.
    pub fn done(&mut self, turn: &Turn) {
        self.free.push_back(turn.slot);
        if let Some(busy) = self.in_flight.get_mut(&turn.target) {
            *busy -= 1;
            if *busy == 0 {
                self.in_flight.remove(&turn.target);
            }
        }
    }

    /// From now on `target` gets one call at a time, or again as many as it may have.
    pub fn probe(&mut self, target: &Target, one_at_a_time: bool) {
        if one_at_a_time {
            self.probed.insert(target.clone());
        } else {
            self.probed.remove(target);
        }
    }

    /// Sends away all that wait for `target`.
    pub fn send_away(&mut self, target: &Target) -> Vec<Ticket> {
        let lines = self.waiting.values_mut().filter_map(|lines| lines.by_target.remove(target));
        lines.flat_map(|line| line.tenants).flat_map(|(_, tickets)| tickets).collect()
    }

    /// Calls under way.
    pub fn busy(&self) -> usize {
        self.counts.all - self.free.len()
    }

    fn take_first(&mut self, priority: Priority, targets: &BTreeSet<Target>) -> (Ticket, Target) {
        let lines = self.waiting.get_mut(&priority).expect("a priority that is ready has lines");
        let of_these = lines.by_target.iter_mut().filter(|(target, _)| targets.contains(target));
        let (target, line) = of_these.min_by_key(|(_, line)| line.last_served).expect("one of them is ready");
        lines.served += 1;
        line.last_served = lines.served;
        let ticket = line.take_first().expect("a line that is empty is removed");
        let target = target.clone();
        if line.tenants.is_empty() {
            lines.by_target.remove(&target);
        }
        (ticket, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool with an endless supply of some priorities, all for SMS.
    struct Pool {
        turns: Turns,
        next: Ticket,
        under_way: VecDeque<Turn>,
        taken: BTreeMap<(Slot, Priority), u32>,
    }

    impl Pool {
        fn new(slots: usize) -> Self {
            let turns = Turns::new(SlotCounts::of(slots));
            Pool { turns, next: 0, under_way: VecDeque::new(), taken: BTreeMap::new() }
        }

        fn add(&mut self, priority: Priority, target: &Target) {
            self.next += 1;
            self.turns.wait(self.next, priority, target, "bank");
        }

        /// Starts calls until nobody can go or so many are under way; each taken is replaced by another of its kind.
        fn fill(&mut self, at_most: usize) {
            while self.under_way.len() < at_most {
                let Some(turn) = self.turns.pick(|_| true) else { break };
                *self.taken.entry((turn.slot, turn.priority)).or_default() += 1;
                self.add(turn.priority, &turn.target);
                self.under_way.push_back(turn);
            }
        }

        fn finish(&mut self, n: usize) {
            let turn = self.under_way.remove(n).expect("one is under way");
            self.turns.done(&turn);
        }

        fn share(&self, of: impl Fn(Slot, Priority) -> bool, among: impl Fn(Slot) -> bool) -> f64 {
            let sum = |f: &dyn Fn(Slot, Priority) -> bool| -> u32 {
                self.taken.iter().filter(|((slot, priority), _)| f(*slot, *priority)).map(|(_, n)| n).sum()
            };
            f64::from(sum(&|slot, priority| among(slot) && of(slot, priority))) / f64::from(sum(&|slot, _| among(slot)))
        }
    }

    fn run(slots: usize, at_most: usize, priorities: &[Priority]) -> Pool {
        let mut pool = Pool::new(slots);
        for priority in priorities {
            pool.add(*priority, &Target::sms());
            pool.add(*priority, &Target::sms());
        }
        pool.fill(at_most);
        for n in 0..20_000 {
            // Calls do not end in the order in which they began.
            pool.finish((n * 7) % pool.under_way.len());
            pool.fill(at_most);
        }
        pool
    }

    #[test]
    fn shared_slots_take_six_three_one_and_the_pool_more_urgent_ones_whatever_is_scarce() {
        for at_most in [20, 4, 1] {
            let pool = run(20, at_most, &Priority::ALL);
            let shared = |priority| pool.share(move |_, p| p == priority, |slot| slot == Slot::Shared);
            let all = |priority| pool.share(move |_, p| p == priority, |_| true);
            for (priority, of_shared, of_all) in
                [(Priority::Urgent, 0.6, 0.68), (Priority::Normal, 0.3, 0.24), (Priority::Bulk, 0.1, 0.08)]
            {
                let (shared, all) = (shared(priority), all(priority));
                assert!((shared - of_shared).abs() < 0.01, "{at_most} at once: {priority} {shared} of the shared");
                assert!((all - of_all).abs() < 0.01, "{at_most} at once: {priority} {all} of all");
            }
        }
    }

    #[test]
    fn what_an_empty_queue_leaves_goes_to_the_others_in_their_proportion() {
        let pool = run(20, 20, &[Priority::Normal, Priority::Bulk]);
        let normal = pool.share(|_, p| p == Priority::Normal, |_| true);
        assert!((normal - 0.75).abs() < 0.01, "{normal}");
        assert_eq!(pool.taken.keys().filter(|(slot, _)| *slot == Slot::UrgentOnly).count(), 0);
        assert_eq!(pool.under_way.len(), 16, "four slots wait for urgent runs");
        let only_bulk = run(20, 20, &[Priority::Bulk]);
        assert_eq!(only_bulk.under_way.len(), 16);
    }

    #[test]
    fn an_urgent_run_has_a_slot_although_all_shared_ones_hang() {
        let mut pool = run(20, 20, &[Priority::Bulk]);
        pool.add(Priority::Urgent, &Target::sms());
        let turn = pool.turns.pick(|_| true).unwrap();
        assert_eq!((turn.priority, turn.slot), (Priority::Urgent, Slot::UrgentOnly));
    }

    #[test]
    fn a_host_that_hangs_takes_no_more_than_its_slots_and_leaves_sms_alone() {
        let mut pool = Pool::new(20);
        for n in 0..40 {
            pool.add(Priority::Bulk, &Target::webhook(&format!("slow-{}.example", n % 4)));
        }
        pool.fill(20);
        assert_eq!(pool.under_way.len(), 10, "half of the slots, five a host");
        assert!(!pool.turns.has_room(&Target::webhook("slow-0.example")));
        let slow = Target::webhook("slow-0.example");
        assert!(pool.turns.is_crowded(Priority::Bulk, &slow), "those behind are not to wait for it");
        assert!(!pool.turns.is_crowded(Priority::Urgent, &slow), "what is urgent stands before them");
        assert!(!pool.turns.is_crowded(Priority::Bulk, &Target::sms()));
        for (ticket, n) in (1..=50).flat_map(|ticket| (0..4).map(move |n| (ticket, n))) {
            let host = Target::webhook(&format!("slow-{n}.example"));
            if pool.turns.is_in_excess(Priority::Bulk, &host) {
                pool.turns.leave(ticket, Priority::Bulk, &host);
            }
        }
        let stay = pool.turns.waiting(.., Target::is_webhook);
        assert_eq!(stay, 5, "those who wait longer are in the way");
        let well = Target::webhook("well.example");
        assert!(!pool.turns.is_crowded(Priority::Bulk, &well), "it has nothing yet");
        pool.add(Priority::Urgent, &well);
        let urgent = pool.turns.pick(|_| true).map(|turn| (turn.target, turn.slot));
        assert_eq!(urgent, Some((well, Slot::UrgentOnly)), "slow hosts take no slot that is kept for urgent runs");
        assert!(pool.turns.wanted().is_empty(), "no permit is asked for that could not be used");
        pool.add(Priority::Bulk, &Target::sms());
        assert_eq!(pool.turns.wanted(), BTreeSet::from([Target::sms()]));
        assert_eq!(pool.turns.pick(|_| true).unwrap().target, Target::sms());
    }

    #[test]
    fn text_messages_that_have_every_slot_crowd_nobody_out() {
        let mut pool = Pool::new(20);
        for _ in 0..100 {
            Priority::ALL.into_iter().for_each(|priority| pool.add(priority, &Target::sms()));
        }
        pool.fill(20);
        assert_eq!(pool.under_way.len(), 20);
        for priority in Priority::ALL {
            assert!(!pool.turns.is_crowded(priority, &Target::sms()), "{priority}: it waits for its turn by weight");
            assert!(
                !pool.turns.is_in_excess(priority, &Target::sms()),
                "{priority}: nor is it sent away while it waits"
            );
        }
    }

    #[test]
    fn targets_of_one_priority_take_turns() {
        let mut pool = Pool::new(20);
        let (sms, email) = (Target::sms(), Target::email());
        for target in [&sms, &sms, &sms, &email] {
            pool.add(Priority::Normal, target);
        }
        let order: Vec<Target> = (0..4).map(|_| pool.turns.pick(|_| true).unwrap().target).collect();
        assert!(order[..2].contains(&email), "{order:?}");
    }

    #[test]
    fn tenants_of_one_target_take_turns_however_many_runs_one_has() {
        let mut turns = Turns::new(SlotCounts::of(20));
        (0..1_000).for_each(|ticket| turns.wait(ticket, Priority::Normal, &Target::sms(), "big"));
        (1_000..1_003).for_each(|ticket| turns.wait(ticket, Priority::Normal, &Target::sms(), "small"));
        let order: Vec<Ticket> = (0..8).map(|_| turns.pick(|_| true).unwrap().ticket).collect();
        assert_eq!(order, [0, 1_000, 1, 1_001, 2, 1_002, 3, 4]);
        turns.leave(5, Priority::Normal, &Target::sms());
        assert_eq!(turns.pick(|_| true).unwrap().ticket, 6);
    }

    #[test]
    fn nobody_goes_without_a_permit_and_the_weights_do_not_count_it() {
        let mut pool = Pool::new(5);
        for priority in Priority::ALL {
            pool.add(priority, &Target::sms());
        }
        assert_eq!(pool.turns.pick(|_| false), None);
        assert_eq!(pool.turns.pick(|_| true).unwrap().priority, Priority::Urgent);
    }

    #[test]
    fn a_target_that_is_tried_gets_one_call_at_a_time() {
        let mut pool = Pool::new(20);
        pool.turns.probe(&Target::sms(), true);
        pool.add(Priority::Normal, &Target::sms());
        pool.add(Priority::Normal, &Target::sms());
        pool.fill(20);
        assert_eq!(pool.under_way.len(), 1);
        pool.finish(0);
        pool.turns.probe(&Target::sms(), false);
        pool.fill(20);
        assert_eq!(pool.under_way.len(), 16);
    }

    #[test]
    fn whoever_leaves_or_is_sent_away_gets_no_turn() {
        let mut pool = Pool::new(20);
        pool.add(Priority::Normal, &Target::sms());
        pool.turns.leave(1, Priority::Normal, &Target::sms());
        pool.turns.leave(1, Priority::Normal, &Target::sms());
        pool.add(Priority::Bulk, &Target::sms());
        pool.add(Priority::Normal, &Target::email());
        assert_eq!(pool.turns.send_away(&Target::sms()), [2]);
        assert_eq!(pool.turns.pick(|_| true).unwrap().ticket, 3);
        assert_eq!((pool.turns.pick(|_| true), pool.turns.busy()), (None, 1));
    }
}
