//! `dataSchema`, in the new form and the old.

use std::collections::HashSet;

use tidegate_types::{DataSource, Granularity, PatternError, TimestampParser};

use super::input_format;
use crate::document::{Content, Node};
use crate::fields::section;
use crate::issue::Findings;
use crate::model::{
    DataSchema, DimensionKind, DimensionSpec, DimensionsSpec, GranularitySpec, JsonFormat, MetricKind,
    MetricSpec, MultiValueHandling, TimestampFormat, TimestampSpec,
};
use crate::reader::{Reader, pick};
use crate::suggest::{did_you_mean, nearest, shown};

/// The name of the time column of every segment.
const TIME_COLUMN: &str = "__time";

const DIMENSION_KINDS: [(&str, DimensionKind); 5] = [
    ("string", DimensionKind::String),
    ("long", DimensionKind::Long),
    ("float", DimensionKind::Float),
    ("double", DimensionKind::Double),
    ("json", DimensionKind::Json),
];
const DIMENSION_KINDS_NOT_YET: [&str; 2] = ["auto", "spatial"];

const MULTI_VALUES: [(&str, MultiValueHandling); 3] = [
    ("SORTED_ARRAY", MultiValueHandling::SortedArray),
    ("SORTED_SET", MultiValueHandling::SortedSet),
    ("ARRAY", MultiValueHandling::Array),
];

const METRIC_KINDS: [(&str, MetricKind); 10] = [
    ("count", MetricKind::Count),
    ("longSum", MetricKind::LongSum),
    ("longMin", MetricKind::LongMin),
    ("longMax", MetricKind::LongMax),
    ("doubleSum", MetricKind::DoubleSum),
    ("doubleMin", MetricKind::DoubleMin),
    ("doubleMax", MetricKind::DoubleMax),
    ("floatSum", MetricKind::FloatSum),
    ("floatMin", MetricKind::FloatMin),
    ("floatMax", MetricKind::FloatMax),
];
const METRIC_KINDS_NOT_YET: [&str; 25] = [
    "longFirst",
    "longLast",
    "longAny",
    "doubleFirst",
    "doubleLast",
    "doubleAny",
    "floatFirst",
    "floatLast",
    "floatAny",
    "stringFirst",
    "stringLast",
    "stringAny",
    "doubleMean",
    "filtered",
    "hyperUnique",
    "cardinality",
    "thetaSketch",
    "arrayOfDoublesSketch",
    "HLLSketchBuild",
    "HLLSketchMerge",
    "quantilesDoublesSketch",
    "KllFloatsSketch",
    "KllDoublesSketch",
    "variance",
    "tDigestSketch",
];

/// The name of a metric kind, as a spec has it.
pub(crate) fn metric_kind_name(kind: MetricKind) -> &'static str {
    METRIC_KINDS
        .iter()
        .find(|(_, known)| *known == kind)
        .map_or("count", |(name, _)| *name)
}

const TIMESTAMP_FORMATS: [TimestampFormat; 7] = [
    TimestampFormat::Auto,
    TimestampFormat::Iso,
    TimestampFormat::Posix,
    TimestampFormat::Millis,
    TimestampFormat::Micro,
    TimestampFormat::Nano,
    TimestampFormat::Ruby,
];

/// What `dataSchema` gives.
pub(super) struct ReadSchema {
    pub(super) schema: DataSchema,
    /// The input format of the old form.
    pub(super) old_format: Option<JsonFormat>,
}

/// A node with its path.
type Place<'d> = (String, &'d Node);

