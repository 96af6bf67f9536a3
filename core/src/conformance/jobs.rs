//! What a [`JobStore`](crate::ports::JobStore) must do.

use super::eventually;
use super::samples::{
    all_kinds_of_jobs, at, job, job_in, on_to, random_bucket, random_name, read, standing, stored, to_the_end,
};
use crate::error::PortError;
use crate::job::{Job, JobKey, JobSpec, JobState};
use crate::memory::as_dispatch_reads;
use crate::ports::{ADVANCES, Advance, AdvanceFrom, Create, JobRead, JobsUnder, Move, Ports, Replace, ReplaceIf};
use std::collections::BTreeMap;

fn tenant() -> String {
    format!("t{}", random_name())
}

/// The next version of a job, by another person.
fn edited(job: &Job) -> Job {
    let mut edited = job.clone();
    edited.version += 1;
    edited.edit_token = random_name();
    edited.updated_by = "bob@bank.example".into();
    edited.spec.payload = edited.spec.payload.with_text("Your bill was corrected");
    edited
}

/// All variants and options of a job are kept, instants to the millisecond.
pub async fn a_job_survives_the_round_trip_whole(ports: &Ports) {
    for job in all_kinds_of_jobs(&tenant()) {
        let job = stored(ports, job).await;
        assert_eq!(read(ports, &job.spec.key).await, job);
    }
}

/// A replace leaves nothing of what was there.
pub async fn a_replaced_job_survives_the_round_trip_whole(ports: &Ports) {
    let mut before = stored(ports, job(&tenant(), "1")).await;
    for kind in all_kinds_of_jobs(&tenant()) {
        let mut next = kind;
        next.spec.key = before.spec.key.clone();
        next.version = before.version + 1;
        assert_eq!(ports.jobs.replace(&next, &ReplaceIf::from(&before)).await, Ok(Replace::Replaced));
        assert_eq!(read(ports, &next.spec.key).await, next);
        before = next;
    }
}

/// The same write again is no conflict, and does not undo what happened since.
pub async fn a_creation_whose_answer_was_lost_is_created(ports: &Ports) {
    let job = stored(ports, job(&tenant(), "1")).await;
    assert_eq!(ports.jobs.create(&job).await, Ok(Create::Created));
    let to = on_to(random_bucket());
    assert_eq!(ports.jobs.advance(&job.spec.key, &standing(&job), &to).await, Ok(Advance::Advanced));
    assert_eq!(ports.jobs.create(&job).await, Ok(Create::Created));
    let mut advanced = job;
    advanced.advance(&to);
    assert_eq!(read(ports, &advanced.spec.key).await, advanced);
}

/// Another write finds the key taken, sees by what, and changes nothing.
pub async fn a_creation_over_another_job_shows_that_job(ports: &Ports) {
    let first = stored(ports, job(&tenant(), "1")).await;
    let second = Job { version: 1, ..edited(&first) };
    let exists = Create::Exists(Box::new(JobRead::Job(Box::new(first.clone()))));
    assert_eq!(ports.jobs.create(&second).await, Ok(exists));
    assert_eq!(read(ports, &first.spec.key).await, first);
}

/// Whoever comes second sees the winner's job.
pub async fn of_two_creations_of_one_key_one_wins(ports: &Ports) {
    let a = job(&tenant(), "1");
    let b = Job { version: 1, ..edited(&a) };
    let (for_a, for_b) = futures::join!(ports.jobs.create(&a), ports.jobs.create(&b));
    let (winner, for_loser) = match (&for_a, &for_b) {
        (Ok(Create::Created), for_b) => (&a, for_b),
        (for_a, Ok(Create::Created)) => (&b, for_a),
        other => panic!("nobody won: {other:?}"),
    };
    let exists = Create::Exists(Box::new(JobRead::Job(Box::new(winner.clone()))));
    assert_eq!(*for_loser, Ok(exists));
    assert_eq!(read(ports, &a.spec.key).await, *winner);
}

