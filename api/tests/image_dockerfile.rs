//! The renderer: snapshots of what it writes, read back by an independent reader, and properties with hostile text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod dockerfile_reader;

use std::collections::BTreeMap;
use std::fmt::Write;

use dockerfile_reader::{environment, read};
use proptest::prelude::*;
use ray_api::image::{BuildContext, Policy, Target, inputs_hash, render, validate, warnings};
use ray_api::template::v1alpha1::{ImageTemplateSpec, PipOptions};

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// A build context as one text: the Dockerfile, then each file under its name.
fn shown(context: &BuildContext) -> String {
    let mut text = context.dockerfile.clone();
    for (name, content) in &context.files {
        let _ = write!(text, "--- {name}\n{content}");
    }
    text
}

/// The payload of the first users.
fn first_users() -> ImageTemplateSpec {
    serde_json::from_value(serde_json::json!({
        "name": "ray1.7-torch1.9-tensorflow2.3-gpu",
        "baseImage": "rayproject/ray:1.7.0-gpu",
        "pipPackages": ["tensorflow==2.3.0", "torch==1.9.0"],
        "systemPackages": ["vim", "git"],
        "environmentVariables": {
            "CLASSPATH": "/opt/lib/yarn_deploy/hadoop/bin/hadoop classpath --glob",
            "HADOOP_HOME": "/opt/lib/yarn_deploy/hadoop",
            "LD_LIBRARY_PATH": "/opt/lib"
        },
        "customCommands": []
    }))
    .unwrap()
}

#[test]
fn the_first_users_payload() {
    let context = render(&first_users()).unwrap();
    insta::assert_snapshot!("first_users", shown(&context));
    assert!(validate(&first_users()).is_empty());
    let env = environment(&read(&context.dockerfile));
    assert_eq!(env, first_users().environment_variables);
}

#[test]
fn every_combination_of_empty_and_filled_lists() {
    let full = ImageTemplateSpec {
        base_image: "rayproject/ray:2.50.0".to_owned(),
        system_packages: strings(&["git"]),
        conda_packages: strings(&["conda-forge::numpy>=2,<3"]),
        pip_packages: strings(&["torch"]),
        environment_variables: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
        custom_commands: strings(&["echo one", "set -u\necho two"]),
        ..ImageTemplateSpec::default()
    };
    let mut all = String::new();
    for present in 0..32_u8 {
        let has = |bit: u8| present & (1 << bit) != 0;
        let mut spec = full.clone();
        if !has(0) {
            spec.system_packages.clear();
        }
        if !has(1) {
            spec.conda_packages.clear();
        }
        if !has(2) {
            spec.pip_packages.clear();
        }
        if !has(3) {
            spec.environment_variables.clear();
        }
        if !has(4) {
            spec.custom_commands.clear();
        }
        let context = render(&spec).unwrap();
        let instructions = read(&context.dockerfile);
        let count = |name: &str| instructions.iter().filter(|one| one.name == name).count();
        assert_eq!(count("FROM"), 1);
        assert_eq!(count("USER"), if has(0) { 2 } else { 0 });
        assert_eq!(
            count("RUN"),
            usize::from(has(0)) + usize::from(has(1)) + usize::from(has(2)) + if has(4) { 2 } else { 0 }
        );
        assert_eq!(count("COPY"), context.files.len());
        assert_eq!(count("ENV"), usize::from(has(3)));
        let _ = write!(all, "=== {present:05b}\n{}", shown(&context));
    }
    insta::assert_snapshot!("combinations", all);
}

#[test]
fn pip_options_reach_pip_and_nothing_else() {
    let spec = ImageTemplateSpec {
        base_image: "reg.example:5000/team/base@sha256:".to_owned() + &"ab".repeat(32),
        pip_packages: strings(&["pandas<3,>=2", "x ; python_version < '3.12'"]),
        pip: Some(PipOptions {
            index_url: Some("https://index.example/simple".to_owned()),
            extra_index_urls: strings(&["http://plain.example:8080/simple/"]),
            credentials_secret: Some("index".to_owned()),
            break_system_packages: Some(true),
        }),
        user: Some("1000:100".to_owned()),
        ..ImageTemplateSpec::default()
    };
    insta::assert_snapshot!("pip_options", shown(&render(&spec).unwrap()));
}

#[test]
fn environment_values_keep_every_byte() {
    let value = r#"a "quoted" $HOME ${PATH} \n \\ \" 'single' `x` # = é	tab"#;
    let spec = ImageTemplateSpec {
        base_image: "ray".to_owned(),
        environment_variables: BTreeMap::from([("A".to_owned(), value.to_owned())]),
        ..ImageTemplateSpec::default()
    };
    let env = environment(&read(&render(&spec).unwrap().dockerfile));
    assert_eq!(env["A"], value);
}

