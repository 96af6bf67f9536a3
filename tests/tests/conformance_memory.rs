//! The in-memory world passes the conformance suites, bare and through fault injection without a fault; and what it can
//! do besides, which the simulation relies on.

use chrono::{DateTime, Utc};
use punctual_core::clock::TokioClock;
use punctual_core::memory::{FaultPlan, Faults, World};
use punctual_core::ports::Ports;
use std::sync::Arc;

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_796_441_400, 0).expect("the instant is in range")
}

fn world() -> World {
    World::new(Arc::new(TokioClock::new(start())))
}

fn bare() -> Ports {
    world().ports()
}

fn through_faults() -> Ports {
    Faults::new(&FaultPlan::default(), "p").wrap(world().ports())
}

macro_rules! tests {
    ($($suite:ident: [$($case:ident),* $(,)?])*) => {
        $(
            mod $suite {
                mod bare {
                    $(
                        #[tokio::test(start_paused = true)]
                        async fn $case() {
                            punctual_core::conformance::$suite::$case(&crate::bare()).await;
                        }
                    )*
                }

                mod through_faults {
                    $(
                        #[tokio::test(start_paused = true)]
                        async fn $case() {
                            punctual_core::conformance::$suite::$case(&crate::through_faults()).await;
                        }
                    )*
                }
            }
        )*
    };
}

punctual_core::for_each_conformance_case!(tests);

mod world {
    use super::{start, world};
    use punctual_core::memory::{Effect, Script, World};
    use punctual_core::ports::{Call, Claim, Delivery};
    use punctual_core::priority::Priority;
    use punctual_core::retry::Outcome;
    use punctual_core::run::{RunId, RunKey};
    use std::time::Duration;

    const S: fn(u64) -> Duration = Duration::from_secs;

    async fn send(world: &World, bodies: &[&str]) {
        let bodies: Vec<String> = bodies.iter().map(|body| (*body).to_owned()).collect();
        world.ports().queue.send(Priority::Urgent, &bodies).await.expect("a batch can be sent");
    }

    async fn receive(world: &World, wait: Duration, visibility: Duration) -> Vec<Delivery> {
        world.ports().queue.receive(Priority::Urgent, 10, wait, visibility).await.expect("the queue can be read")
    }

