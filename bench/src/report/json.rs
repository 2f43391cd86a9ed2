//! The whole run as JSON.

use serde_json::{Value, json};

use crate::bars::Bar;
use crate::figures::Measurement;
use crate::subjects::Role;

pub(crate) fn json(measurements: &[Measurement], bars: &[Bar], about: &Value) -> Value {
    let of_measurement = |measurement: &Measurement| {
        let rows = measurement.rows.iter().map(|row| {
            json!({
                "subject": row.name,
                "role": match row.role {
                    Role::Floor => "floor",
                    Role::Ours => "ours",
                    Role::Other => "other",
                },
                "p50": row.p50(),
                "p99": row.has_tail().then(|| row.p99()),
                "rounds": row.medians(),
            })
        });
        json!({
            "id": measurement.id,
            "title": measurement.title,
            "unit": measurement.unit.name(),
            "less_is_better": measurement.unit.less_is_better(),
            "rows": rows.collect::<Vec<_>>(),
        })
    };
    let measurements: Vec<Value> = measurements.iter().map(of_measurement).collect();
    json!({ "about": about, "measurements": measurements, "bars": bars })
}
