//! How watches begin.

use kube::runtime::watcher;

/// Objects of a first list that are read at once. All of 2,000 pods in one answer are more than what is kept of them.
const PAGE_SIZE: u32 = 100;

/// Every watch's configuration: everything, first listed page by page.
#[must_use]
pub fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE_SIZE)
}
