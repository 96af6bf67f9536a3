//! What a [`DueIndex`](crate::ports::DueIndex) must do. It may lag behind the jobs, so its cases look again.

use super::eventually;
use super::samples::{job_in, on_to, random_bucket, random_name, read, standing, stored, to_the_end};
use crate::due::{DueBucket, ShardId};
use crate::job::{Job, JobKey, JobState};
use crate::ports::{Advance, DueEntry, DueSpan, Ports, Replace, ReplaceIf};
use chrono::{DateTime, TimeDelta, Utc};

fn end_of(bucket: DueBucket) -> DateTime<Utc> {
    bucket.minute.next().start() - TimeDelta::seconds(1)
}

fn entry(job: &Job) -> DueEntry {
    DueEntry { key: job.spec.key.clone(), due_at: job.next_due_at.expect("the sample is due some time") }
}

/// Waits until a bucket holds just these jobs.
async fn expect_keys(ports: &Ports, bucket: DueBucket, jobs: &[&Job]) {
    let mut expected: Vec<JobKey> = jobs.iter().map(|job| job.spec.key.clone()).collect();
    expected.sort();
    let what = format!("{bucket} holds {expected:?}");
    eventually(&what, async || {
        let page =
            ports.due.page(bucket, DueSpan::up_to(end_of(bucket)), None, 100).await.expect("the index can be read");
        let mut keys: Vec<JobKey> = page.entries.into_iter().map(|entry| entry.key).collect();
        keys.sort();
        (keys == expected).then_some(())
    })
    .await;
}

/// A job that is given none is not in the index, and one that loses it leaves.
pub async fn only_jobs_with_a_bucket_are_in_the_index(ports: &Ports) {
    let bucket = random_bucket();
    let active = stored(ports, job_in(bucket, 0)).await;
    stored(ports, Job { due_bucket: None, state: JobState::Paused, ..job_in(bucket, 1) }).await;
    expect_keys(ports, bucket, &[&active]).await;
    let paused =
        Job { due_bucket: None, state: JobState::Paused, version: 2, edit_token: random_name(), ..active.clone() };
    assert_eq!(ports.jobs.replace(&paused, &ReplaceIf::from(&active)).await, Ok(Replace::Replaced));
    expect_keys(ports, bucket, &[]).await;
}

/// The oldest first; what is due just at the bound is in, what is due later is not.
pub async fn a_page_goes_by_due_time_up_to_the_bound(ports: &Ports) {
    let bucket = random_bucket();
    let mut expected = Vec::new();
    for s in [40, 9, 0, 59, 10] {
        expected.push(entry(&stored(ports, job_in(bucket, s)).await));
    }
    expected.sort_by_key(|entry| entry.due_at);
    for (until, count) in [(-1, 0), (0, 1), (9, 2), (39, 3), (40, 4), (3_600, 5)] {
        let until_at = bucket.minute.start() + TimeDelta::seconds(until);
        eventually(&format!("{count} entries are due until second {until}"), async || {
            let page =
                ports.due.page(bucket, DueSpan::up_to(until_at), None, 100).await.expect("the index can be read");
            (page.entries == expected[..count]).then_some(())
        })
        .await;
    }
}

/// What is due just at the lower bound is out; a span that is empty holds nothing.
pub async fn a_span_begins_behind_its_bound(ports: &Ports) {
    let bucket = random_bucket();
    let mut expected = Vec::new();
    for s in [5, 6, 7, 8] {
        expected.push(entry(&stored(ports, job_in(bucket, s)).await));
    }
    let second = |s| bucket.minute.start() + TimeDelta::seconds(s);
    for (after, until, shown) in [(4, 8, 0..4), (5, 7, 1..3), (7, 7, 3..3), (8, 5, 4..4), (8, 59, 4..4)] {
        let span = DueSpan { after: Some(second(after)), until: second(until) };
        eventually(&format!("{span:?} holds {shown:?}"), async || {
            let page = ports.due.page(bucket, span, None, 100).await.expect("the index can be read");
            (page.entries == expected[shown.clone()]).then_some(())
        })
        .await;
    }
    let span = DueSpan { after: Some(second(5)), until: second(59) };
    let first = ports.due.page(bucket, span, None, 2).await.expect("the index can be read");
    assert_eq!(first.entries, expected[1..3]);
    let second = ports.due.page(bucket, span, first.next, 2).await.expect("the index can be read");
    assert_eq!(second.entries, expected[3..]);
}

/// Page by page, also where entries are due in the same second.
pub async fn pages_show_each_entry_once(ports: &Ports) {
    let bucket = random_bucket();
    let mut jobs = Vec::new();
    for s in [3, 1, 2, 1, 1] {
        jobs.push(stored(ports, job_in(bucket, s)).await);
    }
    expect_keys(ports, bucket, &jobs.iter().collect::<Vec<_>>()).await;
    let (mut entries, mut sizes, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page =
            ports.due.page(bucket, DueSpan::up_to(end_of(bucket)), after, 2).await.expect("the index can be read");
        sizes.push(page.entries.len());
        entries.extend(page.entries);
        after = Some(match page.next {
            Some(next) => next,
            None => break,
        });
    }
    assert_eq!(sizes[..3], [2, 2, 1], "pages are full until the last");
    assert!(entries.is_sorted_by_key(|entry| entry.due_at), "{entries:?}");
    let by_key = |entries: Vec<DueEntry>| {
        let mut entries = entries;
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries
    };
    assert_eq!(by_key(entries), by_key(jobs.iter().map(entry).collect()));
}

