//! File and flags in one; the flags win.

use std::path::PathBuf;

use super::{ClusterArgs, HeadArgs};
use crate::build::{AutoscalerConfig, ClusterConfig, GroupConfig, Resources};
use crate::error::{Failure, Result};

/// The cluster that they describe together.
///
/// # Errors
/// When they contradict each other, or the file cannot be read.
pub(super) fn config(args: &ClusterArgs, namespace: Option<&str>) -> Result<ClusterConfig> {
    let mut config = match &args.file {
        Some(path) => read(path)?,
        None => ClusterConfig::default(),
    };
    agree("name", &mut config.name, args.name.as_deref())?;
    agree("namespace", &mut config.namespace, namespace)?;
    if config.name.is_none() {
        return Err(
            Failure::usage("the cluster has no name").hint("give it behind `create cluster`, or in the file")
        );
    }
    let set = |field: &mut Option<String>, flag: &Option<String>| {
        if flag.is_some() {
            field.clone_from(flag);
        }
    };
    set(&mut config.ray_version, &args.ray_version);
    set(&mut config.image, &args.image);
    set(&mut config.image_template, &args.image_template);
    set(&mut config.compute_template, &args.compute_template);
    set(&mut config.service_account, &args.service_account);
    config.labels.extend(args.labels.iter().cloned());
    config.annotations.extend(args.annotations.iter().cloned());
    if let Some(version) = args.autoscaler {
        config.autoscaler = Some(AutoscalerConfig { version });
    }
    set(&mut config.head.compute_template, &args.head_compute_template);
    args.head.lay_over(&mut config);
    if !args.worker_groups.is_empty() {
        let groups = config.worker_groups.take().unwrap_or_default();
        config.worker_groups = Some(merge_groups(groups, &args.worker_groups));
    }
    lay_worker_over(args, &mut config)?;
    Ok(config)
}

fn read(path: &PathBuf) -> Result<ClusterConfig> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("--file: cannot read {shown}: {error}")))?;
    ClusterConfig::parse(&text).map_err(|error| Failure::usage(format!("--file: {shown}: {error}")))
}

