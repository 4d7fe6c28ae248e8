//! Owns the limit on guessing passwords. Never knows a password, and never reads the clock.

use std::collections::HashMap;

const WINDOW_MS: u64 = 60_000;
/// Allowed failures in a window, by user and address, and by address alone (many users from one address).
const FAILURES_MAX: usize = 5;
const FAILURES_OF_ADDRESS_MAX: usize = 20;
/// The most names that are remembered, so that a flood of invented users cannot make the table grow further.
const REMEMBERED_MAX: usize = 4096;

#[derive(Default)]
pub struct Tries {
    failures: HashMap<String, Vec<u64>>,
}

fn keys(user: &str, address: &str) -> [(String, usize); 2] {
    // Longer names cannot be users, so their length does not matter.
    let user: String = user.chars().take(64).collect();
    [(format!("{address} {user}"), FAILURES_MAX), (address.to_owned(), FAILURES_OF_ADDRESS_MAX)]
}

impl Tries {
    /// `Err`: the milliseconds until the next try is allowed.
    pub fn admit(&mut self, user: &str, address: &str, now_ms: u64) -> Result<(), u64> {
        let mut wait_ms = 0;
        for (key, max) in keys(user, address) {
            let Some(failures) = self.failures.get_mut(&key) else { continue };
            failures.retain(|&at| at + WINDOW_MS > now_ms);
            if failures.len() >= max {
                let oldest = failures[failures.len() - max];
                wait_ms = wait_ms.max(oldest + WINDOW_MS - now_ms);
            }
        }
        if wait_ms > 0 { Err(wait_ms) } else { Ok(()) }
    }

    pub fn failed(&mut self, user: &str, address: &str, now_ms: u64) {
        if self.failures.len() >= REMEMBERED_MAX {
            self.failures.retain(|_, failures| failures.iter().any(|&at| at + WINDOW_MS > now_ms));
        }
        for (key, max) in keys(user, address) {
            // The address itself always counts, so that a full table does not disable the limit.
            if self.failures.len() < REMEMBERED_MAX
                || max == FAILURES_OF_ADDRESS_MAX
                || self.failures.contains_key(&key)
            {
                let failures = self.failures.entry(key).or_default();
                failures.push(now_ms);
                if failures.len() > max {
                    failures.remove(0);
                }
            }
        }
    }

    /// A right password clears the failures of the user, but not those of the address.
    pub fn succeeded(&mut self, user: &str, address: &str) {
        let [(key, _), _] = keys(user, address);
        self.failures.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_five_failures_a_minute_the_sixth_try_waits() {
        let mut tries = Tries::default();
        for at in 0..5 {
            assert_eq!(tries.admit("admin", "::1", at * 1000), Ok(()));
            tries.failed("admin", "::1", at * 1000);
        }
        assert_eq!(tries.admit("admin", "::1", 5000), Err(55_000));
        assert_eq!(tries.admit("admin", "10.0.0.7", 5000), Ok(()), "another address");
        assert_eq!(tries.admit("other", "::1", 5000), Ok(()), "another user");
        assert_eq!(tries.admit("admin", "::1", 59_999), Err(1));
        assert_eq!(tries.admit("admin", "::1", 60_000), Ok(()));
    }

    #[test]
    fn guessing_user_names_is_limited_by_address() {
        let mut tries = Tries::default();
        for user in 0..20 {
            assert_eq!(tries.admit(&format!("user{user}"), "::1", 0), Ok(()));
            tries.failed(&format!("user{user}"), "::1", 0);
        }
        assert_eq!(tries.admit("another", "::1", 0), Err(60_000));
        assert_eq!(tries.admit("another", "::2", 0), Ok(()));
    }

    #[test]
    fn a_right_password_clears_failures() {
        let mut tries = Tries::default();
        (0..4).for_each(|_| tries.failed("admin", "::1", 0));
        tries.succeeded("admin", "::1");
        (0..4).for_each(|_| tries.failed("admin", "::1", 0));
        assert_eq!(tries.admit("admin", "::1", 0), Ok(()));
    }

    #[test]
    fn a_flood_of_names_is_bounded() {
        let mut tries = Tries::default();
        for user in 0..10_000 {
            tries.failed(&format!("user{user}"), "::1", 0);
        }
        assert!(tries.failures.len() <= REMEMBERED_MAX + 1);
        assert!(tries.admit("x", "::1", 0).is_err());
    }
}
