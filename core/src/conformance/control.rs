//! What a [`Control`](crate::ports::Control) must do.

use super::samples::{at, random_name};
use crate::access::{ApiKey, ApiKeys, Reach, Role};
use crate::due::{Layout, Shards};
use crate::ports::Ports;
use crate::priority::Priority;
use crate::steering::{Hold, Scope, Steering};
use crate::target::Target;

/// Whoever comes later gets the counts in force.
pub async fn shard_counts_are_set_once(ports: &Ports) {
    let before = ports.control.shards().await.expect("the shard counts can be read");
    let first = Shards { urgent: 2, standard: 5 };
    let in_force = ports.control.init_shards(first).await.expect("the shard counts can be set");
    assert_eq!(in_force, before.unwrap_or(first));
    for later in [first, Shards { urgent: 8, standard: 24 }] {
        assert_eq!(ports.control.init_shards(later).await, Ok(in_force));
        assert_eq!(ports.control.shards().await, Ok(Some(in_force)));
    }
}

/// Readers first, then writers; whoever decided from older counts gets those in force.
pub async fn shard_counts_change_only_from_what_they_were(ports: &Ports) {
    let write = ports.control.init_shards(Shards { urgent: 2, standard: 5 }).await.expect("the counts can be set");
    let before = ports.control.layout().await.expect("the counts can be read").expect("they are set");
    assert_eq!(before.write, write);
    let more = Shards { urgent: write.urgent + 1, standard: write.standard + 4 };
    let growing = Layout { read: more, write };
    assert_eq!(ports.control.change_layout(before, growing).await, Ok(growing));
    assert_eq!(ports.control.change_layout(before, Layout::of(more)).await, Ok(growing), "they were others by now");
    assert_eq!(ports.control.layout().await, Ok(Some(growing)));
    assert_eq!(ports.control.shards().await, Ok(Some(write)), "writers follow later");
    assert_eq!(ports.control.change_layout(growing, before).await, Ok(before));
}

/// The first value stays, whoever asks again with whatever; another id has its own.
pub async fn what_is_kept_once_stays(ports: &Ports) {
    let (id, other) = (format!("run/{}", random_name()), format!("run/{}", random_name()));
    let once = async |id: &str, value: &str| ports.control.once(id, value, at(60)).await;
    assert_eq!(once(&id, "first").await.as_deref(), Ok("first"));
    for value in ["second", "first"] {
        assert_eq!(once(&id, value).await.as_deref(), Ok("first"));
    }
    let both = futures::join!(once(&other, "a"), once(&other, "b"));
    let (for_a, for_b) = (both.0.expect("it can be kept"), both.1.expect("it can be kept"));
    assert_eq!(for_a, for_b, "of two, one is in force for both");
    assert_eq!(ports.control.kept(&other).await, Ok(Some(for_a.clone())));
    assert_eq!(ports.control.kept(&format!("run/{}", random_name())).await, Ok(None));
    assert!(["a", "b"].contains(&for_a.as_str()));
}

/// One of each kind, over whatever is there.
fn steered(from: &Steering) -> Steering {
    let hook = Target::webhook("hooks.example.com");
    let scopes =
        [Scope::All, Scope::Tenant("bank".into()), Scope::Priority(Priority::Bulk), Scope::Target(hook.clone())];
    let limited = from.with_limit(Target::sms(), 100).and_then(|to| to.with_limit(hook, 1));
    let held = scopes.into_iter().enumerate().try_fold(limited.expect("there is room"), |to, (n, scope)| {
        let why = format!("maintenance, until {n}:00; \u{4f60}\u{597d}");
        to.with_hold(Hold { scope, by: "ann".into(), why, since: at(n as i64) })
    });
    Steering { revision: from.revision + 1, ..held.expect("there is room") }
}

/// Where nothing was ever said, nothing is there.
pub async fn limits_and_holds_survive_the_round_trip_whole(ports: &Ports) {
    let before = ports.control.steering().await.expect("it can be read");
    let to = steered(&before);
    assert_eq!(ports.control.change_steering(before.revision, &to).await, Ok(to.clone()));
    assert_eq!(ports.control.steering().await, Ok(to.clone()));
    let nothing = Steering { revision: to.revision + 1, ..Steering::default() };
    assert_eq!(ports.control.change_steering(to.revision, &nothing).await, Ok(nothing.clone()));
    assert_eq!(ports.control.steering().await, Ok(nothing));
}

/// Whoever decided from something older gets what is in force; a repeat finds its own change.
pub async fn limits_and_holds_change_only_from_what_they_were(ports: &Ports) {
    let before = ports.control.steering().await.expect("it can be read");
    let to = steered(&before);
    assert_eq!(ports.control.change_steering(before.revision, &to).await, Ok(to.clone()));
    assert_eq!(ports.control.change_steering(before.revision, &to).await, Ok(to.clone()), "its answer was lost");
    let other = to.without_limit(&Target::sms());
    assert_eq!(ports.control.change_steering(before.revision, &other).await, Ok(to.clone()));
    assert_eq!(ports.control.steering().await, Ok(to.clone()));
    let next = |scope: Scope| to.without_hold(&scope);
    let (a, b) = (next(Scope::All), next(Scope::Tenant("bank".into())));
    let both =
        futures::join!(ports.control.change_steering(to.revision, &a), ports.control.change_steering(to.revision, &b));
    let in_force = both.0.expect("it can be changed");
    assert_eq!(both.1.as_ref(), Ok(&in_force), "of two, one is in force for both");
    assert!(in_force == a || in_force == b);
}

fn keys_after(before: &ApiKeys) -> ApiKeys {
    let secret = "00112233445566778899aabbccddeeff0011223344556677";
    let reaches = [(Reach::Everyone, Role::Operate), (Reach::Tenant("bank".into()), Role::Read)];
    let keys = reaches.into_iter().enumerate().map(|(n, (reach, role))| {
        let made = ApiKey::new(&format!("0000000{n}"), secret, reach, role, "Zo\u{eb}", "ann", at(0));
        let revoked_at = (n == 1).then(|| at(7));
        ApiKey { revoked_at, ..made.expect("the label is short").0 }
    });
    ApiKeys { revision: before.revision + 1, keys: keys.collect() }
}

/// Where there never was one, there is none.
pub async fn api_keys_survive_the_round_trip_whole(ports: &Ports) {
    let before = ports.control.api_keys().await.expect("keys can be read");
    let to = keys_after(&before);
    assert_eq!(ports.control.change_api_keys(before.revision, &to).await, Ok(to.clone()));
    assert_eq!(ports.control.api_keys().await, Ok(to));
}

/// Whoever decided from something older gets what is in force; a repeat finds its own change.
pub async fn api_keys_change_only_from_what_they_were(ports: &Ports) {
    let before = ports.control.api_keys().await.expect("keys can be read");
    let to = keys_after(&before);
    assert_eq!(ports.control.change_api_keys(before.revision, &to).await, Ok(to.clone()));
    assert_eq!(ports.control.change_api_keys(before.revision, &to).await, Ok(to.clone()), "its answer was lost");
    let other = ApiKeys { revision: to.revision, keys: Vec::new() };
    assert_eq!(ports.control.change_api_keys(before.revision, &other).await, Ok(to.clone()));
    assert_eq!(ports.control.api_keys().await, Ok(to));
}
