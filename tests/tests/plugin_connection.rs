//! The connection flags that only a server with TLS and users can prove.

mod plugin;

use std::path::Path;

use anyhow::Context;
use kube::config::Kubeconfig;
use plugin::set_up;
use serde_json::{Value, json};

fn write(folder: &Path, name: &str, content: &[u8]) -> anyhow::Result<String> {
    let path = folder.join(name);
    std::fs::write(&path, content)?;
    Ok(path.to_string_lossy().into_owned())
}

/// The certificates of the API server's authority.
fn authority(kubeconfig: &Kubeconfig) -> anyhow::Result<Vec<u8>> {
    let cluster = kubeconfig.clusters.first().and_then(|c| c.cluster.as_ref());
    let cluster = cluster.context("no cluster")?;
    if let Some(path) = &cluster.certificate_authority {
        return Ok(std::fs::read(path)?);
    }
    let data = json!(cluster.certificate_authority_data);
    let bytes: k8s_openapi::ByteString = serde_json::from_value(data)?;
    Ok(bytes.0)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_servers_certificate_is_checked_as_the_flags_say() -> anyhow::Result<()> {
    let (cluster, user) = set_up("tls").await?;
    user.ray(&["create", "cluster", "a"])?.success()?;
    let folder = tempfile::tempdir()?;
    let original = Kubeconfig::read_from(&cluster.kubeconfig)?;
    let ca = write(folder.path(), "ca.crt", &authority(&original)?)?;
    let mut config: Value = serde_json::to_value(&original)?;
    let known = config["clusters"][0]["cluster"]
        .as_object_mut()
        .context("no cluster")?;
    known.retain(|key, _| key == "server");
    // A second user, whose credentials the server does not take.
    let users = config["users"].as_array_mut().context("no users")?;
    users.push(json!({"name": "nobody", "user": {"token": "nothing"}}));
    let kubeconfig = write(folder.path(), "config", config.to_string().as_bytes())?;

    let get = |flags: &[&str]| {
        user.ray(
            &[
                &["--kubeconfig", &kubeconfig, "get", "cluster", "-o", "name"],
                flags,
            ]
            .concat(),
        )
    };
    let untrusted = get(&[])?;
    assert_eq!(untrusted.code, 1, "{untrusted:?}");
    assert!(
        untrusted.stderr.contains("invalid peer certificate")
            && untrusted.stderr.contains("--certificate-authority"),
        "{untrusted:?}"
    );
    for flags in [
        &["--certificate-authority", &ca][..],
        &["--insecure-skip-tls-verify"],
        &["--insecure-skip-tls-verify=true"],
    ] {
        assert_eq!(get(flags)?.success()?, "raycluster.ray.io/a\n", "{flags:?}");
    }
    let strict = get(&["--insecure-skip-tls-verify=false"])?;
    assert_eq!(strict.code, 1, "{strict:?}");
    let wrong_name = get(&[
        "--certificate-authority",
        &ca,
        "--tls-server-name",
        "other.example",
    ])?;
    assert_eq!(wrong_name.code, 1, "{wrong_name:?}");
    let refused = get(&["--certificate-authority", &ca, "--user", "nobody"])?;
    assert_eq!(refused.code, 4, "{refused:?}");
    Ok(())
}