/// What dispatch reads of a job is the same as what everybody reads, but for what it has no use for.
pub async fn dispatch_reads_of_a_job_what_it_decides_by(ports: &Ports) {
    for job in all_kinds_of_jobs(&tenant()) {
        stored(ports, job.clone()).await;
        let keys = [job.spec.key.clone()];
        let read = ports.jobs.get_due(&keys).await.expect("jobs can be read").remove(&keys[0]);
        assert_eq!(read, Some(JobRead::Job(Box::new(as_dispatch_reads(job)))));
    }
    let missing = JobKey::new(&tenant(), "missing").expect("the key is well formed");
    assert_eq!(ports.jobs.get_due(&[missing]).await, Ok(BTreeMap::new()));
}

/// A job that was read in part would lose the rest.
pub async fn a_job_without_its_payload_is_not_written(ports: &Ports) {
    let job = stored(ports, job(&tenant(), "1")).await;
    let hollow = as_dispatch_reads(job.clone());
    assert!(matches!(ports.jobs.replace(&hollow, &ReplaceIf::from(&job)).await, Err(PortError::Permanent(_))));
    let other = Job { spec: JobSpec { key: key_of_another(&job), ..hollow.spec.clone() }, ..hollow };
    assert!(matches!(ports.jobs.create(&other).await, Err(PortError::Permanent(_))));
    assert_eq!(read(ports, &job.spec.key).await, job);
}

fn key_of_another(job: &Job) -> JobKey {
    JobKey::new(job.spec.key.tenant(), "another").expect("the key is well formed")
}

/// More than a hundred keys, some without a job and some named twice.
pub async fn many_jobs_are_read_at_once(ports: &Ports) {
    let tenant = tenant();
    let mut expected = BTreeMap::new();
    for n in 0..130 {
        let job = stored(ports, job(&tenant, &format!("{n}"))).await;
        expected.insert(job.spec.key.clone(), JobRead::Job(Box::new(job)));
    }
    let missing = (0..10).map(|n| JobKey::new(&tenant, &format!("missing/{n}")).expect("the key is well formed"));
    // Twice within one call of DynamoDB, which refuses that, and twice over two calls.
    let twice = expected.keys().take(3).chain(expected.keys().last());
    let keys: Vec<JobKey> = missing.chain(twice.chain(expected.keys()).cloned()).collect();
    let jobs = ports.jobs.get_many(&keys).await.expect("jobs can be read");
    assert_eq!(jobs.len(), expected.len(), "each job once, nothing for a missing key");
    assert!(jobs == expected, "each job under its own key");
    assert_eq!(ports.jobs.get_many(&keys[..10]).await, Ok(BTreeMap::new()));
    assert_eq!(ports.jobs.get_many(&[]).await, Ok(BTreeMap::new()));
}

/// An edit of what is no longer there changes nothing and makes nothing.
pub async fn a_replace_needs_the_version_it_was_decided_from(ports: &Ports) {
    let first = stored(ports, job(&tenant(), "1")).await;
    let second = edited(&first);
    let read_at_first = ReplaceIf::from(&first);
    assert_eq!(ports.jobs.replace(&second, &read_at_first).await, Ok(Replace::Replaced));
    for version in [0, 1, 3] {
        let late = edited(&first);
        let other = ReplaceIf { version, ..read_at_first };
        assert_eq!(ports.jobs.replace(&late, &other).await, Ok(Replace::Changed), "version {version}");
        assert_eq!(read(ports, &first.spec.key).await, second);
    }
    let missing = job(&tenant(), "1");
    assert_eq!(ports.jobs.replace(&missing, &ReplaceIf::from(&missing)).await, Ok(Replace::Changed));
    let keys = [missing.spec.key];
    assert_eq!(ports.jobs.get_many(&keys).await, Ok(BTreeMap::new()), "a replace never creates");
}

/// An advance raises no version, and a change that was decided before it would undo it.
pub async fn a_replace_needs_the_firing_it_was_decided_from(ports: &Ports) {
    for to in [on_to(random_bucket()), to_the_end()] {
        let before = stored(ports, job(&tenant(), "1")).await;
        assert_eq!(ports.jobs.advance(&before.spec.key, &standing(&before), &to).await, Ok(Advance::Advanced));
        let advanced = read(ports, &before.spec.key).await;
        let late = edited(&before);
        assert_eq!(ports.jobs.replace(&late, &ReplaceIf::from(&before)).await, Ok(Replace::Changed));
        let never_stood = ReplaceIf { next_scheduled_at: None, ..ReplaceIf::from(&before) };
        assert_eq!(ports.jobs.replace(&late, &never_stood).await, Ok(Replace::Changed));
        assert_eq!(read(ports, &before.spec.key).await, advanced);
        let again = edited(&advanced);
        assert_eq!(ports.jobs.replace(&again, &ReplaceIf::from(&advanced)).await, Ok(Replace::Replaced));
        assert_eq!(read(ports, &before.spec.key).await, again);
    }
}