pub(super) fn read(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<ReadSchema> {
    let reader = Reader::open(node, path, section("dataSchema"), findings)?;
    let data_source = reader.required_text("dataSource", findings).and_then(|text| {
        DataSource::new(text)
            .map_err(|error| reader.error("dataSource", error, findings))
            .ok()
    });
    for name in ["timestampSpec", "dimensionsSpec"] {
        if reader.has("parser") && reader.has(name) {
            reader.error(
                name,
                "is given together with `parser`; leave one of the two out",
                findings,
            );
        }
    }
    let old = reader
        .node("parser")
        .and_then(|node| read_parser(node, &reader.path_of("parser"), findings));
    let (old_timestamp, old_dimensions, old_format) = match old {
        Some(old) => (old.timestamp, old.dimensions, old.format),
        None => (None, None, None),
    };
    let place = |name: &str| reader.node(name).map(|node| (reader.path_of(name), node));
    let timestamp = match place("timestampSpec").or(old_timestamp) {
        Some((path, node)) => read_timestamp(node, &path, findings),
        None => Some(TimestampSpec {
            column: "timestamp".to_owned(),
            format: TimestampFormat::Auto,
            missing_value: None,
        }),
    };
    let dimensions = match place("dimensionsSpec").or(old_dimensions) {
        Some((path, node)) => read_dimensions(node, &path, findings),
        None => Some(DimensionsSpec {
            dimensions: Vec::new(),
            discover: true,
            typed_discovery: false,
            exclusions: Vec::new(),
        }),
    };
    let metrics = read_metrics(&reader, dimensions.as_ref(), findings);
    let granularity = match place("granularitySpec") {
        Some((path, node)) => read_granularity_spec(node, &path, findings),
        None => Some(GranularitySpec {
            segment: Granularity::Day,
            query: Granularity::None,
            rollup: true,
        }),
    };
    if let Some((path, node)) = place("transformSpec") {
        Reader::open(node, &path, section("dataSchema.transformSpec"), findings);
    }
    Some(ReadSchema {
        schema: DataSchema {
            data_source: data_source?,
            timestamp: timestamp?,
            dimensions: dimensions?,
            metrics,
            granularity: granularity?,
        },
        old_format,
    })
}

/// What the old form holds.
struct OldForm<'d> {
    timestamp: Option<Place<'d>>,
    dimensions: Option<Place<'d>>,
    format: Option<JsonFormat>,
}

fn read_parser<'d>(node: &'d Node, path: &str, findings: &mut Findings<'_>) -> Option<OldForm<'d>> {
    let parser = Reader::open(node, path, section("dataSchema.parser"), findings)?;
    let not_yet = [
        "avro_stream",
        "avro_hadoop",
        "protobuf",
        "thrift",
        "map",
        "orc",
        "parquet",
        "parquet-avro",
    ];
    parser.word("type", &[("string", ())], &not_yet, findings);
    let Some(inner) = parser.node("parseSpec") else {
        parser.error("parseSpec", "is missing", findings);
        return None;
    };
    let inner_path = parser.path_of("parseSpec");
    // Another format has fields of its own, which are not worth reporting beside it.
    if let Some(format) = inner.get("format")
        && let Some(text) = format.text()
        && let Err(message) = pick(
            text,
            &[("json", ())],
            &[
                "csv",
                "tsv",
                "regex",
                "javascript",
                "jsonLowercase",
                "timeAndDims",
            ],
        )
    {
        findings.error(format.at, format!("{inner_path}.format"), message);
        return None;
    }
    let spec = Reader::open(
        inner,
        &inner_path,
        section("dataSchema.parser.parseSpec"),
        findings,
    )?;
    spec.required_text("format", findings);
    let format = match spec.node("flattenSpec") {
        Some(node) => input_format::read_flatten(node, &spec.path_of("flattenSpec"), findings),
        None => Some(input_format::plain()),
    };
    let place = |name: &str| spec.node(name).map(|node| (spec.path_of(name), node));
    Some(OldForm {
        timestamp: place("timestampSpec"),
        dimensions: place("dimensionsSpec"),
        format,
    })
}

