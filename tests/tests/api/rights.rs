//! The table of rights: every route, with no key, a wrong one, another tenant's, and each role.

use super::{bill, town};
use punctual_core::access::Role;
use punctual_scheduler::api::{Op, ROUTES, Route};
use punctual_tests::desk::{Desk, make_key};
use serde_json::{Value, json};

/// A request that a route answers well for who may ask.
fn sample(route: &Route) -> (String, Option<Value>) {
    let path = route.path.replace("{id}", "c-1").replace("{run}", "1791171000");
    let path = match route.op {
        Op::PutHold | Op::DeleteHold => path.replace("{scope}", "tenant%2Fbank"),
        _ => path.replace("{target}", "sms"),
    };
    let body = match route.op {
        Op::CreateJob => Some(bill("new")),
        Op::PutJob => Some(bill("c-1")),
        Op::PatchJob => Some(json!({"name": "x"})),
        Op::PreviewSchedule => Some(json!({"schedule": {"cron": "0 9 * * *"}})),
        Op::ReplayDeadLetters | Op::RequeueMissing => Some(json!({})),
        Op::DropDeadLetters | Op::PutHold => Some(json!({"why": "a test"})),
        Op::PutRate => Some(json!({"per_second": 100})),
        _ => None,
    };
    (path, body)
}

async fn status(desk: &Desk, route: &Route, key: Option<&str>) -> u16 {
    let (path, body) = sample(route);
    let bearer = key.map(|key| format!("Bearer {key}"));
    let mut headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    if route.op == Op::ImportJobs {
        headers.push(("content-type", "application/x-ndjson"));
    }
    desk.ask_with(route.method.as_str(), &path, body.as_ref(), &headers).await.status
}

/// What concerns all tenants.
fn is_for_everyone(op: Op) -> bool {
    matches!(op, Op::PutRate | Op::DeleteRate | Op::Status)
}

/// What names a tenant's job in its path, and so is not there for another's key.
fn names_a_job(op: Op) -> bool {
    use Op::{CancelJobs, DeleteJob, GetJob, GetRun, ListChanges, ListRuns, NextFirings, PatchJob, PauseJobs};
    use Op::{ReleaseJobs, RequeueRun, ResumeJobs, RunJobs};
    let named = [
        GetJob,
        PatchJob,
        DeleteJob,
        PauseJobs,
        ResumeJobs,
        CancelJobs,
        RunJobs,
        ReleaseJobs,
        ListRuns,
        GetRun,
        RequeueRun,
        NextFirings,
        ListChanges,
    ];
    named.contains(&op)
}

