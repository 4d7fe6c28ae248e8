//! Owns what can go wrong with a call, and how each case is told to an operator. Never knows which call it was.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Nothing was sent.
    Unreachable(String),
    /// Something was sent, and no answer came. A transaction has `Outcome::Unknown` instead.
    Lost(String),
    /// Not sent.
    TooLarge { what: String, bytes: usize, max: usize },
    /// The server's database has reached its quota. It refuses puts and leases until the alarm is taken back.
    NoSpace,
    /// The lease has ended or was revoked, and its entries are deleted.
    LeaseGone,
    /// The user, the password or the certificate.
    Denied(String),
    /// The server's words, or ours if nothing was sent. Trying again gives the same answer.
    Refused(String),
    /// An entry that no FlintKV wrote.
    Foreign(String),
    /// A local file or option.
    Local(String),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable(why) => write!(
                to,
                "no member of etcd can be reached ({why}): see that etcd runs, and that its addresses are right"
            ),
            Error::Lost(why) => {
                write!(to, "etcd did not answer ({why}): it may have acted or not, so look before trying again")
            }
            Error::TooLarge { what, bytes, max } => {
                write!(to, "{what} has {bytes} bytes, and at most {max} are allowed: store less")
            }
            Error::NoSpace => write!(
                to,
                "etcd's database is full: compact and defragment it, or raise --quota-backend-bytes, then disarm the alarm NOSPACE"
            ),
            Error::LeaseGone => write!(to, "the lease has ended: grant a new one, and put its entries again"),
            Error::Denied(why) => write!(
                to,
                "etcd denies access ({why}): check the user, the password, the certificate and the user's roles"
            ),
            Error::Refused(why) => write!(to, "refused: {why}"),
            Error::Foreign(key) => {
                write!(to, "the entry {key} was written by another program: delete it, or use another etcd")
            }
            Error::Local(why) => write!(to, "{why}"),
        }
    }
}

impl std::error::Error for Error {}

/// A failed call, by what may have happened at the server. Only a transaction tells `Lost` from a failure.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Certainly not executed, and another member may execute it.
    NotSent(String),
    /// Certainly not executed.
    Refused(Error),
    /// Executed, not executed, or executed later.
    Lost(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::NotSent(why) => Error::Unreachable(why),
            Failure::Refused(error) => error,
            Failure::Lost(why) => Error::Lost(why),
        }
    }
}
