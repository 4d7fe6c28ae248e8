//! Owns what the coordinator tells the service manager (systemd's sd_notify). Never knows etcd.

use config::Supervised;
use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The connection to the service manager. Without a manager, nothing is sent.
#[derive(Debug)]
pub struct Notify(Option<UnixDatagram>);

impl Notify {
    /// As the `supervised` directive and the environment say.
    pub fn find(wanted: Supervised) -> Notify {
        let address = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty());
        let is_wanted = matches!(wanted, Supervised::Systemd | Supervised::Auto);
        Notify(address.filter(|_| is_wanted).and_then(|address| connect(address.as_bytes())))
    }

    /// `STATUS=...` is one line that `systemctl status` shows.
    pub fn say(&self, state: &str) {
        if let Some(socket) = &self.0 {
            // A manager that does not listen changes nothing for etcd.
            let _ = socket.send(state.as_bytes());
        }
    }
}

fn connect(address: &[u8]) -> Option<UnixDatagram> {
    let address = match address.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address)),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}
