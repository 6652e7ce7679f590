//! Validation rules in CEL, for the API server; [`crate::validate`] says the same in Rust for everyone else.
//!
//! `tests/fixtures/rules.yaml` holds both to the same answers. On an update only new errors deny, so a rule has to
//! look at the old object too. That leaves rules that walk a pod template's lists to Rust: nothing bounds those lists
//! in an old object, and the API server refuses what may cost too much.

use kube::core::{Reason, Rule};

/// A rule that an update may leave broken if it was broken before.
fn ratcheting(rule: &str) -> Rule {
    let before = rule.replace("self", "old");
    Rule::new(format!(
        "({rule}) || oldSelf.optMap(old, !({before})).orValue(false)"
    ))
    .optional_old_self(true)
}

/// Row C1: Services are named after the cluster. A name never changes, so it is checked once.
pub(crate) fn cluster_name() -> Rule {
    Rule::new(
        "oldSelf.hasValue() || (size(self.metadata.name) <= 53 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
    )
    .optional_old_self(true)
    .field_path(".metadata.name")
    .message("must be at most 53 characters: lower-case letters, digits and -, starting with a letter and not ending with - (Services are named after the cluster)")
}

/// Row C2: without a template to make it, a pod needs its container.
pub(crate) fn head_has_container() -> Rule {
    ratcheting(
        "has(self.imageTemplate) || has(self.computeTemplate) || has(self.headGroupSpec.imageTemplate) || has(self.headGroupSpec.computeTemplate) || size(self.headGroupSpec.?template.?spec.?containers.orValue([])) > 0",
    )
    .field_path(".headGroupSpec")
    .reason(Reason::FieldValueRequired)
    .message("template.spec.containers needs at least one container (the first one runs Ray), or name an imageTemplate or computeTemplate")
}

/// Row C2. Not ratcheting: see above.
pub(crate) fn workers_have_container() -> Rule {
    Rule::new(
        "has(self.imageTemplate) || has(self.computeTemplate) || !has(self.workerGroupSpecs) || self.workerGroupSpecs.all(group, has(group.imageTemplate) || has(group.computeTemplate) || size(group.?template.?spec.?containers.orValue([])) > 0)",
    )
    .field_path(".workerGroupSpecs")
    .reason(Reason::FieldValueRequired)
    .message("each group's template.spec.containers needs at least one container (the first one runs Ray), or name an imageTemplate or computeTemplate")
}

/// Row C3.
pub(crate) fn resources_once() -> Rule {
    ratcheting(
        "size(self.?resources.orValue({})) == 0 || !['num-cpus', 'num-gpus', 'memory', 'resources'].exists(flag, self.?rayStartParams[?flag].orValue('') != '')",
    )
    .field_path(".resources")
    .message("resources and rayStartParams num-cpus, num-gpus, memory or resources say the same thing twice: keep one of them")
}

/// Row C4.
pub(crate) fn labels_in_their_field() -> Rule {
    ratcheting("!('labels' in self.?rayStartParams.orValue({}))")
        .field_path(".rayStartParams")
        .message("rayStartParams.labels is not supported: use the group's own labels")
}

/// Row C5.
pub(crate) fn min_not_above_max() -> Rule {
    ratcheting("self.minReplicas <= self.maxReplicas")
        .field_path(".minReplicas")
        .message("minReplicas is above maxReplicas: lower it, or raise maxReplicas")
}

/// Row C12.
pub(crate) fn storage_needs_rocksdb() -> Rule {
    ratcheting("!has(self.storage) || self.?backend.orValue('redis') == 'rocksdb'")
        .field_path(".storage")
        .message("storage is for backend rocksdb: remove it, or set that backend")
}

/// Row C13.
pub(crate) fn redis_username_in_options() -> Rule {
    ratcheting("self.?rayStartParams[?'redis-username'].orValue('') == ''")
        .field_path(".rayStartParams")
        .message("rayStartParams.redis-username is not supported: use gcsFaultToleranceOptions.redisUsername")
}

/// Row C20.
pub(crate) fn kubernetes_tokens_need_token_mode() -> Rule {
    ratcheting("!self.?enableK8sTokenAuth.orValue(false) || self.?mode.orValue('') == 'token'")
        .field_path(".enableK8sTokenAuth")
        .message("enableK8sTokenAuth needs mode: token")
}

/// Row C20.
pub(crate) fn kubernetes_tokens_need_no_secret() -> Rule {
    ratcheting("!self.?enableK8sTokenAuth.orValue(false) || !has(self.secretName)")
        .field_path(".secretName")
        .message("secretName excludes enableK8sTokenAuth, which needs no Secret")
}

/// A field that is set once.
pub(crate) fn immutable() -> Rule {
    Rule::new("self == oldSelf").message("cannot be changed once it is set")
}

/// Controllers that a RayCluster can be given to.
pub(crate) fn known_manager() -> Rule {
    Rule::new("self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue']")
        .message("must be ray.io/kuberay-operator or kueue.x-k8s.io/multikueue")
}

/// `extends` makes a chain, not a ring; longer rings show as a condition.
pub(crate) fn extends_another() -> Rule {
    Rule::new("!has(self.spec.extends) || self.spec.extends != self.metadata.name")
        .field_path(".spec.extends")
        .message("a template cannot extend itself")
}

/// Keys that the operator, the webhook and Kueue decide by.
pub(crate) fn keys_not_reserved() -> Rule {
    Rule::new(
        "self.all(key, !key.startsWith('ray.io/') && !key.startsWith('templates.ray.io/') && !key.startsWith('kueue.x-k8s.io/'))",
    )
    .reason(Reason::FieldValueForbidden)
    .message("keys under ray.io/, templates.ray.io/ and kueue.x-k8s.io/ are reserved: a template cannot set them")
}

/// Ray's labels have a field of their own.
pub(crate) fn no_label_flag() -> Rule {
    Rule::new("!('labels' in self)").message("rayStartParams.labels is not supported: use labels")
}

/// A package is one line, and no option of the tool that installs it.
pub(crate) fn one_package() -> Rule {
    Rule::new(r"!self.startsWith('-') && !self.matches('[\\x00-\\x1f\\x7f]') && self.trim() != ''")
        .message("must be one package on one line, and must not start with -")
}

/// Bounds of a build's time.
pub(crate) fn build_time() -> Rule {
    Rule::new(
        "self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$') && self != '' && duration(self) >= duration('1m') && duration(self) <= duration('24h')",
    )
    .message("must be a time from 1m to 24h, such as 30m or 1h30m")
}

/// What an index address must look like, and what to do about a credential. The rules stand at the parent, because
/// the API server repeats a field's own value in the message.
const ADDRESS: &str = r".matches('^https?://[^@\\s\\x00]+$')";
const ADDRESS_MESSAGE: &str = "must be https://host/path, without user or password: put those into a Secret and name it in credentialsSecret";

/// No credentials in the open.
pub(crate) fn index_address() -> Rule {
    Rule::new(format!("!has(self.indexUrl) || self.indexUrl{ADDRESS}"))
        .field_path(".indexUrl")
        .message(ADDRESS_MESSAGE)
}

/// No credentials in the open.
pub(crate) fn extra_index_addresses() -> Rule {
    Rule::new(format!(
        "!has(self.extraIndexUrls) || self.extraIndexUrls.all(url, url{ADDRESS})"
    ))
    .field_path(".extraIndexUrls")
    .message(ADDRESS_MESSAGE)
}
