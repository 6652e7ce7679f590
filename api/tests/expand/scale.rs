//! Rule 5: replicas are the autoscaler's.

use serde_json::json;

use crate::world::{World, cluster, with, world};

#[test]
fn the_autoscalers_patch_and_a_re_apply_both_keep_its_replicas() {
    let mut object = cluster();
    object["spec"]["enableInTreeAutoscaling"] = json!(true);
    object["spec"]["workerGroupSpecs"][0]
        .as_object_mut()
        .unwrap()
        .remove("replicas");
    let old = world().expand(&object, None).unwrap().object;
    let mut scaled = old.clone();
    scaled["spec"]["workerGroupSpecs"][0]["replicas"] = json!(3);
    assert_eq!(
        World::default().expand(&scaled, Some(&old)).unwrap().object,
        scaled
    );
    let down = with(scaled.clone(), "/spec/workerGroupSpecs/0/replicas", json!(0));
    assert_eq!(
        World::default().expand(&down, Some(&scaled)).unwrap().object,
        down
    );

    let mut reapply = scaled.clone();
    reapply["spec"]["workerGroupSpecs"] = object["spec"]["workerGroupSpecs"].clone();
    reapply["spec"]["workerGroupSpecs"][0]["replicas"] = json!(0); // the CRD's default
    assert_eq!(
        World::default().expand(&reapply, Some(&scaled)).unwrap().object,
        scaled
    );
    reapply["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
        json!(json!({"spec": {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 0}]}}).to_string());
    let expanded = World::default().expand(&reapply, Some(&scaled)).unwrap().object;
    assert_eq!(expanded["spec"]["workerGroupSpecs"][0]["replicas"], 0);
}