#[test]
fn the_hash_is_of_the_inputs_and_nothing_else() {
    let hash = |spec: &ImageTemplateSpec| inputs_hash(&render(spec).unwrap());
    let spec = first_users();
    assert_eq!(hash(&spec), hash(&spec));
    let elsewhere = ImageTemplateSpec {
        repository: Some("reg.example/x".to_owned()),
        suspend: Some(true),
        ..spec.clone()
    };
    assert_eq!(hash(&spec), hash(&elsewhere));
    let spelled = ImageTemplateSpec {
        base_image: "docker.io/rayproject/ray:1.7.0-gpu".to_owned(),
        pip_packages: strings(&["TensorFlow == 2.3.0", "torch==1.9.0"]),
        ..spec.clone()
    };
    assert_eq!(hash(&spec), hash(&spelled));
    for other in [
        ImageTemplateSpec {
            platform: Some("linux/arm64".to_owned()),
            ..spec.clone()
        },
        ImageTemplateSpec {
            custom_commands: strings(&["id"]),
            ..spec.clone()
        },
        ImageTemplateSpec {
            pip_packages: strings(&["tensorflow==2.3.1", "torch==1.9.0"]),
            ..spec.clone()
        },
    ] {
        assert_ne!(hash(&spec), hash(&other));
    }
}

#[test]
fn bad_fields_are_named_with_their_path() {
    let spec = ImageTemplateSpec {
        base_image: "Ray:1".to_owned(),
        pip_packages: strings(&["ok", "a\nRUN id"]),
        system_packages: strings(&["-o=x"]),
        conda_packages: strings(&["a;b"]),
        environment_variables: BTreeMap::from([
            ("A".to_owned(), "x\nUSER root".to_owned()),
            ("1".to_owned(), String::new()),
        ]),
        custom_commands: strings(&[" "]),
        user: Some("ray\nRUN id".to_owned()),
        platform: Some("windows/amd64".to_owned()),
        repository: Some("reg/Team:1".to_owned()),
        tag: Some("-".to_owned()),
        timeout: Some("1s".to_owned()),
        backoff_limit: Some(-1),
        push_secret: Some("../x".to_owned()),
        pip: Some(PipOptions {
            index_url: Some("https://me:secret@index.example".to_owned()),
            ..PipOptions::default()
        }),
        ..ImageTemplateSpec::default()
    };
    let invalid = validate(&spec);
    let text: Vec<_> = invalid.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!("bad_fields", text.join("\n"));
    assert!(!text.join("").contains("secret@"));
}

#[test]
fn too_much_text_is_refused_before_a_configmap_is() {
    let spec = ImageTemplateSpec {
        base_image: "ray".to_owned(),
        custom_commands: vec!["x".repeat(60_000); 5],
        ..ImageTemplateSpec::default()
    };
    let invalid = render(&spec).unwrap_err();
    assert_eq!(invalid[0].field, "spec");
    assert!(invalid[0].message.contains("262144"), "{}", invalid[0]);
}

#[test]
fn surprises_are_warned_of() {
    let spec = ImageTemplateSpec {
        base_image: "rayproject/ray".to_owned(),
        environment_variables: BTreeMap::from([
            ("HF_TOKEN".to_owned(), "x".to_owned()),
            ("PATH".to_owned(), "/x".to_owned()),
        ]),
        ..ImageTemplateSpec::default()
    };
    let text = warnings(&spec).join("\n");
    for part in ["spec.baseImage", "HF_TOKEN", "PATH"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// Text that tries to break out: from any characters, and from the pieces that mean something to the tools.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "\n",
        "\r\n",
        "\0",
        "RUN id",
        "USER root",
        "\\\n",
        "\\",
        "\"",
        "'",
        "$",
        "${PATH}",
        "$(id)",
        "`id`",
        "<<EOF",
        "#",
        "--mount=type=bind",
        "-r /etc/passwd",
        "--index-url=http://x",
        " ",
        ";",
        "&&",
        "|",
        "@ file:///",
        "==1",
        "numpy",
        "[a]",
        "\u{2028}",
        "\u{85}",
        "\t",
        "# escape=`",
    ]);
    prop_oneof![
        prop::collection::vec(pieces, 0..6).prop_map(|parts| parts.concat()),
        "\\PC{0,30}",
        any::<String>(),
        "[a-z]{1,8}(==[0-9.]{1,5})?",
    ]
}

