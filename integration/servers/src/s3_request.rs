//! The one signed S3 request that tests need and object-store clients lack: make a bucket.
//!
//! Signature version 4 over plain HTTP, for test servers only; never used by the services.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

const PATIENCE: Duration = Duration::from_secs(10);
const HASH_BLOCK: usize = 64;

pub(crate) struct Keys<'a> {
    pub(crate) access: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) region: &'a str,
}

/// Status and body of `GET path`, unsigned.
pub(crate) fn get(authority: &str, path: &str) -> Result<(u16, String)> {
    exchange(
        authority,
        &format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"),
    )
}

/// Makes the bucket; fine when we have it already.
pub(crate) fn create_bucket(authority: &str, bucket: &str, keys: &Keys<'_>) -> Result<()> {
    let (status, body) = exchange(authority, &signed_put(authority, bucket, keys, Timestamp::now()))?;
    match status {
        200 => Ok(()),
        409 if body.contains("BucketAlreadyOwnedByYou") => Ok(()),
        _ => bail!("the S3 server at {authority} did not make the bucket {bucket} ({status}): {body}"),
    }
}

fn signed_put(authority: &str, bucket: &str, keys: &Keys<'_>, now: Timestamp) -> String {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = &time[..8];
    let empty = hex::encode(Sha256::digest(b""));
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "PUT\n/{bucket}\n\nhost:{authority}\nx-amz-content-sha256:{empty}\nx-amz-date:{time}\n\n{names}\n{empty}"
    );
    let scope = format!("{date}/{}/s3/aws4_request", keys.region);
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
        hex::encode(Sha256::digest(canonical))
    );
    let signature = hex::encode(hmac(
        &signing_key(keys.secret, date, keys.region, "s3"),
        to_sign.as_bytes(),
    ));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        keys.access
    );
    format!(
        "PUT /{bucket} HTTP/1.1\r\nHost: {authority}\r\nx-amz-content-sha256: {empty}\r\nx-amz-date: {time}\r\n\
         Authorization: {authorization}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn signing_key(secret: &str, date: &str, region: &str, service: &str) -> [u8; 32] {
    let key = hmac(format!("AWS4{secret}").as_bytes(), date.as_bytes());
    let key = hmac(&key, region.as_bytes());
    let key = hmac(&key, service.as_bytes());
    hmac(&key, b"aws4_request")
}

/// RFC 2104 with SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; HASH_BLOCK];
    if key.len() > HASH_BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

fn exchange(authority: &str, request: &str) -> Result<(u16, String)> {
    let reached = || -> std::io::Result<Vec<u8>> {
        let address = authority
            .to_socket_addrs()?
            .next()
            .ok_or(std::io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = reached().with_context(|| format!("the S3 server at {authority} does not answer"))?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("{authority} does not speak HTTP"))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_gives_what_rfc_4231_says() {
        let short = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(
            hex::encode(short),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = hmac(
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
        );
        assert_eq!(
            hex::encode(long),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn the_signing_key_is_that_of_the_documented_example() {
        let key = signing_key(
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            "20120215",
            "us-east-1",
            "iam",
        );
        assert_eq!(
            hex::encode(key),
            "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"
        );
    }
}
