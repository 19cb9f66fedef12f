//! Get Features and Set Features (Base §5.15, §5.27).

use std::sync::atomic::Ordering;

use nvme_wire::{
    Status,
    event::AsyncEvent,
    feature::{CAPABILITY_CHANGEABLE, Feature, HostBehavior, Queues, Select, Timestamp},
};
use zerocopy::IntoBytes;

use super::{
    super::{fdp::handles, limits::IO_QUEUES_MAX, queue::HostQueue, send::Completed},
    placement,
};
use crate::lock::lock;

/// Bytes of the data of a feature that has some.
pub(super) fn data_len(feature: Feature) -> Option<usize> {
    match feature {
        Feature::Timestamp => Some(Timestamp::LEN),
        Feature::HostBehavior => Some(HostBehavior::LEN),
        Feature::HostIdentifier => Some(16),
        _ => None,
    }
}

/// Whether the data comes along: not where only capabilities are asked for.
pub(super) fn has_data(select: Select) -> bool {
    select != Select::Capabilities
}

/// Whether a host can set it.
fn is_changeable(feature: Feature) -> bool {
    matches!(
        feature,
        Feature::VolatileWriteCache
            | Feature::NumberOfQueues
            | Feature::AsyncEventConfiguration
            | Feature::Timestamp
            | Feature::KeepAliveTimer
            | Feature::HostBehavior
            | Feature::DieHints
            | Feature::FdpEvents
    )
}

/// Whether the controller has a feature. A discovery controller has few (Base §3.1.2.3).
pub(super) fn is_there(queue: &HostQueue, feature: Feature) -> bool {
    let for_discovery = matches!(
        feature,
        Feature::AsyncEventConfiguration | Feature::KeepAliveTimer
    );
    let without_cache =
        feature == Feature::VolatileWriteCache && !queue.device().has_volatile_cache();
    let without_fdp = is_fdp(feature) && handles(queue.device()) == 0;
    !matches!(feature, Feature::Unknown(_))
        && !without_cache
        && !without_fdp
        && (for_discovery || !queue.controller.is_discovery)
}

/// Whether a feature is one of Flexible Data Placement.
const fn is_fdp(feature: Feature) -> bool {
    matches!(feature, Feature::FlexibleDataPlacement | Feature::FdpEvents)
}

/// The value of a feature, as the end of the command.
pub(super) fn get(
    queue: &HostQueue,
    feature: Feature,
    select: Select,
    value: u32,
) -> Result<Completed, Status> {
    if !is_there(queue, feature) {
        return Err(Status::InvalidField);
    }
    let is_default = match select {
        Select::Current => false,
        // Nothing outlives a reset but the defaults.
        Select::Default | Select::Saved => true,
        Select::Capabilities => {
            let changeable = is_changeable(feature);
            let bits = if changeable { CAPABILITY_CHANGEABLE } else { 0 };
            return Ok(Completed::Result(bits.into()));
        }
        Select::Unknown(_) => return Err(Status::InvalidField),
    };
    let settings = &queue.controller.settings;
    let number = |current: u32, default: u32| {
        let value = if is_default { default } else { current };
        Ok(Completed::Result(value.into()))
    };
    match feature {
        Feature::VolatileWriteCache => {
            number(settings.write_cache.load(Ordering::Acquire).into(), 1)
        }
        Feature::NumberOfQueues => {
            let queues = |count| Queues {
                submission: count,
                completion: count,
            };
            number(
                queues(queue.controller.io_queues()).raw(),
                queues(IO_QUEUES_MAX).raw(),
            )
        }
        Feature::AsyncEventConfiguration => {
            number(settings.event_configuration.load(Ordering::Acquire), 0)
        }
        Feature::KeepAliveTimer => number(queue.controller.keep_alive.timeout_ms(), 0),
        Feature::DieHints => number(settings.hints().into(), 0),
        Feature::Timestamp => Ok(Completed::Data(settings.timestamp().as_bytes().to_vec())),
        Feature::HostBehavior => {
            let behavior = *lock(&settings.behavior);
            Ok(Completed::Data(behavior.as_bytes().to_vec()))
        }
        // 128 bits are the only size over Fabrics (EXHID).
        Feature::HostIdentifier if value & 1 == 0 => Err(Status::HostIdInconsistent),
        Feature::HostIdentifier => Ok(Completed::Data(queue.controller.host_id.to_vec())),
        // Never set: no thresholds, limits or bursts.
        Feature::Arbitration
        | Feature::PowerManagement
        | Feature::ErrorRecovery
        | Feature::WriteAtomicity
        | Feature::CommandSetProfile => Ok(Completed::Result(0)),
        Feature::TemperatureThreshold => Ok(Completed::Result(343)),
        Feature::FlexibleDataPlacement => placement::enabled(value),
        // `placement` answers for these.
        Feature::FdpEvents => Err(Status::InvalidField),
        Feature::Unknown(_) => Err(Status::InvalidField),
    }
}