/// Neither minutes nor shards.
pub async fn buckets_do_not_mix(ports: &Ports) {
    let bucket = random_bucket();
    let next_minute = DueBucket { minute: bucket.minute.next(), ..bucket };
    let shard = ShardId { number: bucket.shard.number + 1, ..bucket.shard };
    let next_shard = DueBucket { shard, ..bucket };
    for bucket in [bucket, next_minute, next_shard] {
        let job = stored(ports, job_in(bucket, 0)).await;
        expect_keys(ports, bucket, &[&job]).await;
    }
    let job = job_in(random_bucket(), 0);
    expect_keys(ports, job.due_bucket.expect("the sample has a bucket"), &[]).await;
}

/// It sits in one bucket, and there under its new time.
pub async fn an_advanced_job_changes_its_bucket(ports: &Ports) {
    let (old, new) = (random_bucket(), random_bucket());
    let mut job = stored(ports, job_in(old, 0)).await;
    expect_keys(ports, old, &[&job]).await;
    let to = on_to(new);
    assert_eq!(ports.jobs.advance(&job.spec.key, &standing(&job), &to).await, Ok(Advance::Advanced));
    job.advance(&to);
    expect_keys(ports, new, &[&job]).await;
    expect_keys(ports, old, &[]).await;
    let page = ports.due.page(new, DueSpan::up_to(end_of(new)), None, 100).await.expect("the index can be read");
    assert_eq!(page.entries, [entry(&job)]);
}

/// A schedule that is over has nothing to come.
pub async fn a_done_job_leaves_the_index(ports: &Ports) {
    let bucket = random_bucket();
    let job = stored(ports, job_in(bucket, 0)).await;
    expect_keys(ports, bucket, &[&job]).await;
    assert_eq!(ports.jobs.advance(&job.spec.key, &standing(&job), &to_the_end()).await, Ok(Advance::Advanced));
    expect_keys(ports, bucket, &[]).await;
}

/// What dispatch takes out is not shown again.
pub async fn an_unindexed_job_leaves_the_index(ports: &Ports) {
    let bucket = random_bucket();
    let job = stored(ports, Job { state: JobState::Paused, ..job_in(bucket, 0) }).await;
    expect_keys(ports, bucket, &[&job]).await;
    assert_eq!(ports.jobs.unindex(&job.spec.key, bucket).await, Ok(()));
    expect_keys(ports, bucket, &[]).await;
}

/// What is set aside is not read again every second.
pub async fn a_quarantined_job_leaves_its_bucket(ports: &Ports) {
    let bucket = random_bucket();
    let job = stored(ports, job_in(bucket, 0)).await;
    expect_keys(ports, bucket, &[&job]).await;
    assert_eq!(ports.jobs.quarantine(&job.spec.key, bucket, "it cannot be understood").await, Ok(()));
    expect_keys(ports, bucket, &[]).await;
    assert_eq!(read(ports, &job.spec.key).await.state, JobState::Quarantined);
}

/// They are listed by shard, the one that was due first at the front, until they are released.
pub async fn quarantined_jobs_are_listed_by_their_shard(ports: &Ports) {
    let bucket = random_bucket();
    let mut expected = Vec::new();
    for s in [50, 7, 30] {
        let job = stored(ports, job_in(bucket, s)).await;
        assert_eq!(ports.jobs.quarantine(&job.spec.key, bucket, "it cannot be understood").await, Ok(()));
        expected.push(entry(&job));
    }
    expected.sort_by_key(|entry| entry.due_at);
    // Other cases may use the shard as well.
    let listed = async || {
        let (mut entries, mut after) = (Vec::new(), None);
        loop {
            let page = ports.due.quarantined(bucket.shard, after, 2).await.expect("the index can be read");
            assert!(page.entries.len() <= 2, "a page of {} entries", page.entries.len());
            entries.extend(page.entries.into_iter().filter(|one| expected.iter().any(|mine| mine.key == one.key)));
            after = Some(match page.next {
                Some(next) => next,
                None => return entries,
            });
        }
    };
    eventually("all quarantined jobs are listed in order", async || (listed().await == expected).then_some(())).await;
    let first = read(ports, &expected[0].key).await;
    let token = random_name();
    let released =
        Job { state: JobState::Active, due_bucket: Some(bucket), version: 2, edit_token: token, ..first.clone() };
    assert_eq!(ports.jobs.replace(&released, &ReplaceIf::from(&first)).await, Ok(Replace::Replaced));
    eventually("a released job leaves the list", async || (listed().await == expected[1..]).then_some(())).await;
    expect_keys(ports, bucket, &[&released]).await;
    let other = ShardId { number: bucket.shard.number + 1_000, ..bucket.shard };
    let page = ports.due.quarantined(other, None, 10).await.expect("the index can be read");
    assert_eq!(page.entries, [], "nothing of another shard");
}
