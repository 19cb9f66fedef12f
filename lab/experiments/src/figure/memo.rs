//! Results that several figures need, each computed once.

use std::sync::{Arc, Mutex, PoisonError};

/// Where a result will be; locked while it is computed.
type Place<V> = Arc<Mutex<Option<Arc<V>>>>;

/// The results of a pure function by its argument, until the process ends. Who asks for one that another thread
/// computes waits for it.
pub(super) struct Memo<K, V> {
    places: Mutex<Vec<(K, Place<V>)>>,
}

impl<K: PartialEq, V> Memo<K, V> {
    /// Nothing was computed yet.
    pub(super) const fn new() -> Self {
        Self {
            places: Mutex::new(Vec::new()),
        }
    }

    /// The result for `key`, which `compute` computes if nobody has yet.
    ///
    /// # Errors
    ///
    /// That of `compute`; it is not kept.
    pub(super) fn get<E>(
        &self,
        key: K,
        compute: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let place = self.place(key);
        // A place is filled when a result is whole: what a panic leaves is empty.
        let mut result = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = &*result {
            return Ok(Arc::clone(result));
        }
        let computed = Arc::new(compute()?);
        *result = Some(Arc::clone(&computed));
        Ok(computed)
    }

    fn place(&self, key: K) -> Place<V> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = places.iter().find(|(known, _)| *known == key) {
            return Arc::clone(place);
        }
        let place = Place::default();
        places.push((key, Arc::clone(&place)));
        place
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn a_result_is_computed_once_and_a_failure_is_not_kept() {
        static SQUARES: Memo<u32, u32> = Memo::new();
        assert_eq!(SQUARES.get(3, || Err("busy")), Err("busy"));
        let computed = AtomicU32::new(0);
        thread::scope(|scope| {
            for key in [3, 4, 3, 3] {
                let computed = &computed;
                scope.spawn(move || {
                    let square = SQUARES.get(key, || {
                        computed.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, ()>(key * key)
                    });
                    assert_eq!(square.map(|it| *it), Ok(key * key));
                });
            }
        });
        assert_eq!(computed.into_inner(), 2);
    }
}