fn agree(what: &str, in_file: &mut Option<String>, by_flag: Option<&str>) -> Result<()> {
    match (&in_file, by_flag) {
        (Some(file), Some(flag)) if file != flag => Err(Failure::usage(format!(
            "the file says {what} `{file}`, the command line `{flag}`"
        ))),
        (None, Some(flag)) => {
            *in_file = Some(flag.to_owned());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A group by flag replaces the one of its name in the file, or comes behind.
fn merge_groups(mut groups: Vec<GroupConfig>, by_flag: &[GroupConfig]) -> Vec<GroupConfig> {
    for group in by_flag {
        // Two flags of one name stay two: the API server says so.
        match groups
            .iter_mut()
            .find(|known| known.name == group.name && !by_flag.contains(known))
        {
            Some(known) => known.clone_from(group),
            None => groups.push(group.clone()),
        }
    }
    groups
}

impl HeadArgs {
    fn lay_over(&self, config: &mut ClusterConfig) {
        let head = &mut config.head;
        let resources = Resources {
            cpu: self.head_cpu.clone(),
            memory: self.head_memory.clone(),
            gpu: self.head_gpu.clone(),
            ephemeral_storage: self.head_ephemeral_storage.clone(),
            ..Resources::default()
        };
        head.resources = resources.over(std::mem::take(&mut head.resources));
        head.ray_start_params
            .extend(self.head_ray_start_params.iter().cloned());
        head.node_selectors
            .extend(self.head_node_selectors.iter().cloned());
    }
}

/// The flags of the one group that needs no name.
fn lay_worker_over(args: &ClusterArgs, config: &mut ClusterConfig) -> Result<()> {
    let given = GroupConfig {
        replicas: args.worker_replicas,
        ..args.worker.group()
    };
    if given == GroupConfig::default() {
        return Ok(());
    }
    let groups = config
        .worker_groups
        .get_or_insert_with(|| vec![GroupConfig::default()]);
    let [group] = groups.as_mut_slice() else {
        return Err(
            Failure::usage("the --worker-… flags need exactly one worker group in the file")
                .hint("give each group by --worker-group name=…"),
        );
    };
    group.replicas = given.replicas.or(group.replicas);
    group.num_of_hosts = given.num_of_hosts.or(group.num_of_hosts);
    group.resources = given.resources.over(std::mem::take(&mut group.resources));
    group.ray_start_params.extend(given.ray_start_params);
    group.node_selectors.extend(given.node_selectors);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ClusterArgs,
    }

    /// What the file `yaml` and these words amount to.
    fn merged(yaml: &str, words: &[&str]) -> Result<ClusterConfig> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), yaml).unwrap();
        let path = file.path().to_str().unwrap();
        let line = Line::try_parse_from([&["create", "--file", path], words].concat()).unwrap();
        config(&line.args, None)
    }

    fn yaml(text: &str) -> ClusterConfig {
        ClusterConfig::parse(text).unwrap()
    }

    #[test]
    fn a_flag_wins_over_the_file_and_leaves_the_rest() {
        let file = "name: demo\nray-version: 2.52.0\nimage: mine:1\nlabels: {team: a, tier: x}\n\
                    head: {cpu: 3, memory: 5Gi, ray-start-params: {num-cpus: '0'}}\nautoscaler: {version: v1}\n";
        let flags = [
            "--image",
            "mine:2",
            "--labels",
            "team=b",
            "--head-memory",
            "9Gi",
            "--head-node-selectors",
            "pool=big",
            "--autoscaler",
            "v2",
        ];
        assert_eq!(
            merged(file, &flags).unwrap(),
            yaml(
                "name: demo\nray-version: 2.52.0\nimage: mine:2\nlabels: {team: b, tier: x}\n\
                 head: {cpu: 3, memory: 9Gi, ray-start-params: {num-cpus: '0'}, node-selectors: {pool: big}}\n\
                 autoscaler: {version: v2}\n"
            )
        );
        assert_eq!(merged(file, &[]).unwrap(), yaml(file));
    }

    #[test]
    fn name_and_namespace_must_agree() {
        let mut both = Some("a".to_owned());
        let failure = agree("namespace", &mut both, Some("b")).unwrap_err();
        assert_eq!(
            failure.message,
            "the file says namespace `a`, the command line `b`"
        );
        agree("namespace", &mut both, Some("a")).unwrap();
        assert_eq!(merged("{}", &["demo"]).unwrap().name.as_deref(), Some("demo"));
        assert!(merged("name: a", &["b"]).is_err());
        let nameless = merged("{}", &[]).unwrap_err();
        assert_eq!(nameless.message, "the cluster has no name");
    }

    #[test]
    fn a_group_by_flag_replaces_the_one_of_its_name_whole() {
        let file = "name: demo\nworker-groups:\n- {name: a, replicas: 1, cpu: 4}\n- {name: b, replicas: 1}\n";
        let flags = [
            "--worker-group",
            "name=a,replicas=2",
            "--worker-group",
            "name=c,gpu=1",
        ];
        assert_eq!(
            merged(file, &flags).unwrap(),
            yaml(
                "name: demo\nworker-groups:\n- {name: a, replicas: 2}\n- {name: b, replicas: 1}\n- {name: c, gpu: 1}\n"
            )
        );
        // The API server refuses the second of one name: it is not hidden from it.
        let twice = ["--worker-group", "name=x", "--worker-group", "name=x"];
        assert_eq!(
            merged("name: demo", &twice).unwrap(),
            yaml("name: demo\nworker-groups: [{name: x}, {name: x}]")
        );
    }

    #[test]
    fn the_worker_flags_change_the_only_group() {
        let file = "name: demo\nworker-groups: [{name: a, replicas: 1, cpu: 4, node-selectors: {pool: x}}]\n";
        let flags = [
            "--worker-replicas",
            "3",
            "--worker-memory",
            "9Gi",
            "--worker-node-selectors",
            "zone=y",
        ];
        assert_eq!(
            merged(file, &flags).unwrap(),
            yaml(
                "name: demo\nworker-groups: [{name: a, replicas: 3, cpu: 4, memory: 9Gi, node-selectors: {pool: x, zone: y}}]\n"
            )
        );
        assert_eq!(
            merged("name: demo", &["--worker-replicas", "3"]).unwrap(),
            yaml("name: demo\nworker-groups: [{replicas: 3}]")
        );
        let several = "name: demo\nworker-groups: [{name: a}, {name: b}]";
        let failure = merged(several, &["--worker-cpu", "1"]).unwrap_err();
        assert!(failure.message.contains("exactly one worker group"), "{failure}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let failure = merged("nmae: demo", &[]).unwrap_err();
        assert!(
            failure.message.starts_with("--file: ") && failure.message.contains("nmae"),
            "{failure}"
        );
    }
}
