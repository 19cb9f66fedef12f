//! The work that a command is, once it was checked completely, and how the command ends with it.

use std::sync::{Arc, OnceLock};

use flash_model::{Move, Span};
use nvme_wire::{Status, io::BlockRange};

use super::super::send::{Completed, Failed, Permit};
use crate::device::{Device, Failure, NamespaceInfo, Request, RequestResult, Success};

/// The work of one command.
#[derive(Debug)]
pub(super) enum IoWork<'a> {
    /// None: the command ends now.
    Done(Completed),
    /// One request to the device.
    One(Request<'a>, Ending),
    /// Read these bytes; with FUA what is read is made durable first (NVM §3.2.4).
    Read {
        span: Span,
        ending: Ending,
        fua: bool,
    },
    /// Copy, and make it durable if asked for.
    Copy {
        sources: Vec<Span>,
        destination: u64,
        fua: bool,
    },
    /// This many moves, joined where they follow each other, made durable if asked for.
    Migrate {
        moves: Vec<Move>,
        count: u64,
        fua: bool,
    },
    /// Deallocate all of these, durably if asked for.
    Deallocate { spans: Vec<Span>, fua: bool },
    /// Give these handles new reclaim units.
    Renew(Vec<u32>),
    /// Flush all namespaces.
    FlushAll,
}

/// The end of a command whose requests the device has done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// Changed what is stored; with this result.
    Changed(u64),
    /// Written this many bytes for the host.
    Written { len: u64 },
    /// Appended this many bytes to a zone: the result is the first block that was written.
    Appended {
        zone: u64,
        len: u64,
        block_bytes: u64,
    },
    /// Read for the host; durable data only, if asked for.
    Read {
        namespace: usize,
        span: Span,
        durably: bool,
    },
    /// Read, and found equal to the host's data or not.
    Compared { is_equal: bool },
}

impl Ending {
    /// The status for a failure of the store.
    fn media_status(self) -> Status {
        match self {
            Self::Changed(_) | Self::Written { .. } | Self::Appended { .. } => Status::WriteFault,
            Self::Read { .. } | Self::Compared { .. } => Status::UnrecoveredRead,
        }
    }

    fn result(self, success: Success, permit: &Permit) -> Result<Completed, Failed> {
        match self {
            Self::Changed(result) => Ok(Completed::Result(result)),
            Self::Written { len } => {
                permit.backend().device.count_write(len);
                Ok(Completed::Result(0))
            }
            Self::Appended {
                zone,
                len,
                block_bytes,
            } => {
                permit.backend().device.count_write(len);
                let offset = success.wrote_at.unwrap_or(zone);
                Ok(Completed::Result(offset / block_bytes))
            }
            Self::Read {
                namespace,
                span,
                durably,
            } => {
                permit.backend().device.count_read(span.len);
                Ok(Completed::Read {
                    namespace,
                    offset: span.offset,
                    len: span.len as u32,
                    durably,
                })
            }
            Self::Compared { is_equal: true } => Ok(Completed::Result(0)),
            Self::Compared { is_equal: false } => Err(Status::CompareFailure.into()),
        }
    }

    /// End the command. After a power cut the connection ends without an answer.
    fn end(self, permit: Permit, outcome: RequestResult) {
        match outcome {
            Ok(success) => {
                let result = self.result(success, &permit);
                permit.complete(result);
            }
            Err(Failure::PowerLost) => permit.cut_off(),
            Err(failure) => {
                let status = permit.backend().status_of(&failure, self.media_status());
                permit.complete(Err(status.into()));
            }
        }
    }
}

