//! Writes that go on while something else happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{Api, DynamicObject, PostParams};
use ray_api::meta::annotation;
use tokio::task::JoinHandle;

/// Between two calls: enough of them to meet any gap, few enough to leave the machine to the others.
const PAUSE: Duration = Duration::from_millis(20);
/// Fewer calls than this prove nothing.
const ENOUGH: usize = 10;

/// A RayCluster that is created again and again, in dry runs; each must come back expanded.
pub struct Load {
    done: Arc<AtomicBool>,
    task: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    /// Starts it.
    #[must_use]
    pub fn start(api: Api<DynamicObject>, cluster: DynamicObject) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(create(api, cluster, done.clone()));
        Self { done, task }
    }

    /// Ends it.
    ///
    /// # Errors
    /// When a call failed, or too few were made to say anything.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.done.store(true, Ordering::Relaxed);
        let (calls, failures) = self.task.await?;
        let (failed, first) = (failures.len(), failures.first());
        anyhow::ensure!(failures.is_empty(), "{failed} of {calls} calls failed: {first:?}");
        anyhow::ensure!(calls >= ENOUGH, "the load was none: {calls} calls");
        Ok(())
    }
}

async fn create(
    api: Api<DynamicObject>,
    cluster: DynamicObject,
    done: Arc<AtomicBool>,
) -> (usize, Vec<String>) {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let (mut calls, mut failures) = (0, Vec::new());
    while !done.load(Ordering::Relaxed) {
        calls += 1;
        match api.create(&params, &cluster).await {
            Ok(answer) if is_expanded(&answer) => {}
            Ok(_) => failures.push("let through without its template".to_owned()),
            Err(error) => failures.push(error.to_string()),
        }
        tokio::time::sleep(PAUSE).await;
    }
    (calls, failures)
}

fn is_expanded(cluster: &DynamicObject) -> bool {
    let annotations = cluster.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(annotation::EXPANSION))
}