#[tokio::test(start_paused = true)]
async fn every_route_asks_for_a_key_that_opens_it() {
    for route in &ROUTES {
        let (town, desk) = town().await;
        assert_eq!(desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await.status, 201);
        let (op, path) = (route.op, format!("{} {}", route.method, route.path));
        let Some(needed) = route.role else {
            assert_eq!(status(&desk, route, None).await, 200, "{path} is open");
            continue;
        };
        assert_eq!(status(&desk, route, None).await, 401, "{path} without a key");
        for wrong in ["", "punctual", "punctual_00000000_00", &desk.key[..desk.key.len() - 1]] {
            assert_eq!(status(&desk, route, Some(wrong)).await, 401, "{path} with a wrong key");
        }
        for role in Role::ALL {
            // What one role may do is not in the way of the next.
            let (town, desk) = super::town().await;
            assert_eq!(desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await.status, 201);
            let key = make_key(&town, "bank", role).await;
            // A key that was made a moment ago is looked for once a second.
            tokio::time::sleep(std::time::Duration::from_secs(6)).await;
            let own = status(&desk, route, Some(&key)).await;
            match op {
                _ if role < needed => assert_eq!(own, 403, "{path} as {role}"),
                op if is_for_everyone(op) => assert_eq!(own, 403, "{path} as {role} concerns everybody"),
                // There is nothing of it yet, but whoever may ask is told so.
                Op::GetRun | Op::DeleteHold => assert_eq!(own, 404, "{path} as {role}"),
                Op::RequeueRun | Op::ReleaseJobs | Op::ResumeJobs => {
                    assert!(own == 409 || own == 200, "{path} as {role}: {own}");
                }
                _ => assert!((200..300).contains(&own), "{path} as {role}: {own}"),
            }
        }
        let other = make_key(&town, "shop", Role::Operate).await;
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        let seen = status(&desk, route, Some(&other)).await;
        match op {
            op if names_a_job(op) => assert_eq!(seen, 404, "{path} for another tenant"),
            Op::PutHold | Op::DeleteHold => assert_eq!(seen, 403, "{path} for another tenant"),
            op if is_for_everyone(op) => assert_eq!(seen, 403, "{path}"),
            _ => assert!((200..300).contains(&seen), "{path}: {seen}"),
        }
        let everyone = make_key(&town, "*", Role::Operate).await;
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        if is_for_everyone(op) {
            assert_eq!(status(&desk, route, Some(&everyone)).await, 200, "{path} for who runs it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_tenants_jobs_are_neither_seen_nor_touched() {
    let (town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1/bill"))).await;
    let shop = Desk::new(&town).await.with_key(&make_key(&town, "shop", Role::Operate).await);
    let before = town.world.jobs();
    assert_eq!(shop.ask("GET", "/v1/jobs", None).await.json["items"], json!([]));
    for path in ["/v1/jobs/c-1%2F/cancel", "/v1/jobs/c-1%2F/pause"] {
        assert_eq!(shop.ask("POST", path, None).await.json["changed"], json!(0), "{path}");
    }
    assert_eq!(shop.ask_and("GET", "/v1/jobs", None, ("punctual-tenant", "bank")).await.status, 403);
    let named = json!({"runs": ["bank/c-1/bill:1791171000"]});
    assert_eq!(shop.ask("POST", "/v1/dead-letters/replay", Some(&named)).await.status, 422);
    assert_eq!(town.world.jobs(), before);
    let mine = shop.ask("PUT", "/v1/jobs/c-1%2Fbill", Some(&bill("c-1/bill"))).await;
    assert_eq!((mine.status, &mine.json["tenant"]), (201, &json!("shop")), "an id is free for each tenant");
}

#[tokio::test(start_paused = true)]
async fn a_key_for_everyone_names_the_tenant() {
    let (town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await;
    let all = Desk::new(&town).await.with_key(&make_key(&town, "*", Role::Operate).await);
    let unnamed = all.ask("GET", "/v1/jobs/c-1", None).await;
    assert_eq!((unnamed.status, unnamed.pointers()), (400, vec!["punctual-tenant"]));
    assert_eq!(all.ask_and("GET", "/v1/jobs/c-1", None, ("punctual-tenant", "bank")).await.status, 200);
    assert_eq!(all.ask_and("GET", "/v1/jobs/c-1", None, ("punctual-tenant", "shop")).await.status, 404);
    let held = all.ask("PUT", "/v1/holds/all", Some(&json!({"why": "a test"}))).await;
    assert_eq!((held.status, &held.json["scope"]), (200, &json!("all")), "{}", held.text);
    let tenant_holds = desk.ask("PUT", "/v1/holds/tenant/bank", Some(&json!({"why": "ours"}))).await;
    assert_eq!(tenant_holds.status, 200);
    for scope in ["all", "priority/bulk", "target/sms", "tenant/shop"] {
        let refused = desk.ask("PUT", &format!("/v1/holds/{scope}"), Some(&json!({"why": "x"}))).await;
        assert_eq!(refused.status, 403, "{scope}");
    }
    assert_eq!(desk.ask("GET", "/v1/holds", None).await.json["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(desk.ask("DELETE", "/v1/holds/tenant/bank", None).await.status, 200);
    assert_eq!(desk.ask("DELETE", "/v1/holds/tenant/bank", None).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn a_reader_sees_no_payload() {
    let (town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await;
    desk.ask("PATCH", "/v1/jobs/c-1", Some(&json!({"payload": {"text": "Your last bill"}}))).await;
    let reader = Desk::new(&town).await.with_key(&make_key(&town, "bank", Role::Read).await);
    for path in ["/v1/jobs/c-1", "/v1/jobs", "/v1/jobs/c-1/changes", "/v1/jobs/c-1/runs", "/v1/jobs/c-1/next"] {
        let shown = reader.ask("GET", path, None).await;
        assert_eq!(shown.status, 200, "{path}");
        assert!(!shown.text.contains("7700") && !shown.text.contains("bill"), "{path}: {}", shown.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_opens_nothing_after_five_seconds() {
    let (town, desk) = town().await;
    assert_eq!(desk.ask("GET", "/v1/jobs", None).await.status, 200);
    let control = town.world.ports().control;
    let keys = control.api_keys().await.expect("keys can be read");
    let id = keys.keys[0].id.clone();
    let to = keys.without(&id, town.clock.now()).expect("it opens");
    control.change_api_keys(keys.revision, &to).await.expect("keys can be changed");
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    assert_eq!(desk.ask("GET", "/v1/jobs", None).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_silent_known_keys_open_for_a_minute_and_then_none_do() {
    use punctual_core::error::PortError;
    use punctual_core::memory::{Fault, FaultPlan, Faults, Point};
    let (town, _) = town().await;
    let plan = FaultPlan::default();
    let desk = Desk::on(&town, Faults::new(&plan, "api").wrap(town.world.ports()), 1_000).await;
    assert_eq!(desk.ask("GET", "/v1/holds", None).await.status, 200);
    for n in 2..200 {
        plan.add(Point::Nth("control.api_keys", n), Fault::FailBefore(PortError::Temporary("injected".into())));
    }
    tokio::time::sleep(std::time::Duration::from_secs(50)).await;
    assert_eq!(desk.ask("GET", "/v1/holds", None).await.status, 200);
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let refused = desk.ask("GET", "/v1/holds", None).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
}

#[tokio::test]
async fn a_key_is_good_for_so_many_requests_a_second_and_others_are_not_concerned() {
    let (town, other) = town().await;
    let desk = Desk::on(&town, town.world.ports(), 5).await;
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for _ in 0..50 {
        *statuses.entry(desk.ask("GET", "/v1/holds", None).await.status).or_default() += 1;
    }
    assert!(statuses[&429] >= 30 && statuses[&200] >= 5, "{statuses:?}");
    let refused = desk.ask("GET", "/v1/holds", None).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    assert_eq!(desk.with_key(&other.key).ask("GET", "/v1/holds", None).await.status, 200);
}
