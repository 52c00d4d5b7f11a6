//! Wiki-edit events as one meets them: nested and non-ASCII values, some tombstones, some records that are no event.
//!
//! Promises: the same settings give the same bytes, on every machine and in every version (a change of them changes
//! published totals, and so is a change of the generator's version). It knows its own totals, counted while making
//! the events and not by reading them back.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;
use tidegate_types::{PartitionId, TimestampMillis};

/// 2025-06-01T00:00:00Z.
const FIRST_INSTANT: i64 = 1_748_736_000_000;
const HOUR_MILLIS: i64 = 3_600_000;

/// What to make.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorSettings {
    pub seed: u64,
    /// Records, tombstones and bad ones included.
    pub events: u64,
    pub partitions: u16,
    /// The events are spread over so many hours.
    pub hours: u16,
}

impl Default for GeneratorSettings {
    fn default() -> Self {
        Self {
            seed: 1,
            events: 100_000,
            partitions: 4,
            hours: 6,
        }
    }
}

/// One record for Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Record timestamp.
    pub timestamp: TimestampMillis,
}

/// What all generated events add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records of every kind.
    pub records: u64,
    /// Records that are an event.
    pub rows: u64,
    pub tombstones: u64,
    /// Records that are no event: cut off, no JSON, not UTF-8, or without a usable time.
    pub unparseable: u64,
    pub added: i64,
    pub deleted: i64,
    pub delta: i64,
    /// Events whose comment has a character outside ASCII.
    pub non_ascii_comments: u64,
    /// Events per hour, by its first instant.
    pub rows_per_hour: BTreeMap<TimestampMillis, u64>,
    /// Records per partition, which on an empty topic are its end offsets.
    pub records_per_partition: BTreeMap<PartitionId, u64>,
}

/// Makes the records in order; an iterator.
#[derive(Debug, Clone)]
pub struct Generator {
    settings: GeneratorSettings,
    random: SplitMix64,
    totals: Totals,
}

impl Generator {
    pub fn new(settings: GeneratorSettings) -> Self {
        Self {
            settings,
            random: SplitMix64(settings.seed),
            totals: Totals::default(),
        }
    }

    /// Totals of what was made so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    fn event(&mut self, instant: i64) -> Vec<u8> {
        let language = self.random.pick(&LANGUAGES);
        let added = if self.random.one_in(3) {
            0
        } else {
            self.random.long_tail(4000)
        };
        let deleted = if self.random.one_in(2) {
            0
        } else {
            self.random.long_tail(2500)
        };
        let anonymous = self.random.one_in(6);
        let mut comment = self.random.pick(language.comments).to_string();
        if self.random.one_in(4) {
            // No error is possible when writing into a text.
            let _ = write!(comment, " [[{}]]", self.random.pick(language.pages));
        }
        let user = if anonymous {
            format!("192.0.2.{}", self.random.below(256))
        } else {
            format!("{}{}", self.random.pick(&USERS), self.random.below(400))
        };
        let place = anonymous.then(|| self.random.pick(&PLACES));
        let event = json!({
            "time": TimestampMillis(instant).to_string(),
            "channel": format!("#{}.wikipedia", language.code),
            "namespace": self.random.pick(&NAMESPACES),
            "page": self.random.pick(language.pages),
            "user": user,
            "comment": comment,
            "isAnonymous": anonymous,
            "isRobot": self.random.one_in(3),
            "isNew": self.random.one_in(20),
            "geo": place.map(|(country, city, latitude, longitude)| json!({
                "country": country, "city": city, "at": [latitude, longitude],
            })),
            "revision": {"from": 680_000_000_u64 + self.random.below(9_000_000), "minor": self.random.one_in(4)},
            "added": added,
            "deleted": deleted,
            "delta": added - deleted,
        });
        self.totals.rows += 1;
        self.totals.added += added;
        self.totals.deleted += deleted;
        self.totals.delta += added - deleted;
        self.totals.non_ascii_comments += u64::from(!comment.is_ascii());
        let hour = TimestampMillis(instant - instant.rem_euclid(HOUR_MILLIS));
        *self.totals.rows_per_hour.entry(hour).or_default() += 1;
        event.to_string().into_bytes()
    }

    fn no_event(&mut self, instant: i64) -> Vec<u8> {
        self.totals.unparseable += 1;
        match self.random.below(5) {
            0 => format!(
                "{{\"time\":\"{}\",\"channel\":\"#en.wiki",
                TimestampMillis(instant)
            )
            .into_bytes(),
            1 => b"502 Bad Gateway".to_vec(),
            2 => b"{\"time\":\"2025-06-01T00:00:00Z\",\"page\":\"\xff\xfe\"}".to_vec(),
            3 => b"{\"time\":\"yesterday\",\"channel\":\"#en.wikipedia\",\"added\":1}".to_vec(),
            _ => b"{\"channel\":\"#en.wikipedia\",\"added\":1,\"deleted\":0,\"delta\":1}".to_vec(),
        }
    }
}

