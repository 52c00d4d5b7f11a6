//! Free loopback ports for servers.
//!
//! Ports are taken from below the range that the system gives to outgoing connections. A client that keeps
//! reconnecting to a server which is just being restarted could otherwise be handed the server's own port as its
//! local one, connect to itself, and keep the server from ever coming back.

use std::collections::HashSet;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

const LOWEST: u16 = 20_000;
const HIGHEST: u16 = 32_000;
const ATTEMPTS: usize = 3;

/// A port that nothing listens on and that this process has not been given before.
pub fn free_port() -> Result<u16> {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let range = server_ports();
    for _ in 0..1_000 {
        let port = range.start + (crate::random_bits() % u64::from(range.end - range.start)) as u16;
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        if given.get_or_insert_default().insert(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!(
        "no free loopback port between {} and {} after 1,000 tries: stop what listens there",
        range.start,
        range.end
    )
}

/// Runs `start` again when it fails because a port was taken between its choice and its use.
pub(crate) fn on_free_ports<T>(start: impl Fn() -> Result<T>) -> Result<T> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match start() {
            Err(error)
                if left > 0
                    && format!("{error:#}")
                        .to_lowercase()
                        .contains("address already in use") => {}
            result => return result,
        }
    }
}

fn server_ports() -> Range<u16> {
    let outgoing = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let lowest_outgoing = outgoing.as_deref().and_then(lowest_of).unwrap_or(HIGHEST);
    // A machine whose outgoing range covers everything leaves no better choice than the usual one.
    let end = if lowest_outgoing > LOWEST + 1_000 {
        lowest_outgoing.min(HIGHEST)
    } else {
        HIGHEST
    };
    LOWEST..end
}

fn lowest_of(range: &str) -> Option<u16> {
    range.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_meets_a_taken_port_is_tried_again_but_not_for_ever_and_not_for_other_errors() {
        for (message, tries) in [
            ("bind: Address already in use", ATTEMPTS),
            ("the disk is full", 1),
        ] {
            let tried = std::cell::Cell::new(0);
            let result: Result<()> = on_free_ports(|| {
                tried.set(tried.get() + 1);
                bail!("{message}")
            });
            assert!(result.is_err());
            assert_eq!(tried.get(), tries, "{message}");
        }
    }

    #[test]
    fn ports_are_distinct_free_and_below_the_outgoing_range() {
        let ports: HashSet<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (LOWEST..HIGHEST).contains(port)));
        assert_eq!(lowest_of("32768\t60999\n"), Some(32_768));
    }
}
