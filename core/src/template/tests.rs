use super::*;
use chrono::NaiveDate;
use proptest::prelude::*;

fn vars() -> Vars {
    [("amount", "12.50"), ("name", "Ana \"Q\" {{ run.id }}"), ("empty", "")].map(|(k, v)| (k.into(), v.into())).into()
}

fn values(vars: &Vars) -> Values<'_> {
    let at = DateTime::from_timestamp(1_796_441_400, 0).unwrap();
    Values {
        run_id: "bank/c-1/bill:1796441400".into(),
        scheduled_at: at,
        due_at: at + chrono::TimeDelta::seconds(90),
        attempt: 2,
        job_id: "c-1/bill",
        job_name: "Bill",
        tenant: "bank",
        local: NaiveDate::from_ymd_opt(2026, 12, 5).unwrap().and_hms_opt(9, 0, 0).unwrap(),
        vars,
    }
}

fn rendered(text: &str) -> Result<String, String> {
    render(text, &values(&vars()), 200)
}

#[test]
fn every_variable_and_filter_comes_out() {
    for (text, expected) in [
        ("{{ run.id }}", "bank/c-1/bill:1796441400"),
        ("{{run.scheduled_at}} {{ run.due_at }}", "2026-12-05T03:30:00Z 2026-12-05T03:31:30Z"),
        ("{{ run.attempt }}", "2"),
        ("{{ job.id }}, {{ job.name | upper }}, {{ job.tenant | title }}", "c-1/bill, BILL, Bank"),
        ("{{ local.weekday }} {{ local.date }} {{ local.time }}", "Saturday 2026-12-05 09:00"),
        ("{{ vars.name }}", "Ana \"Q\" {{ run.id }}"),
        ("{{ vars.name | tojson }}", r#""Ana \"Q\" {{ run.id }}""#),
        ("{{ vars.other | default('you') | upper }}", "YOU"),
        ("{{ vars.other | default(\"a'b\") }}", "a'b"),
        ("{{ vars.other | default(' you ') | trim | upper | tojson }}", "\"YOU\""),
        ("{# a note #}{{ vars.amount }}{# {% for %} #}\n", "12.50\n"),
        ("a  {{- job.name -}}  b", "aBillb"),
        ("{% if vars.amount %}due{% endif %}", "due"),
        ("{% if not vars.empty %}none{% else %}some{% endif %}", "none"),
        ("{% if run.attempt > 1 %}again{% elif run.attempt == 1 %}first{% else %}?{% endif %}", "again"),
        ("{% if local.weekday == 'Saturday' %}{% if job.name != 'x' %}a{% endif %}{% endif %}b", "ab"),
        ("{%- if vars.amount == '%}' -%} no {%- else -%} yes {%- endif %}", "yes"),
    ] {
        assert_eq!(rendered(text).as_deref(), Ok(expected), "{text}");
        assert_eq!(check(text, &vars()), Ok(()));
    }
}

#[test]
fn a_text_without_tags_is_taken_as_it_is() {
    for text in ["Your bill is due", "100 % {sure}", "{# no template, no comment #}", "} }} %} \\n\n", "{ { x } }"] {
        assert_eq!(rendered(text).as_deref(), Ok(text));
    }
}

#[test]
fn whatever_could_cost_more_than_its_length_is_refused_and_says_what_to_write() {
    for (text, says) in [
        ("{% for x in vars %}{{ x }}{% endfor %}", "`for` is not allowed: write out"),
        ("{% set x = 1 %}", "`set` is not allowed"),
        ("{% macro m() %}{% endmacro %}", "`macro` is not allowed"),
        ("{% include 'x' %}", "`include` is not allowed"),
        ("{% raw %}{{{% endraw %}", "`raw` is not allowed"),
        ("{{ [1]*100000000 }}", "no meaning"),
        ("{{ range(999999) }}", "must begin with a variable"),
        ("{{ 'x' * 100 }}", "no meaning"),
        ("{{ job.name * 100 }}", "no meaning"),
        ("{{ job.name ~ job.name }}", "no meaning"),
        ("{{ job.name() }}", "after a variable come filters"),
        ("{{ job.name | replace('a', 'b') }}", "no meaning"),
        ("{{ job.name | center(100000000) }}", "default('text')"),
        ("{{ job.name | default('a\\n') }}", "no meaning"),
        ("{{ job.name.x }}", "after a variable come filters"),
        ("{{ job.name | tojson | tojson }}", "`tojson` comes last"),
        ("{{ job.name | tojson | upper }}", "`tojson` comes last"),
        ("{{ vars.other | tojson | default('x') }}", "`tojson` comes last"),
        ("{{ job.name | trim | trim | trim | trim | trim }}", "more than 4 filters"),
        ("{{ job.name | trim | trim | trim | trim | tojson }}", "more than 4 filters"),
        ("{{ job['name'] }}", "no meaning"),
        ("{{ name }}", "must begin with a variable"),
        ("{{ job.nome }}", "there are run.id"),
        ("{{ vars.amuont }}", "vars.amount, vars.empty, vars.name"),
        ("{{ vars.other | upper | default('x') }}", "there is no such variable"),
        ("{{ }}", "must begin with a variable"),
        ("{{ job.name", "never closed by `}}`"),
        ("{{ job.name %}", "never closed by `}}`"),
        ("{# {{ job.name }}", "never closed by `#}`"),
        ("{% if job.name %}", "no `{% endif %}`"),
        ("{% endif %}", "belongs to no"),
        ("{% else %}", "belongs to no"),
        ("{% if job.name %}{% else %}{% else %}{% endif %}", "after its `{% else %}`"),
        ("{% if job.name %}{% else %}{% elif job.id %}{% endif %}", "after its `{% else %}`"),
        ("{% if job.name and job.id %}{% endif %}", "a condition inside a condition"),
        ("{% if job.name > 'a' %}{% endif %}", "compared to a number"),
        ("{% if job.name == 1 %}{% endif %}", "compared to a number"),
        ("{% if vars.other %}{% endif %}", "there is no such variable"),
        ("{% if run.attempt == 1e9 %}{% endif %}", "no meaning"),
        ("{% unknown %}", "none of if, elif, else, endif"),
    ] {
        let error = check(text, &vars()).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
        assert!(!error.contains("amuont") && !error.contains("nome"), "{error}");
        assert_eq!(rendered(text), Err(error));
    }
    assert!(check(&"{{ job.id }}".repeat(101), &vars()).unwrap_err().contains("more than 100 tags"));
    let deep = format!("{}{}", "{% if job.id %}".repeat(9), "{% endif %}".repeat(9));
    assert!(check(&deep, &vars()).unwrap_err().contains("more than 8 deep"));
}

#[test]
fn what_comes_out_is_bounded_while_it_is_made() {
    let long = "{{ vars.long }}".repeat(100);
    let vars: Vars = [("long".to_owned(), "x".repeat(LONGEST_VAR_BYTES))].into();
    assert!(render(&long, &values(&vars), 2_000).unwrap_err().contains("more than 2000 bytes"));
    assert_eq!(render("{{ vars.long }}", &values(&vars), 500).unwrap().len(), 500);
    assert!(render(&"x".repeat(11), &values(&vars), 10).is_err());
}

/// A run's text is checked whole when its job is made, also where no example comes by.
#[test]
fn no_branch_hides_a_text_that_doubles_itself_again_and_again() {
    let doubling = format!("{{{{ run.id{} }}}}", " | tojson".repeat(40));
    let hidden = format!("x{{% if run.scheduled_at != '2026-12-05T03:30:00Z' %}}{doubling}{{% endif %}}");
    assert!(check(&hidden, &vars()).unwrap_err().contains("`tojson` comes last"));
    let trimmed = format!("{{{{ run.id{} }}}}", " | trim".repeat(3_200));
    assert!(check(&trimmed, &vars()).unwrap_err().contains("more than 4 filters"));
}

#[test]
fn the_json_of_a_value_is_bounded_while_it_is_made() {
    assert_eq!(to_json(&Value::from("\"")).unwrap(), r#""\"""#);
    assert!(to_json(&Value::from("\"".repeat(LONGEST_JSON_BYTES / 2))).is_err());
    assert_eq!(to_json(&Value::from("x".repeat(LONGEST_JSON_BYTES - 2))).unwrap().len(), LONGEST_JSON_BYTES);
}

#[test]
fn variables_are_few_short_and_plainly_named() {
    assert_eq!(check_vars(&vars()), Ok(()));
    for name in ["", "A", "1a", "a-b", "a.b", &"a".repeat(33)] {
        assert!(check_vars(&[(name.to_owned(), String::new())].into()).unwrap_err().contains("`amount`"));
    }
    let secret = "7700900123 ".repeat(60);
    let error = check_vars(&[("a".to_owned(), secret)].into()).unwrap_err();
    assert!(error.contains("500 are allowed") && !error.contains("7700"), "{error}");
    assert!(check_vars(&(0..21).map(|n| (format!("v{n}"), String::new())).collect()).is_err());
}

/// Pieces of which allowed and forbidden texts are made alike.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-",
        " ",
        "\n",
        "if",
        "elif",
        "else",
        "endif",
        "not",
        "for",
        "in",
        "vars",
        "run",
        ".",
        "amount",
        "attempt",
        "empty",
        "job.name",
        "vars.amount",
        "run.attempt",
        "|",
        "upper",
        "default('x')",
        "tojson",
        "==",
        "!=",
        ">",
        "'a'",
        "\"",
        "1",
        "(",
        ")",
        "[",
        "*",
        "x",
        "é",
        "{{ vars.amount }}",
        "{% if vars.empty %}",
        "{% else %}",
        "{% endif %}",
        "{% elif run.attempt > 1 %}",
    ]);
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// The engine never finds fault with what the check lets pass, so a job that could be made can be rendered.
    #[test]
    fn what_passes_the_check_renders(text in pieces()) {
        let vars = vars();
        if check(&text, &vars).is_ok() {
            let out = render(&text, &values(&vars), 10_000);
            prop_assert!(out.is_ok(), "{:?}: {:?}", text, out);
        }
    }

    #[test]
    fn no_text_makes_the_check_panic(text in "\\PC{0,60}") {
        let _ = check(&format!("{{{{{text}"), &vars());
        let _ = check(&format!("{{%{text}%}}"), &vars());
    }
}