fn read_timestamp(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<TimestampSpec> {
    let reader = Reader::open(node, path, section("dataSchema.timestampSpec"), findings)?;
    let column = reader.text("column", findings).unwrap_or("timestamp").to_owned();
    let format = match reader.text("format", findings) {
        Some(text) => timestamp_format(&reader, text, findings)?,
        None => TimestampFormat::Auto,
    };
    Some(TimestampSpec {
        column,
        format,
        missing_value: reader.time("missingValue", findings),
    })
}

fn timestamp_format(reader: &Reader<'_>, text: &str, findings: &mut Findings<'_>) -> Option<TimestampFormat> {
    if let Some(format) = TIMESTAMP_FORMATS
        .iter()
        .find(|format| format.as_text().eq_ignore_ascii_case(text))
    {
        return Some(format.clone());
    }
    match TimestampParser::pattern(text) {
        Ok(_) => Some(TimestampFormat::Pattern(text.to_owned())),
        Err(error) => {
            let hint = did_you_mean(text, TIMESTAMP_FORMATS.iter().map(TimestampFormat::as_text));
            reader.error("format", format!("{error}{hint}"), findings);
            None
        }
    }
}

impl TimestampFormat {
    /// The name or the pattern, as a spec has it.
    pub fn as_text(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::Iso => "iso",
            Self::Posix => "posix",
            Self::Millis => "millis",
            Self::Micro => "micro",
            Self::Nano => "nano",
            Self::Ruby => "ruby",
            Self::Pattern(pattern) => pattern,
        }
    }

    /// The compiled form that reads the times of rows. A pattern that has passed validation compiles.
    pub fn parser(&self) -> Result<TimestampParser, PatternError> {
        Ok(match self {
            Self::Auto => TimestampParser::auto(),
            Self::Iso => TimestampParser::iso(),
            Self::Posix => TimestampParser::posix(),
            Self::Millis => TimestampParser::millis(),
            Self::Micro => TimestampParser::micro(),
            Self::Nano => TimestampParser::nano(),
            Self::Ruby => TimestampParser::ruby(),
            Self::Pattern(pattern) => TimestampParser::pattern(pattern)?,
        })
    }
}

