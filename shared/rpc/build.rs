//! Compiles `proto/` without `protoc`: protox makes the descriptor set, tonic-prost-build the code. The
//! descriptor set is kept for reflection and for the compatibility check.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: &[&str] = &[
    "tidegate/types/v1/types.proto",
    "tidegate/handshake/v1/handshake.proto",
    "tidegate/coordinator/v1/supervisor.proto",
    "tidegate/coordinator/v1/runner_registry.proto",
    "tidegate/task_runner/v1/task_runner.proto",
    "tidegate/publisher/v1/publisher.proto",
    "tidegate/handoff/v1/handoff.proto",
    "tidegate/serving/v1/serving.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    for file in FILES {
        println!("cargo:rerun-if-changed={}", root.join(file).display());
    }
    let descriptors = protox::compile(FILES, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("tidegate.descriptors.bin");
    fs::write(out, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_transport(true)
        .compile_fds(descriptors)?;
    Ok(())
}