/// A quarantine raises no version either, and moves no firing.
pub async fn a_replace_needs_the_state_it_was_decided_from(ports: &Ports) {
    let bucket = random_bucket();
    let before = stored(ports, job_in(bucket, 0)).await;
    assert_eq!(ports.jobs.quarantine(&before.spec.key, bucket, "it cannot be understood").await, Ok(()));
    let quarantined = read(ports, &before.spec.key).await;
    assert_eq!(ports.jobs.replace(&edited(&before), &ReplaceIf::from(&before)).await, Ok(Replace::Changed));
    assert_eq!(read(ports, &before.spec.key).await, quarantined);
    let released = Job { state: JobState::Active, error: None, due_bucket: Some(bucket), ..edited(&quarantined) };
    assert_eq!(ports.jobs.replace(&released, &ReplaceIf::from(&quarantined)).await, Ok(Replace::Replaced));
    assert_eq!(read(ports, &before.spec.key).await, released);
}

/// The same write again is no conflict, unless someone came after it.
pub async fn a_replace_whose_answer_was_lost_is_replaced(ports: &Ports) {
    let first = stored(ports, job(&tenant(), "1")).await;
    let (second, if_first) = (edited(&first), ReplaceIf::from(&first));
    assert_eq!(ports.jobs.replace(&second, &if_first).await, Ok(Replace::Replaced));
    assert_eq!(ports.jobs.replace(&second, &if_first).await, Ok(Replace::Replaced), "the same edit token");
    let to = on_to(random_bucket());
    assert_eq!(ports.jobs.advance(&first.spec.key, &standing(&second), &to).await, Ok(Advance::Advanced));
    assert_eq!(ports.jobs.replace(&second, &if_first).await, Ok(Replace::Replaced), "and it undoes no advance");
    let mut advanced = second.clone();
    advanced.advance(&to);
    assert_eq!(read(ports, &first.spec.key).await, advanced);
    let third = edited(&advanced);
    assert_eq!(ports.jobs.replace(&third, &ReplaceIf::from(&advanced)).await, Ok(Replace::Replaced));
    assert_eq!(ports.jobs.replace(&second, &if_first).await, Ok(Replace::Changed), "someone came after it");
    assert_eq!(read(ports, &first.spec.key).await, third);
}

/// Two people edit the same version.
pub async fn of_two_replaces_one_wins(ports: &Ports) {
    let job = stored(ports, job(&tenant(), "1")).await;
    let (a, b, read_by_both) = (edited(&job), edited(&job), ReplaceIf::from(&job));
    let results = futures::join!(ports.jobs.replace(&a, &read_by_both), ports.jobs.replace(&b, &read_by_both));
    let winner = match results {
        (Ok(Replace::Replaced), Ok(Replace::Changed)) => &a,
        (Ok(Replace::Changed), Ok(Replace::Replaced)) => &b,
        other => panic!("not one winner: {other:?}"),
    };
    assert_eq!(read(ports, &job.spec.key).await, *winner);
}

/// Version, generation and all that people said stay.
pub async fn an_advance_moves_the_firing_and_nothing_else(ports: &Ports) {
    let mut job = stored(ports, job(&tenant(), "1")).await;
    for _ in 0..2 {
        let to = on_to(random_bucket());
        assert_eq!(ports.jobs.advance(&job.spec.key, &standing(&job), &to).await, Ok(Advance::Advanced));
        job.advance(&to);
        assert_eq!(read(ports, &job.spec.key).await, job);
    }
    let edited = edited(&job);
    let replaced = ports.jobs.replace(&edited, &ReplaceIf::from(&job)).await;
    assert_eq!(replaced, Ok(Replace::Replaced), "an advance is no edit");
}

