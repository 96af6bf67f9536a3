//! The AWS adapters pass the conformance suites on the local stack. Each case has a stack of its own.

use punctual_core::aws::{Names, schema};
use punctual_core::ports::Ports;
use punctual_localstack::stack::{Stack, StackConfig};

async fn aws_ports() -> (Stack, Ports) {
    let stack = Stack::start(StackConfig::default()).expect("free ports are always found");
    let aws = stack.aws(Names::new("punctual").expect("a valid prefix")).await;
    schema::setup(&aws).await.expect("a new stack can be set up");
    let ports = aws.ports();
    (stack, ports)
}

macro_rules! tests {
    ($($suite:ident: [$($case:ident),* $(,)?])*) => {
        $(
            mod $suite {
                $(
                    #[tokio::test]
                    async fn $case() {
                        let (stack, ports) = crate::aws_ports().await;
                        punctual_core::conformance::$suite::$case(&ports).await;
                        stack.stop().await;
                    }
                )*
            }
        )*
    };
}

punctual_core::for_each_conformance_case!(tests);
