//! Owns the change of `bind`, `port` and `tls-port` while clients are served. Connections that were accepted stay. Never
//! knows why the configuration changes.

use super::{Acceptor, Endpoint, listen};
use config::Config;
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;

impl Acceptor {
    /// Accepts the connections of a socket.
    pub fn begin(endpoint: &Arc<Endpoint>, listener: TcpListener, with_tls: bool) -> io::Result<Acceptor> {
        let socket = listener.try_clone()?;
        let accepting = listen::accept_tcp(Arc::clone(endpoint), listener, with_tls);
        let task = endpoint.runtime.spawn(async move {
            accepting.await.unwrap_or_else(|error| tracing::error!("a listening socket failed: {error}"));
        });
        Ok(Acceptor { task, socket: Some((socket, with_tls)) })
    }

    /// Stops listening at once. The task, which has the socket too, ends a moment later.
    pub fn end(&self) {
        self.task.abort();
        if let Some((socket, _)) = &self.socket {
            // A socket that does not listen any more is what is wanted.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
    }
}

/// The ports whose sockets change, with whether they are for TLS.
fn changed(before: &Config, now: &Config) -> Vec<(u16, bool)> {
    [(before.port, now.port, false), (before.tls.port, now.tls.port, true)]
        .into_iter()
        .filter(|(old, new, _)| old != new || before.bind != now.bind)
        .map(|(_, new, with_tls)| (new, with_tls))
        .collect()
}

fn open(ports: &[(u16, bool)], config: &Config) -> io::Result<Vec<(TcpListener, bool)>> {
    let mut opened = Vec::new();
    for &(port, with_tls) in ports {
        opened.extend(listen::listen_on_port(port, config)?.into_iter().map(|listener| (listener, with_tls)));
    }
    Ok(opened)
}

impl Endpoint {
    /// Listens where the new configuration says. After an error it listens where it did before; the error is
    /// Redis's, behind the directive to blame.
    pub fn relisten(self: &Arc<Self>, before: &Config, now: &Config) -> Result<(), (&'static str, &'static str)> {
        let ports = changed(before, now);
        let mut acceptors = self.acceptors.lock();
        if ports.is_empty() {
            return Ok(());
        }
        let moves_bind = before.bind != now.bind;
        let failed = |error: &io::Error| {
            tracing::warn!("bind, port and tls-port are unchanged: {error}");
            const NOT_HERE: &str = "Unable to listen on this port. Check server logs.";
            match () {
                () if moves_bind => ("bind", "Failed to bind to specified addresses."),
                () if before.port != now.port => ("port", NOT_HERE),
                () => ("tls-port", NOT_HERE),
            }
        };
        let is_changed = |acceptor: &Acceptor| {
            acceptor.socket.as_ref().is_some_and(|(_, of)| ports.iter().any(|(_, with_tls)| with_tls == of))
        };
        // New addresses may overlap with those that are listened on, so these end first. Another port is opened first.
        let mut opened = None;
        if !moves_bind {
            opened = Some(open(&ports, now).map_err(|error| failed(&error))?);
        }
        acceptors.iter().filter(|acceptor| is_changed(acceptor)).for_each(Acceptor::end);
        acceptors.retain(|acceptor| !is_changed(acceptor));
        let mut outcome = Ok(());
        let listeners = match opened {
            Some(opened) => opened,
            None => open(&ports, now)
                .or_else(|error| {
                    outcome = Err(failed(&error));
                    let old: Vec<_> = changed(now, before);
                    open(&old, before)
                })
                .unwrap_or_else(|error| {
                    tracing::error!("the database no longer listens on any address: {error}");
                    Vec::new()
                }),
        };
        for (listener, with_tls) in listeners {
            match Acceptor::begin(self, listener, with_tls) {
                Ok(acceptor) => acceptors.push(acceptor),
                Err(error) => tracing::error!("a listening socket failed: {error}"),
            }
        }
        let kept = self.addresses.lock().iter().filter(|address| address.kind == "unix").cloned().collect::<Vec<_>>();
        let mut addresses: Vec<_> = acceptors.iter().filter_map(Acceptor::address).collect();
        addresses.extend(kept);
        *self.addresses.lock() = addresses;
        outcome
    }
}
