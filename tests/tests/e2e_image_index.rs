//! A package index that wants a login, on a real node, and what a package's install script finds in a build.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod images;

use images::{LOGIN, RAY, Site, tiny};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, PostParams};
use ray_api::template::v1alpha1::FailureReason;
use ray_tests::{Cluster, eventually};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;

/// Serves one package over TLS to whom has the login.
const INDEX: &str = r#"
import base64, http.server, io, ssl, tarfile

def packed():
    toml = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {"pyproject.toml": toml, "backend.py": open("/files/backend.py").read(), "PKG-INFO": METADATA}
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo("curious-1.0/" + name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return whole.getvalue()

METADATA = "Metadata-Version: 2.1\nName: curious\nVersion: 1.0\n"
LINKS = b'<!DOCTYPE html><html><body><a href="/curious-1.0.tar.gz">curious-1.0.tar.gz</a></body></html>'
PAGES = {"/simple/curious/": (LINKS, "text/html"), "/curious-1.0.tar.gz": (packed(), "application/gzip")}
LOGIN = "Basic " + base64.b64encode(b"me:index-word").decode()

class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = PAGES.get(self.path)
        code = 401 if self.headers.get("Authorization") != LOGIN else 404 if page is None else 200
        body, kind = page if code == 200 else (b"", "text/plain")
        self.send_response(code)
        if code == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("", 8443), Index)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/files/tls.crt", "/files/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

/// How the package is built: it looks around, and puts what it saw into itself.
const BACKEND: &str = r#"
import os, subprocess, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    seen = subprocess.run(["/bin/sh", "-c", CURIOUS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    name, info = "curious-1.0-py3-none-any.whl", "curious-1.0.dist-info/"
    files = {
        "curious.py": f"SEEN = {seen!r}\n",
        info + "METADATA": "Metadata-Version: 2.1\nName: curious\nVersion: 1.0\n",
        info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[info + "RECORD"] = "".join(f"{path},,\n" for path in [*files, info + "RECORD"])
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"#;

/// A CA, and a certificate with its key for an address.
fn issued(address: &str) -> anyhow::Result<[String; 3]> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // A name of its own: a leaf that is called as its issuer counts as self-signed.
    authority
        .distinguished_name
        .push(DnType::CommonName, "authority of the index");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new([address.to_owned()])?.signed_by(&key, &authority)?;
    Ok([authority.pem(), leaf.pem(), key.serialize_pem()])
}

/// Starts the index; its address, and the CA to trust for it.
async fn index(site: &Site) -> anyhow::Result<(String, String)> {
    let services: Api<Service> = Api::namespaced(site.cluster.client.clone(), &site.namespace);
    let service = json!({"metadata": {"name": "index"}, "spec": {"selector": {"app": "index"}, "ports": [{"port": 8443}]}});
    let service = services
        .create(&PostParams::default(), &serde_json::from_value(service)?)
        .await?;
    let address = service.spec.unwrap().cluster_ip.unwrap();
    let [authority, certificate, key] = issued(&address)?;
    let curious = serde_json::to_string(&site.curious().await?)?;
    let files = [
        ("index.py", INDEX),
        ("backend.py", &format!("CURIOUS = {curious}\n{BACKEND}")),
        ("tls.crt", &certificate),
        ("tls.key", &key),
    ];
    site.secret("index-files", "Opaque", &files).await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "index", "labels": {"app": "index"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "index", "image": RAY, "command": ["python", "/files/index.py"],
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
                "volumeMounts": [{"name": "files", "mountPath": "/files"}],
            }],
            "volumes": [{"name": "files", "secret": {"secretName": "index-files"}}],
        },
    }))?;
    site.pods.create(&PostParams::default(), &pod).await?;
    eventually("the index is ready", || async {
        let conditions = site
            .pods
            .get("index")
            .await?
            .status
            .and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
        Ok(ready.then_some(()))
    })
    .await?;
    Ok((address, authority))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn an_index_with_a_login_gives_a_package_whose_install_script_finds_nothing() -> anyhow::Result<()> {
    let site = Site::new(Cluster::node().await?, "index").await?;
    let (address, authority) = index(&site).await?;
    site.login("push", "registry.local:5000", LOGIN).await?;
    let netrc = format!("machine {address} login me password index-word\n");
    site.secret("index", "templates.ray.io/pip-credentials", &[("netrc", &netrc)])
        .await?;

    // A base that trusts the index, and knows of no other.
    let trust = format!("cat > /home/ray/index.pem << 'END'\n{authority}END\n");
    let mut base = tiny(json!({
        "customCommands": [trust],
        "environmentVariables": {"PIP_CERT": "/home/ray/index.pem", "PIP_CONFIG_FILE": "/dev/null"},
    }));
    base["baseImage"] = json!(RAY);
    site.create("base", base).await?;
    let base = site.built("base").await?;

    let pip = |more: serde_json::Value| {
        let mut pip = json!({"indexUrl": format!("https://{address}:8443/simple")});
        pip.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let mut spec = tiny(
            json!({"pushSecret": "push", "pipPackages": ["curious==1.0"], "pip": pip, "backoffLimit": 0}),
        );
        spec["baseImage"] = json!(base);
        spec
    };
    site.create("open", pip(json!({"credentialsSecret": "index"})))
        .await?;
    site.create("shut", pip(json!({}))).await?;
    let image = site.built("open").await?;
    let seen = site
        .run_in(&image, &["python", "-c", "import curious; print(curious.SEEN)"])
        .await?;
    let reached: Vec<_> = seen.lines().filter(|line| line.starts_with("REACHED")).collect();
    assert!(reached.is_empty(), "{reached:?}");
    // It did look: the API server knows nobody who asks without a token.
    assert!(
        seen.contains("401 Unauthorized") || seen.contains("403 Forbidden"),
        "{seen}"
    );
    // The login is in no layer that a person could look into.
    let left = site
        .run_in(
            &image,
            &[
                "/bin/sh",
                "-c",
                "grep -r -s -l index-word / --exclude-dir=proc --exclude-dir=sys; true",
            ],
        )
        .await?;
    assert_eq!(left, "");

    let failure = site.ended("shut").await?.failure.unwrap();
    // To pip an index that shows nothing has nothing.
    assert_eq!(failure.reason, FailureReason::PipPackageNotFound, "{failure:?}");
    Ok(())
}
