//! Asks a Kafka broker how many brokers it knows to be alive.
//!
//! An open port is not enough: a broker listens before it is let into the cluster, and a topic created then is
//! refused or lands on fewer nodes. One Metadata request (version 1, no topics) over plain TCP tells, without a
//! Kafka client library. Never used by the services.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const METADATA: i16 = 3;
const VERSION: i16 = 1;
const CORRELATION: i32 = 7;
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer to this request comes near it.
const LARGEST_ANSWER: usize = 1 << 20;

/// How many brokers are alive in the eyes of the one at `address`; `None` when it does not answer (yet).
pub(crate) fn brokers_alive(address: SocketAddr) -> Option<usize> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(&request()).ok()?;
    let mut size = [0; 4];
    stream.read_exact(&mut size).ok()?;
    let size = usize::try_from(i32::from_be_bytes(size))
        .ok()
        .filter(|size| *size <= LARGEST_ANSWER)?;
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer).ok()?;
    brokers_in(&answer)
}

fn request() -> Vec<u8> {
    let client = b"tidegate-servers";
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(VERSION.to_be_bytes());
    body.extend(CORRELATION.to_be_bytes());
    body.extend((client.len() as i16).to_be_bytes());
    body.extend(client);
    body.extend(0_i32.to_be_bytes()); // an empty list of topics: none
    let mut request = (body.len() as i32).to_be_bytes().to_vec();
    request.extend(body);
    request
}

/// The answer begins with the correlation id and the array of brokers; its length is all we want.
fn brokers_in(answer: &[u8]) -> Option<usize> {
    let correlation = i32::from_be_bytes(answer.get(0..4)?.try_into().ok()?);
    let brokers = i32::from_be_bytes(answer.get(4..8)?.try_into().ok()?);
    (correlation == CORRELATION)
        .then(|| usize::try_from(brokers).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_the_bytes_that_kafkas_protocol_guide_gives() {
        let expected = [
            &[0, 0, 0, 30][..],        // size
            &[0, 3, 0, 1, 0, 0, 0, 7], // api key, version, correlation id
            &[0, 16],                  // length of the client id
            b"tidegate-servers",
            &[0, 0, 0, 0], // topics
        ]
        .concat();
        assert_eq!(request(), expected);
    }

    #[test]
    fn an_answer_that_is_short_or_of_another_request_is_none() {
        assert_eq!(brokers_in(&[0, 0, 0, 7, 0, 0, 0, 3, 9, 9]), Some(3));
        assert_eq!(brokers_in(&[0, 0, 0, 8, 0, 0, 0, 3]), None);
        assert_eq!(brokers_in(&[0, 0, 0, 7, 0]), None);
        assert_eq!(brokers_in(&[0, 0, 0, 7, 255, 255, 255, 255]), None);
    }
}
