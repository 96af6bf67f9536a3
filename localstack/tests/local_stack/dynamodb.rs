use crate::clients::{self, start};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BatchStatementErrorCodeEnum, BatchStatementRequest, BillingMode,
    GlobalSecondaryIndex, KeySchemaElement, KeyType, KeysAndAttributes, Projection, ProjectionType,
    ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, ScalarAttributeType,
};
use punctual_localstack::stack::StackConfig;
use std::collections::HashMap;

const INDEX: &str = "by-due-bucket";

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// A table keyed by `id`, with an index of keys by `bucket` and `due`.
pub async fn create_table(dynamodb: &Client, name: &str) {
    let attribute = |name: &str| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let index = GlobalSecondaryIndex::builder()
        .index_name(INDEX)
        .key_schema(key("bucket", KeyType::Hash))
        .key_schema(key("due", KeyType::Range))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
        .unwrap();
    dynamodb
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(vec![attribute("id"), attribute("bucket"), attribute("due")]))
        .key_schema(key("id", KeyType::Hash))
        .global_secondary_indexes(index)
        .send()
        .await
        .unwrap();
}

async fn put(dynamodb: &Client, id: &str, due: &str) {
    dynamodb
        .put_item()
        .table_name("jobs")
        .item("id", text(id))
        .item("bucket", text("b0"))
        .item("due", text(due))
        .item("token", text("t1"))
        .item("payload", text("hello"))
        .send()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_condition_returns_the_item_that_won() {
    let stack = start(StackConfig::default());
    let dynamodb = clients::dynamodb(&stack);
    create_table(&dynamodb, "jobs").await;
    put(&dynamodb, "j1", "10").await;

    let error = dynamodb
        .put_item()
        .table_name("jobs")
        .item("id", text("j1"))
        .condition_expression("attribute_not_exists(id)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    let aws_sdk_dynamodb::operation::put_item::PutItemError::ConditionalCheckFailedException(lost) = error else {
        panic!("unexpected {error:?}");
    };
    assert_eq!(lost.item().unwrap()["payload"], text("hello"));

    let error = dynamodb
        .update_item()
        .table_name("jobs")
        .key("id", text("j1"))
        .update_expression("SET #t = :new")
        .condition_expression("#t = :old")
        .expression_attribute_names("#t", "token")
        .expression_attribute_values(":new", text("t3"))
        .expression_attribute_values(":old", text("t2"))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    let aws_sdk_dynamodb::operation::update_item::UpdateItemError::ConditionalCheckFailedException(lost) = error else {
        panic!("unexpected {error:?}");
    };
    assert_eq!(lost.item().unwrap()["token"], text("t1"));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_keys_yields_keys_in_order() {
    let stack = start(StackConfig::default());
    let dynamodb = clients::dynamodb(&stack);
    create_table(&dynamodb, "jobs").await;
    for (id, due) in [("j3", "30"), ("j1", "10"), ("j2", "20")] {
        put(&dynamodb, id, due).await;
    }
    let page = dynamodb
        .query()
        .table_name("jobs")
        .index_name(INDEX)
        .key_condition_expression("#b = :b AND due <= :until")
        .expression_attribute_names("#b", "bucket")
        .expression_attribute_values(":b", text("b0"))
        .expression_attribute_values(":until", text("20"))
        .send()
        .await
        .unwrap();
    let expected = [("j1", "10"), ("j2", "20")].map(|(id, due)| {
        HashMap::from([("id", id), ("bucket", "b0"), ("due", due)].map(|(name, value)| (name.to_owned(), text(value))))
    });
    assert_eq!(page.items(), expected);
    stack.stop().await;
}

/// The figures behind the cost model: a write unit for the item, and one each for the index entry that goes and the
/// one that comes (items up to 1 KB).
#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_moves_an_index_key_costs_three_write_units() {
    let stack = start(StackConfig::default());
    let dynamodb = clients::dynamodb(&stack);
    create_table(&dynamodb, "jobs").await;
    put(&dynamodb, "j1", "10").await;
    let set = |attribute: &str, value: &str| {
        dynamodb
            .update_item()
            .table_name("jobs")
            .key("id", text("j1"))
            .update_expression("SET #a = :v")
            .expression_attribute_names("#a", attribute)
            .expression_attribute_values(":v", text(value))
            .return_consumed_capacity(ReturnConsumedCapacity::Indexes)
            .send()
    };
    let moved = set("due", "20").await.unwrap().consumed_capacity.unwrap();
    let index = &moved.global_secondary_indexes().unwrap()[INDEX];
    assert_eq!((moved.capacity_units(), index.capacity_units()), (Some(3.0), Some(2.0)));
    let kept = set("payload", "other").await.unwrap().consumed_capacity.unwrap();
    assert_eq!(kept.capacity_units(), Some(1.0));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_conditional_statements_fails_entry_by_entry() {
    let stack = start(StackConfig::default());
    let dynamodb = clients::dynamodb(&stack);
    create_table(&dynamodb, "jobs").await;
    put(&dynamodb, "j1", "10").await;
    put(&dynamodb, "j2", "20").await;

    let advance = |id: &str, token: &str| {
        BatchStatementRequest::builder()
            .statement(r#"UPDATE "jobs" SET "due" = ? SET "token" = ? WHERE "id" = ? AND "token" = ?"#)
            .set_parameters(Some(vec![text("99"), text("t2"), text(id), text(token)]))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .unwrap()
    };
    let statements = vec![advance("j1", "t1"), advance("j2", "stale"), advance("j9", "t1")];
    let answer = dynamodb.batch_execute_statement().set_statements(Some(statements)).send().await.unwrap();
    let [won, lost, missing] = answer.responses() else { panic!("unexpected {answer:?}") };
    assert!(won.error().is_none());
    for refused in [lost, missing] {
        let code = refused.error().and_then(|error| error.code());
        assert_eq!(code, Some(&BatchStatementErrorCodeEnum::ConditionalCheckFailed));
    }
    assert_eq!(lost.error().and_then(|error| error.item()).unwrap()["token"], text("t1"));

    let keys = ["j1", "j2", "j9"].map(|id| HashMap::from([("id".to_owned(), text(id))]));
    let keys = KeysAndAttributes::builder().set_keys(Some(keys.into())).consistent_read(true).build().unwrap();
    let found = dynamodb.batch_get_item().request_items("jobs", keys).send().await.unwrap();
    assert!(found.unprocessed_keys().is_none_or(HashMap::is_empty));
    let mut dues: Vec<_> = found.responses().unwrap()["jobs"].iter().map(|item| item["due"].as_s().unwrap()).collect();
    dues.sort();
    assert_eq!(dues, ["20", "99"]);
    stack.stop().await;
}
