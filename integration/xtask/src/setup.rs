//! Installs what this machine lacks for the tests, and says exactly what it cannot install.
//!
//! Owns the list of needs. Promises that after success every server can be started and every test can run.
//! Never touches what is there already; downloads go to the cache directory, not into the checkout.

use std::process::Command;

use anyhow::{Result, bail};
use tidegate_servers::{docker, tools};

use crate::debian;

/// A program that the tests need, and Debian's package for it.
struct Need {
    what: &'static str,
    package: &'static str,
    /// The container image that stands in for it where a Docker daemon answers.
    image: Option<&'static str>,
    check: fn() -> Result<()>,
}

const NEEDS: [Need; 5] = [
    Need {
        what: "Java 17 or newer (for Kafka)",
        package: "default-jre-headless",
        image: Some(docker::KAFKA_IMAGE),
        check: || tools::java().map(drop),
    },
    Need {
        what: "the Maven client (fetches Kafka)",
        package: "maven",
        image: Some(docker::KAFKA_IMAGE),
        check: || {
            if tools::kafka_is_here()? {
                Ok(())
            } else {
                tools::maven().map(drop)
            }
        },
    },
    Need {
        what: "a PostgreSQL server",
        package: "postgresql",
        image: Some(docker::POSTGRES_IMAGE),
        check: || tools::postgres_programs().map(drop),
    },
    Need {
        what: "Go 1.24 or newer (builds MinIO)",
        package: "golang-go",
        image: Some(docker::MINIO_IMAGE),
        check: || {
            if tools::minio_is_here()? {
                Ok(())
            } else {
                tools::go().map(drop)
            }
        },
    },
    Need {
        what: "Python 3 with venv (other readers of our Parquet files)",
        package: "python3-venv",
        image: None,
        check: || tools::python3().map(drop),
    },
];

pub(crate) fn run() -> Result<()> {
    let mut missing = missing();
    if !missing.is_empty() && debian::can_install() {
        let packages: Vec<&str> = missing.iter().map(|(need, _)| need.package).collect();
        debian::install(&packages)?;
        missing = self::missing();
    }
    let images = stand_ins(&mut missing);
    if !missing.is_empty() {
        bail!("{}", what_to_install(&missing, debian::is_here()));
    }
    for image in &images {
        pull(image)?;
    }
    if !images.contains(&docker::KAFKA_IMAGE) {
        tools::kafka_jars()?;
    }
    if !images.contains(&docker::MINIO_IMAGE) {
        tools::minio()?;
    }
    tools::python()?;
    eprintln!("this machine has what the tests need");
    Ok(())
}

fn missing() -> Vec<(&'static Need, anyhow::Error)> {
    NEEDS
        .iter()
        .filter_map(|need| Some((need, (need.check)().err()?)))
        .collect()
}

/// Takes out what containers can stand in for; their images.
fn stand_ins(missing: &mut Vec<(&'static Need, anyhow::Error)>) -> Vec<&'static str> {
    if missing.is_empty() || !docker::answers() {
        return Vec::new();
    }
    let mut images: Vec<&str> = missing.iter().filter_map(|(need, _)| need.image).collect();
    images.dedup();
    missing.retain(|(need, _)| need.image.is_none());
    images
}

fn pull(image: &str) -> Result<()> {
    let status = Command::new("docker").args(["pull", "--quiet", image]).status()?;
    if !status.success() {
        bail!("docker pull {image} failed ({status})");
    }
    Ok(())
}

fn what_to_install(missing: &[(&Need, anyhow::Error)], on_debian: bool) -> String {
    let lines: Vec<String> = missing
        .iter()
        .map(|(need, error)| format!("  {}: {error:#}", need.what))
        .collect();
    let packages: Vec<&str> = missing.iter().map(|(need, _)| need.package).collect();
    let remedy = if on_debian {
        format!("as root: apt-get install {}", packages.join(" "))
    } else {
        "install them, or start a Docker daemon (it stands in for all but Python)".to_owned()
    };
    format!("this machine lacks\n{}\n{remedy}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_command_that_brings_it() {
        let missing = [
            (&NEEDS[2], anyhow::anyhow!("there is no PostgreSQL server")),
            (&NEEDS[4], anyhow::anyhow!("no python3")),
        ];
        let debian = what_to_install(&missing, true);
        assert!(
            debian.contains("apt-get install postgresql python3-venv"),
            "{debian}"
        );
        assert!(debian.contains("there is no PostgreSQL server"), "{debian}");
        let elsewhere = what_to_install(&missing, false);
        assert!(
            elsewhere.contains("Docker") && !elsewhere.contains("apt-get"),
            "{elsewhere}"
        );
    }

    #[test]
    fn the_versions_told_to_people_are_those_that_are_checked() {
        assert!(
            NEEDS[0]
                .what
                .contains(&format!("Java {} or newer", tools::OLDEST_JAVA))
        );
        let (major, minor) = tools::OLDEST_GO;
        assert!(NEEDS[3].what.contains(&format!("Go {major}.{minor} or newer")));
    }
}
