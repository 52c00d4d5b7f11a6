//! The command line: what can be said, and nothing about how it is done.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_config::ConfigArgs;

/// Reads Kafka topics into Parquet segments, exactly once.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, propagate_version = true)]
pub struct Cli {
    /// How results are printed: tables for people, JSON for programs.
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Address of the coordinator; several are separated by commas, and the one that leads answers.
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_SERVER",
        default_value = "http://127.0.0.1:7100"
    )]
    pub server: String,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show everything in one process: broker, services, generated events, segments, and a check of every total.
    Quickstart(QuickstartArgs),
    /// Run all four services in one process.
    Serve(ConfigArgs),
    /// Submit ingestion specs and look after supervisors.
    #[command(subcommand)]
    Supervisor(SupervisorCommand),
    /// Look at tasks.
    #[command(subcommand)]
    Task(TaskCommand),
    /// Look at the segment catalog.
    #[command(subcommand)]
    Segment(SegmentCommand),
    /// Prove that each offset of a data source is in exactly one segment; exit status 0 when it is.
    Verify {
        /// Data source.
        data_source: String,
        /// Read each object too: size, checksum, rows.
        #[arg(long)]
        deep: bool,
    },
    /// Look at task-runners.
    #[command(subcommand)]
    Runner(RunnerCommand),
    /// Ask a service whether it is serving; exit status 0 when it is.
    Health {
        /// Address of the service, e.g. `http://127.0.0.1:7100`.
        address: String,
    },
}

/// How big, and where.
#[derive(Debug, Args)]
pub struct QuickstartArgs {
    /// Folder for the catalog, the segments and local state; it may be one of an earlier run.
    #[arg(long, default_value = "tidegate-quickstart")]
    pub data_dir: PathBuf,
    /// Events to generate.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub events: u64,
    /// The same seed makes the same events.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Stay up after the check, until Ctrl-C.
    #[arg(long)]
    pub keep_running: bool,
}

#[derive(Debug, Subcommand)]
pub enum SupervisorCommand {
    /// Submit a spec: validate it, store it, start it.
    Submit {
        /// File with the spec as JSON (comments are allowed); `-` reads standard input.
        spec: PathBuf,
    },
    /// Say everything that is wrong with a spec; store nothing.
    Validate {
        /// File with the spec as JSON (comments are allowed); `-` reads standard input.
        spec: PathBuf,
    },
    /// Print the stored spec of a supervisor.
    Get { id: String },
    /// List supervisors.
    List,
    /// Show offsets, lag, tasks, state and recent errors.
    Status { id: String },
    /// Publish what was read, then stop; the place is kept.
    Suspend { id: String },
    /// Go on from the committed offsets.
    Resume { id: String },
    /// Publish what was read and end the supervisor.
    Terminate {
        id: String,
        /// Do not publish what was read.
        #[arg(long)]
        now: bool,
        /// Forget the committed offsets too.
        #[arg(long)]
        forget_offsets: bool,
    },
    /// Close the open sequences now: what was read is published while reading goes on.
    Checkpoint {
        id: String,
        /// Only this group; may be repeated. Without it all that read.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// What to wait for.
        #[arg(long, value_enum, default_value_t = WaitFor::Decided)]
        wait: WaitFor,
        /// Longest wait, in seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        timeout: u64,
    },
    /// Clear or move committed offsets; what is read and not published is dropped and read again. Refused when
    /// records would never be read.
    Reset {
        id: String,
        /// Only these partitions; without it all.
        #[arg(long = "partition", value_name = "PARTITION")]
        partitions: Vec<i32>,
        /// New committed offset of a partition; may be repeated.
        #[arg(long = "offset", value_name = "PARTITION=OFFSET", value_parser = parse_offset)]
        offsets: Vec<(i32, i64)>,
        /// Where partitions without --offset begin; without it where the spec says.
        #[arg(long, value_enum, value_name = "PLACE")]
        to: Option<ResetPlace>,
        /// Only say what would be skipped and what would be read twice.
        #[arg(long)]
        dry_run: bool,
        /// Also when records would never be read.
        #[arg(long)]
        force: bool,
        /// Why, for the history.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Show the versions of the spec and what was done, newest first.
    History { id: String },
}

/// Where a reset puts a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ResetPlace {
    /// The first record that the broker still has.
    Earliest,
    /// Behind the last record that there is now.
    Latest,
}

/// What a checkpoint is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    /// Its end is in the checkpoint log.
    Decided,
    /// It is in the catalog.
    Published,
    /// The serving tier has its segments.
    HandedOff,
}

#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// List tasks.
    List {
        /// Only those of this supervisor.
        #[arg(long)]
        supervisor: Option<String>,
        /// Ended ones too.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum SegmentCommand {
    /// List published segments.
    List {
        /// Only those of this data source.
        #[arg(long)]
        data_source: Option<String>,
        /// Only those that this supervisor published.
        #[arg(long)]
        supervisor: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum RunnerCommand {
    /// List runners with their slots.
    List,
}

fn parse_offset(text: &str) -> Result<(i32, i64), String> {
    let wrong = || format!("{text:?} is not PARTITION=OFFSET, e.g. 0=1500");
    let (partition, offset) = text.split_once('=').ok_or_else(wrong)?;
    let pair = (partition.trim().parse::<i32>(), offset.trim().parse::<i64>());
    match pair {
        (Ok(partition), Ok(offset)) if partition >= 0 && offset >= 0 => Ok((partition, offset)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn offsets_of_a_reset_are_checked_when_they_are_read() {
        assert_eq!(parse_offset("0=1500"), Ok((0, 1500)));
        for bad in ["", "0", "0=", "a=1", "-1=0", "0=-1"] {
            assert!(parse_offset(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_global_flags_are_taken_behind_the_command_too() {
        let cli = Cli::parse_from([
            "tidegate",
            "supervisor",
            "list",
            "--output",
            "json",
            "--server",
            "http://h:1",
        ]);
        assert_eq!((cli.output, cli.server.as_str()), (Output::Json, "http://h:1"));
    }
}
