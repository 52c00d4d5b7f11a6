//! One record at a time: parse to the tape, find the wanted values, convert, hand over.

use std::collections::BTreeSet;

use simd_json::{Buffers, Node, StaticNode, Tape};
use tidegate_spec::{
    DataSchema, FlattenSource, InputFormat, JsonFormat, MetricKind, MultiValueHandling, PathStep,
    TimestampFormat,
};
use tidegate_types::{Interval, RowPlacer, TimestampError, TimestampMillis, TimestampParser};

use crate::convert::{self, Scratch, Slot};
use crate::fields::{Fields, Key};
use crate::layout::{ColumnKind, Layout};
use crate::{DecoderError, Value, path};

/// Most discovered dimensions of one decoder; a record that would add more is unparseable.
const MOST_DISCOVERED: usize = 4_096;
/// Positions are kept in 32 bits; a record above this is refused before it is parsed.
const LONGEST_RECORD: usize = 1 << 30;

/// Times of rows that are accepted, both inclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeBounds {
    pub minimum: Option<TimestampMillis>,
    pub maximum: Option<TimestampMillis>,
}

/// Why a record is no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unparseable {
    /// Field at fault; empty when it is the whole record.
    pub field: String,
    pub reason: String,
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The row was handed over.
    Accepted,
    /// Its time is outside the bounds.
    Rejected,
    Unparseable(Unparseable),
    /// The value is null, which is not an empty value (B01).
    Tombstone,
    /// A value that holds no row: no bytes, white space, `null`, `[]`.
    Empty,
    /// Larger than the bound.
    Oversized,
}

/// A declared column, and where its value comes from.
#[derive(Debug)]
struct Column {
    kind: ColumnKind,
    /// Number of its field; count has none.
    field: Option<u32>,
    name: String,
    multi: MultiValueHandling,
}

/// Turns records into rows. One per reading thread.
pub struct Decoder {
    layout: Layout,
    columns: Vec<Column>,
    fields: Fields,
    time_field: u32,
    time_column: String,
    parser: TimestampParser,
    missing_value: Option<TimestampMillis>,
    placer: RowPlacer,
    bounds: TimeBounds,
    longest: usize,
    /// Fields that are nested values: (steps, number of the field).
    paths: Vec<(Vec<PathStep>, u32)>,
    // What follows is used again for each record.
    buffers: Buffers,
    tape: Tape<'static>,
    /// Position of each field's value; 0 = absent (0 is the root).
    at: Vec<u32>,
    slots: Vec<Slot>,
    found: Vec<(u32, Slot)>,
    new: Vec<(u32, Slot)>,
    scratch: Scratch,
}

/// An accepted row; valid until the next record.
#[derive(Debug, Clone, Copy)]
pub struct Row<'r> {
    /// Time, floored to the query granularity.
    pub time: TimestampMillis,
    /// Bucket of the segment granularity.
    pub segment: Interval,
    /// Its time before flooring.
    pub instant: TimestampMillis,
    nodes: &'r [Node<'r>],
    slots: &'r [Slot],
    found: &'r [(u32, Slot)],
    names: &'r [Box<str>],
    scratch: &'r str,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl<'r> Row<'r> {
    /// Value of a declared column, by its number in the [`Layout`].
    #[inline]
    pub fn value(&self, column: usize) -> Value<'r> {
        self.slots
            .get(column)
            .map_or(Value::Null, |slot| self.resolve(*slot))
    }

    /// Discovered dimensions of this row: (number, name, value). Numbers are given once per decoder.
    pub fn discovered(&self) -> impl Iterator<Item = (usize, &'r str, Value<'r>)> + '_ {
        self.found.iter().filter_map(|(number, slot)| {
            let number = *number as usize;
            Some((number, &**self.names.get(number)?, self.resolve(*slot)))
        })
    }

    #[inline]
    fn resolve(&self, slot: Slot) -> Value<'r> {
        let piece = |start: u32, end: u32| self.scratch.get(start as usize..end as usize).unwrap_or_default();
        match slot {
            Slot::Null => Value::Null,
            Slot::Long(value) => Value::Long(value),
            Slot::Double(value) => Value::Double(value),
            Slot::Truth(true) => Value::Text("true"),
            Slot::Truth(false) => Value::Text("false"),
            Slot::Node(at) => match self.nodes.get(at as usize) {
                Some(Node::String(text)) => Value::Text(text),
                _ => Value::Null,
            },
            Slot::Scratch { start, end } => Value::Text(piece(start, end)),
            Slot::Json { start, end } => Value::Json(piece(start, end)),
        }
    }
}

