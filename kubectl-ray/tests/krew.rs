//! The krew manifest, as a release of this version would fill it in.

use std::path::Path;

use serde_json::Value;

const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What krew-release-bot makes of its template: the tag, and address and checksum of each archive.
fn filled_in(template: &str) -> String {
    let mut lines = Vec::new();
    for line in template.replace("{{ .TagName }}", TAG).lines() {
        match line.trim().strip_prefix("{{addURIAndSha \"") {
            Some(rest) => {
                let uri = rest.split('"').next().unwrap_or_default();
                lines.push(format!("    uri: {uri}\n    sha256: \"{}\"", "0".repeat(64)));
            }
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

#[test]
fn the_manifest_names_this_version_and_binary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let template = std::fs::read_to_string(root.join(".krew.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&filled_in(&template)).unwrap();
    assert_eq!(
        manifest["apiVersion"],
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    assert_eq!(manifest["kind"], "Plugin");
    assert_eq!(manifest["spec"]["version"], TAG);
    assert_eq!(manifest["spec"]["homepage"], env!("CARGO_PKG_REPOSITORY"));
    // kubectl finds `kubectl ray` by the program's name, and krew by the plugin's.
    let program = Path::new(env!("CARGO_BIN_EXE_kubectl-ray"));
    let program = program.file_stem().unwrap().to_str().unwrap();
    assert_eq!(
        format!("kubectl-{}", manifest["metadata"]["name"].as_str().unwrap()),
        program
    );

    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 4);
    for platform in platforms {
        let label = |name: &str| {
            platform["selector"]["matchLabels"][name]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let archive = format!("{program}_{TAG}_{}_{}.tar.gz", label("os"), label("arch"));
        assert!(
            platform["uri"].as_str().unwrap().ends_with(&archive),
            "{platform}"
        );
        assert_eq!(platform["bin"], program);
        let from: Vec<_> = platform["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| &file["from"])
            .collect();
        assert_eq!(from, [program, "LICENSE"]);
    }
    let short = manifest["spec"]["shortDescription"].as_str().unwrap();
    assert!(
        short.len() <= 50 && !short.ends_with('.'),
        "krew's rules: {short}"
    );
}
