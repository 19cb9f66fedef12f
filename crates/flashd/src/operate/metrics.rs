//! Counters for Prometheus (text exposition format 0.0.4), over HTTP on a loopback address.

use std::{fmt::Write as _, net::SocketAddr, sync::Arc};

use metrics_server::{Address, Server};
use serde_json::Value;

use super::error::OperateError;
use crate::device::{Device, DeviceStats};

const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answer at `address` for as long as the device lives.
pub(super) fn serve(address: SocketAddr, device: &Arc<Device>) -> Result<(), OperateError> {
    let device = Arc::downgrade(device);
    let text = move || Some(exposition(&device.upgrade()?.stats()));
    // A port leaves nothing behind that would have to be removed.
    Server::start(&Address::Loopback(address), MEDIA_TYPE, text)
        .map(drop)
        .map_err(OperateError::Metrics)
}

/// All numbers of the statistics. The model's have the names that they have in `stats --json`;
/// lists of numbers (dies, channels) get a label.
pub(super) fn exposition(stats: &DeviceStats) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, labels: &str, value: f64| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "flashd_{name}{labels} {value}");
    };
    gauge("time_scale", "", stats.time_scale);
    gauge("uptime_seconds", "", stats.uptime_ns.get() as f64 / 1e9);
    gauge("power_cuts_total", "", stats.power_cuts as f64);
    gauge("write_amplification", "", stats.write_amplification);
    gauge("die_utilisation", "", stats.die_utilisation);
    for namespace in &stats.namespaces {
        let labels = format!(
            "{{namespace=\"{}\",kind=\"{}\"}}",
            namespace.id, namespace.kind
        );
        gauge("namespace_size_bytes", &labels, namespace.size_bytes as f64);
        gauge("namespace_used_bytes", &labels, namespace.used_bytes as f64);
        gauge(
            "namespace_volatile_bytes",
            &labels,
            namespace.volatile_bytes as f64,
        );
        gauge(
            "namespace_healthy",
            &labels,
            f64::from(u8::from(namespace.healthy)),
        );
    }
    gauge("answers_total", "", stats.lateness.answers as f64);
    for (quantile, late) in [
        ("0.5", stats.lateness.p50_ns),
        ("0.9", stats.lateness.p90_ns),
        ("0.99", stats.lateness.p99_ns),
        ("0.999", stats.lateness.p999_ns),
        ("1", stats.lateness.worst_ns),
    ] {
        let labels = format!("{{quantile=\"{quantile}\"}}");
        gauge("lateness_seconds", &labels, late.get() as f64 / 1e9);
    }
    let model = serde_json::to_value(&stats.model).unwrap_or(Value::Null);
    numbers("model", &model, &mut gauge);
    text
}

fn numbers(name: &str, value: &Value, gauge: &mut impl FnMut(&str, &str, f64)) {
    match value {
        Value::Number(number) => gauge(name, "", number.as_f64().unwrap_or(f64::NAN)),
        Value::Object(fields) => {
            for (field, value) in fields {
                numbers(&format!("{name}_{field}"), value, gauge);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Value::Number(number) = item {
                    let labels = format!("{{index=\"{index}\"}}");
                    gauge(name, &labels, number.as_f64().unwrap_or(f64::NAN));
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
