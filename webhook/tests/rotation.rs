//! The life of the self-signed certificate, step by step.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ray_webhook::certificate::bundle::Bundle;
use ray_webhook::certificate::issue::issue;
use ray_webhook::certificate::plan::{Step, Wanted, plan};

const LIFETIME: Duration = Duration::from_secs(9000);

fn wanted() -> Wanted {
    Wanted {
        names: vec!["ray-webhook.ray-system.svc".into(), "10.0.0.1".into()],
        pause: Duration::from_secs(60),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn issued(now: Timestamp) -> Bundle {
    let issued = issue(&wanted().names, now, LIFETIME).unwrap();
    Bundle {
        current: Some(issued.pair),
        next: None,
        authorities: vec![issued.authority],
        since: Some(now),
    }
}

#[test]
fn an_empty_secret_gets_a_certificate_at_once() {
    assert_eq!(
        plan(&Bundle::of(&Secret::default()), &wanted(), at(0)),
        Step::Issue
    );
}

#[test]
fn a_rotation_is_prepared_promoted_and_retired_with_pauses() {
    let mut bundle = issued(at(0));
    assert_eq!(plan(&bundle, &wanted(), at(100)), Step::Keep);
    let late = at(6000);
    assert_eq!(plan(&bundle, &wanted(), late), Step::Prepare);
    let next = issue(&wanted().names, late, LIFETIME).unwrap();
    bundle.next = Some(next.pair);
    bundle.authorities.insert(0, next.authority);
    bundle.since = Some(late);
    let after = |seconds| late.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    assert_eq!(plan(&bundle, &wanted(), after(59)), Step::Keep);
    assert_eq!(plan(&bundle, &wanted(), after(60)), Step::Promote);
    bundle.current = bundle.next.take();
    bundle.since = Some(after(60));
    assert_eq!(plan(&bundle, &wanted(), after(119)), Step::Keep);
    assert_eq!(plan(&bundle, &wanted(), after(120)), Step::Retire);
    bundle.authorities.truncate(1);
    assert_eq!(plan(&bundle, &wanted(), after(121)), Step::Keep);
}

#[test]
fn a_certificate_that_is_of_no_use_is_replaced_at_once() {
    let bundle = issued(at(0));
    assert_eq!(plan(&bundle, &wanted(), at(9001)), Step::Issue, "expired");
    let other = Wanted {
        names: vec!["other.ray-system.svc".into()],
        ..wanted()
    };
    assert_eq!(plan(&bundle, &other, at(1)), Step::Issue, "for another name");
    let garbage = Bundle {
        authorities: Vec::new(),
        ..bundle
    };
    assert_eq!(
        plan(&garbage, &wanted(), at(1)),
        Step::Issue,
        "nobody would trust it"
    );
}

#[test]
fn a_secret_keeps_the_bundle_and_its_other_keys() {
    let mut bundle = issued(at(0));
    let next = issue(&wanted().names, at(1), LIFETIME).unwrap();
    bundle.next = Some(next.pair);
    bundle.authorities.insert(0, next.authority);
    let mut secret = Secret {
        data: Some([("other".to_owned(), Default::default())].into()),
        ..Default::default()
    };
    bundle.write_to(&mut secret);
    assert!(Bundle::of(&secret) == bundle);
    assert!(secret.data.as_ref().unwrap().contains_key("other"));
    bundle.next = None;
    bundle.write_to(&mut secret);
    assert!(!secret.data.unwrap().contains_key("next.key"));
}
