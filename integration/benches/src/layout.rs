//! The spec of the wiki edits, every field a column.

use anyhow::Result;
use tidegate_decode::{Decoder, TimeBounds};
use tidegate_segment::{MergeSettings, SegmentMeta};
use tidegate_spec::{
    DataSchema, DimensionKind, DimensionSpec, DimensionsSpec, GranularitySpec, InputFormat, JsonFormat,
    MetricKind, MetricSpec, MultiValueHandling, TimestampFormat, TimestampSpec,
};
use tidegate_types::{
    DataSource, Granularity, PartitionOffsets, SegmentId, SegmentVersion, SequenceName, TimestampMillis,
};

/// Rows of a spill, the default of `maxRowsInMemory`.
pub(crate) const ROWS_IN_MEMORY: usize = 150_000;
const LONGEST: usize = 1 << 20;

const DIMENSIONS: [&str; 16] = [
    "channel",
    "cityName",
    "comment",
    "countryIsoCode",
    "countryName",
    "isAnonymous",
    "isMinor",
    "isNew",
    "isRobot",
    "isUnpatrolled",
    "metroCode",
    "namespace",
    "page",
    "regionIsoCode",
    "regionName",
    "user",
];

pub(crate) fn schema() -> Result<DataSchema> {
    let long_sum = |name: &str| MetricSpec {
        name: name.to_owned(),
        kind: MetricKind::LongSum,
        field: name.to_owned(),
    };
    Ok(DataSchema {
        data_source: DataSource::new("wikipedia")?,
        timestamp: TimestampSpec {
            column: "time".to_owned(),
            format: TimestampFormat::Auto,
            missing_value: None,
        },
        dimensions: DimensionsSpec {
            dimensions: DIMENSIONS
                .iter()
                .map(|name| DimensionSpec {
                    name: (*name).to_owned(),
                    kind: DimensionKind::String,
                    multi_value: MultiValueHandling::SortedArray,
                })
                .collect(),
            discover: false,
            typed_discovery: false,
            exclusions: Vec::new(),
        },
        metrics: ["delta", "added", "deleted"].map(long_sum).into(),
        granularity: GranularitySpec {
            segment: Granularity::Day,
            query: Granularity::None,
            rollup: false,
        },
    })
}

pub(crate) fn decoder() -> Result<Decoder> {
    Ok(Decoder::new(
        &schema()?,
        &InputFormat::Json(JsonFormat::default()),
        TimeBounds::default(),
        LONGEST,
    )?)
}

pub(crate) fn meta() -> Result<SegmentMeta> {
    let day = Granularity::Day
        .bucket(TimestampMillis(1_442_018_818_771))
        .ok_or_else(|| anyhow::anyhow!("no such day"))?;
    Ok(SegmentMeta {
        id: SegmentId {
            data_source: DataSource::new("wikipedia")?,
            interval: day,
            version: SegmentVersion::new("2015-09-13T00:00:00.000Z")?,
            partition_num: 0,
        },
        sequence: SequenceName::new("index_kafka_wikipedia_0")?,
        first_offsets: PartitionOffsets::from([(0, 0)]),
        end_offsets: PartitionOffsets::from([(0, 1)]),
        input_rows: 0,
    })
}

pub(crate) fn settings() -> MergeSettings {
    MergeSettings {
        fan_in: 16,
        zstd_level: 1,
        row_group_rows: 1_000_000,
        bloom_filter: Vec::new(),
    }
}