    pub(super) fn request(to: &str) -> Call {
        let job_key = punctual_core::job::JobKey::new("bank", "c-1/bill").expect("the key is well formed");
        let payload = punctual_core::payload::Payload::sms(to, "Your bill is due");
        Call {
            reference: RunId { job_key, run_key: RunKey::scheduled(start()) },
            attempt: 1,
            payload,
            trace: None,
            time: S(10),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_receiver_sleeps_until_a_held_message_is_visible_again() {
        let world = world();
        send(&world, &["a"]).await;
        receive(&world, S(0), Duration::from_millis(7_500)).await;
        let history = world.history().len();
        assert_eq!(receive(&world, S(20), S(60)).await[0].receive_count, 2);
        send(&world, &["b"]).await;
        let waited = world.history()[history].at - start();
        assert_eq!(waited.num_milliseconds(), 7_500, "neither earlier nor later");
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_gets_nothing_waits_to_the_end_and_no_longer() {
        let world = world();
        assert_eq!(receive(&world, S(20), S(60)).await, []);
        send(&world, &["a"]).await;
        assert_eq!(world.history()[0].at - start(), chrono::TimeDelta::seconds(20));
    }

    #[tokio::test(start_paused = true)]
    async fn each_message_goes_to_one_of_many_waiting_receivers() {
        let world = world();
        let receivers: Vec<_> = (0..5)
            .map(|_| {
                let world = world.clone();
                tokio::spawn(async move { receive(&world, S(20), S(60)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        send(&world, &["a", "b", "c"]).await;
        let mut bodies = Vec::new();
        for receiver in receivers {
            bodies.extend(receiver.await.unwrap().into_iter().map(|delivery| delivery.body));
        }
        bodies.sort();
        assert_eq!(bodies, ["a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_message_is_held_for_more_than_twelve_hours_in_all() {
        let world = world();
        send(&world, &["a"]).await;
        let held = receive(&world, S(0), S(43_200)).await.remove(0);
        tokio::time::sleep(S(43_000)).await;
        for (by, fits) in [(201, false), (200, true)] {
            let entry = (held.receipt.clone(), S(by));
            let results = world.ports().queue.extend(Priority::Urgent, &[entry]).await.unwrap();
            assert_eq!(results[0].is_ok(), fits, "{by} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_vanishes_after_fourteen_days() {
        let world = world();
        send(&world, &["old"]).await;
        tokio::time::sleep(S(86_400)).await;
        send(&world, &["new"]).await;
        tokio::time::sleep(S(13 * 86_400)).await;
        let bodies: Vec<String> = receive(&world, S(0), S(60)).await.into_iter().map(|d| d.body).collect();
        assert_eq!(bodies, ["new"]);
        assert!(matches!(&world.history()[2].effect, Effect::Expired { body } if body == "old"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_extension_after_the_visibility_is_over_is_refused() {
        let world = world();
        send(&world, &["a"]).await;
        let held = receive(&world, S(0), S(5)).await.remove(0);
        tokio::time::sleep(S(5)).await;
        let results = world.ports().queue.extend(Priority::Urgent, &[(held.receipt, S(60))]).await.unwrap();
        assert!(results[0].is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_plays_its_script_and_then_delivers() {
        let world = world();
        let (gateway, request) = (world.gateway(), request("+447700900123"));
        let busy = Outcome::Temporary { reason: "503".into(), retry_after: None };
        world.script("+447700900123", [Script::Answer(busy.clone()), Script::NeverAnswers]);
        assert_eq!(gateway.send(&request).await, busy);
        assert!(tokio::time::timeout(S(3_600), gateway.send(&request)).await.is_err());
        assert_eq!(gateway.send(&request).await, Outcome::Delivered { gateway_ref: "gw-2".into() });
        assert_eq!(world.sends_of(&request.reference), 3);
        assert_eq!(world.deliveries_of(&request.reference), 2, "a call without an answer went out");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_drops_repeats_answers_them_as_delivered() {
        let world = world();
        world.drop_repeats();
        let (gateway, request) = (world.gateway(), request("+447700900123"));
        world.script("+447700900123", [Script::Answer(Outcome::Unknown { reason: "timeout".into() })]);
        assert!(matches!(gateway.send(&request).await, Outcome::Unknown { .. }));
        assert_eq!(gateway.send(&request).await, Outcome::Delivered { gateway_ref: "gw-1".into() });
        assert_eq!((world.sends_of(&request.reference), world.deliveries_of(&request.reference)), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn clones_are_one_world() {
        let world = world();
        let id = punctual_core::lease::LeaseId::Copy("a".into());
        assert_eq!(world.clone().ports().leases.take(&id, None, "a").await, Ok(Claim::Held { counter: 1 }));
        assert_eq!(world.leases().len(), 1);
    }
}

mod faults {
    use super::world;
    use super::world::request;
    use punctual_core::due::Shards;
    use punctual_core::error::PortError;
    use punctual_core::memory::{Fault, FaultPlan, Faults, Point};
    use punctual_core::priority::Priority;
    use punctual_core::retry::Outcome;
    use std::time::Duration;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const SHARDS: Shards = Shards { urgent: 1, standard: 1 };

    fn init(fault: Fault) -> (FaultPlan, Faults) {
        let plan = FaultPlan::one(Point::Nth("control.init_shards", 1), fault);
        let faults = Faults::new(&plan, "p");
        (plan, faults)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_fails_before_has_no_effect() {
        let (plan, faults) = init(Fault::FailBefore(PortError::Throttled("slow down".into())));
        let world = world();
        let control = faults.wrap(world.ports()).control;
        assert_eq!(control.init_shards(SHARDS).await, Err(PortError::Throttled("slow down".into())));
        assert_eq!(control.shards().await, Ok(None));
        assert_eq!(control.init_shards(SHARDS).await, Ok(SHARDS), "the next call goes through");
        assert_eq!(plan.to_come(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_answer_is_lost_has_its_effect() {
        let (_, faults) = init(Fault::LoseAnswer);
        let control = faults.wrap(world().ports()).control;
        assert!(matches!(control.init_shards(SHARDS).await, Err(PortError::Unknown(_))));
        assert_eq!(control.shards().await, Ok(Some(SHARDS)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_lands_late_lands_after_its_caller_is_gone() {
        let (_, faults) = init(Fault::LandLate(S(300)));
        let world = world();
        let ports = faults.wrap(world.ports());
        assert!(matches!(ports.control.init_shards(SHARDS).await, Err(PortError::Unknown(_))));
        drop((ports, faults));
        assert_eq!(world.ports().control.shards().await, Ok(None));
        tokio::time::sleep(S(301)).await;
        assert_eq!(world.ports().control.shards().await, Ok(Some(SHARDS)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crash_is_told_and_silences_its_process_alone() {
        for (fault, effect) in [(Fault::CrashBefore, None), (Fault::CrashAfter, Some(SHARDS))] {
            let (plan, faults) = init(fault);
            let world = world();
            let control = faults.wrap(world.ports()).control;
            let call = tokio::spawn({
                let control = control.clone();
                async move { control.init_shards(SHARDS).await }
            });
            tokio::time::timeout(S(1), faults.crashed()).await.expect("the crash is told");
            assert!(!call.is_finished());
            assert!(tokio::time::timeout(S(3_600), control.shards()).await.is_err(), "it makes no call any more");
            let other = Faults::new(&plan, "q").wrap(world.ports()).control;
            assert_eq!(other.shards().await, Ok(effect));
            assert_eq!(plan.calls().len(), 2, "a dead process's calls do not count");
            call.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_call_happens_later() {
        let (_, faults) = init(Fault::Delay(S(5)));
        let world = world();
        let control = faults.wrap(world.ports()).control;
        let (answer, meanwhile) = futures::join!(control.init_shards(SHARDS), async {
            tokio::time::sleep(S(4)).await;
            world.ports().control.shards().await
        });
        assert_eq!((answer, meanwhile), (Ok(SHARDS), Ok(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubled_send_is_two_messages() {
        let plan = FaultPlan::one(Point::Call(1), Fault::Duplicate);
        let world = world();
        let queue = Faults::new(&plan, "p").wrap(world.ports()).queue;
        assert_eq!(queue.send(Priority::Bulk, &["a".to_owned()]).await, Ok(vec![Ok(())]));
        assert_eq!(world.enqueued().len(), 2);
        assert_eq!(world.waiting().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubled_delivery_is_held_twice() {
        let plan = FaultPlan::one(Point::Nth("queue.receive", 1), Fault::Duplicate);
        let queue = Faults::new(&plan, "p").wrap(world().ports()).queue;
        queue.send(Priority::Bulk, &["a".to_owned()]).await.unwrap();
        let receive = async || queue.receive(Priority::Bulk, 10, S(0), S(60)).await.unwrap();
        let (first, second, third) = (receive().await, receive().await, receive().await);
        assert_eq!((first[0].body.as_str(), second[0].body.as_str(), third.len()), ("a", "a", 0));
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_batch_that_fails_in_part_every_second_entry_goes_through() {
        let plan = FaultPlan::one(Point::Every("queue.send"), Fault::FailSome);
        let world = world();
        let queue = Faults::new(&plan, "p").wrap(world.ports()).queue;
        let results = queue.send(Priority::Bulk, &["a", "b", "c"].map(str::to_owned)).await.unwrap();
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(world.enqueued().into_iter().map(|sent| sent.body).collect::<Vec<_>>(), ["b"]);
        plan.clear();
        let results = queue.send(Priority::Bulk, &["d".to_owned()]).await.unwrap();
        assert_eq!(results, [Ok(())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_of_the_gateway_is_an_unknown_outcome() {
        let plan = FaultPlan::one(Point::Nth("gateway.send", 1), Fault::LoseAnswer);
        plan.add(Point::Nth("gateway.send", 2), Fault::FailBefore(PortError::Temporary("refused".into())));
        let world = world();
        let gateway = Faults::new(&plan, "p").wrap_gateway(world.gateway());
        let request = request("+447700900123");
        assert!(matches!(gateway.send(&request).await, Outcome::Unknown { .. }));
        assert_eq!(world.deliveries_of(&request.reference), 1);
        assert!(matches!(gateway.send(&request).await, Outcome::Temporary { .. }));
        assert_eq!(world.sends_of(&request.reference), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_over_all_processes_and_faults_can_be_one_processs_own() {
        let plan = FaultPlan::default();
        plan.add(Point::EveryOf("q".into(), "control.layout"), Fault::LoseAnswer);
        let world = world();
        let (p, q) = (Faults::new(&plan, "p").wrap(world.ports()), Faults::new(&plan, "q").wrap(world.ports()));
        assert!(p.control.shards().await.is_ok());
        assert!(q.control.shards().await.is_err());
        p.queue.depth(Priority::Bulk).await.unwrap();
        assert!(q.control.shards().await.is_err());
        let calls: Vec<_> = plan.calls().into_iter().map(|c| (c.number, c.nth, c.name, c.process)).collect();
        let expected = [
            (1, 1, "control.layout", "p"),
            (2, 2, "control.layout", "q"),
            (3, 1, "queue.depth", "p"),
            (4, 3, "control.layout", "q"),
        ];
        assert_eq!(calls, expected.map(|(number, nth, name, process)| (number, nth, name, process.to_owned())));
    }
}

mod index_lag {
    use super::{start, world};
    use chrono::TimeDelta;
    use punctual_core::due::Shards;
    use punctual_core::job::{Job, JobKey, JobSpec, Timetable};
    use punctual_core::missed::MissedRule;
    use punctual_core::payload::Payload;
    use punctual_core::ports::{Advance, AdvanceFrom, Create, DueSpan, JobRead};
    use punctual_core::priority::Priority;
    use punctual_core::retry::RetryRule;
    use punctual_core::schedule::{Firing, Schedule};
    use punctual_core::zone::Zones;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn an_index_that_lags_shows_what_was_and_the_job_decides() {
        let world = world();
        let ports = world.ports();
        let lag = Duration::from_secs(2);
        world.set_index_lag(lag);
        let spec = JobSpec {
            key: JobKey::new("bank", "c-1/bill").unwrap(),
            name: None,
            schedule: Schedule::parse("every 1h", start()).unwrap(),
            anchor: punctual_core::schedule::Anchor::Stated,
            priority: Priority::Normal,
            payload: Payload::sms("+447700900123", "Your bill is due"),
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        };
        let world_of = Timetable { shards: &Shards::default(), zones: &Zones::embedded() };
        let job = Job::create(spec, start(), &world_of, None, "t".into(), "test").unwrap();
        let (key, bucket, due_at) = (&job.spec.key, job.due_bucket.unwrap(), job.next_due_at.unwrap());
        assert_eq!(ports.jobs.create(&job).await, Ok(Create::Created));
        let shown = async || ports.due.page(bucket, DueSpan::up_to(due_at), None, 10).await.unwrap().entries.len();
        assert_eq!(shown().await, 0);
        tokio::time::sleep(lag).await;
        assert_eq!(shown().await, 1);
        let from = AdvanceFrom { next_scheduled_at: due_at, version: 1 };
        let to = job.after_firings(&Firing { at: due_at, wall: None }, 1, start(), &world_of);
        assert_eq!(ports.jobs.advance(key, &from, &to).await, Ok(Advance::Advanced));
        assert_eq!(shown().await, 1, "the entry lingers");
        assert_eq!(ports.jobs.advance(key, &from, &to).await, Ok(Advance::Changed));
        tokio::time::sleep(lag).await;
        assert_eq!(shown().await, 0);
        assert_eq!(world.advances(key), [due_at]);
        world.make_unreadable(key, "written by something newer");
        let read = ports.jobs.get_many(std::slice::from_ref(key)).await.unwrap();
        assert_eq!(read[key], JobRead::Unreadable("written by something newer".into()));
        assert_eq!(world.job(key).unwrap().next_due_at, Some(due_at + TimeDelta::hours(1)));
    }
}
