//! The port of gRPC and its certificates.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::connect;
use crate::options::Listen;

/// How often the files of certificates are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Serves gRPC. When a file of its certificates changes, a new server with the new files takes over the
/// port, and the old one asks its clients to connect again.
pub async fn serve(
    listen: Listen,
    mut files: Option<Files>,
    port: TcpListener,
    router: impl Fn(Server) -> Router,
    ending: watch::Receiver<bool>,
) -> Result<()> {
    let port = port.into_std()?;
    loop {
        let mut server = Server::builder().max_connection_age(listen.grpc_max_connection_age);
        if let Some(files) = &files {
            server = server.tls_config(tls(files))?;
        }
        let port = TcpIncoming::from(TcpListener::from_std(port.try_clone()?)?);
        let (end, over) = watch::channel(false);
        let port = port.with_nodelay(Some(true));
        let serving = router(server).serve_with_incoming_shutdown(port, ended(over));
        let serving = tokio::spawn(serving);
        tokio::select! {
            () = ended(ending.clone()) => {
                end.send_replace(true);
                return Ok(serving.await??);
            }
            found = changed(&listen, files.as_ref()), if files.is_some() => files = found,
        }
        tracing::info!("the certificates were read again");
        end.send_replace(true);
    }
}

/// Waits until the files have other bytes that can be used.
async fn changed(listen: &Listen, known: Option<&Files>) -> Option<Files> {
    let mut shown = String::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        match files(listen) {
            Ok(found) if found.as_ref() != known => return found,
            Ok(_) => shown.clear(),
            Err(error) => {
                let error = format!("{error:#}");
                if error != shown {
                    tracing::error!(error, "the old certificates stay");
                }
                shown = error;
            }
        }
    }
}

/// The bytes of the certificate, its key, and the authorities of clients.
pub type Files = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// The files that the options name, if gRPC uses TLS.
pub fn files(listen: &Listen) -> Result<Option<Files>> {
    if !listen.grpc_server_use_tls {
        return Ok(None);
    }
    let files = listen.grpc_server_tls_cert.as_ref().zip(listen.grpc_server_tls_key.as_ref());
    let (cert, key) = files.context("TLS needs a certificate and its key")?;
    let clients = listen.grpc_client_tls_cacert.as_ref().map(|file| connect::read(file));
    let files = (connect::read(cert)?, connect::read(key)?, clients.transpose()?);
    Server::builder().tls_config(tls(&files))?;
    Ok(Some(files))
}

fn tls((cert, key, clients): &Files) -> ServerTlsConfig {
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(cert, key));
    let clients = clients.iter().map(Certificate::from_pem);
    clients.fold(tls, ServerTlsConfig::client_ca_root)
}

/// Waits for the end.
pub async fn ended(mut ending: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end too.
    let _ = ending.wait_for(|is_over| *is_over).await;
}