impl Iterator for Generator {
    type Item = Generated;

    fn next(&mut self) -> Option<Generated> {
        let GeneratorSettings {
            events,
            partitions,
            hours,
            ..
        } = self.settings;
        let index = self.totals.records;
        if index >= events {
            return None;
        }
        let span = i64::from(hours.max(1)) * HOUR_MILLIS;
        // In order of time, but not quite, as from several producers.
        let position = i128::from(span - 1) * i128::from(index) / i128::from(events.max(1));
        let jitter = self.random.below(120_000) as i64 - 60_000;
        let instant = FIRST_INSTANT + (position as i64 + jitter).clamp(0, span - 1);
        let key = format!("{:08x}", self.random.below(1 << 32)).into_bytes();
        let partition = PartitionId(self.random.below(u64::from(partitions.max(1))) as i32);
        self.totals.records += 1;
        *self.totals.records_per_partition.entry(partition).or_default() += 1;
        let value = match self.random.below(1000) {
            0..5 => {
                self.totals.tombstones += 1;
                None
            }
            5..12 => Some(self.no_event(instant)),
            _ => Some(self.event(instant)),
        };
        Some(Generated {
            partition,
            key,
            value,
            timestamp: TimestampMillis(instant),
        })
    }
}

/// A small generator whose numbers are frozen here, unlike those of a library.
#[derive(Debug, Clone, Copy)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
    /// In `0..bound`; the bias is far below what anybody would notice.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        // A product of two draws prefers the first ones, as real pages and languages do.
        let bound = choices.len() as u64;
        let index = self.below(bound) * self.below(bound) / bound;
        &choices[index as usize]
    }
    /// Mostly small, sometimes large.
    fn long_tail(&mut self, most: u64) -> i64 {
        let width = 1 + self.below(most);
        let narrow = 1 + self.below(width);
        self.below(narrow) as i64
    }
}

struct Language {
    code: &'static str,
    pages: &'static [&'static str],
    comments: &'static [&'static str],
}

const LANGUAGES: [Language; 6] = [
    Language {
        code: "en",
        pages: &[
            "Talk:Oswald Tilghman",
            "List of lighthouses",
            "Tide",
            "Naïve set theory",
            "Canal lock",
        ],
        comments: &[
            "added project",
            "/* History */ copy edit",
            "Reverted 1 edit",
            "typo",
            "new section: “Sources”",
        ],
    },
    Language {
        code: "de",
        pages: &[
            "Gezeiten",
            "Schleuse",
            "Übersicht der Häfen",
            "Straße von Messina",
        ],
        comments: &[
            "Rechtschreibung",
            "/* Geschichte */ ergänzt",
            "Änderung rückgängig gemacht",
            "kürzer gefasst",
        ],
    },
    Language {
        code: "fr",
        pages: &["Marée", "Écluse", "Détroit de Gibraltar", "Phare d'Ar-Men"],
        comments: &[
            "mise à jour",
            "correction d'accord",
            "/* Géographie */ précisé",
            "révoqué",
        ],
    },
    Language {
        code: "ja",
        pages: &["潮汐", "閘門", "灯台の一覧", "瀬戸内海"],
        comments: &["誤字修正", "/* 歴史 */ 加筆", "出典を追加", "rv"],
    },
    Language {
        code: "ru",
        pages: &["Прилив", "Шлюз", "Список маяков"],
        comments: &["исправлена опечатка", "/* История */ дополнение", "отмена правки"],
    },
    Language {
        code: "vi",
        pages: &["Thủy triều", "Âu thuyền", "Hải đăng 🗼"],
        comments: &["sửa lỗi chính tả", "thêm nguồn", "lùi sửa"],
    },
];