/// Each move of a batch stands for itself, and its result is in its place.
pub async fn a_batch_moves_each_job_for_itself(ports: &Ports) {
    let tenant = tenant();
    let mut moves = Vec::new();
    let mut expected = Vec::new();
    for n in 0..ADVANCES {
        let job = stored(ports, job(&tenant, &n.to_string())).await;
        let to = if n % 5 == 4 { to_the_end() } else { on_to(random_bucket()) };
        let is_stale = n % 3 == 1;
        let from = AdvanceFrom { version: job.version + u64::from(is_stale), ..standing(&job) };
        let mut after = job.clone();
        if !is_stale {
            after.advance(&to);
        }
        expected.push((after, if is_stale { Advance::Changed } else { Advance::Advanced }));
        moves.push(Move { key: job.spec.key, from, to });
    }
    let results = ports.jobs.advance_many(&moves).await.expect("a batch of the size that is allowed");
    assert_eq!(results, expected.iter().map(|(_, advance)| Ok(*advance)).collect::<Vec<_>>());
    for (job, _) in expected {
        assert_eq!(read(ports, &job.spec.key).await, job);
    }
    let one_more = [moves.clone(), moves[..1].to_vec()].concat();
    assert!(matches!(ports.jobs.advance_many(&one_more).await, Err(PortError::Permanent(_))), "at most {ADVANCES}");
}

/// Where one of the three is another, an advance changes nothing.
pub async fn an_advance_needs_firing_version_and_an_active_job(ports: &Ports) {
    let active = stored(ports, job(&tenant(), "1")).await;
    let from = standing(&active);
    let earlier = AdvanceFrom { next_scheduled_at: at(-86_400), ..from };
    let newer = AdvanceFrom { version: from.version + 1, ..from };
    let mut cases = vec![(active.clone(), earlier), (active, newer)];
    for state in [JobState::Paused, JobState::Done, JobState::Cancelled, JobState::Quarantined] {
        let inactive = stored(ports, Job { state, ..job(&tenant(), "1") }).await;
        cases.push((inactive.clone(), standing(&inactive)));
    }
    for (job, from) in cases {
        let to = on_to(random_bucket());
        assert_eq!(ports.jobs.advance(&job.spec.key, &from, &to).await, Ok(Advance::Changed), "{:?}", job.state);
        assert_eq!(read(ports, &job.spec.key).await, job);
    }
    let missing = job(&tenant(), "1");
    let to = on_to(random_bucket());
    assert_eq!(ports.jobs.advance(&missing.spec.key, &standing(&missing), &to).await, Ok(Advance::Changed));
    assert_eq!(ports.jobs.get_many(&[missing.spec.key]).await, Ok(BTreeMap::new()), "an advance never creates");
}

/// Neither a repeat nor a straggler with other plans moves a job that has moved.
pub async fn a_second_advance_changes_nothing(ports: &Ports) {
    let mut job = stored(ports, job(&tenant(), "1")).await;
    let (from, to) = (standing(&job), on_to(random_bucket()));
    assert_eq!(ports.jobs.advance(&job.spec.key, &from, &to).await, Ok(Advance::Advanced));
    job.advance(&to);
    for again in [to, on_to(random_bucket()), to_the_end()] {
        assert_eq!(ports.jobs.advance(&job.spec.key, &from, &again).await, Ok(Advance::Changed));
        assert_eq!(read(ports, &job.spec.key).await, job);
    }
}

/// Two schedulers hold the same page.
pub async fn of_two_advances_one_wins(ports: &Ports) {
    let job = stored(ports, job(&tenant(), "1")).await;
    let (key, from) = (&job.spec.key, standing(&job));
    let (a, b) = (on_to(random_bucket()), on_to(random_bucket()));
    let winner = match futures::join!(ports.jobs.advance(key, &from, &a), ports.jobs.advance(key, &from, &b)) {
        (Ok(Advance::Advanced), Ok(Advance::Changed)) => a,
        (Ok(Advance::Changed), Ok(Advance::Advanced)) => b,
        other => panic!("not one winner: {other:?}"),
    };
    let mut expected = job.clone();
    expected.advance(&winner);
    assert_eq!(read(ports, key).await, expected);
}

