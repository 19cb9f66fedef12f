//! Asynchronous events of a controller (Base §5.2), and the requests that wait for them.

use std::collections::{BTreeSet, VecDeque};

use nvme_wire::{event::AsyncEvent, log::LogPage};

use super::limits::EVENT_REQUESTS_MAX;

/// Events and requests that have not met yet. `R` answers a request.
#[derive(Debug)]
pub(super) struct Events<R> {
    /// Asynchronous Event Requests with their CIDs.
    requests: VecDeque<(u16, R)>,
    /// Events of which the host does not know yet.
    waiting: VecDeque<AsyncEvent>,
    /// Events that the host knows, and whose log page it has not read since: another one of the
    /// same kind waits for that.
    masked: Vec<AsyncEvent>,
    /// Namespaces for the Changed Namespace List.
    changed_namespaces: BTreeSet<u32>,
}

impl<R> Default for Events<R> {
    fn default() -> Self {
        Self {
            requests: VecDeque::new(),
            waiting: VecDeque::new(),
            masked: Vec::new(),
            changed_namespaces: BTreeSet::new(),
        }
    }
}

impl<R> Events<R> {
    /// Keep a request until there is an event; return it if there are too many.
    pub(super) fn request(&mut self, cid: u16, request: R) -> Result<(), R> {
        if self.requests.len() >= EVENT_REQUESTS_MAX {
            return Err(request);
        }
        self.requests.push_back((cid, request));
        Ok(())
    }

    /// Take out the request with this CID, if it is one.
    pub(super) fn abort(&mut self, cid: u16) -> Option<R> {
        let at = self.requests.iter().position(|&(of, _)| of == cid)?;
        self.requests.remove(at).map(|(_, request)| request)
    }

    /// Add an event, unless it waits already.
    pub(super) fn raise(&mut self, event: AsyncEvent) {
        if !self.waiting.contains(&event) {
            self.waiting.push_back(event);
        }
    }

    /// Note that a namespace has changed.
    pub(super) fn namespace_changed(&mut self, nsid: u32) {
        self.changed_namespaces.insert(nsid);
        self.raise(AsyncEvent::NamespaceChanged);
    }

    /// Take a request and the event that answers it, if there are both.
    pub(super) fn next(&mut self) -> Option<(R, AsyncEvent)> {
        if self.requests.is_empty() {
            return None;
        }
        let at = self
            .waiting
            .iter()
            .position(|event| !self.masked.contains(event))?;
        let event = self.waiting.remove(at)?;
        self.masked.push(event);
        let (_, request) = self.requests.pop_front()?;
        Some((request, event))
    }

    /// A host has read a log page without RAE: the next event of its kind may be reported.
    pub(super) fn read(&mut self, page: LogPage) {
        self.masked.retain(|event| event.log_page() != page);
        if page == LogPage::ChangedNamespaces {
            self.changed_namespaces.clear();
        }
    }

    pub(super) fn changed_namespaces(&self) -> impl Iterator<Item = u32> {
        self.changed_namespaces.iter().copied()
    }

    /// A reset: forget all events, and hand out the requests.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = R> + use<R> {
        let before = std::mem::take(self);
        before.requests.into_iter().map(|(_, request)| request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_once_until_its_page_is_read() {
        let mut events = Events::default();
        events.namespace_changed(3);
        assert_eq!(events.next(), None);
        assert!(events.request(1, 1).is_ok() && events.request(2, 2).is_ok());
        assert_eq!(events.next(), Some((1, AsyncEvent::NamespaceChanged)));
        events.namespace_changed(4);
        assert_eq!(events.next(), None);
        assert!(events.changed_namespaces().eq([3, 4]));
        events.read(LogPage::ChangedNamespaces);
        assert_eq!(events.changed_namespaces().count(), 0);
        assert_eq!(events.next(), Some((2, AsyncEvent::NamespaceChanged)));
        assert!(events.request(5, 5).is_ok());
        assert_eq!((events.abort(5), events.abort(5)), (Some(5), None));
        for cid in 0..EVENT_REQUESTS_MAX as u16 {
            assert!(events.request(cid, cid).is_ok());
        }
        assert_eq!(events.request(99, 99), Err(99));
    }
}