fn read_dimensions(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<DimensionsSpec> {
    let reader = Reader::open(node, path, section("dataSchema.dimensionsSpec"), findings)?;
    let mut dimensions = Vec::new();
    let mut names = HashSet::new();
    for (item_path, item) in reader.items("dimensions", findings) {
        let Some(dimension) = read_dimension(item, &item_path, findings) else {
            continue;
        };
        if dimension.name == TIME_COLUMN {
            findings.error(
                item.at,
                item_path,
                "`__time` is the time column and cannot be a dimension",
            );
        } else if !names.insert(dimension.name.clone()) {
            findings.error(
                item.at,
                item_path,
                format!("dimension {} is given twice", shown(&dimension.name)),
            );
        } else {
            dimensions.push(dimension);
        }
    }
    let mut exclusions = Vec::new();
    for (item_path, item, name) in reader.texts("dimensionExclusions", findings) {
        if names.contains(name) {
            findings.error(
                item.at,
                item_path,
                format!("{} is excluded and a dimension", shown(name)),
            );
        } else if !exclusions.iter().any(|known| known == name) {
            exclusions.push(name.to_owned());
        }
    }
    let include_all = reader.flag("includeAllDimensions", false, findings);
    let typed_discovery = reader.flag("useSchemaDiscovery", false, findings);
    let listed = reader.node("dimensions").is_some_and(|node| match &node.content {
        Content::List(items) => !items.is_empty(),
        _ => true,
    });
    let discover = !listed || include_all || typed_discovery;
    Some(DimensionsSpec {
        dimensions,
        discover,
        typed_discovery,
        exclusions,
    })
}

fn read_dimension(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<DimensionSpec> {
    if let Some(name) = node.text() {
        if name.is_empty() {
            findings.error(node.at, path, "must not be empty");
            return None;
        }
        return Some(DimensionSpec {
            name: name.to_owned(),
            kind: DimensionKind::String,
            multi_value: MultiValueHandling::SortedArray,
        });
    }
    if !matches!(node.content, Content::Object(_)) {
        findings.error(
            node.at,
            path,
            format!("must be a name or an object, not {}", node.kind()),
        );
        return None;
    }
    let reader = Reader::open(
        node,
        path,
        section("dataSchema.dimensionsSpec.dimensions[]"),
        findings,
    )?;
    let name = reader.required_text("name", findings);
    let kind = reader.word("type", &DIMENSION_KINDS, &DIMENSION_KINDS_NOT_YET, findings);
    let multi_value = reader
        .word("multiValueHandling", &MULTI_VALUES, &[], findings)
        .unwrap_or(MultiValueHandling::SortedArray);
    Some(DimensionSpec {
        name: name?.to_owned(),
        kind: kind.unwrap_or(DimensionKind::String),
        multi_value,
    })
}

fn read_metrics(
    schema: &Reader<'_>,
    dimensions: Option<&DimensionsSpec>,
    findings: &mut Findings<'_>,
) -> Vec<MetricSpec> {
    let mut metrics: Vec<MetricSpec> = Vec::new();
    for (path, item) in schema.items("metricsSpec", findings) {
        let Some(metric) = read_metric(item, &path, findings) else {
            continue;
        };
        let at = item.get("name").map_or(item.at, |name| name.at);
        let name_path = format!("{path}.name");
        let shown = shown(&metric.name);
        let is_dimension =
            dimensions.is_some_and(|spec| spec.dimensions.iter().any(|known| known.name == metric.name));
        if metric.name == TIME_COLUMN {
            findings.error(
                at,
                name_path,
                "`__time` is the time column and cannot be a metric",
            );
        } else if is_dimension {
            findings.error(
                at,
                name_path,
                format!("metric {shown} has the name of a dimension"),
            );
        } else if metrics.iter().any(|known| known.name == metric.name) {
            findings.error(at, name_path, format!("metric {shown} is given twice"));
        } else {
            metrics.push(metric);
        }
    }
    metrics
}

fn read_metric(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<MetricSpec> {
    // Another kind has fields of its own, which are not worth reporting beside it.
    if let Some(kind) = node.get("type")
        && let Some(text) = kind.text()
        && let Err(message) = pick(text, &METRIC_KINDS, &METRIC_KINDS_NOT_YET)
    {
        findings.error(kind.at, format!("{path}.type"), message);
        return None;
    }
    let reader = Reader::open(node, path, section("dataSchema.metricsSpec[]"), findings)?;
    if !reader.has("type") {
        reader.error("type", "is missing", findings);
    }
    let kind = reader.word("type", &METRIC_KINDS, &METRIC_KINDS_NOT_YET, findings);
    let name = reader.required_text("name", findings);
    let field = match kind {
        Some(MetricKind::Count) => {
            if reader.has("fieldName") {
                reader.warning("fieldName", "has no effect: a count reads no field", findings);
            }
            Some("")
        }
        Some(_) => reader.required_text("fieldName", findings),
        None => None,
    };
    Some(MetricSpec {
        name: name?.to_owned(),
        kind: kind?,
        field: field?.to_owned(),
    })
}

fn read_granularity_spec(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<GranularitySpec> {
    let reader = Reader::open(node, path, section("dataSchema.granularitySpec"), findings)?;
    reader.word("type", &[("uniform", ())], &["arbitrary"], findings);
    let segment = read_granularity(&reader, "segmentGranularity", Granularity::Day, findings);
    let query = read_granularity(&reader, "queryGranularity", Granularity::None, findings);
    if segment == Some(Granularity::None) {
        reader.warning(
            "segmentGranularity",
            "`NONE` makes a segment for every millisecond",
            findings,
        );
    }
    let rollup = reader.flag("rollup", true, findings);
    Some(GranularitySpec {
        segment: segment?,
        query: query?,
        rollup,
    })
}

fn read_granularity(
    reader: &Reader<'_>,
    name: &str,
    default: Granularity,
    findings: &mut Findings<'_>,
) -> Option<Granularity> {
    let Some(node) = reader.node(name) else {
        return Some(default);
    };
    match Granularity::from_json(&node.to_value()) {
        Ok(granularity) => Some(granularity),
        Err(error) => {
            let hint = node.text().and_then(|text| nearest(text, Granularity::names()));
            let message = match hint {
                Some(known) => format!(
                    "granularity {} is unknown; did you mean `{known}`?",
                    shown(node.text()?)
                ),
                None => error.to_string(),
            };
            reader.error(name, message, findings);
            None
        }
    }
}
