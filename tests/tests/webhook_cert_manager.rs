//! With cert-manager: the test plays it, its injector, and the kubelet that mounts its Secret.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use admission::{Site, find, free_port, kustomize, templates};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use ray_tests::{Load, eventually};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};

const OVERLAY: &str = "resources: [manifests/webhook]\ncomponents: [manifests/webhook/cert-manager]\n";
const CONFIGURATIONS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// cert-manager's Issuer.
struct Issuer(CertifiedIssuer<'static, KeyPair>);

impl Issuer {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "issuer");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Fills a Certificate's Secret as cert-manager does; gives the leaf.
    async fn issue(&self, site: &Site, secret: &str, names: &[String]) -> anyhow::Result<String> {
        let key = KeyPair::generate()?;
        let leaf = CertificateParams::new(names)?.signed_by(&key, &self.0)?.pem();
        let data = [
            ("tls.crt", leaf.clone()),
            ("tls.key", key.serialize_pem()),
            ("ca.crt", self.0.pem()),
        ];
        let data: BTreeMap<_, _> = data.map(|(key, pem)| (key, ByteString(pem.into_bytes()))).into();
        let secret_object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "type": "kubernetes.io/tls", "data": data});
        site.api("v1", "Secret")
            .patch(
                secret,
                &PatchParams::apply("cert-manager").force(),
                &Patch::Apply(secret_object),
            )
            .await?;
        Ok(leaf)
    }
}

async fn data(site: &Site, secret: &str) -> anyhow::Result<Vec<(String, ByteString)>> {
    let api: Api<Secret> = Api::namespaced(site.cluster.client.clone(), &site.namespace);
    Ok(api
        .get(secret)
        .await?
        .data
        .unwrap_or_default()
        .into_iter()
        .collect())
}

/// Brings the Secret into the folder as a kubelet does: all files change at once, behind a link.
async fn mount(site: &Site, secret: &str, folder: &Path) -> anyhow::Result<()> {
    let version = tempfile::Builder::new().prefix("..").tempdir_in(folder)?.keep();
    for (name, content) in data(site, secret).await? {
        std::fs::write(version.join(&name), content.0)?;
        let link = folder.join(&name);
        if !link.exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(&name), link)?;
        }
    }
    let next = folder.join("..data_tmp");
    std::os::unix::fs::symlink(&version, &next)?;
    std::fs::rename(next, folder.join("..data"))?;
    Ok(())
}

/// The leaf that a new connection meets.
fn served(site: &Site, port: u16, authority: &str) -> anyhow::Result<Vec<u8>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(site.host.clone())?;
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    let chain = connection.peer_certificates().unwrap_or_default();
    Ok(chain.first().map(|leaf| leaf.to_vec()).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn its_certificate_is_served_and_renewed_and_nothing_of_it_is_written() -> anyhow::Result<()> {
    let mut site = Site::prepare("cert-manager", "ray.io").await?;
    let shipped = kustomize(&site, OVERLAY)?;
    let certificate = find(&shipped, "Certificate", "ray-webhook").unwrap();
    let secret = certificate["spec"]["secretName"].as_str().unwrap();
    let mut names: Vec<String> = serde_json::from_value(certificate["spec"]["dnsNames"].clone())?;
    assert_eq!(names[0], "ray-webhook.ray-system.svc");
    names.push(site.host.clone());

    let issuer = Issuer::new()?;
    let first = issuer.issue(&site, secret, &names).await?;
    let folder = tempfile::tempdir()?;
    mount(&site, secret, folder.path()).await?;
    let flags = mounted_flags(&shipped, secret, folder.path());
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let port = free_port()?;
    site.start_webhook(port, &flags)?;
    for kind in CONFIGURATIONS {
        let mut configuration = find(&shipped, kind, "ray-webhook").unwrap().clone();
        let annotation = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].take();
        assert_eq!(annotation, "ray-system/ray-webhook", "{kind}");
        configuration["metadata"] = json!({"name": site.namespace});
        site.point(&mut configuration, port)?;
        // The injector's part.
        let authority = serde_json::to_value(ByteString(issuer.0.pem().into_bytes()))?;
        for webhook in configuration["webhooks"].as_array_mut().unwrap() {
            webhook["clientConfig"]["caBundle"] = authority.clone();
        }
        let api = site.cluster_api("admissionregistration.k8s.io/v1", kind);
        api.create(&PostParams::default(), &serde_json::from_value(configuration)?)
            .await?;
    }
    site.wait_for_answers().await?;
    templates(&site).await?;
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).map(|der| der.to_vec());
    assert_eq!(served(&site, port, &issuer.0.pem())?, der(&first)?);

    let spec = json!({"imageTemplate": "torch", "headGroupSpec": {"computeTemplate": "small"}});
    let load = Load::start(site.rayclusters(), site.raycluster("probe", spec)?);
    let second = issuer.issue(&site, secret, &names).await?;
    mount(&site, secret, folder.path()).await?;
    eventually("the new certificate is served", || async {
        Ok((served(&site, port, &issuer.0.pem())? == der(&second)?).then_some(()))
    })
    .await?;
    load.stop().await?;

    for kind in CONFIGURATIONS {
        let api = site.cluster_api("admissionregistration.k8s.io/v1", kind);
        let writers = api.get(&site.namespace).await?.metadata.managed_fields;
        let writers: Vec<_> = writers
            .unwrap_or_default()
            .into_iter()
            .map(|entry| entry.manager)
            .collect();
        assert_eq!(writers.len(), 1, "{kind} was written by {writers:?}");
    }
    let writers = site
        .api("v1", "Secret")
        .get(secret)
        .await?
        .metadata
        .managed_fields;
    assert_eq!(writers.map(|writers| writers.len()), Some(1));
    site.finish().await
}

/// The Deployment's flags for its certificate, with `folder` in place of the mount; and it has no other right or Secret.
fn mounted_flags(shipped: &[Value], secret: &str, folder: &Path) -> Vec<String> {
    for kind in ["Secret", "Role", "RoleBinding"] {
        assert!(
            shipped.iter().all(|object| object["kind"] != kind),
            "a {kind} is left"
        );
    }
    let role = find(shipped, "ClusterRole", "ray-webhook").unwrap();
    assert!(!role.to_string().contains("admissionregistration"), "{role}");
    let deployment = find(shipped, "Deployment", "ray-webhook").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], secret);
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let args = container["args"].as_array().unwrap().iter();
    let flags = args
        .filter_map(Value::as_str)
        .filter(|arg| arg.starts_with("--tls-"));
    let flags: Vec<_> = flags
        .map(|flag| flag.replacen(mounted, &folder.to_string_lossy(), 1))
        .collect();
    assert_eq!(flags.len(), 2);
    flags
}