/// A schedule that is over leaves a done job without a firing.
pub async fn an_advance_to_the_end_makes_a_job_done(ports: &Ports) {
    let mut job = stored(ports, job(&tenant(), "1")).await;
    let from = standing(&job);
    assert_eq!(ports.jobs.advance(&job.spec.key, &from, &to_the_end()).await, Ok(Advance::Advanced));
    job.advance(&to_the_end());
    let done = read(ports, &job.spec.key).await;
    assert_eq!((done.state, done.next_scheduled_at, done.due_bucket), (JobState::Done, None, None));
    assert_eq!(done, job);
    assert_eq!(ports.jobs.advance(&job.spec.key, &from, &to_the_end()).await, Ok(Advance::Changed));
}

/// Active jobs stay, and so do those that sit in another bucket by now.
pub async fn only_an_inactive_job_in_its_bucket_is_unindexed(ports: &Ports) {
    let bucket = random_bucket();
    let active = stored(ports, job_in(bucket, 0)).await;
    let mut paused = stored(ports, Job { state: JobState::Paused, ..job_in(bucket, 0) }).await;
    assert_eq!(ports.jobs.unindex(&active.spec.key, bucket).await, Ok(()));
    assert_eq!(read(ports, &active.spec.key).await, active);
    assert_eq!(ports.jobs.unindex(&paused.spec.key, random_bucket()).await, Ok(()));
    assert_eq!(read(ports, &paused.spec.key).await, paused);
    for _ in 0..2 {
        assert_eq!(ports.jobs.unindex(&paused.spec.key, bucket).await, Ok(()));
        paused.due_bucket = None;
        assert_eq!(read(ports, &paused.spec.key).await, paused);
    }
    let missing = job_in(bucket, 0).spec.key;
    assert_eq!(ports.jobs.unindex(&missing, bucket).await, Ok(()));
    assert_eq!(ports.jobs.get_many(&[missing]).await, Ok(BTreeMap::new()), "an unindex never creates");
}

/// It stays readable for the person who must look; a job that sits elsewhere by now is left alone.
pub async fn a_quarantined_job_shows_its_error_and_does_not_advance(ports: &Ports) {
    let bucket = random_bucket();
    let job = stored(ports, job_in(bucket, 0)).await;
    let key = &job.spec.key;
    assert_eq!(ports.jobs.quarantine(key, random_bucket(), "it is late").await, Ok(()));
    assert_eq!(read(ports, key).await, job);
    assert_eq!(ports.jobs.quarantine(key, bucket, "`31 2` never fires").await, Ok(()));
    assert_eq!(ports.jobs.quarantine(key, bucket, "another error").await, Ok(()));
    let quarantined = read(ports, key).await;
    assert_eq!(quarantined.state, JobState::Quarantined);
    assert_eq!(quarantined.error.as_deref(), Some("`31 2` never fires"), "the first error stays");
    assert_ne!(quarantined.due_bucket, Some(bucket));
    assert_eq!((&quarantined.spec, quarantined.version), (&job.spec, job.version));
    let to = on_to(random_bucket());
    assert_eq!(ports.jobs.advance(key, &standing(&job), &to).await, Ok(Advance::Changed));
    assert_eq!(read(ports, key).await, quarantined);
    let missing = job_in(bucket, 0).spec.key;
    assert_eq!(ports.jobs.quarantine(&missing, bucket, "it is gone").await, Ok(()));
    assert_eq!(ports.jobs.get_many(&[missing]).await, Ok(BTreeMap::new()), "a quarantine never creates");
}

