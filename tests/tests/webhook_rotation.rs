//! Certificates change, replicas come and go, and no call fails.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use admission::{Site, free_port, templates};
use anyhow::Context;
use ray_tests::{Load, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Stands for the Service: a connection to each backend in turn.
async fn balance(port: u16, backends: Vec<u16>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    let next = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (backends, next) = (backends.clone(), next.clone());
            tokio::spawn(async move {
                for _ in 0..backends.len() {
                    let backend = backends[next.fetch_add(1, Ordering::Relaxed) % backends.len()];
                    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", backend)).await {
                        // A short life, so that the API server shakes hands again and again.
                        let copy = copy_bidirectional(&mut client, &mut server);
                        let _ = tokio::time::timeout(Duration::from_secs(30), copy).await;
                        return;
                    }
                }
            });
        }
    });
    Ok(())
}

/// When the certificate ends, as the metrics tell it.
async fn expiry(admin: &str) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(admin).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let name = "ray_webhook_certificate_expiry_timestamp_seconds ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(value.context("no such metric")?.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn two_replicas_rotate_under_load_without_a_failed_call() -> anyhow::Result<()> {
    let mut site = Site::prepare("rotate", "ray.io").await?;
    let (front, first, second) = (free_port()?, free_port()?, free_port()?);
    balance(front, vec![first, second]).await?;
    let flags = [
        "--certificate-lifetime",
        "45",
        "--rotation-step",
        "6",
        "--shutdown-delay",
        "1",
    ];
    site.start_webhook(first, &flags)?;
    site.start_webhook(second, &flags)?;
    site.configure(front).await?;
    site.wait_for_answers().await?;
    templates(&site).await?;
    let authority = async || -> anyhow::Result<String> {
        let api = site.cluster_api("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration");
        let configuration = api.get(&site.namespace).await?;
        Ok(configuration.data["webhooks"][0]["clientConfig"]["caBundle"].to_string())
    };
    let before = authority().await?;
    let expiries = async || -> anyhow::Result<Vec<f64>> {
        let mut all = Vec::new();
        for admin in &site.admins {
            all.push(expiry(admin).await?);
        }
        Ok(all)
    };
    // One of them answering does not say that the other one is up.
    let expired_by = eventually("both replicas are up", || async { expiries().await.map(Some) }).await?;

    let spec = json!({"imageTemplate": "torch", "headGroupSpec": {"computeTemplate": "small"}});
    let load = Load::start(site.rayclusters(), site.raycluster("probe", spec)?);
    // Prepared, promoted, and the old CA retired: another single CA.
    eventually("the certificate is rotated whole", || async {
        let now = authority().await?;
        let single = now.len() < before.len() + before.len() / 2;
        Ok((now != before && single).then_some(()))
    })
    .await?;
    load.stop().await?;
    // What an alert looks at follows the certificate that each replica serves with.
    eventually("every replica tells of its new certificate", || async {
        let mut both = expiries().await?.into_iter().zip(&expired_by);
        Ok(both.all(|(now, before)| now > *before).then_some(()))
    })
    .await?;
    site.finish().await
}