/// Set a feature; the result of the command.
pub(super) fn set(
    queue: &HostQueue,
    feature: Feature,
    save: bool,
    value: u32,
    data: &[u8],
) -> Result<u64, Status> {
    if !is_there(queue, feature) {
        return Err(Status::InvalidField);
    }
    if save {
        return Err(Status::FeatureNotSaveable);
    }
    let settings = &queue.controller.settings;
    match feature {
        Feature::VolatileWriteCache => {
            queue
                .controller
                .set_write_cache(value & 1 != 0, queue.device())
                .map_err(|failure| queue.backend().status_of(&failure, Status::WriteFault))?;
            Ok(0)
        }
        Feature::NumberOfQueues => set_queues(queue, value),
        Feature::AsyncEventConfiguration => {
            let known = known_events(queue.controller.is_discovery);
            settings
                .event_configuration
                .store(value & known, Ordering::Release);
            Ok(0)
        }
        Feature::KeepAliveTimer => {
            queue.controller.keep_alive.set_timeout_ms(value);
            Ok(0)
        }
        Feature::DieHints => {
            if value & !1 != 0 {
                return Err(Status::InvalidField);
            }
            settings.die_hints.store(value != 0, Ordering::Release);
            Ok(0)
        }
        Feature::Timestamp => {
            let timestamp = Timestamp::first_of(data).ok_or(Status::SglLengthInvalid)?;
            settings.set_timestamp(&timestamp);
            Ok(0)
        }
        Feature::HostBehavior => {
            let behavior = HostBehavior::first_of(data).ok_or(Status::SglLengthInvalid)?;
            // Formats 2h and 3h can be enabled; there are no others.
            if behavior.copy_formats.get() & !0b1100 != 0 {
                return Err(Status::InvalidField);
            }
            *lock(&settings.behavior) = behavior;
            Ok(0)
        }
        // There is one combination of I/O command sets, the first one.
        Feature::CommandSetProfile if value & 0x1FF == 0 => Ok(0),
        Feature::CommandSetProfile => Err(Status::CommandSetCombinationRejected),
        // Connect has set it, for good.
        Feature::HostIdentifier => Err(Status::SequenceError),
        // `placement` sets these.
        Feature::FlexibleDataPlacement | Feature::FdpEvents => Err(Status::InvalidField),
        Feature::Arbitration
        | Feature::PowerManagement
        | Feature::TemperatureThreshold
        | Feature::ErrorRecovery
        | Feature::WriteAtomicity => Err(Status::FeatureNotChangeable),
        Feature::Unknown(_) => Err(Status::InvalidField),
    }
}

/// Events that a host can ask for: bits of OAES, and those of SMART.
fn known_events(is_discovery: bool) -> u32 {
    if is_discovery {
        AsyncEvent::DiscoveryChanged.enabled_by()
    } else {
        AsyncEvent::NamespaceChanged.enabled_by() | AsyncEvent::Reliability.enabled_by()
    }
}

/// Number of Queues (Base §5.27.1.5): before the first I/O queue is connected.
fn set_queues(queue: &HostQueue, value: u32) -> Result<u64, Status> {
    let wanted = Queues::from_raw(value);
    if wanted.submission > 0xFFFF || wanted.completion > 0xFFFF {
        return Err(Status::InvalidField);
    }
    let count = wanted.submission.min(wanted.completion).min(IO_QUEUES_MAX);
    if queue.controller.has_io_queues() {
        return Err(Status::SequenceError);
    }
    queue
        .controller
        .settings
        .io_queues
        .store(count, Ordering::Release);
    let granted = Queues {
        submission: count,
        completion: count,
    };
    Ok(granted.raw().into())
}