/// Whoever's they are, page by page.
pub async fn all_jobs_are_scanned_once_each(ports: &Ports) {
    let mut expected = Vec::new();
    for n in 0..25 {
        expected.push(stored(ports, job(&tenant(), &format!("c-{n}/bill"))).await);
    }
    eventually("all jobs are scanned", async || {
        let (mut scanned, mut after) = (BTreeMap::new(), None);
        loop {
            let page = ports.jobs.scan(after, 4).await.expect("jobs can be scanned");
            assert!(page.jobs.len() <= 4, "a page of {} jobs", page.jobs.len());
            for (key, job) in page.jobs {
                assert!(scanned.insert(key.clone(), job).is_none(), "{key} twice");
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let is_shown = |job: &Job| scanned.get(&job.spec.key) == Some(&JobRead::Job(Box::new(job.clone())));
        expected.iter().all(is_shown).then_some(())
    })
    .await;
}

/// No page is longer than asked for, and nobody else's jobs are among them.
pub async fn a_tenants_jobs_are_listed_once_each(ports: &Ports) {
    let tenant = tenant();
    let mut expected = BTreeMap::new();
    for n in 0..25 {
        let job = stored(ports, job(&tenant, &format!("c-{n}/bill"))).await;
        expected.insert(job.spec.key.clone(), JobRead::Job(Box::new(job)));
    }
    for other in [format!("{tenant}-2"), format!("{tenant}0"), tenant[..8].to_owned()] {
        stored(ports, job(&other, &format!("c-{}/bill", random_name()))).await;
    }
    let listed = async || {
        let mut listed = BTreeMap::new();
        let mut after = None;
        loop {
            let page = ports.jobs.list(&JobsUnder::tenant(&tenant), after, 4).await.expect("jobs can be listed");
            assert!(page.jobs.len() <= 4, "a page of {} jobs", page.jobs.len());
            for (key, job) in page.jobs {
                assert!(listed.insert(key.clone(), job).is_none(), "{key} twice");
            }
            after = Some(match page.next {
                Some(next) => next,
                None => return listed,
            });
        }
    };
    let listed = eventually("all jobs of a tenant are listed", async || {
        let listed = listed().await;
        (listed.len() >= expected.len()).then_some(listed)
    });
    assert!(listed.await == expected, "just the tenant's jobs");
}

/// By what their ids begin with, whole parts or not, and page by page.
pub async fn jobs_are_listed_by_what_their_ids_begin_with(ports: &Ports) {
    let tenant = tenant();
    for id in ["48213/bill", "48213/card/1", "48213/card/2", "4821/bill", "48213", "5/bill"] {
        stored(ports, job(&tenant, id)).await;
    }
    stored(ports, job(&format!("{tenant}2"), "48213/bill")).await;
    for (prefix, expected) in [
        ("48213/", vec!["48213/bill", "48213/card/1", "48213/card/2"]),
        ("48213/card/", vec!["48213/card/1", "48213/card/2"]),
        ("6/", vec![]),
    ] {
        let of = JobsUnder { tenant: tenant.clone(), prefix: prefix.to_owned() };
        eventually("all of a prefix are listed", async || {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = ports.jobs.list(&of, after, 2).await.expect("jobs can be listed");
                listed.extend(page.jobs.into_keys().map(|key| key.id().to_owned()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            listed.sort();
            (listed == expected).then_some(())
        })
        .await;
    }
}

/// Each under its number, as it was; what is kept again is the same, what is forgotten is gone.
pub async fn kept_versions_are_read_as_they_were(ports: &Ports) {
    let job = job(&tenant(), "c-1/bill");
    let key = job.spec.key.clone();
    let versions: Vec<Job> = (1..=30).map(|version| Job { version, ..edited(&job) }).collect();
    for version in versions.iter().chain(&versions[..3]) {
        assert_eq!(ports.jobs.keep_version(version, at(60)).await, Ok(()));
    }
    let kept = ports.jobs.versions(&key, 28..=60).await.expect("versions can be read");
    let expected = versions[27..].iter().map(|job| (job.version, JobRead::Job(Box::new(job.clone()))));
    assert_eq!(kept, expected.collect());
    assert_eq!(ports.jobs.get_many(std::slice::from_ref(&key)).await, Ok(BTreeMap::new()), "a version is no job");
    let earlier = Job { next_scheduled_at: Some(at(-999)), ..versions[29].clone() };
    assert_eq!(ports.jobs.keep_version(&earlier, at(60)).await, Ok(()));
    let kept = ports.jobs.versions(&key, 30..=30).await.expect("versions can be read");
    assert_eq!(kept[&30].job(), Some(&versions[29]), "an earlier reading does not take the place of a later one");
    assert_eq!(ports.jobs.forget_versions(&key, 1..=29).await, Ok(()));
    let kept = ports.jobs.versions(&key, 1..=100).await.expect("versions can be read");
    assert_eq!(kept.into_keys().collect::<Vec<_>>(), [30]);
    assert_eq!(ports.jobs.versions(&key_of_another(&job), 1..=100).await, Ok(BTreeMap::new()));
}