impl Decoder {
    /// Compiles what the spec says. `longest` bounds the bytes of one record.
    pub fn new(
        schema: &DataSchema,
        format: &InputFormat,
        bounds: TimeBounds,
        longest: usize,
    ) -> Result<Self, DecoderError> {
        let InputFormat::Json(json) = format;
        let mut excluded: BTreeSet<String> = schema.dimensions.exclusions.iter().cloned().collect();
        excluded.insert(schema.timestamp.column.clone());
        excluded.insert("__time".to_owned());
        excluded.extend(
            schema
                .metrics
                .iter()
                .flat_map(|metric| [metric.field.clone(), metric.name.clone()]),
        );
        let sees_all = json.use_field_discovery.unwrap_or(true);
        let mut fields = Fields::new(schema.dimensions.discover && sees_all, excluded);
        let time_field = fields.number(&schema.timestamp.column);
        let mut columns = Vec::new();
        for dimension in &schema.dimensions.dimensions {
            columns.push(Column {
                kind: ColumnKind::Dimension(dimension.kind),
                field: Some(fields.number(&dimension.name)),
                name: dimension.name.clone(),
                multi: dimension.multi_value,
            });
        }
        for metric in &schema.metrics {
            let field = (metric.kind != MetricKind::Count).then(|| fields.number(&metric.field));
            columns.push(Column {
                kind: ColumnKind::Metric(metric.kind),
                field,
                name: metric.field.clone(),
                multi: MultiValueHandling::Array,
            });
        }
        let paths = paths(json, &mut fields, sees_all, &columns, &schema.timestamp.column);
        Ok(Self {
            layout: Layout::of(schema),
            at: vec![0; fields.len()],
            slots: vec![Slot::Null; columns.len()],
            columns,
            fields,
            time_field,
            time_column: schema.timestamp.column.clone(),
            parser: time_parser(&schema.timestamp.format)?,
            missing_value: schema.timestamp.missing_value,
            placer: RowPlacer::new(
                schema.granularity.segment.clone(),
                schema.granularity.query.clone(),
            ),
            bounds,
            longest: longest.min(LONGEST_RECORD),
            paths,
            buffers: Buffers::default(),
            tape: Tape(Vec::new()),
            found: Vec::new(),
            new: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Decodes one record; an accepted row is given to `take`. The bytes of the value are used up.
    pub fn decode(&mut self, value: Option<&mut [u8]>, take: impl FnOnce(Row<'_>)) -> Outcome {
        let Some(value) = value else {
            return Outcome::Tombstone;
        };
        if value.len() > self.longest {
            return Outcome::Oversized;
        }
        // A byte order mark is not part of the text.
        let value = match value.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) => {
                let skip = value.len() - rest.len();
                &mut value[skip..]
            }
            None => value,
        };
        if value.iter().all(u8::is_ascii_whitespace) {
            return Outcome::Empty;
        }
        let mut tape = std::mem::replace(&mut self.tape, Tape(Vec::new())).reset();
        let outcome = match simd_json::fill_tape(value, &mut self.buffers, &mut tape) {
            Ok(()) => self.record(&tape.0, take),
            Err(error) => {
                // Nothing of a failed record stays in the buffers that the next one starts from (B04).
                self.buffers = Buffers::default();
                unparseable("", format!("not JSON: {}", error_text(&error)))
            }
        };
        self.tape = tape.reset();
        outcome
    }

    fn record(&mut self, nodes: &[Node<'_>], take: impl FnOnce(Row<'_>)) -> Outcome {
        match nodes.first() {
            Some(Node::Object { .. }) => {}
            Some(Node::Static(StaticNode::Null) | Node::Array { len: 0, .. }) | None => {
                return Outcome::Empty;
            }
            Some(Node::Array { .. }) => return unparseable("", "a list, not an object".to_owned()),
            Some(Node::String(_) | Node::Static(_)) => {
                return unparseable("", "a single value, not an object".to_owned());
            }
        }
        self.find(nodes);
        let instant = match self.time(nodes) {
            Ok(instant) => instant,
            Err(reason) => return unparseable(&self.time_column, reason),
        };
        let Some(placed) = self.placer.place(instant) else {
            return unparseable(&self.time_column, TimestampError::OutOfRange.to_string());
        };
        if self.bounds.minimum.is_some_and(|minimum| instant < minimum)
            || self.bounds.maximum.is_some_and(|maximum| instant > maximum)
        {
            return Outcome::Rejected;
        }
        for (slot, column) in self.slots.iter_mut().zip(&self.columns) {
            let at = column.field.map_or(0, |field| self.at[field as usize]);
            *slot = if column.field.is_some() && at == 0 {
                Slot::Null
            } else {
                match convert::declared(nodes, at as usize, column.kind, column.multi, &mut self.scratch) {
                    Ok(slot) => slot,
                    Err(reason) => return unparseable(&column.name, reason.to_owned()),
                }
            };
        }
        if let Err(reason) = self.register_new(nodes) {
            return unparseable("", reason);
        }
        take(Row {
            time: placed.time,
            segment: placed.segment,
            instant,
            nodes,
            slots: &self.slots,
            found: &self.found,
            names: &self.fields.found,
            scratch: &self.scratch.text,
        });
        Outcome::Accepted
    }

    /// Notes where the wanted values are. Of a repeated key the last one counts (B08).
    fn find(&mut self, nodes: &[Node<'_>]) {
        self.at.fill(0);
        self.found.clear();
        self.new.clear();
        self.scratch.text.clear();
        let Some(Node::Object { len, .. }) = nodes.first() else {
            return;
        };
        let typed = self.layout.typed_discovery;
        let mut key_at = 1;
        for position in 0..*len {
            let Some(Node::String(key)) = nodes.get(key_at) else {
                return;
            };
            let value_at = key_at + 1;
            match self.fields.look_up(position, key) {
                Key::Field(field) => self.at[field as usize] = value_at as u32,
                Key::Unwanted => {}
                Key::Found(number) => {
                    self.found.retain(|(known, _)| *known != number);
                    if let Some(slot) = convert::discovered(nodes, value_at, typed, &mut self.scratch) {
                        self.found.push((number, slot));
                    }
                }
                Key::New => {
                    self.new.retain(|(known, _)| !matches!(nodes.get(*known as usize), Some(Node::String(name)) if name == key));
                    if let Some(slot) = convert::discovered(nodes, value_at, typed, &mut self.scratch) {
                        self.new.push((key_at as u32, slot));
                    }
                }
            }
            key_at = path::after(nodes, value_at);
        }
        for (steps, field) in &self.paths {
            self.at[*field as usize] = path::walk(nodes, steps).unwrap_or(0) as u32;
        }
    }

    fn time(&self, nodes: &[Node<'_>]) -> Result<TimestampMillis, String> {
        let at = self.at[self.time_field as usize] as usize;
        let missing = || self.missing_value.ok_or_else(|| "no timestamp".to_owned());
        let parsed = match nodes.get(at).filter(|_| at > 0) {
            None | Some(Node::Static(StaticNode::Null)) => return missing(),
            Some(Node::String(text)) => self.parser.parse_str(text),
            Some(Node::Static(StaticNode::I64(number))) => self.parser.parse_i64(*number),
            Some(Node::Static(StaticNode::U64(number))) => i64::try_from(*number)
                .map_err(|_| TimestampError::OutOfRange)
                .and_then(|number| self.parser.parse_i64(number)),
            Some(Node::Static(StaticNode::F64(number))) => self.parser.parse_f64(*number),
            Some(Node::Static(StaticNode::Bool(_)) | Node::Object { .. } | Node::Array { .. }) => {
                return Err("neither a number nor text is the time".to_owned());
            }
        };
        match parsed {
            Ok(instant) => Ok(instant),
            Err(TimestampError::Empty) => missing(),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Discovered dimensions become known with the first accepted row that has them.
    fn register_new(&mut self, nodes: &[Node<'_>]) -> Result<(), String> {
        if self.new.is_empty() {
            return Ok(());
        }
        if self.fields.found.len() + self.new.len() > MOST_DISCOVERED {
            return Err(format!(
                "more than {MOST_DISCOVERED} discovered dimensions; list the wanted ones in dimensionsSpec"
            ));
        }
        for (key_at, slot) in self.new.drain(..) {
            if let Some(Node::String(key)) = nodes.get(key_at as usize) {
                self.found.push((self.fields.register(key), slot));
            }
        }
        Ok(())
    }
}

/// Fields that a flattenSpec takes from inside; a field named like a top-level key goes before it (B10).
fn paths(
    json: &JsonFormat,
    fields: &mut Fields,
    sees_all: bool,
    columns: &[Column],
    time_column: &str,
) -> Vec<(Vec<PathStep>, u32)> {
    let mut paths = Vec::new();
    for field in &json.fields {
        let steps = match &field.source {
            FlattenSource::Root(key) if sees_all && *key == field.name => continue,
            FlattenSource::Root(key) => vec![PathStep::Key(key.clone())],
            FlattenSource::Path(steps) => steps.clone(),
        };
        paths.push((steps, fields.number(&field.name)));
    }
    if !sees_all {
        // Only listed fields are seen: all others have a path that leads nowhere.
        let listed: BTreeSet<&str> = json.fields.iter().map(|field| field.name.as_str()).collect();
        let wanted = columns
            .iter()
            .map(|column| column.name.as_str())
            .chain([time_column]);
        for name in wanted.filter(|name| !listed.contains(name)) {
            paths.push((vec![PathStep::Index(0)], fields.number(name)));
        }
    }
    paths
}

fn time_parser(format: &TimestampFormat) -> Result<TimestampParser, DecoderError> {
    Ok(match format {
        TimestampFormat::Auto => TimestampParser::auto(),
        TimestampFormat::Iso => TimestampParser::iso(),
        TimestampFormat::Posix => TimestampParser::posix(),
        TimestampFormat::Millis => TimestampParser::millis(),
        TimestampFormat::Micro => TimestampParser::micro(),
        TimestampFormat::Nano => TimestampParser::nano(),
        TimestampFormat::Ruby => TimestampParser::ruby(),
        TimestampFormat::Pattern(pattern) => {
            TimestampParser::pattern(pattern).map_err(|error| DecoderError::Pattern {
                pattern: pattern.clone(),
                reason: error.to_string(),
            })?
        }
    })
}

fn unparseable(field: &str, reason: String) -> Outcome {
    Outcome::Unparseable(Unparseable {
        field: field.to_owned(),
        reason,
    })
}

fn error_text(error: &simd_json::Error) -> String {
    format!("{:?} at byte {}", error.error(), error.index())
}