impl IoWork<'_> {
    /// Have the device do it. The command ends when the device says so.
    pub(super) fn run(self, device: &Arc<Device>, namespace: usize, permit: Permit) {
        let changed = Ending::Changed(0);
        match self {
            Self::Done(completed) => permit.complete(Ok(completed)),
            Self::One(request, ending) => submit(device, namespace, &request, ending, permit),
            Self::Read { span, ending, fua } => {
                let Span { offset, len } = span;
                let read = Request::Read { offset, len };
                if fua {
                    let requests = [Request::Flush, read].into_iter();
                    submit_all(device, requests.map(|r| (namespace, r)), ending, permit);
                } else {
                    submit(device, namespace, &read, ending, permit);
                }
            }
            Self::Copy {
                sources,
                destination,
                fua,
            } => {
                let copy = Request::Copy {
                    sources: &sources,
                    destination,
                };
                let flush = fua.then_some(Request::Flush);
                let requests = [copy].into_iter().chain(flush);
                submit_all(device, requests.map(|r| (namespace, r)), changed, permit);
            }
            Self::Migrate { moves, count, fua } => {
                let migrate = Request::Migrate { moves: &moves };
                let flush = fua.then_some(Request::Flush);
                let requests = [migrate].into_iter().chain(flush);
                let ending = Ending::Changed(count);
                submit_all(device, requests.map(|r| (namespace, r)), ending, permit);
            }
            Self::Deallocate { spans, fua } => {
                let flush = fua.then_some(Request::Flush);
                let requests = spans
                    .into_iter()
                    .map(|Span { offset, len }| Request::Deallocate { offset, len })
                    .chain(flush);
                submit_all(device, requests.map(|r| (namespace, r)), changed, permit);
            }
            Self::Renew(handles) => {
                let requests = handles
                    .into_iter()
                    .map(|handle| (namespace, Request::RenewHandle { handle }));
                submit_all(device, requests, changed, permit);
            }
            Self::FlushAll => {
                let requests = (0..device.namespaces().len()).map(|of| (of, Request::Flush));
                submit_all(device, requests, changed, permit);
            }
        }
    }
}

/// One request; the command ends with it.
fn submit(
    device: &Arc<Device>,
    namespace: usize,
    request: &Request<'_>,
    ending: Ending,
    permit: Permit,
) {
    device.submit(namespace, request, move |outcome| {
        ending.end(permit, outcome);
    });
}

/// Several requests; the command ends with the last one, and with the first failure if there is
/// one.
fn submit_all<'a>(
    device: &Arc<Device>,
    requests: impl Iterator<Item = (usize, Request<'a>)>,
    ending: Ending,
    permit: Permit,
) {
    let joint = Arc::new(Joint {
        permit,
        ending,
        failure: OnceLock::new(),
    });
    for (namespace, request) in requests {
        let part = Arc::clone(&joint);
        device.submit(namespace, &request, move |outcome| part.end_part(outcome));
    }
    joint.end_part(Ok(Success::default()));
}

/// The part that the requests of one command share.
#[derive(Debug)]
struct Joint {
    permit: Permit,
    ending: Ending,
    failure: OnceLock<Failure>,
}

impl Joint {
    /// One request is done, or all were submitted. The last owner ends the command:
    /// [`Arc::into_inner`] returns the value to exactly one of them.
    fn end_part(self: Arc<Self>, outcome: RequestResult) {
        if let Err(failure) = outcome {
            let _ = self.failure.set(failure);
        }
        if let Some(joint) = Arc::into_inner(self) {
            let failure = joint.failure.into_inner();
            let outcome = failure.map_or_else(|| Ok(Success::default()), Err);
            joint.ending.end(joint.permit, outcome);
        }
    }
}

/// The bytes of blocks in a namespace.
pub(super) fn span(namespace: &NamespaceInfo, blocks: BlockRange) -> Result<Span, Status> {
    let size = namespace.size_bytes / namespace.block_bytes;
    if blocks.end().is_none_or(|end| end > size) {
        return Err(Status::LbaOutOfRange);
    }
    Ok(Span {
        offset: blocks.start * namespace.block_bytes,
        len: u64::from(blocks.count) * namespace.block_bytes,
    })
}

/// The first byte of a block in a namespace.
pub(super) fn offset_of(namespace: &NamespaceInfo, block: u64) -> Result<u64, Status> {
    let blocks = BlockRange {
        start: block,
        count: 1,
    };
    Ok(span(namespace, blocks)?.offset)
}
