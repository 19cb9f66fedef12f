//! FragPicker, Figure 8a: its file on an Optane SSD with ext4.

use super::{
    error::FigureError, fragpicker::FileSystem, fragpicker_fig08::measure_of, measured::Measured,
    parameters::Parameters,
};

/// See the module.
pub(super) fn measure(parameters: &Parameters) -> Result<Measured, FigureError> {
    measure_of(parameters, FileSystem::Ext4)
}

#[cfg(test)]
mod tests {
    use lfs_sim::calls::Direction;

    use super::super::{
        fragpicker::{FileSystem, System, every},
        fragpicker_fig08::file,
        measured::change,
        source::Figure,
    };

    /// The host's time of a request is the one number that was taken from the gain of sequential reads. It is the same
    /// in all figures of the paper.
    #[test]
    fn the_time_of_a_request_follows_from_the_gain_of_sequential_reads() {
        let root = source_tree::root();
        let figure = Figure::load(root, "fragpicker/fig08-ext4").unwrap();
        let published = |x: &str| {
            let mut values = figure.published.iter();
            let value = values.find(|value| value.x == x.into()).unwrap();
            assert!(value.taken, "{x}");
            value.value
        };
        let wanted = published("sequential read, from before");
        let drive = figure.parameters.text("device").unwrap();
        let system = System::new(&figure.parameters, drive).unwrap();
        let before = file(&figure.parameters, &system, FileSystem::Ext4).unwrap();
        let all = every(system.io_size, system.io_size, before.layout().allocated());
        let after = system.defragment_read(&before, &all).unwrap().ground;
        let read = |ground| system.speed(ground, &all, Direction::Read).unwrap();
        let gain = change(read(&after), read(&before));
        assert!((gain - wanted).abs() < 0.1, "{gain}");
        let taken = figure.parameters.time("request_time").unwrap();
        for other in Figure::all(root).unwrap() {
            if other.name.starts_with("fragpicker/")
                && other.parameters.iter().any(|it| it.0 == "request_time")
            {
                assert_eq!(
                    other.parameters.time("request_time").unwrap(),
                    taken,
                    "{}",
                    other.name
                );
            }
        }
    }
}
