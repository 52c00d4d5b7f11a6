//! Granularity as it is written in documents: a name, an ISO period, or an object with `type`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{DurationGranularity, Granularity, PeriodGranularity, Step};
use crate::civil::DAY;
use crate::period::{IsoPeriod, PeriodError, format_period_millis};
use crate::time::TimestampMillis;
use crate::zone::{UnknownZone, Zone};

/// Why a document is no granularity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GranularityError {
    #[error(
        "granularity {text:?} is unknown: give one of {known}, an ISO-8601 period, or an object with `type`"
    )]
    UnknownName { text: String, known: String },
    #[error("granularity type {text:?} is unknown: it is `period`, `duration`, `none` or `all`")]
    UnknownType { text: String },
    #[error("a granularity is a text or an object with `type`, not {found}")]
    WrongShape { found: &'static str },
    #[error("a granularity of type `{kind}` needs `{field}`")]
    Missing { kind: &'static str, field: &'static str },
    #[error("`{field}` of a granularity must be {wanted}")]
    WrongField {
        field: &'static str,
        wanted: &'static str,
    },
    #[error("a granularity of type `{kind}` has no field `{field}`")]
    UnknownField { kind: &'static str, field: String },
    #[error(transparent)]
    Period(#[from] PeriodError),
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    #[error("the period {text} cannot be a granularity: {reason}")]
    UnusablePeriod { text: String, reason: &'static str },
    #[error(
        "a granularity of {millis} ms is not possible: it must be at least 1 ms and at most 10,000 years"
    )]
    UnusableDuration { millis: i64 },
}

impl Granularity {
    /// Reads `"HOUR"`, `"PT1H"`, `{"type": "period", "period": "P1D", "timeZone": "Europe/Paris", "origin": null}`,
    /// `{"type": "duration", "duration": 3600000, "origin": "2020-01-01"}`, `{"type": "none"}`, `{"type": "all"}`.
    pub fn from_json(document: &Value) -> Result<Self, GranularityError> {
        match document {
            Value::String(text) => Self::from_text(text),
            Value::Object(fields) => Self::from_object(fields),
            Value::Null => Err(GranularityError::WrongShape { found: "null" }),
            Value::Bool(_) => Err(GranularityError::WrongShape { found: "a boolean" }),
            Value::Number(_) => Err(GranularityError::WrongShape { found: "a number" }),
            Value::Array(_) => Err(GranularityError::WrongShape { found: "a list" }),
        }
    }

    /// A name in any case, or an ISO period in UTC.
    pub fn from_text(text: &str) -> Result<Self, GranularityError> {
        let text = text.trim();
        if let Some(named) = Self::from_name(text) {
            return Ok(named);
        }
        if let Ok(period) = IsoPeriod::parse(text) {
            return Self::period(period, Zone::utc(), None);
        }
        let known = Self::names().collect::<Vec<_>>().join(", ");
        Err(GranularityError::UnknownName {
            text: text.chars().take(64).collect(),
            known,
        })
    }

    fn from_object(fields: &Map<String, Value>) -> Result<Self, GranularityError> {
        let kind = match fields.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(_) => {
                return Err(GranularityError::WrongField {
                    field: "type",
                    wanted: "a text",
                });
            }
            None => {
                return Err(GranularityError::Missing {
                    kind: "object",
                    field: "type",
                });
            }
        };
        let only = |kind: &'static str, known: &[&str]| match fields
            .keys()
            .find(|key| *key != "type" && !known.contains(&key.as_str()))
        {
            Some(field) => Err(GranularityError::UnknownField {
                kind,
                field: field.clone(),
            }),
            None => Ok(()),
        };
        match kind.to_ascii_lowercase().as_str() {
            "none" => only("none", &[]).map(|()| Self::None),
            "all" => only("all", &[]).map(|()| Self::All),
            "period" => {
                only("period", &["period", "timeZone", "origin"])?;
                let period =
                    text_field(fields, "period", "an ISO-8601 period")?.ok_or(GranularityError::Missing {
                        kind: "period",
                        field: "period",
                    })?;
                let zone = match text_field(fields, "timeZone", "the name of a time zone")? {
                    Some(name) => Zone::parse(name)?,
                    None => Zone::utc(),
                };
                Self::period(IsoPeriod::parse(period)?, zone, origin(fields)?)
            }
            "duration" => {
                only("duration", &["duration", "origin"])?;
                let wanted = "a number of milliseconds";
                let millis = match fields.get("duration") {
                    None | Some(Value::Null) => {
                        return Err(GranularityError::Missing {
                            kind: "duration",
                            field: "duration",
                        });
                    }
                    Some(Value::Number(number)) => number.as_i64(),
                    Some(Value::String(text)) => text.trim().parse().ok(),
                    Some(_) => None,
                };
                let millis = millis.ok_or(GranularityError::WrongField {
                    field: "duration",
                    wanted,
                })?;
                Self::duration(millis, origin(fields)?.unwrap_or_default())
            }
            _ => Err(GranularityError::UnknownType {
                text: kind.chars().take(64).collect(),
            }),
        }
    }

    /// The name where there is one, else the object; [`Granularity::from_json`] reads it back as an equal value.
    pub fn to_json(&self) -> Value {
        if let Some(name) = self.name() {
            return Value::String(name.to_owned());
        }
        match self {
            Self::Period(period) => json!({
                "type": "period",
                "period": period.text(),
                "timeZone": period.zone.name(),
                "origin": period.origin.map(|origin| origin.to_string()),
            }),
            Self::Duration(DurationGranularity { millis, origin }) => json!({
                "type": "duration",
                "duration": millis,
                "origin": origin.to_string(),
            }),
            // Every other one has a name.
            _ => Value::Null,
        }
    }
}

impl PeriodGranularity {
    fn text(&self) -> String {
        match self.step {
            Step::Months(months) if months % 12 == 0 => format!("P{}Y", months / 12),
            Step::Months(months) => format!("P{months}M"),
            Step::Weeks(weeks) => format!("P{weeks}W"),
            Step::Days(days) => format!("P{days}D"),
            // Whole days as hours: P1D would be a calendar day.
            Step::Millis(millis) if millis % DAY == 0 => format!("PT{}H", millis / (DAY / 24)),
            Step::Millis(millis) => format_period_millis(millis.unsigned_abs()),
        }
    }
}

fn text_field<'a>(
    fields: &'a Map<String, Value>,
    field: &'static str,
    wanted: &'static str,
) -> Result<Option<&'a str>, GranularityError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(GranularityError::WrongField { field, wanted }),
    }
}

fn origin(fields: &Map<String, Value>) -> Result<Option<TimestampMillis>, GranularityError> {
    let instant = match fields.get("origin") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(millis)) => millis.as_i64().map(TimestampMillis),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    match instant {
        Some(instant) if instant.is_in_range() => Ok(Some(instant)),
        _ => Err(GranularityError::WrongField {
            field: "origin",
            wanted: "an ISO-8601 time between the years -9998 and 9999",
        }),
    }
}

impl Serialize for Granularity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Granularity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Value::deserialize(deserializer)?;
        Self::from_json(&document).map_err(serde::de::Error::custom)
    }
}