/// Every option that an install of pip packages may have.
const PIP_OPTIONS: [&str; 7] = [
    "--no-input",
    "--no-cache-dir",
    "--disable-pip-version-check",
    "--index-url",
    "--extra-index-url",
    "--trusted-host",
    "--requirement",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_becomes_an_instruction_an_option_a_package_or_a_file(
        base in prop_oneof![Just("rayproject/ray:2.50.0".to_owned()), hostile()],
        system in prop::collection::vec(hostile(), 0..3),
        conda in prop::collection::vec(hostile(), 0..3),
        pip in prop::collection::vec(hostile(), 0..3),
        env in prop::collection::btree_map(prop_oneof![Just("A".to_owned()), hostile()], hostile(), 0..3),
        commands in prop::collection::vec(hostile(), 0..3),
        user in prop::option::of(hostile()),
        index in prop::option::of(prop_oneof![Just("https://a.example/x".to_owned()), hostile()]),
        more in prop::collection::vec(prop_oneof![Just("http://b.example/x".to_owned()), hostile()], 0..2),
        login in prop::option::of(prop_oneof![Just("index".to_owned()), hostile()]),
        platform in prop::option::of(prop_oneof![Just("linux/arm64".to_owned()), hostile()]),
        target in (prop_oneof![Just("reg.example/a".to_owned()), hostile()], prop::option::of(hostile())),
    ) {
        let spec = ImageTemplateSpec {
            base_image: base,
            system_packages: system.clone(),
            conda_packages: conda.clone(),
            pip_packages: pip.clone(),
            environment_variables: env.clone(),
            custom_commands: commands.clone(),
            user: user.clone(),
            pip: Some(PipOptions {
                index_url: index,
                extra_index_urls: more.clone(),
                credentials_secret: login,
                ..PipOptions::default()
            }),
            platform,
            repository: Some(target.0),
            tag: target.1,
            ..ImageTemplateSpec::default()
        };
        if validate(&spec).is_empty() {
            // What stands behind a flag of the executor, or names a volume's Secret, is one word.
            let target = Target::resolve(&Policy::default(), "ns", "name", &spec, "hash").unwrap();
            let login = spec.pip.iter().filter_map(|pip| pip.credentials_secret.clone());
            for word in [target.destination()].into_iter().chain(spec.platform.clone()).chain(login) {
                prop_assert!(!word.contains(char::is_whitespace) && !word.starts_with('-'), "{word:?}");
            }
        }
        let Ok(context) = render(&spec) else { return Ok(()) };
        let instructions = read(&context.dockerfile);
        let names: Vec<_> = instructions.iter().map(|one| one.name.as_str()).collect();
        let mut expected = vec!["FROM"];
        if !system.is_empty() {
            expected.extend(["USER", "RUN", "USER"]);
        } else if user.is_some() {
            expected.push("USER");
        }
        expected.extend((!conda.is_empty()).then_some("RUN"));
        if !pip.is_empty() {
            expected.extend(["COPY", "RUN"]);
        }
        expected.extend(env.iter().map(|_| "ENV"));
        expected.extend(commands.iter().flat_map(|_| ["COPY", "RUN"]));
        prop_assert_eq!(names, expected);
        prop_assert!(instructions.iter().all(|one| one.flags.is_empty()));
        prop_assert_eq!(environment(&instructions), env);
        for run in instructions.iter().filter(|one| one.name == "RUN") {
            // Shell forms hold no expansion and no quote inside a quote: as many words as we wrote.
            prop_assert!(run.exec().is_some() || !run.rest.contains(['$', '`', '\\', '"', '|']), "{run:?}");
        }
        let installs = instructions.iter().filter(|one| one.name == "RUN" && one.rest.contains("pip install"));
        for install in installs {
            // Between single quotes stand the user's words, and nothing else does.
            let (ours, theirs): (Vec<_>, Vec<_>) = install.rest.split('\'').enumerate().partition(|(at, _)| at % 2 == 0);
            let options = ours.iter().flat_map(|(_, text)| text.split_whitespace()).filter(|word| word.starts_with('-'));
            let options: Vec<_> = options.collect();
            prop_assert!(options.iter().all(|option| PIP_OPTIONS.contains(option)), "{install:?}");
            prop_assert_eq!(options.iter().filter(|option| **option == "--extra-index-url").count(), more.len());
            prop_assert!(theirs.iter().all(|(_, word)| !word.starts_with('-')), "{install:?}");
        }
        let requirements = context.files.get("requirements.txt").map_or(0, |text| text.lines().count());
        prop_assert_eq!(requirements, pip.len());
        prop_assert_eq!(context.files.len(), usize::from(!pip.is_empty()) + commands.len());
        prop_assert!(context.files.keys().all(|name| name == "requirements.txt" || name.starts_with("command-")));
    }
}
