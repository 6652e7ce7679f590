//! The start command (raycluster-behaviour 3.3): shell text, byte for byte as KubeRay writes it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

use super::facts::Facts;

/// Flags that take their value even where it is `true` or `false`.
const ALWAYS_VALUED: [&str; 3] = ["log-color", "include-dashboard", "include-log-monitor"];
/// Raises the limit of open files as far as the container allows; a refusal is no reason not to start.
const ULIMIT: &str = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ";

/// `ray start …` with every flag, each framed by spaces.
pub(super) fn ray_start(params: &BTreeMap<String, String>, is_head: bool) -> String {
    let mut command = String::from(if is_head {
        "ray start --head "
    } else {
        "ray start "
    });
    for (key, value) in params {
        let valued = ALWAYS_VALUED.contains(&key.as_str());
        if value.eq_ignore_ascii_case("true") && !valued {
            command.push_str(&format!(" --{key} "));
        } else if !value.eq_ignore_ascii_case("false") || valued {
            command.push_str(&format!(" --{key}={value} "));
        }
    }
    command
}

/// The shell that container commands run in.
pub(super) fn shell(facts: &Facts<'_>) -> Vec<String> {
    let flag = if facts.config.args.login_shell {
        "-cl"
    } else {
        "-c"
    };
    ["/bin/bash", flag, "--"].map(str::to_owned).to_vec()
}

/// Makes the container start Ray, after whatever command the user gave it.
pub(super) fn set(container: &mut Container, facts: &Facts<'_>, start: &str, left_to_user: bool) {
    let own: Vec<&String> = container
        .command
        .iter()
        .flatten()
        .chain(container.args.iter().flatten())
        .collect();
    if left_to_user || own.iter().any(|part| part.contains("ray start")) {
        return;
    }
    let own: String = own.iter().map(|part| format!(" {part} ")).collect();
    let text = if own.is_empty() {
        format!("{ULIMIT}{start}")
    } else {
        // Ray starts even where the user's command fails, as under KubeRay.
        format!("{own} && {ULIMIT}{start}")
    };
    container.command = Some(shell(facts));
    container.args = Some(vec![text]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_values_and_their_exceptions() {
        let params = [
            ("block", "true"),
            ("head-only", "FALSE"),
            ("include-dashboard", "false"),
            ("log-color", "True"),
            ("no-monitor", ""),
            ("num-cpus", "4"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        assert_eq!(
            ray_start(&params, false),
            "ray start  --block  --include-dashboard=false  --log-color=True  --no-monitor=  --num-cpus=4 "
        );
    }
}
