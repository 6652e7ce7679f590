//! The controller's decisions, without a cluster: objects, progress, plan, status.

mod build;
mod mocked;
mod plan;
mod progress;
mod verified;
mod world;

use k8s_openapi::jiff::Timestamp;
use ray_api::image::Policy;
use ray_api::template::v1alpha1::ImageTemplate;
use serde_json::{Value, json};

use super::args::ImageArgs;
use super::wanted::{Wanted, wanted};

/// The time of a test, in seconds.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn policy() -> Policy {
    Policy {
        default_repository: Some("reg.example:5000/images".to_owned()),
        ..Policy::default()
    }
}

/// A stored template whose spec has these fields too.
fn template(spec: Value) -> ImageTemplate {
    let mut whole = json!({"baseImage": "rayproject/ray:2.50.0", "pipPackages": ["emoji==2.14.0"]});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": "emoji", "namespace": "team", "uid": "11111111-2222-3333-4444-555555555555", "generation": 1,
            "creationTimestamp": "2027-01-15T08:00:00Z",
        },
        "spec": whole,
    }))
    .unwrap()
}

fn want(template: &ImageTemplate) -> Wanted {
    wanted(template, &policy()).unwrap()
}

/// Flags as the command line gives them.
fn args(extra: &[&str]) -> ImageArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        image: ImageArgs,
    }
    let fixed = ["test", "--builder-image=kaniko", "--helper-image=servers"];
    let line: Line = clap::Parser::parse_from(fixed.iter().chain(extra));
    line.image
}