const NAMESPACES: [&str; 4] = ["Main", "Talk", "User", "Wikipedia"];
const USERS: [&str; 6] = ["GELongstreet", "PereBot", "Łukasz", "水夫", "Åsa", "Olga"];
const PLACES: [(&str, &str, f64, f64); 5] = [
    ("US", "Annapolis", 38.97, -76.49),
    ("DE", "Lübeck", 53.87, 10.69),
    ("FR", "Saint-Malo", 48.65, -2.03),
    ("JP", "尾道市", 34.41, 133.2),
    ("BR", "São Luís", -2.53, -44.3),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn run(settings: GeneratorSettings) -> (Vec<Generated>, Totals) {
        let mut generator = Generator::new(settings);
        let records: Vec<Generated> = generator.by_ref().collect();
        (records, generator.totals().clone())
    }

    #[test]
    fn the_totals_are_those_of_the_records() {
        let (records, totals) = run(GeneratorSettings {
            events: 20_000,
            ..GeneratorSettings::default()
        });
        let mut counted = Totals::default();
        for record in &records {
            counted.records += 1;
            *counted.records_per_partition.entry(record.partition).or_default() += 1;
            let Some(value) = &record.value else {
                counted.tombstones += 1;
                continue;
            };
            let event: Option<serde_json::Value> = serde_json::from_slice(value).ok();
            let Some((event, time)) = event.and_then(|event| {
                let time: Option<jiff_free::Instant> = event["time"].as_str().and_then(jiff_free::parse);
                time.map(|time| (event, time))
            }) else {
                counted.unparseable += 1;
                continue;
            };
            counted.rows += 1;
            counted.added += event["added"].as_i64().unwrap();
            counted.deleted += event["deleted"].as_i64().unwrap();
            counted.delta += event["delta"].as_i64().unwrap();
            counted.non_ascii_comments += u64::from(!event["comment"].as_str().unwrap().is_ascii());
            let hour = FIRST_INSTANT + time.hour * HOUR_MILLIS;
            *counted.rows_per_hour.entry(TimestampMillis(hour)).or_default() += 1;
        }
        assert_eq!(counted, totals);
        assert!(
            totals.tombstones > 50 && totals.unparseable > 80 && totals.non_ascii_comments > 1000,
            "{totals:?}"
        );
        assert_eq!(totals.rows_per_hour.len(), 6);
        assert_eq!(totals.records_per_partition.len(), 4);
    }

    /// Just enough to read the generator's own times without its code.
    mod jiff_free {
        pub(super) struct Instant {
            pub(super) hour: i64,
        }
        pub(super) fn parse(text: &str) -> Option<Instant> {
            let clock = text.strip_prefix("2025-06-01T")?.strip_suffix('Z')?;
            let hour = clock.split(':').next()?.parse().ok()?;
            Some(Instant { hour })
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let settings = GeneratorSettings {
            events: 500,
            ..GeneratorSettings::default()
        };
        assert_eq!(run(settings).0, run(settings).0);
        assert_ne!(run(settings).0, run(GeneratorSettings { seed: 2, ..settings }).0);
    }

    /// Frozen: another value here means that published totals of a seed have changed.
    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
